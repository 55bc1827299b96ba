"""DLRM: bags of categorical features, a bottom and a top perceptron, pairwise dot products, Adagrad."""

import numpy as np
import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(tables=(20, 30, 15), dim=8, dense=5, bottom=(16, 8), top=(16, 1), bag=3, batch=8),
    "cpu": dict(tables=(2000, 5000, 1000, 500, 3000, 800), dim=32, dense=13, bottom=(256, 32), top=(256, 128, 1), bag=5,
                batch=2048),
    "card": dict(tables=(100000,) * 26, dim=64, dense=13, bottom=(512, 256, 64), top=(1024, 512, 256, 1), bag=5,
                 batch=8192),
}


def create_mlp(ln, sigmoid_last):
    layers = []
    for i, (n, m) in enumerate(zip(ln, ln[1:])):
        LL = nn.Linear(int(n), int(m))
        nn.init.normal_(LL.weight, 0.0, float(np.sqrt(2 / (m + n))))
        layers.append(LL)
        layers.append(nn.Sigmoid() if sigmoid_last and i == len(ln) - 2 else nn.ReLU())
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb_l = nn.ModuleList([nn.EmbeddingBag(n, cfg.dim, mode="sum") for n in cfg.tables])
        for table in self.emb_l:
            nn.init.uniform_(table.weight, -1 / table.num_embeddings ** 0.5, 1 / table.num_embeddings ** 0.5)
        self.bot_l = create_mlp((cfg.dense, *cfg.bottom), sigmoid_last=False)
        fields = len(cfg.tables) + 1
        self.top_l = create_mlp((cfg.dim + fields * (fields - 1) // 2, *cfg.top), sigmoid_last=True)

    def interact_features(self, x, ly):
        batch_size, d = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)], device=x.device)
        lj = torch.tensor([j for i in range(nj) for j in range(i)], device=x.device)
        return torch.cat([x] + [Z[:, li, lj]], dim=1)

    def forward(self, dense_x, lS_o, lS_i):
        x = self.bot_l(dense_x)
        ly = [table(indices, offsets) for table, indices, offsets in zip(self.emb_l, lS_i, lS_o)]
        return self.top_l(self.interact_features(x, ly))


def train(cfg, rng, device, prepare):
    batches = []
    for _ in range(3):
        dense = torch.from_numpy(np.log1p(rng.integers(0, 100, (cfg.batch, cfg.dense))).astype("float32")).to(device)
        indices, offsets = [], []
        for n in cfg.tables:
            sizes = rng.integers(1, cfg.bag + 1, cfg.batch)
            indices.append(torch.from_numpy(rng.integers(0, n, sizes.sum())).to(device))
            offsets.append(torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)[:-1]])).to(device))
        clicked = torch.from_numpy((rng.random((cfg.batch, 1)) < 0.3).astype("float32")).to(device)
        batches.append((dense, offsets, indices, clicked))
    dlrm = prepare(DLRM(cfg).to(device))
    loss_fn = nn.BCELoss(reduction="mean")
    optimizer = torch.optim.Adagrad(dlrm.parameters(), lr=0.02)
    while True:
        for dense, offsets, indices, clicked in batches:
            loss = loss_fn(dlrm(dense, offsets, indices), clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss
