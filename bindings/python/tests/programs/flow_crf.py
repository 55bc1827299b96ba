"""Normalising flows, a conditional random field, vector quantisation, distributions."""

import strata.distributions as D

import strata as st
import strata.nn as nn


class Coupling(nn.Module):
    def __init__(self, d, flip):
        super().__init__()
        self.flip = flip
        self.s = nn.Sequential(nn.Linear(d // 2, 16), nn.Tanh(), nn.Linear(16, d // 2), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(d // 2, 16), nn.ReLU(), nn.Linear(16, d // 2))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        a, b = (b, a) if self.flip else (a, b)
        s = self.s(a)
        y = b * s.exp() + self.t(a)
        o = st.cat([y, a] if self.flip else [a, y], -1)
        return o, s.sum(-1)


fl = nn.ModuleList([Coupling(4, i % 2 == 1) for i in range(3)])
fill(fl, 0, 0.3)
base = D.Independent(D.Normal(st.zeros(4), st.ones(4)), 1)
x = st.from_numpy(F32(10, 4))
opt = st.optim.Adam(fl.parameters(), lr=1e-2)
for i in range(3):
    z, ld = x, 0
    for f in fl:
        z, l = f(z)
        ld = ld + l
    nll = -(base.log_prob(z) + ld).mean()
    opt.zero_grad()
    nll.backward()
    opt.step()
    out(f"nll{i}", nll)


def log_sum_exp(x):
    m = x.max(-1, keepdim=True)[0]
    return m.squeeze(-1) + st.log(st.sum(st.exp(x - m), -1))


em = st.from_numpy(F32(2, 5, 3)).requires_grad_()
trn = nn.Parameter(st.from_numpy(F32(3, 3)))
mask = st.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=st.bool)
tags = st.tensor([[0, 1, 2, 1, 0], [2, 1, 0, 0, 0]])
a = em[:, 0]
for i in range(1, 5):
    n = st.logsumexp(a.unsqueeze(2) + trn[None] + em[:, i].unsqueeze(1), dim=1)
    a = st.where(mask[:, i].unsqueeze(1), n, a)
Z = log_sum_exp(a)
sc = em[:, 0].gather(1, tags[:, :1]).squeeze(1)
for i in range(1, 5):
    sc = sc + (trn[tags[:, i - 1], tags[:, i]] + em[:, i].gather(1, tags[:, i].unsqueeze(1)).squeeze(1)) * mask[:, i]
l = (Z - sc).mean()
l.backward()
out("crf", l)
out("tg", trn.grad)
v = em[:, 0].detach()
bp = []
for i in range(1, 5):
    s = v.unsqueeze(2) + trn.detach()[None]
    v, ix = s.max(dim=1)
    v = v + em[:, i].detach()
    bp.append(ix)
best = [v.argmax(1)]
for ix in reversed(bp):
    best.append(ix.gather(1, best[-1].unsqueeze(1)).squeeze(1))
out("vit", st.stack(best[::-1], 1))
be = D.Bernoulli(logits=st.tensor([0.3, -0.2]))
out("be", be.log_prob(st.tensor([1.0, 0.0])))
out("bee", be.entropy())
un = D.Uniform(0.0, 2.0)
out("un", un.log_prob(st.tensor(1.0)))
out("nsamp", D.Normal(0.0, 1.0).sample((3, 2)).shape)
ca = D.Categorical(st.tensor([[0.2, 0.8], [0.5, 0.5]]))
out("cent", ca.entropy())
out("klc", D.kl_divergence(ca, D.Categorical(st.tensor([[0.5, 0.5], [0.1, 0.9]]))))
out("cdf", D.Normal(0.0, 1.0).cdf(st.tensor([0.5])))
oh = D.OneHotCategorical(st.tensor([0.2, 0.8]))
assert oh.sample().sum() == 1
ex = D.Exponential(st.tensor(2.0))
out("ex", ex.log_prob(st.tensor(1.0)))
la = D.Laplace(0.0, 1.0)
out("la", la.log_prob(st.tensor(0.5)))
be2 = D.Beta(st.tensor(2.0), st.tensor(3.0))
out("beta", be2.log_prob(st.tensor(0.4)))
ga = D.Gamma(st.tensor(2.0), st.tensor(3.0))
out("ga", ga.log_prob(st.tensor(0.4)))
mvn = D.MultivariateNormal(st.zeros(2), st.tensor([[2.0, 0.5], [0.5, 1.0]]))
out("mvn", mvn.log_prob(st.tensor([1.0, -1.0])))
# VQ-VAE with straight-through
cb = nn.Embedding(6, 4)
fill(cb, 3, 1.0)
z = st.from_numpy(F32(2, 4, 3, 3)).requires_grad_()
zf = z.permute(0, 2, 3, 1).contiguous().view(-1, 4)
d = st.sum(zf**2, dim=1, keepdim=True) + st.sum(cb.weight**2, dim=1) - 2 * st.einsum("bd,dn->bn", zf, cb.weight.t())
k = st.argmin(d, dim=1)
q = cb(k).view(2, 3, 3, 4).permute(0, 3, 1, 2)
loss = st.mean((q.detach() - z) ** 2) + 0.25 * st.mean((q - z.detach()) ** 2)
q = z + (q - z).detach()
(loss + q.sum()).backward()
out("vq", loss)
out("zg", z.grad)
onehot = st.zeros(k.shape[0], 6).scatter_(1, k.unsqueeze(1), 1)
pr = onehot.mean(0)
out("perp", st.exp(-st.sum(pr * st.log(pr + 1e-10))))
