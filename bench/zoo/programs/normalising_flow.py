"""RealNVP: affine couplings with alternating masks, batch norm as a layer, likelihood by torch.distributions."""

import torch
import torch.nn as nn
from torch.distributions import MultivariateNormal

SIZES = {
    "tiny": dict(dim=4, hidden=16, layers=4, batch=32),
    "cpu": dict(dim=32, hidden=256, layers=8, batch=512),
    "card": dict(dim=64, hidden=1024, layers=12, batch=8192),
}


class LinearMaskedCoupling(nn.Module):
    def __init__(self, dim, hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s_net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                   nn.Linear(hidden, dim))
        self.t_net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                   nn.Linear(hidden, dim))
        self.scale = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mx = x * self.mask
        s = torch.tanh(self.s_net(mx)) * self.scale
        t = self.t_net(mx)
        u = mx + (1 - self.mask) * (x - t) * torch.exp(-s)
        return u, -(1 - self.mask) * s


class FlowBatchNorm(nn.Module):
    def __init__(self, dim, momentum=0.9, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.log_gamma, self.beta = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            self.running_mean.mul_(self.momentum).add_(mean.data * (1 - self.momentum))
            self.running_var.mul_(self.momentum).add_(var.data * (1 - self.momentum))
        else:
            mean, var = self.running_mean, self.running_var
        y = self.log_gamma.exp() * (x - mean) / torch.sqrt(var + self.eps) + self.beta
        return y, (self.log_gamma - 0.5 * torch.log(var + self.eps)).expand_as(x)


class RealNVP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        mask, modules = torch.arange(cfg.dim).float() % 2, []
        for _ in range(cfg.layers):
            modules += [LinearMaskedCoupling(cfg.dim, cfg.hidden, mask), FlowBatchNorm(cfg.dim)]
            mask = 1 - mask
        self.net = nn.ModuleList(modules)
        self.register_buffer("base_mean", torch.zeros(cfg.dim))
        self.register_buffer("base_var", torch.ones(cfg.dim))

    @property
    def base_dist(self):
        return MultivariateNormal(self.base_mean, torch.diag(self.base_var))

    def forward(self, x):
        sum_log_abs_det = torch.zeros_like(x)
        for module in self.net:
            x, log_abs_det = module(x)
            sum_log_abs_det = sum_log_abs_det + log_abs_det
        return self.base_dist.log_prob(x) + sum_log_abs_det.sum(dim=1)


def train(cfg, rng, device, prepare):
    mix = rng.standard_normal((cfg.dim, cfg.dim))
    data = torch.from_numpy(rng.laplace(size=(4, cfg.batch, cfg.dim)) @ mix).to(torch.float32).to(device)
    model = prepare(RealNVP(cfg).to(device))
    optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3, weight_decay=1e-6)
    while True:
        for x in data:
            model.train()
            loss = -model(x).mean(0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss
