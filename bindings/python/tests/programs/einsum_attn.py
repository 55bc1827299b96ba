"""A decoder with rotary positions, grouped heads, a cache, and sampling."""

import math

import strata.nn.functional as F

import strata as st
from strata import einsum, nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(st.ones(dim))

    def forward(self, x):
        return (x.float() * st.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def precompute(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (st.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    t = st.arange(end, device=freqs.device)
    freqs = st.outer(t, freqs).float()
    return st.cat([freqs, freqs], dim=-1)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return st.cat((-x2, x1), dim=-1)


class Attn(nn.Module):
    def __init__(self, d, h, kv):
        super().__init__()
        self.h, self.kv, self.hd = h, kv, d // h
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, kv * self.hd, bias=False),
            nn.Linear(d, kv * self.hd, bias=False),
            nn.Linear(d, d, bias=False),
        )
        self.register_buffer("mask", st.tril(st.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, x, fr, cache=None):
        b, t, _ = x.size()
        q = self.wq(x).view(b, t, self.h, self.hd).transpose(1, 2)
        k = self.wk(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        v = self.wv(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        cos, sin = fr.cos()[None, None], fr.sin()[None, None]
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        if cache is not None:
            k, v = st.cat([cache[0], k], 2), st.cat([cache[1], v], 2)
        kk = (
            k[:, :, None]
            .expand(b, self.kv, self.h // self.kv, k.size(2), self.hd)
            .reshape(b, self.h, k.size(2), self.hd)
        )
        vv = v.repeat_interleave(self.h // self.kv, dim=1)
        att = einsum("bhid,bhjd->bhij", q, kk) / math.sqrt(self.hd)
        T = k.size(2)
        att = att.masked_fill(self.mask[:, :, T - t : T, :T] == 0, float("-inf"))
        y = (
            st.einsum("b h i j, b h j d -> b i h d", F.softmax(att.float(), dim=-1).type_as(q), vv)
            .contiguous()
            .view(b, t, -1)
        )
        return self.wo(y), (k, v)


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(2 * d, d, bias=False),
            nn.Linear(d, 2 * d, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class GPT(nn.Module):
    def __init__(self, v=17, d=16, L=2):
        super().__init__()
        self.tok = nn.Embedding(v, d)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(dict(n1=RMSNorm(d), a=Attn(d, 4, 2), n2=RMSNorm(d), m=MLP(d))) for _ in range(L)
        )
        self.n = RMSNorm(d)
        self.lm_head = nn.Linear(d, v, bias=False)
        self.tok.weight = self.lm_head.weight
        self.apply(self._init)
        for pn, p in self.named_parameters():
            if pn.endswith("wo.weight"):
                st.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * L))

    def _init(self, m):
        if isinstance(m, nn.Linear):
            st.nn.init.normal_(m.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None, caches=None, pos=0):
        fr = precompute(4, 32)[pos : pos + idx.size(1)]
        x = self.tok(idx)
        new = []
        for i, b in enumerate(self.blocks):
            a, c = b["a"](b["n1"](x), fr, None if caches is None else caches[i])
            new.append(c)
            x = x + a
            x = x + b.m(b.n2(x))
        logits = self.lm_head(self.n(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss, new

    def configure(self):
        pd = {n: p for n, p in self.named_parameters() if p.requires_grad}
        g = [
            {"params": [p for p in pd.values() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in pd.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return st.optim.AdamW(g, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)


m = fill(GPT(), 0, 0.2)
opt = m.configure()
idx = (st.arange(20).view(2, 10) * 3) % 17
tg = st.roll(idx, -1, 1).clone()
tg[:, -1] = -1
for i in range(3):
    lg, loss, _ = m(idx, tg)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    out(f"l{i}", loss)
m.eval()


@st.inference_mode()
def generate(idx, n, temperature=1.0, top_k=5, top_p=0.9):
    for _ in range(n):
        c = idx if idx.size(1) <= 32 else idx[:, -32:]
        lg = m(c)[0][:, -1, :] / temperature
        v, _ = st.topk(lg, min(top_k, lg.size(-1)))
        lg[lg < v[:, [-1]]] = -float("Inf")
        s, si = st.sort(lg, descending=True)
        cp = st.cumsum(F.softmax(s, dim=-1), dim=-1)
        rm = cp > top_p
        rm[..., 1:] = rm[..., :-1].clone()
        rm[..., 0] = 0
        lg = lg.masked_fill(rm.scatter(1, si, rm), -float("inf"))
        pr = F.softmax(lg, dim=-1)
        _ = st.multinomial(pr, num_samples=1)
        nx = st.argmax(pr, -1, keepdim=True)
        idx = st.cat((idx, nx), dim=1)
    return idx


out("gen", generate(idx[:, :4], 6))
with st.no_grad():
    full = m(idx)[0]
    _, _, c = m(idx[:, :9])
    step, _, _ = m(idx[:, 9:], caches=c, pos=9)
    out("cache", step[:, 0] - full[:, 9])
