"""WGAN with gradient penalty: the critic's gradient is itself differentiated; several critic steps a step."""

import torch
import torch.autograd as autograd
import torch.nn as nn

SIZES = {
    "tiny": dict(latent=8, width=8, batch=4, critics=2),
    "cpu": dict(latent=64, width=24, batch=16, critics=2),
    "card": dict(latent=128, width=128, batch=64, critics=5),
}
FALLS = False  # two losses pull against each other


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.width = width
        self.project = nn.Sequential(nn.Linear(latent, 4 * 4 * 4 * width), nn.ReLU(True))
        self.main = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(4 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1), nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Upsample(scale_factor=2), nn.Conv2d(width, 3, 3, padding=1), nn.Tanh())

    def forward(self, z):
        return self.main(self.project(z).view(-1, 4 * self.width, 4, 4))


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 5, 2, 2), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 5, 2, 2), nn.InstanceNorm2d(2 * width, affine=True), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 5, 2, 2), nn.InstanceNorm2d(4 * width, affine=True), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(4 * width * 16, 1))

    def forward(self, x):
        return self.main(x)


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = torch.rand(real_samples.size(0), 1, 1, 1, device=real_samples.device)
    interpolates = (alpha * real_samples + (1 - alpha) * fake_samples).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = torch.ones(real_samples.size(0), 1, device=real_samples.device)
    gradients = autograd.grad(outputs=d_interpolates, inputs=interpolates, grad_outputs=fake, create_graph=True,
                              retain_graph=True, only_inputs=True)[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def train(cfg, rng, device, prepare):
    generator = prepare(Generator(cfg.latent, cfg.width).to(device))
    critic = prepare(Critic(cfg.width).to(device))
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    optimizer_D = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    data = torch.from_numpy(rng.uniform(-1, 1, (3, cfg.batch, 3, 32, 32))).float().to(device)
    step = 0
    while True:
        for _ in range(cfg.critics):
            real = data[step % len(data)]
            step += 1
            optimizer_D.zero_grad()
            z = torch.randn(real.shape[0], cfg.latent, device=device)
            fake = generator(z).detach()
            penalty = compute_gradient_penalty(critic, real.data, fake.data)
            d_loss = -torch.mean(critic(real)) + torch.mean(critic(fake)) + 10.0 * penalty
            d_loss.backward()
            optimizer_D.step()
        for p in critic.parameters():
            p.requires_grad = False
        optimizer_G.zero_grad()
        g_loss = -critic(generator(torch.randn(cfg.batch, cfg.latent, device=device))).mean()
        g_loss.backward()
        optimizer_G.step()
        for p in critic.parameters():
            p.requires_grad = True
        yield d_loss
