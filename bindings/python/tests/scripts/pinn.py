"""A physics-informed network, with second derivatives of its input: the numbers of real PyTorch."""
import numpy as np
import torch
from torch import nn
from torch.autograd import grad

torch.manual_seed(123)
torch.set_default_dtype(torch.float64)

class FCN(nn.Module):
    "Defines a connected network"
    def __init__(self, N_INPUT, N_OUTPUT, N_HIDDEN, N_LAYERS):
        super().__init__()
        activation = nn.Tanh
        self.fcs = nn.Sequential(*[nn.Linear(N_INPUT, N_HIDDEN), activation()])
        self.fch = nn.Sequential(*[nn.Sequential(*[nn.Linear(N_HIDDEN, N_HIDDEN), activation()]) for _ in range(N_LAYERS - 1)])
        self.fce = nn.Linear(N_HIDDEN, N_OUTPUT)
    def forward(self, x):
        x = self.fcs(x)
        x = self.fch(x)
        x = self.fce(x)
        return x

def exact_solution(d, w0, t):
    w = np.sqrt(w0**2 - d**2)
    phi = np.arctan(-d / w)
    A = 1 / (2 * np.cos(phi))
    cos = torch.cos(phi + w * t)
    exp = torch.exp(-d * t)
    return exp * 2 * A * cos


def seeded(module, scale=0.5):
    rng = np.random.RandomState(7)
    for p in module.parameters():
        p.data.copy_(torch.from_numpy(np.asarray(rng.standard_normal(tuple(p.shape)) * scale)))
    return module

pinn = seeded(FCN(1, 1, 16, 2))
t_boundary = torch.tensor(0.).view(-1, 1).requires_grad_(True)
t_physics = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
d, w0 = 2, 8
mu, k = 2 * d, w0**2
t_test = torch.linspace(0, 1, 100).view(-1, 1)
u_exact = exact_solution(d, w0, t_test)
optimiser = torch.optim.Adam(pinn.parameters(), lr=3e-3)
for i in range(41):
    optimiser.zero_grad()
    lambda1, lambda2 = 1e-1, 1e-3
    u = pinn(t_boundary)
    loss1 = (torch.squeeze(u) - 1)**2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 0)**2
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + mu * dudt + k * u)**2)
    loss = loss1 + lambda1 * loss2 + lambda2 * loss3
    loss.backward()
    optimiser.step()
    if i % 10 == 0:
        u = pinn(t_test).detach()
        print(i, loss.item(), torch.mean((u - u_exact)**2).item())
print('RESULT', torch.log10(loss).item())
