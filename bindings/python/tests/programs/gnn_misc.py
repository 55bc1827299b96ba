"""Graph networks, factorisation, style losses, adversarial examples, second-order gradients."""

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class GCN(nn.Module):
    def __init__(self, i, h, o):
        super().__init__()
        self.l1, self.l2 = nn.Linear(i, h), nn.Linear(h, o)

    def forward(self, x, adj):
        return F.log_softmax(adj @ self.l2(F.relu(adj @ self.l1(x))), dim=1)


class GAT(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W = nn.Parameter(st.empty(size=(i, o)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        self.a = nn.Parameter(st.empty(size=(2 * o, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.o = o
        self.leaky = nn.LeakyReLU(0.2)

    def forward(self, h, adj):
        Wh = st.mm(h, self.W)
        e = self.leaky(st.matmul(Wh, self.a[: self.o, :]) + st.matmul(Wh, self.a[self.o :, :]).T)
        att = st.where(adj > 0, e, -9e15 * st.ones_like(e))
        return F.elu(st.matmul(F.softmax(att, dim=1), Wh))


edge = st.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
n = 5
adj = st.zeros(n, n)
adj[edge[0], edge[1]] = 1
adj = adj + adj.t()
adj = st.eye(n) + adj
deg = adj.sum(1)
Dm = st.diag(deg.pow(-0.5))
A = Dm @ adj @ Dm
x = st.from_numpy(F32(n, 6))
y = st.tensor([0, 1, 0, 1, 1])
idx = st.tensor([0, 1, 3])
m = fill(GCN(6, 8, 2), 0, 0.4)
g = fill(GAT(6, 3), 1, 0.4)
opt = st.optim.Adam(list(m.parameters()) + list(g.parameters()), lr=0.01, weight_decay=5e-4)
for i in range(3):
    o = m(x, A)
    loss = F.nll_loss(o[idx], y[idx]) + g(x, adj).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    out(f"l{i}", loss)
src, dst = edge
msg = x[src]
agg = st.zeros(n, 6).index_add(0, dst, msg)
out("agg", agg)
out("sp", st.zeros(n, 6).scatter_reduce(0, dst[:, None].expand(-1, 6), msg, reduce="amax", include_self=False))
# matrix factorisation, plain tensors
U = st.from_numpy(F32(5, 2)).requires_grad_()
V = st.from_numpy(F32(4, 2)).requires_grad_(True)
R = st.from_numpy(F32(5, 4))
mask = R > 0
o2 = st.optim.Adam([U, V], lr=0.05)
for i in range(5):
    o2.zero_grad()
    l = ((U @ V.T - R)[mask] ** 2).mean() + 1e-3 * (U.norm() + V.norm())
    l.backward()
    o2.step()
out("U", U)
out("l", l)
# style transfer gram, tv loss
f = st.from_numpy(F32(2, 3, 5, 5)).requires_grad_(True)
b, c, h, w = f.size()
ft = f.view(b * c, h * w)
G = st.mm(ft, ft.t()).div(b * c * h * w)
tv = st.sum(st.abs(f[:, :, :, :-1] - f[:, :, :, 1:])) + st.sum(st.abs(f[:, :, :-1, :] - f[:, :, 1:, :]))
(G.pow(2).sum() + 1e-3 * tv).backward()
out("fg", f.grad)
f.data.clamp_(0, 1)
f.grad.data.zero_()
# FGSM
net = fill(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), 2, 0.5)
im = st.from_numpy(F32(2, 3, 2, 2))
im.requires_grad = True
F.cross_entropy(net(im), st.tensor([0, 1])).backward()
adv = st.clamp(im + 0.1 * im.grad.data.sign(), 0, 1)
out("adv", adv)
assert adv.requires_grad
# MAML-like inner loop, second order
W = st.from_numpy(F32(3, 1)).requires_grad_()
X, Y = st.from_numpy(F32(8, 3)), st.from_numpy(F32(8, 1))
inner = ((X @ W - Y) ** 2).mean()
(gw,) = st.autograd.grad(inner, W, create_graph=True)
fast = W - 0.1 * gw
outer = ((X @ fast - Y) ** 2).mean()
outer.backward()
out("maml", W.grad)
# NeRF posenc, volume rendering
pts = st.linspace(0, 1, 6)
enc = st.cat([fn(2.0**i * st.pi * pts[:, None]) for i in range(3) for fn in (st.sin, st.cos)], -1)
sigma = F.relu(enc.sum(-1))
alpha = 1.0 - st.exp(-sigma * 0.1)
Tm = st.cumprod(st.cat([st.ones(1), 1.0 - alpha + 1e-10], -1), -1)[:-1]
out("vr", alpha * Tm)
# pinn
t = st.linspace(0, 1, 10).view(-1, 1).requires_grad_(True)
pn = fill(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), 4, 0.5)
u = pn(t)
du = st.autograd.grad(u, t, st.ones_like(u), create_graph=True)[0]
d2 = st.autograd.grad(du, t, st.ones_like(du), create_graph=True)[0]
pl = st.mean((d2 + 4 * u) ** 2)
pl.backward()
out("pinn", pl)
out("pg", pn[0].weight.grad)
# BERT-like embeddings and masked mean pooling
ids = st.tensor([[5, 6, 7, 0], [8, 9, 0, 0]])
am = ids.ne(0).long()
emb = fill(nn.Embedding(10, 4, padding_idx=0), 3)
h = emb(ids)
mexp = am.unsqueeze(-1).expand(h.size()).float()
pooled = st.sum(h * mexp, 1) / st.clamp(mexp.sum(1), min=1e-9)
out("pool", pooled)
ext = (1.0 - am[:, None, None, :].to(dtype=h.dtype)) * st.finfo(h.dtype).min
out("ext", ext)
pos = st.cumsum(am, 1).type_as(am) * am
out("pos", pos)
lens = am.sum(1)
lm = st.arange(4)[None, :] < lens[:, None]
out("lm", lm)
last = h[st.arange(2), lens - 1]
out("last", last)
out("lastg", h.gather(1, (lens - 1).view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1))
pm = st.full(ids.shape, 0.15)
pm.masked_fill_(ids == 0, value=0.0)
mi = st.bernoulli(pm).bool()
lab = ids.clone()
lab[~mi] = -100
assert lab.shape == ids.shape
# boxes
b1 = st.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
lt = st.max(b1[:, None, :2], b1[:, :2])
rb = st.min(b1[:, None, 2:], b1[:, 2:])
wh = (rb - lt).clamp(min=0)
inter = wh[:, :, 0] * wh[:, :, 1]
ar = (b1[:, 2] - b1[:, 0]) * (b1[:, 3] - b1[:, 1])
out("iou", inter / (ar[:, None] + ar - inter))
xc, yc, ww, hh = b1.unbind(-1)
out("xy", st.stack([xc - 0.5 * ww, yc - 0.5 * hh], dim=-1))
