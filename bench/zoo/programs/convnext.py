"""ConvNeXt: depthwise 7x7, LayerNorm over channels, layer scale, stochastic depth, averaged weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SIZES = {
    "tiny": dict(image=32, depths=(1, 1, 1), dims=(8, 16, 32), classes=5, batch=4, amp=False),
    "cpu": dict(image=96, depths=(2, 2, 2), dims=(32, 64, 128), classes=10, batch=8, amp=False),
    "card": dict(image=224, depths=(3, 3, 9, 3), dims=(96, 192, 384, 768), classes=1000, batch=128, amp=True),
}


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class DropPath(nn.Module):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        mask = torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device) < keep
        return x * mask / keep


class Block(nn.Module):
    def __init__(self, dim, drop_path=0.0, layer_scale=1e-6):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x).permute(0, 2, 3, 1)
        x = self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        x = (self.gamma * x).permute(0, 3, 1, 2)
        return shortcut + self.drop_path(x)


class ConvNeXt(nn.Module):
    def __init__(self, depths, dims, classes):
        super().__init__()
        self.downsample_layers = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(3, dims[0], kernel_size=4, stride=4), LayerNorm2d(dims[0], eps=1e-6))])
        for before, after in zip(dims, dims[1:]):
            self.downsample_layers.append(
                nn.Sequential(LayerNorm2d(before, eps=1e-6), nn.Conv2d(before, after, kernel_size=2, stride=2)))
        rates = iter(torch.linspace(0, 0.1, sum(depths)).tolist())
        self.stages = nn.ModuleList(nn.Sequential(*(Block(dim, next(rates)) for _ in range(depth)))
                                    for dim, depth in zip(dims, depths))
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], classes)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, std=0.02)
            nn.init.constant_(m.bias, 0)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        return self.head(self.norm(x.mean([-2, -1])))


def train(cfg, rng, device, prepare):
    x = torch.from_numpy(rng.standard_normal((cfg.batch, 3, cfg.image, cfg.image), dtype="float32")).to(device)
    y = torch.from_numpy(rng.integers(0, cfg.classes, cfg.batch)).to(device)
    model = prepare(ConvNeXt(cfg.depths, cfg.dims, cfg.classes).to(device))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim <= 1 or name.endswith(".bias") else decay).append(p)
    opt = torch.optim.AdamW([dict(params=decay), dict(params=no_decay, weight_decay=0.0)], lr=4e-3, weight_decay=0.05)
    while True:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(model)
        yield loss
