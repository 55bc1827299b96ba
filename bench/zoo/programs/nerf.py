"""NeRF: stratified samples on rays, positional encoding, a perceptron with a skip, volume rendering by cumprod."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(rays=16, samples=8, width=32, depth=4, lr=3e-3),
    "cpu": dict(rays=128, samples=32, width=128, depth=8, lr=5e-4),
    "card": dict(rays=4096, samples=64, width=256, depth=8, lr=5e-4),
}


def positional_encoding(x, levels):
    out = [x]
    for i in range(levels):
        for fn in (torch.sin, torch.cos):
            out.append(fn(2.0 ** i * x))
    return torch.cat(out, dim=-1)


class NeRF(nn.Module):
    def __init__(self, depth, width, skip=4, pos_levels=10, dir_levels=4):
        super().__init__()
        self.pos_levels, self.dir_levels, self.skip = pos_levels, dir_levels, skip
        inp, views = 3 + 6 * pos_levels, 3 + 6 * dir_levels
        self.pts_linears = nn.ModuleList(
            [nn.Linear(inp, width)] + [nn.Linear(width + inp if i == skip else width, width) for i in range(1, depth)])
        self.alpha_linear = nn.Linear(width, 1)
        self.feature_linear = nn.Linear(width, width)
        self.views_linear = nn.Linear(width + views, width // 2)
        self.rgb_linear = nn.Linear(width // 2, 3)

    def forward(self, points, dirs):
        encoded = positional_encoding(points, self.pos_levels)
        h = encoded
        for i, layer in enumerate(self.pts_linears):
            if i == self.skip:
                h = torch.cat([encoded, h], -1)
            h = F.relu(layer(h))
        alpha = self.alpha_linear(h)
        dirs = positional_encoding(dirs, self.dir_levels)[:, None].expand(*points.shape[:-1], -1)
        h = F.relu(self.views_linear(torch.cat([self.feature_linear(h), dirs], -1)))
        return torch.sigmoid(self.rgb_linear(h)), alpha.squeeze(-1)


def render_rays(model, rays_o, rays_d, n_samples, near=2.0, far=6.0):
    t_vals = torch.linspace(0.0, 1.0, steps=n_samples, device=rays_o.device)
    z_vals = (near * (1.0 - t_vals) + far * t_vals).expand(rays_o.shape[0], n_samples)
    mids = 0.5 * (z_vals[..., 1:] + z_vals[..., :-1])
    upper = torch.cat([mids, z_vals[..., -1:]], -1)
    lower = torch.cat([z_vals[..., :1], mids], -1)
    z_vals = lower + (upper - lower) * torch.rand(z_vals.shape, device=rays_o.device)
    pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
    rgb, sigma = model(pts, rays_d / rays_d.norm(dim=-1, keepdim=True))
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], -1) * torch.norm(rays_d[..., None, :], dim=-1)
    alpha = 1.0 - torch.exp(-F.relu(sigma) * dists)
    transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * transmittance
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    return rgb_map + (1.0 - weights.sum(-1, keepdim=True)), weights


def train(cfg, rng, device, prepare):
    rays_d = torch.from_numpy(rng.standard_normal((4, cfg.rays, 3))).float().to(device)
    rays_o = (-4.0 * F.normalize(rays_d, dim=-1)).clone()
    target = torch.sigmoid(3 * rays_d)
    model = prepare(NeRF(cfg.depth, cfg.width).to(device))
    optimizer = torch.optim.Adam(params=model.parameters(), lr=cfg.lr, betas=(0.9, 0.999))
    decay_rate, global_step = 0.1, 0
    while True:
        for o, d, rgb in zip(rays_o, rays_d, target):
            out, _ = render_rays(model, o, d, cfg.samples)
            optimizer.zero_grad()
            loss = torch.mean((out - rgb) ** 2)
            loss.backward()
            optimizer.step()
            global_step += 1
            for group in optimizer.param_groups:
                group["lr"] = cfg.lr * decay_rate ** (global_step / 250000)
            yield loss
