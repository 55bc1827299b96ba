"""ResNet with bottlenecks as in torchvision: Nesterov momentum, channels-last, flips and crops."""

import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(image=32, layers=(1, 1), width=8, classes=5, batch=4, amp=False),
    "cpu": dict(image=64, layers=(1, 1, 1, 1), width=32, classes=10, batch=8, amp=False),
    "card": dict(image=224, layers=(3, 4, 6, 3), width=64, classes=1000, batch=256, amp=True),
}


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


def conv1x1(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=1, stride=stride, bias=False)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = conv1x1(inplanes, planes)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = conv1x1(planes, planes * self.expansion)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, width, classes):
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layers = nn.Sequential(
            *(self._make_layer(width * 2 ** i, n, 1 if i == 0 else 2) for i, n in enumerate(layers)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.inplanes, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, Bottleneck):
                nn.init.constant_(m.bn3.weight, 0)

    def _make_layer(self, planes, blocks, stride):
        downsample = None
        if stride != 1 or self.inplanes != planes * Bottleneck.expansion:
            downsample = nn.Sequential(conv1x1(self.inplanes, planes * Bottleneck.expansion, stride),
                                       nn.BatchNorm2d(planes * Bottleneck.expansion))
        layers = [Bottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * Bottleneck.expansion
        layers += [Bottleneck(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


class Images(torch.utils.data.Dataset):
    def __init__(self, rng, count, size, classes):
        self.images = (rng.random((count, size + 8, size + 8, 3)) * 255).astype("uint8")
        self.labels = rng.integers(0, classes, count)
        self.corners = rng.integers(0, 8, (count, 2))
        self.flips = rng.random(count) < 0.5
        self.size = size

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        top, left = self.corners[i]
        image = self.images[i, top:top + self.size, left:left + self.size].copy()
        image = torch.from_numpy(image).permute(2, 0, 1).float()
        if self.flips[i]:
            image = image.flip(-1)
        return (image / 255.0 - 0.5) / 0.25, int(self.labels[i])


def train(cfg, rng, device, prepare):
    count = cfg.batch if cfg.batch >= 64 else 4 * cfg.batch
    dataset = Images(rng, count, cfg.image, cfg.classes)
    loader = torch.utils.data.DataLoader(dataset, batch_size=cfg.batch, num_workers=0)
    model = prepare(ResNet(cfg.layers, cfg.width, cfg.classes).to(device, memory_format=torch.channels_last))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    model.train()
    while True:
        for images, target in loader:
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            target = target.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                output = model(images)
                loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss
        scheduler.step()
