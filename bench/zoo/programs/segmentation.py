"""DeepLab-like segmentation: dilated backbone, atrous pyramid, upsampling, cross entropy with void pixels, dice."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=32, width=8, classes=4, batch=4),
    "cpu": dict(image=96, width=24, classes=8, batch=4),
    "card": dict(image=512, width=64, classes=21, batch=16),
}


class BasicBlock(nn.Module):
    def __init__(self, inp, out, stride=1, dilation=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inp, out, 3, stride, dilation, dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or inp != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x), inplace=True)


class ASPPPooling(nn.Sequential):
    def __init__(self, inp, out):
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inp, out, 1, bias=False), nn.GroupNorm(4, out), nn.ReLU())

    def forward(self, x):
        size = x.shape[-2:]
        for mod in self:
            x = mod(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, inp, out, rates=(2, 4, 6)):
        super().__init__()
        modules = [nn.Sequential(nn.Conv2d(inp, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())]
        for rate in rates:
            modules.append(nn.Sequential(nn.Conv2d(inp, out, 3, padding=rate, dilation=rate, bias=False),
                                         nn.BatchNorm2d(out), nn.ReLU()))
        modules.append(ASPPPooling(inp, out))
        self.convs = nn.ModuleList(modules)
        self.project = nn.Sequential(nn.Conv2d(len(modules) * out, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                     nn.Dropout(0.5))

    def forward(self, x):
        return self.project(torch.cat([conv(x) for conv in self.convs], dim=1))


class DeepLab(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        w = width
        self.low = nn.Sequential(BasicBlock(3, w, stride=2), BasicBlock(w, w, stride=2))
        self.high = nn.Sequential(BasicBlock(w, 2 * w, stride=2), BasicBlock(2 * w, 4 * w, dilation=2))
        self.aspp = ASPP(4 * w, 2 * w)
        self.reduce = nn.Conv2d(w, w // 2, 1)
        self.classifier = nn.Sequential(nn.Conv2d(2 * w + w // 2, 2 * w, 3, padding=1, bias=False),
                                        nn.BatchNorm2d(2 * w), nn.ReLU(inplace=True), nn.Conv2d(2 * w, classes, 1))

    def forward(self, x):
        low = self.low(x)
        high = F.interpolate(self.aspp(self.high(low)), size=low.shape[-2:], mode="bilinear", align_corners=False)
        out = self.classifier(torch.cat((high, self.reduce(low)), dim=1))
        return F.interpolate(out, size=x.shape[-2:], mode="bilinear", align_corners=False)


def dice_loss(logits, target, ignore=255, eps=1.0):
    probs, valid = logits.softmax(1), target != ignore
    onehot = F.one_hot(torch.where(valid, target, 0), logits.size(1)).permute(0, 3, 1, 2) * valid.unsqueeze(1)
    probs = probs * valid.unsqueeze(1)
    inter = (probs * onehot).sum(dim=(0, 2, 3))
    union = (probs + onehot).sum(dim=(0, 2, 3))
    return 1 - ((2 * inter + eps) / (union + eps)).mean()


def train(cfg, rng, device, prepare):
    images = torch.from_numpy(rng.standard_normal((2, cfg.batch, 3, cfg.image, cfg.image))).float().to(device)
    masks = (images.mean(2) * 2 + cfg.classes / 2).long().clamp(0, cfg.classes - 1)
    masks[:, :, :2] = 255
    model = prepare(DeepLab(cfg.width, cfg.classes).to(device))
    heads = list(map(id, model.classifier.parameters()))
    optimizer = torch.optim.SGD([
        {"params": [p for p in model.parameters() if id(p) not in heads], "lr": 0.01},
        {"params": model.classifier.parameters(), "lr": 0.05}], momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=1000, power=0.9)
    while True:
        for x, y in zip(images, masks):
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out, y, ignore_index=255) + dice_loss(out, y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield loss
