"""PointNet: shared 1x1 convolutions over points, a learned transform with its penalty, maximum over points."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(points=32, scale=8, classes=4, batch=4),
    "cpu": dict(points=512, scale=2, classes=10, batch=8),
    "card": dict(points=2048, scale=1, classes=40, batch=64),
}


class STNkd(nn.Module):
    def __init__(self, k, scale):
        super().__init__()
        self.k = k
        self.conv1, self.conv2 = nn.Conv1d(k, 64 // scale, 1), nn.Conv1d(64 // scale, 256 // scale, 1)
        self.fc1, self.fc2 = nn.Linear(256 // scale, 128 // scale), nn.Linear(128 // scale, k * k)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm1d(n // scale) for n in (64, 256, 128))

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2, keepdim=True)[0].view(x.size(0), -1)
        x = self.fc2(F.relu(self.bn3(self.fc1(x))))
        iden = torch.eye(self.k, device=x.device).view(1, self.k * self.k).repeat(x.size(0), 1)
        return (x + iden).view(-1, self.k, self.k)


class PointNet(nn.Module):
    def __init__(self, classes, scale):
        super().__init__()
        self.stn, self.fstn = STNkd(3, scale), STNkd(64 // scale, scale)
        self.conv1 = nn.Conv1d(3, 64 // scale, 1)
        self.conv2 = nn.Conv1d(64 // scale, 128 // scale, 1)
        self.conv3 = nn.Conv1d(128 // scale, 1024 // scale, 1)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm1d(n // scale) for n in (64, 128, 1024))
        self.fc = nn.Sequential(nn.Linear(1024 // scale, 256 // scale), nn.BatchNorm1d(256 // scale), nn.ReLU(),
                                nn.Dropout(p=0.3), nn.Linear(256 // scale, classes))

    def forward(self, x):
        trans = self.stn(x)
        x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        trans_feat = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x, _ = torch.max(x, 2)
        return F.log_softmax(self.fc(x), dim=1), trans_feat


def feature_transform_regularizer(trans):
    iden = torch.eye(trans.size(1), device=trans.device)[None, :, :]
    return torch.mean(torch.norm(torch.bmm(trans, trans.transpose(2, 1)) - iden, dim=(1, 2)))


def train(cfg, rng, device, prepare):
    points = rng.standard_normal((4, cfg.batch, 3, cfg.points))
    points = torch.from_numpy(points / abs(points).max(axis=(2, 3), keepdims=True)).float().to(device)
    labels = torch.from_numpy(rng.integers(0, cfg.classes, (4, cfg.batch))).to(device)
    model = prepare(PointNet(cfg.classes, cfg.scale).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    while True:
        for x, target in zip(points, labels):
            optimizer.zero_grad()
            pred, trans_feat = model.train()(x)
            loss = F.nll_loss(pred, target) + feature_transform_regularizer(trans_feat) * 0.001
            loss.backward()
            optimizer.step()
            yield loss
        scheduler.step()
