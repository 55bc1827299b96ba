"""A Mamba-like language model: a causal depthwise convolution and a selective scan, a Python loop over time."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(vocab=40, length=12, dim=16, state=4, layers=2, batch=4),
    "cpu": dict(vocab=1000, length=64, dim=96, state=8, layers=2, batch=8),
    "card": dict(vocab=16000, length=256, dim=512, state=16, layers=4, batch=32),
}


class MambaBlock(nn.Module):
    def __init__(self, d_model, d_state, d_conv=4, expand=2):
        super().__init__()
        self.d_inner, self.d_state = expand * d_model, d_state
        self.dt_rank = math.ceil(d_model / 16)
        self.in_proj = nn.Linear(d_model, self.d_inner * 2, bias=False)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + d_state * 2, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        A = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(self.d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)
        with torch.no_grad():
            self.dt_proj.bias.fill_(math.log(math.expm1(0.01)))

    def forward(self, x):
        b, l, d = x.shape
        x, res = self.in_proj(x).split([self.d_inner, self.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)
        x = F.silu(x)
        y = self.ssm(x)
        return self.out_proj(y * F.silu(res))

    def ssm(self, x):
        A = -torch.exp(self.A_log.float())
        delta, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        return self.selective_scan(x, delta, A, B, C) + x * self.D

    def selective_scan(self, u, delta, A, B, C):
        b, l, d = u.shape
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        h = torch.zeros((b, d, self.d_state), device=u.device)
        ys = []
        for i in range(l):
            h = deltaA[:, i] * h + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, i, :]))
        return torch.stack(ys, dim=1)


class Mamba(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.ModuleList([MambaBlock(cfg.dim, cfg.state) for _ in range(cfg.layers)])
        self.norms = nn.ModuleList([nn.RMSNorm(cfg.dim) for _ in range(cfg.layers + 1)])
        self.lm_head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.lm_head(self.norms[-1](x))


def train(cfg, rng, device, prepare):
    data = torch.from_numpy(rng.integers(0, cfg.vocab // 3, (3, cfg.batch, cfg.length + 1))).to(device)
    model = prepare(Mamba(cfg).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    while True:
        for ids in data:
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss
