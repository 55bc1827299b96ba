"""A physics-informed network for Burgers' equation: second derivatives by autograd.grad, trained through."""

import math

import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(width=16, depth=3, collocation=64, boundary=16),
    "cpu": dict(width=64, depth=6, collocation=4000, boundary=200),
    "card": dict(width=256, depth=8, collocation=100000, boundary=2000),
}


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.net(torch.hstack((x, t)))


def residual(model, x, t, nu=0.01 / math.pi):
    u = model(x, t)
    u_x, u_t = torch.autograd.grad(u, (x, t), grad_outputs=torch.ones_like(u), create_graph=True)
    u_xx = torch.autograd.grad(u_x, x, grad_outputs=torch.ones_like(u_x), create_graph=True)[0]
    return u_t + u * u_x - nu * u_xx


def train(cfg, rng, device, prepare):
    def column(low, high, n):
        return torch.tensor(rng.uniform(low, high, (n, 1)), dtype=torch.float32, device=device)

    x_f, t_f = column(-1, 1, cfg.collocation).requires_grad_(True), column(0, 1, cfg.collocation).requires_grad_(True)
    x_0 = column(-1, 1, cfg.boundary)
    t_b = column(0, 1, cfg.boundary)
    side = torch.sign(column(-1, 1, cfg.boundary))
    model = prepare(Net(cfg.width, cfg.depth).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    while True:
        optimizer.zero_grad()
        loss_f = residual(model, x_f, t_f).pow(2).mean()
        loss_0 = (model(x_0, torch.zeros_like(x_0)) + torch.sin(math.pi * x_0)).square().mean()
        loss_b = model(side, t_b).square().mean()
        loss = loss_f + loss_0 + loss_b
        loss.backward()
        optimizer.step()
        yield loss
