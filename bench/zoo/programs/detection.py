"""A RetinaNet-like detector: pyramid, shared heads, anchors matched by overlap, focal and smooth L1 losses."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=64, width=8, classes=3, convs=1, batch=2, objects=3),
    "cpu": dict(image=192, width=32, classes=10, convs=2, batch=4, objects=6),
    "card": dict(image=512, width=256, classes=80, convs=4, batch=16, objects=12),
}


def box_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area_a[:, None] + area_b - inter)


def make_anchors(image, strides):
    anchors = []
    for stride in strides:
        centres = (torch.arange(image // stride) + 0.5) * stride
        cy, cx = torch.meshgrid(centres, centres, indexing="ij")
        for ratio in (0.5, 1.0, 2.0):
            w, h = 4 * stride * math.sqrt(1 / ratio), 4 * stride * math.sqrt(ratio)
            anchors.append(torch.stack((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2), dim=-1).reshape(-1, 4))
    return torch.cat(anchors)


def encode(anchors, boxes):
    wh, wh_b = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    centre, centre_b = anchors[:, :2] + wh / 2, boxes[:, :2] + wh_b / 2
    return torch.cat(((centre_b - centre) / wh, torch.log(wh_b / wh)), dim=1)


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * ce * (1 - p_t) ** gamma).sum()


def stage(inp, out):
    return nn.Sequential(nn.Conv2d(inp, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                         nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class Head(nn.Module):
    def __init__(self, width, out, convs, prior=None):
        super().__init__()
        layers = []
        for _ in range(convs):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
        self.conv, self.out, self.final = nn.Sequential(*layers), out, nn.Conv2d(width, 3 * out, 3, padding=1)
        nn.init.normal_(self.final.weight, std=0.01)
        nn.init.constant_(self.final.bias, 0.0 if prior is None else -math.log((1 - prior) / prior))

    def forward(self, features):
        result = []
        for x in features:
            x = self.final(self.conv(x))
            N, _, H, W = x.shape
            result.append(x.view(N, 3, self.out, H, W).permute(0, 1, 3, 4, 2).reshape(N, -1, self.out))
        return torch.cat(result, dim=1)


class Detector(nn.Module):
    strides = (8, 16, 32)

    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.stem = nn.Sequential(stage(3, w // 2), stage(w // 2, w))
        self.body = nn.ModuleList([stage(w, w), stage(w, 2 * w), stage(2 * w, 4 * w)])
        self.lateral = nn.ModuleList(nn.Conv2d(c, w, 1) for c in (w, 2 * w, 4 * w))
        self.smooth = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for _ in range(3))
        self.classes, self.boxes = Head(w, cfg.classes, cfg.convs, prior=0.01), Head(w, 4, cfg.convs)

    def forward(self, x):
        x, features = self.stem(x), []
        for part in self.body:
            x = part(x)
            features.append(x)
        inner, levels = None, []
        for x, lateral, smooth in zip(features[::-1], self.lateral[::-1], self.smooth[::-1]):
            x = lateral(x)
            if inner is not None:
                x = x + F.interpolate(inner, size=x.shape[-2:], mode="nearest")
            inner = x
            levels.append(smooth(x))
        return self.classes(levels[::-1]), self.boxes(levels[::-1])


def detection_loss(logits, deltas, anchors, targets):
    losses = []
    for logit, delta, (boxes, labels) in zip(logits, deltas, targets):
        quality, matched = box_iou(boxes, anchors).max(dim=0)
        best = box_iou(boxes, anchors).argmax(dim=1)
        positive, ignored = quality >= 0.5, (quality >= 0.4) & (quality < 0.5)
        positive[best] = True
        matched[best] = torch.arange(len(boxes), device=best.device)
        wanted = torch.zeros_like(logit)
        wanted[positive, labels[matched[positive]]] = 1.0
        used = ~ignored | positive
        count = max(1, int(positive.sum()))
        losses.append(sigmoid_focal_loss(logit[used], wanted[used]) / count
                      + F.smooth_l1_loss(delta[positive], encode(anchors[positive], boxes[matched[positive]]),
                                         beta=1 / 9, reduction="sum") / count)
    return sum(losses) / len(losses)


def train(cfg, rng, device, prepare):
    images = torch.from_numpy(rng.random((2, cfg.batch, 3, cfg.image, cfg.image), dtype="float32")).to(device)
    targets = []
    for _ in range(2):
        batch = []
        for _ in range(cfg.batch):
            corner = rng.uniform(0, 0.6 * cfg.image, (cfg.objects, 2))
            boxes = torch.tensor(rng.uniform(0.1, 0.4, (cfg.objects, 2)) * cfg.image + corner, dtype=torch.float)
            boxes = torch.cat((torch.tensor(corner, dtype=torch.float), boxes), dim=1)
            batch.append((boxes.to(device), torch.tensor(rng.integers(0, cfg.classes, cfg.objects)).to(device)))
        targets.append(batch)
    anchors = make_anchors(cfg.image, Detector.strides).to(device)
    model = prepare(Detector(cfg).to(device))
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=1e-4)
    while True:
        for x, target in zip(images, targets):
            logits, deltas = model(x)
            loss = detection_loss(logits, deltas, anchors, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss
