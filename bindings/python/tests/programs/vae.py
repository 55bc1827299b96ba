"""A variational autoencoder."""

from strata.distributions import Normal, kl_divergence

import strata as st
from strata import nn, optim
from strata.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(784, 40)
        self.fc21 = nn.Linear(40, 5)
        self.fc22 = nn.Linear(40, 5)
        self.fc3 = nn.Linear(5, 40)
        self.fc4 = nn.Linear(40, 784)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = st.exp(0.5 * logvar)
        _ = st.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return st.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


st.manual_seed(1)
model = fill(VAE())
opt = optim.Adam(model.parameters(), lr=1e-3)
x = st.rand(6, 1, 28, 28)
x = st.sigmoid(st.from_numpy(F32(6, 1, 28, 28)))
eps = st.from_numpy(F32(6, 5))
for i in range(3):
    opt.zero_grad()
    recon, mu, logvar = model(x, eps)
    BCE = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
    KLD = -0.5 * st.sum(1 + logvar - mu.pow(2) - logvar.exp())
    (BCE + KLD).backward()
    opt.step()
    out(f"l{i}", BCE + KLD)
q = Normal(mu, (0.5 * logvar).exp())
p = Normal(st.zeros_like(mu), st.ones_like(mu))
out("kl", kl_divergence(q, p).sum(-1).mean())
z = q.rsample()
assert z.requires_grad and z.shape == mu.shape
out("lp", q.log_prob(eps).sum())
out("ent", q.entropy().mean())
with st.no_grad():
    sample = model.decode(st.randn(4, 5)).cpu()
    assert sample.shape == (4, 784)
