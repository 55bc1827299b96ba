"""A mixture of experts; scatter and gather idioms."""

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class MoE(nn.Module):
    def __init__(self, d=8, E=4, k=2):
        super().__init__()
        self.gate = nn.Linear(d, E, bias=False)
        self.k, self.E = k, E
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(approximate="tanh"), nn.Linear(2 * d, d)) for _ in range(E)]
        )

    def forward(self, x):
        b, t, d = x.shape
        h = x.view(-1, d)
        logits = self.gate(h)
        rw = F.softmax(logits, dim=1, dtype=st.float)
        rw, sel = st.topk(rw, self.k, dim=-1)
        rw /= rw.sum(dim=-1, keepdim=True)
        rw = rw.to(h.dtype)
        final = st.zeros((b * t, d), dtype=h.dtype, device=h.device)
        em = F.one_hot(sel, num_classes=self.E).permute(2, 1, 0)
        for e in range(self.E):
            idx, top_x = st.where(em[e])
            if top_x.shape[0] == 0:
                continue
            cur = h[None, top_x].reshape(-1, d)
            o = self.experts[e](cur) * rw[top_x, idx, None]
            final.index_add_(0, top_x, o.to(h.dtype))
        dens = F.one_hot(sel, self.E).float().mean((0, 1))
        aux = self.E * (dens * F.softmax(logits, -1).mean(0)).sum()
        return final.reshape(b, t, d), aux


m = fill(MoE(), 0, 0.4)
x = st.from_numpy(F32(2, 5, 8))
opt = st.optim.Adam(m.parameters(), 1e-2)
for i in range(3):
    y, aux = m(x)
    l = y.square().mean() + 0.1 * aux
    opt.zero_grad()
    l.backward()
    opt.step()
    out(f"l{i}", l)
# capacity dispatch with cumsum/scatter
g = F.gumbel_softmax(st.from_numpy(F32(6, 4)), tau=1, hard=True)
assert (g.sum(-1) == 1).all()
one = F.one_hot(st.tensor([0, 1, 0, 2, 0, 1]), 4)
pos = st.cumsum(one, dim=0) * one
out("pos", pos)
keep = pos.le(2) & one.bool()
out("keep", keep)
out("scat", st.zeros(3, 5).scatter_(1, st.tensor([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]]), st.from_numpy(F32(2, 5))))
out("sadd", st.zeros(4).scatter_add_(0, st.tensor([0, 1, 1, 3]), st.tensor([1.0, 2.0, 3.0, 4.0])))
out(
    "sred",
    st.ones(3).scatter_reduce(0, st.tensor([0, 1, 1]), st.tensor([5.0, 2.0, 7.0]), reduce="amax", include_self=False),
)
out(
    "sm",
    st.zeros(3).scatter_reduce_(0, st.tensor([0, 1, 1]), st.tensor([5.0, 2.0, 7.0]), reduce="mean", include_self=False),
)
out("sr", st.zeros(3, 4).scatter(1, st.tensor([[1], [2], [0]]), 1.0))
out("sv", st.zeros(3, 4).scatter_(1, st.tensor([[1], [2], [0]]), value=2.5))
out("ip", st.zeros(3, 3).index_put_((st.tensor([0, 1]), st.tensor([1, 2])), st.tensor([5.0, 6.0])))
a = st.zeros(4)
a.index_fill_(0, st.tensor([1, 3]), 7.0)
out("if", a)
a.index_copy_(0, st.tensor([0, 2]), st.tensor([1.0, 2.0]))
out("ic", a)
out("ta", st.take_along_dim(st.tensor([[3.0, 1, 2]]), st.tensor([[1, 2, 0]]), dim=1))
out("tk", st.take(st.arange(6.0).view(2, 3), st.tensor([0, 5])))
out("ms", st.masked_select(st.arange(6.0), st.arange(6) % 2 == 0))
b = st.arange(6.0)
b[b > 3] = 0
b[1:3] += 10
b[[0, 5]] = st.tensor([9.0, 8.0])
out("b", b)
out("un", st.stack(st.unbind(st.arange(6.0).view(2, 3), 1)))
u, inv, c = st.unique(st.tensor([3, 1, 3, 2]), return_inverse=True, return_counts=True)
out("inv", inv)
out("c", c)
out("uc", st.unique_consecutive(st.tensor([1, 1, 2, 2, 1])))
out("bk", st.bucketize(st.tensor([0.5, 2.5]), st.tensor([0.0, 1.0, 2.0, 3.0])))
out("ss", st.searchsorted(st.tensor([1.0, 3.0, 5.0]), st.tensor([2.0, 5.0]), right=True))
