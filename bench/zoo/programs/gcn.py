"""A graph convolutional network by index_add over edges, symmetric degree norm, few labelled nodes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(nodes=60, edges=200, features=24, hidden=16, classes=4),
    "cpu": dict(nodes=3000, edges=20000, features=256, hidden=64, classes=7),
    "card": dict(nodes=170000, edges=1200000, features=128, hidden=256, classes=40),
}


class GCNConv(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inp, out))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edge_index, norm):
        row, col = edge_index
        x = x @ self.weight
        messages = x[row] * norm.unsqueeze(1)
        return torch.zeros_like(x).index_add_(0, col, messages) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(features, hidden), GCNConv(hidden, classes)

    def forward(self, x, edge_index, norm, dropout=0.0):
        x = F.relu(self.conv1(F.dropout(x, dropout, self.training), edge_index, norm))
        return self.conv2(F.dropout(x, dropout, self.training), edge_index, norm)


def gcn_norm(edge_index, nodes):
    row, col = edge_index
    deg = torch.zeros(nodes).scatter_add_(0, col, torch.ones(col.numel()))
    inv = deg.pow(-0.5)
    inv[inv == float("inf")] = 0
    return inv[row] * inv[col]


def train(cfg, rng, device, prepare):
    edges = torch.from_numpy(rng.integers(0, cfg.nodes, (2, cfg.edges)))
    loops = torch.arange(cfg.nodes).unsqueeze(0).repeat(2, 1)
    edge_index = torch.cat([edges, edges.flip(0), loops], dim=1)
    norm = gcn_norm(edge_index, cfg.nodes).to(device)
    edge_index = edge_index.to(device)
    x = F.normalize(torch.from_numpy(rng.random((cfg.nodes, cfg.features), dtype="float32")), p=1, dim=1).to(device)
    y = torch.from_numpy(rng.integers(0, cfg.classes, cfg.nodes)).to(device)
    train_mask = torch.from_numpy(rng.random(cfg.nodes) < 0.3).to(device)
    model = prepare(GCN(cfg.features, cfg.hidden, cfg.classes).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    while True:
        model.train()
        optimizer.zero_grad()
        out = model(x, edge_index, norm)
        loss = F.cross_entropy(out[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        yield loss
