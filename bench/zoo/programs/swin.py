"""Swin transformer: windows, shifted windows with their mask, relative position table, merging of patches."""

import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(image=32, patch=2, window=4, depths=(2, 2), heads=(2, 4), dim=16, classes=5, batch=4, amp=False),
    "cpu": dict(image=64, patch=2, window=4, depths=(2, 2, 2), heads=(2, 4, 8), dim=48, classes=10, batch=8, amp=False),
    "card": dict(image=224, patch=4, window=7, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), dim=96, classes=1000,
                 batch=64, amp=True),
}


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    B = windows.shape[0] // (H * W // ws // ws)
    x = windows.view(B, H // ws, W // ws, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, ws, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * ws - 1) ** 2, num_heads))
        coords = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += ws - 1
        relative[:, :, 1] += ws - 1
        relative[:, :, 0] *= 2 * ws - 1
        self.register_buffer("relative_position_index", relative.sum(-1))
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, N, N)
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


class SwinBlock(nn.Module):
    def __init__(self, dim, res, heads, ws, shift):
        super().__init__()
        self.res, self.ws = res, min(ws, res)
        self.shift = shift if res > ws else 0
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, self.ws, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        mask = None
        if self.shift > 0:
            img = torch.zeros((1, res, res, 1))
            slices = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
            count = 0
            for h in slices:
                for w in slices:
                    img[:, h, w, :] = count
                    count += 1
            parts = window_partition(img, self.ws).squeeze(-1)
            mask = parts.unsqueeze(1) - parts.unsqueeze(2)
            mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        self.register_buffer("attn_mask", mask)

    def forward(self, x):
        H = W = self.res
        B, L, C = x.shape
        shortcut = x
        x = self.norm1(x).view(B, H, W, C)
        if self.shift > 0:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = window_reverse(self.attn(window_partition(x, self.ws), self.attn_mask), self.ws, H, W)
        if self.shift > 0:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + x.view(B, H * W, C)
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim, res):
        super().__init__()
        self.res = res
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim)

    def forward(self, x):
        B, L, C = x.shape
        x = x.view(B, self.res, self.res, C)
        x = torch.cat([x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :], x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :]], -1)
        return self.reduction(self.norm(x.view(B, -1, 4 * C)))


def make_swin(cfg):
    dim, res, stages = cfg.dim, cfg.image // cfg.patch, []
    for i, (depth, heads) in enumerate(zip(cfg.depths, cfg.heads)):
        if i > 0:
            stages.append(PatchMerging(dim, res))
            dim, res = dim * 2, res // 2
        for j in range(depth):
            stages.append(SwinBlock(dim, res, heads, cfg.window, shift=0 if j % 2 == 0 else cfg.window // 2))
    return nn.Sequential(nn.Conv2d(3, cfg.dim, cfg.patch, cfg.patch), nn.Flatten(2), Transpose(), nn.LayerNorm(cfg.dim),
                         *stages, nn.LayerNorm(dim), Transpose(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                         nn.Linear(dim, cfg.classes))


class Transpose(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def train(cfg, rng, device, prepare):
    images = torch.tensor(rng.normal(size=(2, cfg.batch, 3, cfg.image, cfg.image)), dtype=torch.float32)
    labels = torch.tensor(rng.integers(0, cfg.classes, (2, cfg.batch)), dtype=torch.long)
    model = prepare(make_swin(cfg).to(device))
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)
    while True:
        for x, y in zip(images, labels):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                loss = loss_fn(model(x.to(device)), y.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            yield loss
