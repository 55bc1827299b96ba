"""A temporal convolutional network on the adding problem: dilated causal convolutions with weight norm."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

SIZES = {
    "tiny": dict(length=40, channels=(8, 8), kernel=3, batch=8),
    "cpu": dict(length=400, channels=(32,) * 6, kernel=5, batch=16),
    "card": dict(length=1000, channels=(64,) * 8, kernel=7, batch=256),
}


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, :-self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation, dropout=0.2):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(n_outputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.net = nn.Sequential(self.conv1, Chomp1d(padding), nn.ReLU(), nn.Dropout(dropout),
                                 self.conv2, Chomp1d(padding), nn.ReLU(), nn.Dropout(dropout))
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(self.net(x) + res)


class TCN(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        sizes = (2, *channels)
        blocks = [TemporalBlock(a, b, kernel, 2 ** i) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
        self.tcn = nn.Sequential(*blocks)
        self.linear = nn.Linear(channels[-1], 1)

    def forward(self, x):
        return self.linear(self.tcn(x)[:, :, -1])


def adding_problem(rng, count, length):
    numbers = torch.from_numpy(rng.random((count, 1, length), dtype="float32"))
    mask = torch.zeros(count, 1, length)
    target = torch.zeros(count, 1)
    for i in range(count):
        a, b = rng.choice(length, 2, replace=False)
        mask[i, 0, a] = mask[i, 0, b] = 1.0
        target[i, 0] = numbers[i, 0, a] + numbers[i, 0, b]
    return torch.cat((numbers, mask), dim=1), target


def train(cfg, rng, device, prepare):
    x, y = adding_problem(rng, 4 * cfg.batch, cfg.length)
    x, y = x.to(device), y.to(device)
    model = prepare(TCN(cfg.channels, cfg.kernel).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    while True:
        for i in range(0, x.size(0), cfg.batch):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x[i:i + cfg.batch]), y[i:i + cfg.batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            yield loss
