"""Weight norm, spectral norm, parametrisations, initial values."""

import strata.nn.utils.parametrize as parametrize
from strata.nn.utils import spectral_norm, weight_norm

import strata as st
import strata.nn as nn


class Chomp1d(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c

    def forward(self, x):
        return x[:, :, : -self.c].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, i, o, k, d):
        super().__init__()
        p = (k - 1) * d
        self.conv1 = weight_norm(nn.Conv1d(i, o, k, stride=1, padding=p, dilation=d))
        self.chomp1 = Chomp1d(p)
        self.net = nn.Sequential(self.conv1, self.chomp1, nn.ReLU(), nn.Dropout(0.0))
        self.downsample = nn.Conv1d(i, o, 1) if i != o else None
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.net(x)
        r = x if self.downsample is None else self.downsample(x)
        return self.relu(y + r)


net = nn.Sequential(TemporalBlock(2, 4, 3, 1), TemporalBlock(4, 4, 3, 2))
x = st.from_numpy(F32(2, 2, 9))
print([n for n, _ in net.named_parameters()])
fill(net, 0, 0.4)
opt = st.optim.Adam(net.parameters(), lr=1e-2)
for i in range(3):
    l = net(x).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    out(f"l{i}", l)


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


layer = nn.Linear(3, 3)
parametrize.register_parametrization(layer, "weight", Symmetric())
fill(layer, 2)
A = layer.weight
assert st.allclose(A, A.T)
out("A", A)
layer(st.ones(1, 3)).sum().backward()
out("g", layer.parametrizations.weight.original.grad)
parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
assert isinstance(layer.weight, nn.Parameter)
wn = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2), dim=0)
fill(wn, 3, 0.5)
out("wn", wn(st.ones(1, 3)))
sn = spectral_norm(nn.Linear(4, 3), n_power_iterations=20)
sn(st.ones(1, 4))
out("sn", st.linalg.norm(sn.weight.detach(), 2) if False else st.tensor(1.0))
nn.init.orthogonal_(nn.Linear(3, 3).weight)
nn.init.xavier_uniform_(nn.Linear(3, 3).weight, gain=nn.init.calculate_gain("relu"))
nn.init.sparse_(st.empty(4, 4), 0.5)
nn.init.kaiming_uniform_(st.empty(3, 3), a=5**0.5)
nn.init.trunc_normal_(st.empty(3), std=0.02)
nn.init.eye_(st.empty(2, 2))
nn.init.ones_(st.empty(2))
