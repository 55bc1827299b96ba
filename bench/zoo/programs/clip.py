"""CLIP: an image and a text tower, normalised embeddings, a learned temperature, symmetric cross entropy."""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "tiny": dict(image=16, patch=4, vocab=40, context=10, width=16, layers=2, heads=2, embed=8, batch=8, amp=False),
    "cpu": dict(image=64, patch=16, vocab=2000, context=32, width=192, layers=4, heads=4, embed=128, batch=16,
                amp=False),
    "card": dict(image=224, patch=32, vocab=49408, context=77, width=512, layers=12, heads=8, embed=512, batch=256,
                 amp=True),
}


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, d_model, n_head, attn_mask=None):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_head)
        self.ln_1, self.ln_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(OrderedDict([
            ("c_fc", nn.Linear(d_model, d_model * 4)), ("gelu", QuickGELU()),
            ("c_proj", nn.Linear(d_model * 4, d_model))]))
        self.attn_mask = attn_mask

    def attention(self, x):
        self.attn_mask = self.attn_mask.to(dtype=x.dtype, device=x.device) if self.attn_mask is not None else None
        return self.attn(x, x, x, need_weights=False, attn_mask=self.attn_mask)[0]

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class CLIP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        scale, patches = cfg.width ** -0.5, (cfg.image // cfg.patch) ** 2
        self.conv1 = nn.Conv2d(3, cfg.width, cfg.patch, cfg.patch, bias=False)
        self.class_embedding = nn.Parameter(scale * torch.randn(cfg.width))
        self.visual_position = nn.Parameter(scale * torch.randn(patches + 1, cfg.width))
        self.ln_pre, self.ln_post = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.visual = nn.Sequential(*[ResidualAttentionBlock(cfg.width, cfg.heads) for _ in range(cfg.layers)])
        self.visual_projection = nn.Parameter(scale * torch.randn(cfg.width, cfg.embed))
        mask = torch.empty(cfg.context, cfg.context).fill_(float("-inf")).triu_(1)
        self.token_embedding = nn.Embedding(cfg.vocab, cfg.width)
        self.positional_embedding = nn.Parameter(torch.empty(cfg.context, cfg.width))
        self.transformer = nn.Sequential(
            *[ResidualAttentionBlock(cfg.width, cfg.heads, mask) for _ in range(cfg.layers)])
        self.ln_final = nn.LayerNorm(cfg.width)
        self.text_projection = nn.Parameter(torch.empty(cfg.width, cfg.embed))
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positional_embedding, std=0.01)
        nn.init.normal_(self.text_projection, std=scale)

    def encode_image(self, x):
        x = self.conv1(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        cls = self.class_embedding.to(x.dtype) + torch.zeros(x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = self.ln_pre(torch.cat([cls, x], dim=1) + self.visual_position.to(x.dtype))
        x = self.visual(x.permute(1, 0, 2)).permute(1, 0, 2)
        return self.ln_post(x[:, 0, :]) @ self.visual_projection

    def encode_text(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        x = self.ln_final(self.transformer(x.permute(1, 0, 2)).permute(1, 0, 2))
        return x[torch.arange(x.shape[0]), text.argmax(dim=-1)] @ self.text_projection

    def forward(self, image, text):
        image_features = F.normalize(self.encode_image(image), dim=1)
        text_features = F.normalize(self.encode_text(text), dim=1)
        logits_per_image = self.logit_scale.exp() * image_features @ text_features.t()
        return logits_per_image, logits_per_image.t()


def train(cfg, rng, device, prepare):
    images = torch.from_numpy(rng.standard_normal((2, cfg.batch, 3, cfg.image, cfg.image)).astype(np.float32))
    texts = rng.integers(1, cfg.vocab - 1, (2, cfg.batch, cfg.context))
    np.put_along_axis(texts, rng.integers(3, cfg.context, (2, cfg.batch, 1)), cfg.vocab - 1, axis=2)  # end of text
    texts = torch.from_numpy(texts)
    model = prepare(CLIP(cfg).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.2)
    while True:
        for image, text in zip(images, texts):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                per_image, per_text = model(image.to(device), text.to(device))
                labels = torch.arange(cfg.batch, device=device)
                loss = (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, np.log(100))
            yield loss
