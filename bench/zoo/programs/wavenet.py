"""WaveNet: gated dilated causal convolutions with skip connections over mu-law codes, conditioned on a speaker."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(length=64, residual=8, skip=16, dilations=(1, 2, 4), classes=32, batch=2),
    "cpu": dict(length=1024, residual=32, skip=64, dilations=(1, 2, 4, 8, 16, 32) * 2, classes=256, batch=4),
    "card": dict(length=16000, residual=64, skip=256, dilations=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512) * 2,
                 classes=256, batch=8),
}


class CausalConv1d(nn.Conv1d):
    def __init__(self, inp, out, kernel_size, dilation=1, **kwargs):
        super().__init__(inp, out, kernel_size, dilation=dilation, **kwargs)
        self.left = (kernel_size - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class Layer(nn.Module):
    def __init__(self, residual, skip, dilation, speaker):
        super().__init__()
        self.conv = CausalConv1d(residual, 2 * residual, 2, dilation)
        self.condition = nn.Linear(speaker, 2 * residual, bias=False)
        self.res = nn.Conv1d(residual, residual, 1)
        self.skip = nn.Conv1d(residual, skip, 1)

    def forward(self, x, speaker):
        h = self.conv(x) + self.condition(speaker).unsqueeze(-1)
        a, b = h.chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return (x + self.res(h)) * math.sqrt(0.5), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.classes, cfg.residual)
        self.speakers = nn.Embedding(4, 16)
        self.first = CausalConv1d(cfg.residual, cfg.residual, 2)
        self.layers = nn.ModuleList(Layer(cfg.residual, cfg.skip, d, 16) for d in cfg.dilations)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(cfg.skip, cfg.skip, 1), nn.ReLU(),
                                  nn.Conv1d(cfg.skip, cfg.classes, 1))

    def forward(self, codes, speaker):
        x = self.first(self.embed(codes).transpose(1, 2))
        speaker = self.speakers(speaker)
        total = 0
        for layer in self.layers:
            x, skip = layer(x, speaker)
            total = total + skip
        return self.head(total)


def mu_law_encode(x, classes):
    mu = classes - 1.0
    y = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / math.log1p(mu)
    return ((y + 1) / 2 * mu + 0.5).to(torch.int64)


def train(cfg, rng, device, prepare):
    t = torch.arange(cfg.length + 1) / 16000.0
    pitch = torch.from_numpy(rng.uniform(100, 800, (2, cfg.batch, 1))).float()
    codes = mu_law_encode(0.8 * torch.sin(2 * math.pi * pitch * t), cfg.classes).to(device)
    speaker = torch.from_numpy(rng.integers(0, 4, (2, cfg.batch))).to(device)
    model = prepare(WaveNet(cfg).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, amsgrad=True)
    while True:
        for code, who in zip(codes, speaker):
            optimizer.zero_grad()
            logits = model(code[:, :-1], who)
            loss = F.cross_entropy(logits, code[:, 1:])
            loss.backward()
            optimizer.step()
            yield loss
