"""LoRA: a frozen transformer, low-rank branches put into its linear layers, gradients gathered over small batches."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(vocab=40, context=12, dim=16, heads=2, layers=2, rank=2, batch=2, accumulate=2, amp=False),
    "cpu": dict(vocab=2000, context=96, dim=256, heads=4, layers=4, rank=8, batch=4, accumulate=2, amp=False),
    "card": dict(vocab=32000, context=1024, dim=2048, heads=16, layers=12, rank=16, batch=4, accumulate=2, amp=True),
}


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha=16, dropout=0.05):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_dropout = nn.Dropout(dropout)
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + (self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.o_proj(y)
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed, self.position = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(cfg.context, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg.dim, cfg.heads) for _ in range(cfg.layers))
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, ids, labels):
        x = self.embed(ids) + self.position(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def inject_lora(model, rank, targets=("q_proj", "v_proj", "up")):
    for p in model.parameters():
        p.requires_grad = False
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.split(".")[-1] in targets:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.split(".")[-1], LoRALinear(module, rank))
    return model


def train(cfg, rng, device, prepare):
    data = torch.from_numpy(rng.integers(0, cfg.vocab // 4, (2, cfg.accumulate, cfg.batch, cfg.context + 1))).to(device)
    model = prepare(inject_lora(Model(cfg), cfg.rank).to(device))
    trainable = [p for n, p in model.named_parameters() if "lora_" in n]
    assert all(p.requires_grad for p in trainable) and len(trainable) == 6 * cfg.layers
    optimizer = torch.optim.AdamW(trainable, lr=1e-2 if cfg.dim < 64 else 2e-3)
    while True:
        for batches in data:
            optimizer.zero_grad()
            total = 0.0
            for ids in batches:
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                    loss = model(ids[:, :-1], ids[:, 1:]) / cfg.accumulate
                loss.backward()
                total = total + loss.detach()
            torch.nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            yield total
