"""A T5-like encoder and decoder: relative position buckets, additive masks, gated GELU, label smoothing, Adafactor."""

import math

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "tiny": dict(vocab=50, source=14, target=9, layers=2, heads=2, dim=32, batch=4, amp=False),
    "cpu": dict(vocab=2000, source=96, target=64, layers=3, heads=4, dim=192, batch=8, amp=False),
    "card": dict(vocab=32128, source=512, target=128, layers=8, heads=8, dim=512, batch=32, amp=True),
}


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    relative_buckets = 0
    if bidirectional:
        num_buckets //= 2
        relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
        relative_position = torch.abs(relative_position)
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
    max_exact = num_buckets // 2
    is_small = relative_position < max_exact
    if_large = max_exact + (torch.log(relative_position.float() / max_exact) / math.log(max_distance / max_exact)
                            * (num_buckets - max_exact)).to(torch.long)
    if_large = torch.min(if_large, torch.full_like(if_large, num_buckets - 1))
    relative_buckets += torch.where(is_small, relative_position, if_large)
    return relative_buckets


class RelativeBias(nn.Module):
    def __init__(self, heads, bidirectional):
        super().__init__()
        self.table = nn.Embedding(32, heads)
        self.bidirectional = bidirectional

    def forward(self, q_len, k_len):
        device = self.table.weight.device
        context = torch.arange(q_len, device=device)[:, None]
        memory = torch.arange(k_len, device=device)[None, :]
        buckets = relative_position_bucket(memory - context, self.bidirectional)
        return self.table(buckets).permute(2, 0, 1).unsqueeze(0)


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x, memory, bias):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = torch.matmul(q, k.transpose(3, 2))
        scores = scores + bias
        weights = F.dropout(F.softmax(scores.float(), dim=-1).type_as(scores), p=self.dropout, training=self.training)
        return self.o(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class GatedGelu(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wi_0 = nn.Linear(dim, 2 * dim, bias=False)
        self.wi_1 = nn.Linear(dim, 2 * dim, bias=False)
        self.wo = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return self.wo(F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x))


class Block(nn.Module):
    def __init__(self, dim, heads, cross):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(dim, eps=1e-6) for _ in range(3 if cross else 2))
        self.attention = Attention(dim, heads)
        self.cross = Attention(dim, heads) if cross else None
        self.ff = GatedGelu(dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, bias, memory=None, memory_bias=None):
        h = self.norms[0](x)
        x = x + self.drop(self.attention(h, h, bias))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norms[1](x), memory, memory_bias))
        return x + self.drop(self.ff(self.norms[-1](x)))


class T5(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.shared = nn.Embedding(cfg.vocab, cfg.dim)
        self.encoder = nn.ModuleList([Block(cfg.dim, cfg.heads, False) for _ in range(cfg.layers)])
        self.decoder = nn.ModuleList([Block(cfg.dim, cfg.heads, True) for _ in range(cfg.layers)])
        self.encoder_bias, self.decoder_bias = RelativeBias(cfg.heads, True), RelativeBias(cfg.heads, False)
        self.encoder_norm, self.decoder_norm = nn.RMSNorm(cfg.dim, eps=1e-6), nn.RMSNorm(cfg.dim, eps=1e-6)
        self.scale = cfg.dim ** -0.5
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=m.in_features ** -0.5)

    @staticmethod
    def extend(mask):
        return (1.0 - mask[:, None, None, :].float()) * -1e9

    def forward(self, source, mask, labels):
        start = labels.new_zeros(labels.size(0), 1)
        inputs = torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, 0)], dim=1)
        padding = self.extend(mask)
        x, bias = self.shared(source), self.encoder_bias(source.size(1), source.size(1)) + padding
        for block in self.encoder:
            x = block(x, bias)
        memory = self.encoder_norm(x)
        n = inputs.size(1)
        causal = torch.full((n, n), -1e9, device=inputs.device).triu(diagonal=1)
        bias = self.decoder_bias(n, n) + causal
        y = self.shared(inputs)
        for block in self.decoder:
            y = block(y, bias, memory, padding)
        return (self.decoder_norm(y) * self.scale) @ self.shared.weight.T


def train(cfg, rng, device, prepare):
    source = torch.from_numpy(rng.integers(1, cfg.vocab // 3, (3, cfg.batch, cfg.source)))
    lengths = torch.from_numpy(rng.integers(cfg.source // 2, cfg.source + 1, (3, cfg.batch, 1)))
    mask = (torch.arange(cfg.source) < lengths).to(device)
    labels = source[:, :, : cfg.target].flip(-1).clone()
    labels[:, ::2, -2:] = -100
    source, labels = source.to(device), labels.to(device)
    model = prepare(T5(cfg).to(device))
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)
    while True:
        for i in range(len(source)):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                logits = model(source[i], mask[i], labels[i])
                loss = F.cross_entropy(logits.view(-1, cfg.vocab), labels[i].reshape(-1), ignore_index=-100,
                                       label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss
