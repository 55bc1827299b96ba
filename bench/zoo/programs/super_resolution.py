"""EDSR: residual blocks without norm, pixel shuffle, L1; low resolution by bicubic interpolation."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(patch=12, features=8, blocks=2, scale=2, batch=4),
    "cpu": dict(patch=32, features=32, blocks=6, scale=2, batch=4),
    "card": dict(patch=96, features=64, blocks=16, scale=4, batch=32),
}


class MeanShift(nn.Conv2d):
    def __init__(self, rgb_mean=(0.4488, 0.4371, 0.4040), sign=-1):
        super().__init__(3, 3, kernel_size=1)
        self.weight.data = torch.eye(3).view(3, 3, 1, 1)
        self.bias.data = sign * torch.Tensor(rgb_mean)
        for p in self.parameters():
            p.requires_grad = False


class ResBlock(nn.Module):
    def __init__(self, n_feats, res_scale=0.1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(n_feats, n_feats, 3, padding=1), nn.ReLU(True),
                                  nn.Conv2d(n_feats, n_feats, 3, padding=1))
        self.res_scale = res_scale

    def forward(self, x):
        res = self.body(x).mul(self.res_scale)
        res += x
        return res


class EDSR(nn.Module):
    def __init__(self, features, blocks, scale):
        super().__init__()
        self.sub_mean, self.add_mean = MeanShift(), MeanShift(sign=1)
        self.head = nn.Conv2d(3, features, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(features) for _ in range(blocks)],
                                  nn.Conv2d(features, features, 3, padding=1))
        tail = []
        while scale > 1:
            tail += [nn.Conv2d(features, 4 * features, 3, padding=1), nn.PixelShuffle(2)]
            scale //= 2
        self.tail = nn.Sequential(*tail, nn.Conv2d(features, 3, 3, padding=1))

    def forward(self, x):
        x = self.head(self.sub_mean(x))
        res = self.body(x)
        res += x
        return self.add_mean(self.tail(res))


def train(cfg, rng, device, prepare):
    size = cfg.patch * cfg.scale
    coarse = torch.from_numpy(rng.random((4, cfg.batch, 3, 8, 8), dtype="float32"))
    high = torch.stack([F.interpolate(c, size=(size, size), mode="bilinear", align_corners=True) for c in coarse])
    low = torch.stack([F.interpolate(h, scale_factor=1 / cfg.scale, mode="bicubic", align_corners=False) for h in high])
    low = low.clamp_(0, 1)
    model = prepare(EDSR(cfg.features, cfg.blocks, cfg.scale).to(device))
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3, eps=1e-8)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[100, 200], gamma=0.5)
    while True:
        for lr, hr in zip(low, high):
            lr, hr = lr.to(device), hr.to(device)
            optimizer.zero_grad()
            loss = F.l1_loss(model(lr), hr)
            loss.backward()
            optimizer.step()
            yield loss
        scheduler.step()
