"""Siamese networks and contrastive losses."""

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(4),
            nn.ZeroPad2d(1),
            nn.Conv2d(4, 8, kernel_size=3),
            nn.PReLU(),
            nn.LocalResponseNorm(2),
            nn.Dropout2d(p=0.0),
        )
        self.fc1 = nn.Sequential(nn.Linear(8 * 8 * 8, 20), nn.ReLU6(), nn.Linear(20, 5))

    def forward_once(self, x):
        o = self.cnn1(x)
        o = o.view(o.size()[0], -1)
        return self.fc1(o)

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


class ContrastiveLoss(st.nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, o1, o2, label):
        d = F.pairwise_distance(o1, o2, keepdim=True)
        return st.mean((1 - label) * st.pow(d, 2) + label * st.pow(st.clamp(self.margin - d, min=0.0), 2))


def nt_xent(z1, z2, temperature=0.5):
    n = z1.size(0)
    z = F.normalize(st.cat([z1, z2], dim=0), dim=1)
    sim = st.mm(z, z.t()) / temperature
    sim.fill_diagonal_(-float("inf"))
    targets = st.cat([st.arange(n, 2 * n), st.arange(n)])
    return F.cross_entropy(sim, targets)


def supcon(f, labels, t=0.1):
    f = F.normalize(f, p=2, dim=-1)
    logits = st.div(f @ f.T, t)
    logits = logits - st.max(logits, dim=1, keepdim=True)[0].detach()
    mask = st.eq(labels.unsqueeze(1), labels.unsqueeze(0)).float()
    lm = st.scatter(st.ones_like(mask), 1, st.arange(f.size(0)).view(-1, 1), 0)
    mask = mask * lm
    ex = st.exp(logits) * lm
    lp = logits - st.log(ex.sum(1, keepdim=True))
    return -((mask * lp).sum(1) / mask.sum(1).clamp(min=1)).mean()


net = fill(SiameseNetwork(), 1, 0.3)
a, b = st.from_numpy(F32(6, 1, 8, 8)), st.from_numpy(F32(6, 1, 8, 8))
lab = st.tensor([[0.0], [1.0], [0.0], [1.0], [1.0], [0.0]])
opt = st.optim.Adagrad(net.parameters(), lr=0.01)
for i in range(3):
    o1, o2 = net(a, b)
    loss = ContrastiveLoss()(o1, o2, lab) + nt_xent(o1, o2) + supcon(o1, st.tensor([0, 1, 0, 1, 2, 2]))
    loss = (
        loss
        + F.triplet_margin_loss(o1, o2, o1.flip(0))
        + nn.CosineEmbeddingLoss(margin=0.2)(o1, o2, lab.squeeze(1) * 2 - 1)
    )
    loss += (
        F.mse_loss(st.cdist(o1, o2), st.ones(6, 6))
        + 0.1 * F.cosine_similarity(o1, o2).mean()
        + 0.1 * st.cosine_similarity(o1, o2, dim=1).sum()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    out(f"l{i}", loss)
