"""A convolutional VAE: reparametrisation, summed binary cross entropy and KL divergence."""

import torch
import torch.nn.functional as F
from torch import nn, optim

SIZES = {
    "tiny": dict(image=16, width=8, latent=6, batch=8),
    "cpu": dict(image=32, width=32, latent=32, batch=64),
    "card": dict(image=64, width=64, latent=128, batch=256),
}


class VAE(nn.Module):
    def __init__(self, image, width, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2), nn.Flatten())
        self.side = image // 4
        flat = 2 * width * self.side ** 2
        self.fc_mu = nn.Linear(flat, latent)
        self.fc_logvar = nn.Linear(flat, latent)
        self.fc_up = nn.Linear(latent, flat)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2 * width, self.side, self.side)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Sigmoid())

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.fc_mu(h), self.fc_logvar(h)
        z = self.reparameterize(mu, logvar)
        return self.decoder(self.fc_up(z)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (BCE + KLD) / x.size(0)


def train(cfg, rng, device, prepare):
    data = torch.from_numpy((rng.random((4 * cfg.batch, 1, cfg.image, cfg.image)) < 0.2).astype("float32"))
    model = prepare(VAE(cfg.image, cfg.width, cfg.latent).to(device))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for batch_idx in range(len(data) // cfg.batch):
            batch = data[batch_idx * cfg.batch:(batch_idx + 1) * cfg.batch].to(device)
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(batch)
            loss = loss_function(recon_batch, batch, mu, logvar)
            loss.backward()
            optimizer.step()
            yield loss
