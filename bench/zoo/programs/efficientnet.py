"""EfficientNet: inverted residuals with depthwise convolutions, squeeze and excitation, SiLU, RMSprop."""

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {
    "tiny": dict(image=32, width=0.25, depth=1, stages=3, classes=5, batch=4, amp=False),
    "cpu": dict(image=64, width=0.5, depth=1, stages=7, classes=10, batch=8, amp=False),
    "card": dict(image=224, width=1.0, depth=1, stages=7, classes=1000, batch=128, amp=True),
}
# expansion, channels, repeats, stride, kernel
BLOCKS = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
          (6, 320, 1, 1, 3)]


def round_filters(filters, width, divisor=8):
    new = max(divisor, int(filters * width + divisor / 2) // divisor * divisor)
    return int(new + divisor if new < 0.9 * filters * width else new)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(s))))


def conv_bn(inp, out, kernel, stride=1, groups=1, act=True):
    layers = [nn.Conv2d(inp, out, kernel, stride, kernel // 2, groups=groups, bias=False),
              nn.BatchNorm2d(out, momentum=0.01, eps=1e-3)]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if act else []))


class MBConv(nn.Module):
    def __init__(self, inp, out, expand, kernel, stride, drop_prob):
        super().__init__()
        hidden = inp * expand
        self.expand = conv_bn(inp, hidden, 1) if expand != 1 else nn.Identity()
        self.depthwise = conv_bn(hidden, hidden, kernel, stride, groups=hidden)
        self.se = SqueezeExcite(hidden, max(1, inp // 4))
        self.project = conv_bn(hidden, out, 1, act=False)
        self.skip = stride == 1 and inp == out
        self.drop_prob = drop_prob

    def forward(self, x):
        y = self.project(self.se(self.depthwise(self.expand(x))))
        if not self.skip:
            return y
        if self.training and self.drop_prob:
            keep = 1.0 - self.drop_prob
            random = torch.floor(keep + torch.rand([y.shape[0], 1, 1, 1], dtype=y.dtype, device=y.device))
            y = y / keep * random
        return x + y


class EfficientNet(nn.Sequential):
    def __init__(self, cfg):
        channels = round_filters(32, cfg.width)
        layers = [conv_bn(3, channels, 3, stride=2)]
        for i, (expand, out, repeats, stride, kernel) in enumerate(BLOCKS[: cfg.stages]):
            out = round_filters(out, cfg.width)
            for r in range(repeats * cfg.depth):
                layers.append(MBConv(channels, out, expand, kernel, stride if r == 0 else 1, 0.2 * i / len(BLOCKS)))
                channels = out
        head = round_filters(1280, cfg.width)
        layers += [conv_bn(channels, head, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Dropout(0.2),
                   nn.Linear(head, cfg.classes)]
        super().__init__(*layers)


def train(cfg, rng, device, prepare):
    x = torch.tensor(rng.standard_normal((cfg.batch, 3, cfg.image, cfg.image)).astype("f")).to(device)
    y = torch.tensor(rng.integers(0, cfg.classes, cfg.batch)).to(device)
    model = prepare(EfficientNet(cfg).to(device))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.97 ** (1 / 100))
    while True:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss
