"""A convolutional GAN with a gradient penalty."""

import strata as st
import strata.nn as nn
from strata.autograd import Variable, grad


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


nz, ngf, ndf = 8, 4, 4
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.InstanceNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
    nn.Flatten(),
)
netG.apply(weights_init)
netD.apply(weights_init)
fill(netG, 1, 0.2)
fill(netD, 2, 0.2)
opG = st.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
opD = st.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
crit = nn.BCEWithLogitsLoss()
real = st.from_numpy(F32(5, 1, 16, 16))
noise = st.from_numpy(F32(5, nz, 1, 1))
alpha = st.from_numpy(np.linspace(0, 1, 5).astype(np.float32)).view(5, 1, 1, 1)


def gradient_penalty(D, real, fake):
    inter = Variable(alpha * real.data + (1 - alpha) * fake.data, requires_grad=True)
    d = D(inter)
    g = grad(
        outputs=d, inputs=inter, grad_outputs=st.ones(d.size()), create_graph=True, retain_graph=True, only_inputs=True
    )[0]
    g = g.view(g.size(0), -1)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


for it in range(2):
    netD.zero_grad()
    fake = netG(noise)
    label = st.full((5,), 1.0, dtype=st.float)
    errR = crit(netD(real).view(-1), label)
    errR.backward()
    label.fill_(0.0)
    errF = crit(netD(fake.detach()).view(-1), label)
    errF.backward()
    gp = gradient_penalty(netD, real, fake) * 10
    gp.backward()
    opD.step()
    for p in netD.parameters():
        p.requires_grad_(False)
    netG.zero_grad()
    label.fill_(1.0)
    errG = crit(netD(fake).view(-1), label)
    errG.backward()
    opG.step()
    for p in netD.parameters():
        p.requires_grad = True
    out(f"R{it}", errR)
    out(f"F{it}", errF)
    out(f"gp{it}", gp)
    out(f"G{it}", errG)
