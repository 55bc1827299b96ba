"""A vision transformer with mixup, warm-up and weight decay groups."""

from functools import partial

import strata.nn.functional as F

import strata as st
from strata import nn


class PatchEmbed(nn.Module):
    def __init__(self, img=16, patch=4, chans=3, dim=32):
        super().__init__()
        self.num_patches = (img // patch) ** 2
        self.proj = nn.Conv2d(chans, dim, kernel_size=patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, dim, heads=4, qkv_bias=True, p=0.0):
        super().__init__()
        self.num_heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(p)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = self.attn_drop(attn.softmax(dim=-1))
        a = (attn @ v).transpose(1, 2).reshape(B, N, C)
        b = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0).transpose(1, 2).reshape(B, N, C)
        return self.proj((a + b) / 2)


class DropPath(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        r = x.new_empty(shape).bernoulli_(keep)
        return x * r.div_(keep)


class Block(nn.Module):
    def __init__(self, dim, norm_layer=nn.LayerNorm, act_layer=nn.GELU):
        super().__init__()
        self.norm1, self.norm2 = norm_layer(dim), norm_layer(dim)
        self.attn = Attention(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), act_layer(), nn.Dropout(0.0), nn.Linear(2 * dim, dim))
        self.ls = nn.Parameter(1e-1 * st.ones(dim), requires_grad=True)
        self.drop_path = DropPath(0.0)

    def forward(self, x):
        x = x + self.drop_path(self.ls * self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, n=10):
        super().__init__()
        self.patch_embed = PatchEmbed(dim=dim)
        self.cls_token = nn.Parameter(st.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(st.randn(1, self.patch_embed.num_patches + 1, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, partial(nn.LayerNorm, eps=1e-6)) for i in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n) if n > 0 else nn.Identity()
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.constant_(m.bias, 0)
        elif isinstance(m, nn.LayerNorm):
            nn.init.constant_(m.bias, 0)
            nn.init.constant_(m.weight, 1.0)

    def forward(self, x):
        B = x.shape[0]
        x = self.patch_embed(x)
        x = st.cat((self.cls_token.expand(B, -1, -1), x), dim=1) + self.pos_embed
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x)[:, 0])


m = fill(ViT())
decay = [p for n, p in m.named_parameters() if p.ndim >= 2]
nodecay = [p for n, p in m.named_parameters() if p.ndim < 2]
opt = st.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": nodecay, "weight_decay": 0.0}],
    lr=1e-3,
    betas=(0.9, 0.95),
    fused=False,
)
warm = st.optim.lr_scheduler.LinearLR(opt, start_factor=0.1, total_iters=2)
cos = st.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5, eta_min=1e-6)
sch = st.optim.lr_scheduler.SequentialLR(opt, schedulers=[warm, cos], milestones=[2])
x = st.from_numpy(F32(3, 3, 16, 16))
y = st.tensor([0, 1, 2])
lam = 0.3
perm = st.tensor([2, 0, 1])
for i in range(4):
    mixed = lam * x + (1 - lam) * x[perm]
    logits = m(mixed)
    loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[perm])
    opt.zero_grad()
    loss.backward()
    g = st.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    sch.step()
    out(f"l{i}", loss)
    out(f"g{i}", g)
    out(f"lr{i}", opt.param_groups[0]["lr"])
pe = m.pos_embed[:, 1:].reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
pe = F.interpolate(pe, size=(6, 6), mode="bicubic", align_corners=False).permute(0, 2, 3, 1).flatten(1, 2)
out("pe", pe)
