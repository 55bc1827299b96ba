"""MLP-Mixer: perceptrons over patches and over channels in turn, NAdam with warm restarts."""

import torch
from torch import nn

SIZES = {
    "tiny": dict(image=16, patch=4, dim=16, tokens=16, channels=32, depth=2, classes=4, batch=8, amp=False),
    "cpu": dict(image=64, patch=8, dim=192, tokens=96, channels=768, depth=6, classes=10, batch=16, amp=False),
    "card": dict(image=224, patch=16, dim=512, tokens=256, channels=2048, depth=8, classes=1000, batch=256, amp=True),
}


class PreNormResidual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.fn(self.norm(x)) + x


class MixTokens(nn.Module):
    def __init__(self, patches, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(patches, hidden, kernel_size=1), nn.GELU(),
                                 nn.Conv1d(hidden, patches, kernel_size=1))

    def forward(self, x):
        return self.net(x)


class Patches(nn.Module):
    def __init__(self, patch):
        super().__init__()
        self.unfold = nn.Unfold(kernel_size=patch, stride=patch)

    def forward(self, images):
        return self.unfold(images).mT


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


def MLPMixer(cfg):
    patches = (cfg.image // cfg.patch) ** 2
    return nn.Sequential(
        Patches(cfg.patch),
        nn.Linear(cfg.patch ** 2 * 3, cfg.dim),
        *[nn.Sequential(
            PreNormResidual(cfg.dim, MixTokens(patches, cfg.tokens)),
            PreNormResidual(cfg.dim, nn.Sequential(nn.Linear(cfg.dim, cfg.channels), nn.GELU(),
                                                   nn.Linear(cfg.channels, cfg.dim)))) for _ in range(cfg.depth)],
        nn.LayerNorm(cfg.dim), Mean(), nn.Linear(cfg.dim, cfg.classes))


def train(cfg, rng, device, prepare):
    x = torch.from_numpy(rng.standard_normal((2, cfg.batch, 3, cfg.image, cfg.image))).float().to(device)
    y = torch.from_numpy(rng.integers(0, cfg.classes, (2, cfg.batch))).to(device)
    model = prepare(MLPMixer(cfg).to(device))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=50, T_mult=2)
    for it in range(10 ** 9):
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
            loss = criterion(model(x[it % 2]), y[it % 2])
        loss.backward()
        optimizer.step()
        scheduler.step(it / 100)
        yield loss
