"""DCGAN: transposed convolutions against strided ones, two Adam optimizers, BCE with fixed labels."""

import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(nz=8, ngf=8, ndf=8, batch=8),
    "cpu": dict(nz=64, ngf=32, ndf=32, batch=32),
    "card": dict(nz=100, ngf=64, ndf=64, batch=256),
}
FALLS = False  # two losses pull against each other


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False))

    def forward(self, x):
        return self.main(x).view(-1)


def train(cfg, rng, device, prepare):
    netG = Generator(cfg.nz, cfg.ngf).to(device)
    netG.apply(weights_init)
    netD = Discriminator(cfg.ndf).to(device)
    netD.apply(weights_init)
    netG, netD = prepare(netG), prepare(netD)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = torch.tanh(torch.from_numpy(rng.standard_normal((2, cfg.batch, 3, 32, 32)))).float()
    real_label, fake_label = 1.0, 0.0
    while True:
        for real in data:
            real = real.to(device)
            netD.zero_grad()
            label = torch.full((real.size(0),), real_label, dtype=torch.float, device=device)
            errD_real = criterion(netD(real), label)
            errD_real.backward()
            noise = torch.randn(real.size(0), cfg.nz, 1, 1, device=device)
            fake = netG(noise)
            label.fill_(fake_label)
            errD_fake = criterion(netD(fake.detach()), label)
            errD_fake.backward()
            optimizerD.step()

            netG.zero_grad()
            label.fill_(real_label)
            errG = criterion(netD(fake), label)
            errG.backward()
            optimizerG.step()
            yield errD_real + errD_fake + errG
