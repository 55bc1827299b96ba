"""A diffusion model."""

import math

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        device = x.device
        half = self.dim // 2
        emb = math.log(10000) / (half - 1)
        emb = st.exp(st.arange(half, device=device) * -emb)
        emb = x[:, None] * emb[None, :]
        return st.cat((emb.sin(), emb.cos()), dim=-1)


def linear_beta_schedule(T):
    return st.linspace(1e-4, 0.02, T, dtype=st.float64)


def cosine_beta_schedule(T, s=0.008):
    x = st.linspace(0, T, T + 1, dtype=st.float64) / T
    a = st.cos((x + s) / (1 + s) * math.pi * 0.5) ** 2
    a = a / a[0]
    return st.clip(1 - (a[1:] / a[:-1]), 0, 0.999)


def extract(a, t, shape):
    b, *_ = t.shape
    o = a.gather(-1, t)
    return o.reshape(b, *((1,) * (len(shape) - 1)))


class ResBlock(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(t, o * 2))
        self.c1 = nn.Conv2d(i, o, 3, padding=1)
        self.n = nn.GroupNorm(2, o)
        self.c2 = nn.Conv2d(o, o, 3, padding=1)
        self.r = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.mlp(t)[:, :, None, None].chunk(2, dim=1)
        h = F.silu(self.n(self.c1(x)) * (scale + 1) + shift)
        return self.c2(h) + self.r(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Sequential(SinusoidalPosEmb(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16))
        self.a = ResBlock(1, 4, 16)
        self.b = ResBlock(4, 4, 16)
        self.o = nn.Conv2d(4, 1, 1)

    def forward(self, x, t):
        e = self.t(t)
        return self.o(self.b(self.a(x, e), e))


class Diffusion(nn.Module):
    def __init__(self, model, T=50):
        super().__init__()
        self.model = model
        betas = cosine_beta_schedule(T)
        alphas = 1.0 - betas
        ac = st.cumprod(alphas, dim=0)
        prev = F.pad(ac[:-1], (1, 0), value=1.0)
        rb = lambda n, v: self.register_buffer(n, v.to(st.float32))
        rb("sa", st.sqrt(ac))
        rb("so", st.sqrt(1.0 - ac))
        rb("pv", betas * (1.0 - prev) / (1.0 - ac))
        rb("plv", st.log((betas * (1 - prev) / (1 - ac)).clamp(min=1e-20)))
        snr = ac / (1 - ac)
        rb("w", st.minimum(snr, st.full_like(snr, 5.0)) / snr)

    def loss(self, x, t, noise):
        xt = extract(self.sa, t, x.shape) * x + extract(self.so, t, x.shape) * noise
        l = F.mse_loss(self.model(xt, t), noise, reduction="none")
        l = l.flatten(1).mean(1)
        return (l * extract(self.w, t, l.shape)).mean()

    @st.no_grad()
    def sample(self, shape):
        x = st.randn(shape)
        for i in reversed(range(5)):
            t = st.full((shape[0],), i, device=x.device, dtype=st.long)
            x = (
                x
                - 0.1 * self.model(x, t)
                + (0.5 * self.plv[t][:, None, None, None]).exp() * (st.randn_like(x) if i > 0 else 0.0)
            )
        return x.clamp(-1.0, 1.0)


d = Diffusion(Net())
fill(d, 0, 0.2)
opt = st.optim.Adam(d.parameters(), lr=1e-3)
x = st.from_numpy(F32(4, 1, 8, 8))
n = st.from_numpy(F32(4, 1, 8, 8))
t = st.tensor([1, 10, 30, 49])
for i in range(3):
    l = d.loss(x, t, n)
    opt.zero_grad()
    l.backward()
    opt.step()
    out(f"l{i}", l)
assert d.sample((2, 1, 8, 8)).shape == (2, 1, 8, 8)
out("w", d.w)
out("lin", linear_beta_schedule(5))
