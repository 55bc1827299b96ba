"""Siamese network: one embedding for pairs, contrastive and triplet losses, hardest negatives of the batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=24, width=4, embed=8, people=4, batch=8),
    "cpu": dict(image=64, width=24, embed=64, people=8, batch=16),
    "card": dict(image=128, width=64, embed=256, people=64, batch=256),
}


class SiameseNetwork(nn.Module):
    def __init__(self, width, embed):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(1, width, kernel_size=3), nn.ReLU(inplace=True), nn.BatchNorm2d(width),
            nn.MaxPool2d(2),
            nn.ReflectionPad2d(1), nn.Conv2d(width, 2 * width, kernel_size=3), nn.ReLU(inplace=True),
            nn.BatchNorm2d(2 * width), nn.MaxPool2d(2),
            nn.ReflectionPad2d(1), nn.Conv2d(2 * width, 4 * width, kernel_size=3), nn.PReLU(4 * width),
            nn.BatchNorm2d(4 * width), nn.AdaptiveAvgPool2d(2))
        self.fc = nn.Sequential(nn.Linear(16 * width, 64), nn.ELU(), nn.Linear(64, embed))

    def forward_once(self, x):
        output = self.cnn(x)
        return self.fc(output.view(output.size()[0], -1))

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean((1 - label) * torch.pow(distance, 2)
                          + label * torch.pow(torch.clamp(self.margin - distance, min=0.0), 2))


def hardest_negatives(anchors, others, owners, other_owners):
    with torch.no_grad():
        distances = torch.cdist(anchors, others)
        distances[owners[:, None] == other_owners[None, :]] = float("inf")
        return distances.argmin(dim=1)


def train(cfg, rng, device, prepare):
    faces = rng.standard_normal((cfg.people, 1, cfg.image, cfg.image))
    owners1, owners2 = rng.integers(0, cfg.people, (4, cfg.batch)), rng.integers(0, cfg.people, (4, cfg.batch))
    owners2[:, ::2] = owners1[:, ::2]
    noise = rng.standard_normal((2, 4, cfg.batch, 1, cfg.image, cfg.image)) * 0.3
    img1 = torch.from_numpy(faces[owners1] + noise[0]).float().to(device)
    img2 = torch.from_numpy(faces[owners2] + noise[1]).float().to(device)
    owners1, owners2 = torch.from_numpy(owners1).to(device), torch.from_numpy(owners2).to(device)
    net = prepare(SiameseNetwork(cfg.width, cfg.embed).to(device))
    criterion, triplet = ContrastiveLoss(), nn.TripletMarginLoss(margin=1.0, swap=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    while True:
        for a, b, who_a, who_b in zip(img1, img2, owners1, owners2):
            optimizer.zero_grad()
            out1, out2 = net(a, b)
            loss = criterion(out1, out2, (who_a != who_b).float().unsqueeze(1))
            negatives = out2[hardest_negatives(out1, out2, who_a, who_b)]
            same = who_a == who_b
            loss = loss + 0.5 * triplet(out1[same], out2[same], negatives[same])
            loss.backward()
            optimizer.step()
            yield loss
