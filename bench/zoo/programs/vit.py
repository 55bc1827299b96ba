"""ViT: patches by a convolution, a class token, nn.MultiheadAttention before-norm, mixup, one-cycle schedule."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=16, patch=4, layers=2, heads=2, dim=32, classes=5, batch=8, amp=False),
    "cpu": dict(image=64, patch=8, layers=6, heads=4, dim=192, classes=10, batch=8, amp=False),
    "card": dict(image=224, patch=16, layers=12, heads=6, dim=384, classes=1000, batch=128, amp=True),
}


class Block(nn.Module):
    def __init__(self, dim, heads, mlp_ratio=4.0, dropout=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, int(dim * mlp_ratio)), nn.GELU(), nn.Dropout(dropout),
                                 nn.Linear(int(dim * mlp_ratio), dim), nn.Dropout(dropout))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return x


class VisionTransformer(nn.Module):
    def __init__(self, image, patch, layers, heads, dim, classes):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def mixup(x, y, lam):
    perm = torch.randperm(x.size(0), device=x.device)
    return lam * x + (1 - lam) * x[perm], lam * y + (1 - lam) * y[perm]


def train(cfg, rng, device, prepare):
    images = torch.from_numpy(rng.standard_normal((2 * cfg.batch, 3, cfg.image, cfg.image)).astype("float32"))
    labels = torch.from_numpy(rng.integers(0, cfg.classes, 2 * cfg.batch))
    dataset = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(dataset, batch_size=cfg.batch)
    model = prepare(VisionTransformer(cfg.image, cfg.patch, cfg.layers, cfg.heads, cfg.dim, cfg.classes).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=20_000, pct_start=0.001)
    while True:
        for x, y in loader:
            x = x.to(device, non_blocking=True)
            y = F.one_hot(y.to(device), cfg.classes).float()
            x, y = mixup(x, y, float(rng.beta(0.8, 0.8)))
            with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield loss
