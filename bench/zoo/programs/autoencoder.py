"""A denoising autoencoder of linear layers over flat images, tied decoder, plateau schedule driven by the loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(pixels=64, widths=(32, 8), batch=16),
    "cpu": dict(pixels=784, widths=(1000, 500, 250, 30), batch=256),
    "card": dict(pixels=3072, widths=(4096, 2048, 1024, 128), batch=4096),
}


class TiedAutoencoder(nn.Module):
    def __init__(self, pixels, widths):
        super().__init__()
        sizes = (pixels, *widths)
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(b, a)) for a, b in zip(sizes, sizes[1:])])
        self.up = nn.ParameterList([nn.Parameter(torch.zeros(b)) for b in sizes[1:]])
        self.down = nn.ParameterList([nn.Parameter(torch.zeros(a)) for a in sizes[:-1]])
        for w in self.weights:
            nn.init.xavier_uniform_(w, gain=nn.init.calculate_gain("selu"))

    def encode(self, x):
        for i, (w, b) in enumerate(zip(self.weights, self.up)):
            x = F.linear(x, w, b)
            if i + 1 < len(self.weights):
                x = F.selu(x)
        return x

    def decode(self, z):
        for i in reversed(range(len(self.weights))):
            z = F.linear(z, self.weights[i].t(), self.down[i])
            if i > 0:
                z = F.selu(z)
        return torch.sigmoid(z)

    def forward(self, x):
        return self.decode(self.encode(x))


def train(cfg, rng, device, prepare):
    basis = rng.random((8, cfg.pixels))
    data = torch.from_numpy(rng.dirichlet([0.3] * 8, 4 * cfg.batch) @ basis).float()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=cfg.batch, shuffle=False)
    model = prepare(TiedAutoencoder(cfg.pixels, cfg.widths).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=10)
    while True:
        total = 0.0
        for (x,) in loader:
            x = x.to(device)
            noisy = (x + 0.2 * torch.randn_like(x)).clamp(0.0, 1.0)
            loss = F.mse_loss(model(noisy), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            yield loss
        scheduler.step(total)
