"""Matrix factorisation with biases over ratings from a shuffled DataLoader, SGD with momentum and weight decay."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

SIZES = {
    "tiny": dict(users=40, items=30, factors=8, ratings=256, batch=64),
    "cpu": dict(users=6000, items=4000, factors=64, ratings=40000, batch=4096),
    "card": dict(users=160000, items=60000, factors=128, ratings=1000000, batch=65536),
}


class MatrixFactorization(torch.nn.Module):
    def __init__(self, n_users, n_items, n_factors):
        super().__init__()
        self.user_factors = torch.nn.Embedding(n_users, n_factors)
        self.item_factors = torch.nn.Embedding(n_items, n_factors)
        self.user_biases = torch.nn.Embedding(n_users, 1)
        self.item_biases = torch.nn.Embedding(n_items, 1)
        self.mean = torch.nn.Parameter(torch.tensor(3.0))
        for table in (self.user_factors, self.item_factors):
            table.weight.data.normal_(0, 0.1)
        for table in (self.user_biases, self.item_biases):
            table.weight.data.zero_()

    def forward(self, user, item):
        pred = self.user_biases(user).squeeze(-1) + self.item_biases(item).squeeze(-1) + self.mean
        return pred + (self.user_factors(user) * self.item_factors(item)).sum(1)


def train(cfg, rng, device, prepare):
    users = rng.integers(0, cfg.users, cfg.ratings)
    items = np.minimum(rng.zipf(1.3, cfg.ratings), cfg.items) - 1
    stars = (1 + (users + items) % 5).astype(np.float32)
    dataset = TensorDataset(torch.from_numpy(users), torch.from_numpy(items), torch.from_numpy(stars))
    loader = DataLoader(dataset, batch_size=cfg.batch, drop_last=True)
    model = prepare(MatrixFactorization(cfg.users, cfg.items, cfg.factors).to(device))
    criterion = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-5)
    while True:
        for user, item, rating in loader:
            user, item, rating = user.to(device), item.to(device), rating.to(device)
            optimizer.zero_grad()
            loss = criterion(model(user, item), rating)
            loss.backward()
            optimizer.step()
            yield loss
