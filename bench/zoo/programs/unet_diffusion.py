"""DDPM: a U-Net with time embeddings, group norms and attention learns the noise; an average of the weights beside."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=16, channels=16, mults=(1, 2), batch=4, amp=False),
    "cpu": dict(image=32, channels=32, mults=(1, 2, 4), batch=8, amp=False),
    "card": dict(image=64, channels=128, mults=(1, 2, 4), batch=64, amp=True),
}


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        emb = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        emb = t[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class ResBlock(nn.Module):
    def __init__(self, inp, out, time_dim):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inp), nn.Conv2d(inp, out, 3, padding=1)
        self.time = nn.Linear(time_dim, out)
        self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.shortcut(x)


class AttnBlock(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, dim)
        self.qkv = nn.Conv2d(dim, 3 * dim, 1, bias=False)
        self.out = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        sim = torch.einsum("bhdi,bhdj->bhij", q * (c // self.heads) ** -0.5, k)
        out = torch.einsum("bhij,bhdj->bhid", sim.softmax(dim=-1), v)
        return x + self.out(out.permute(0, 1, 3, 2).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, dim, mults):
        super().__init__()
        time_dim = dim * 4
        self.time = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, time_dim), nn.SiLU(),
                                  nn.Linear(time_dim, time_dim))
        self.inp = nn.Conv2d(3, dim, 3, padding=1)
        dims = [dim] + [dim * m for m in mults]
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            last = i == len(mults) - 1
            self.downs.append(nn.ModuleList([
                ResBlock(a, b, time_dim), ResBlock(b, b, time_dim), AttnBlock(b) if last else nn.Identity(),
                nn.Identity() if last else nn.Conv2d(b, b, 4, 2, 1)]))
            self.ups.insert(0, nn.ModuleList([
                ResBlock(2 * b, b, time_dim), ResBlock(b, a, time_dim), AttnBlock(a) if last else nn.Identity(),
                nn.Identity() if i == 0 else nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"),
                                                           nn.Conv2d(a, a, 3, padding=1))]))
        self.mid = ResBlock(dims[-1], dims[-1], time_dim)
        self.out = nn.Sequential(nn.GroupNorm(8, dim), nn.SiLU(), nn.Conv2d(dim, 3, 3, padding=1))

    def forward(self, x, t):
        t, x, skips = self.time(t), self.inp(x), []
        for block1, block2, attn, down in self.downs:
            x = attn(block2(block1(x, t), t))
            skips.append(x)
            x = down(x)
        x = self.mid(x, t)
        for block1, block2, attn, up in self.ups:
            x = block1(torch.cat((x, skips.pop()), dim=1), t)
            x = up(attn(block2(x, t)))
        return self.out(x)


class Diffusion(nn.Module):
    def __init__(self, steps=1000):
        super().__init__()
        betas = torch.linspace(1e-4, 0.02, steps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.steps = steps
        self.register_buffer("sqrt_alphas_cumprod", alphas_cumprod.sqrt())
        self.register_buffer("sqrt_one_minus", (1.0 - alphas_cumprod).sqrt())

    def loss(self, model, x0):
        t = torch.randint(0, self.steps, (x0.shape[0],), device=x0.device)
        noise = torch.randn_like(x0)
        a = self.sqrt_alphas_cumprod.gather(0, t).view(-1, 1, 1, 1)
        b = self.sqrt_one_minus.gather(0, t).view(-1, 1, 1, 1)
        return F.mse_loss(model(a * x0 + b * noise, t), noise)


def train(cfg, rng, device, prepare):
    images = torch.from_numpy(rng.uniform(-1, 1, (3 * cfg.batch, 3, cfg.image, cfg.image)).astype("float32"))
    loader = torch.utils.data.DataLoader(images, batch_size=cfg.batch, drop_last=True)
    model = prepare(UNet(cfg.channels, cfg.mults).to(device))
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    diffusion = Diffusion().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if cfg.channels < 128 else 2e-4)
    while True:
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                loss = diffusion.loss(model, x.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for kept, p in zip(ema.parameters(), model.parameters()):
                    kept.lerp_(p, 1 - 0.995)
            yield loss
