"""The models of `strata train` in PyTorch: same shapes, same initialisation, same parameters."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def init_(model, layers, residual):
    """GPT-2's initialisation, as strata's: layers whose name ends with one of `residual` write to the residual stream."""
    for name, p in model.named_parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if name.endswith(residual) else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def mean_loss(head, x, targets):
    logits = head(x)
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


class GptBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc, self.out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.heads = heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, layers, dim, heads, context):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(GptBlock(dim, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight
        init_(self, layers, ("proj.weight", "out.weight"))

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return mean_loss(self.head, self.ln(x), targets)

    # Name in this module -> name in a checkpoint of strata's. The layouts are the same.
    @staticmethod
    def strata_name(name):
        for ours, theirs in (("tok.", "token_embedding."), ("pos.", "position_embedding."), (".ln1.", ".norm1."),
                             (".ln2.", ".norm2."), (".qkv.", ".attn.qkv."), (".proj.", ".attn.out."),
                             (".fc.", ".mlp.up."), (".out.", ".mlp.down.")):
            if ours in name:
                return name.replace(ours, theirs, 1)
        return name.replace("ln.", "norm.", 1)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn_dim, eps):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps), nn.RMSNorm(dim, eps)
        self.size = dim // heads
        self.parts = (heads, kv_heads, kv_heads)
        self.qkv = nn.Linear(dim, sum(self.parts) * self.size, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * ffn_dim, bias=False)
        self.down = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, -1, self.size).transpose(1, 2).split(self.parts, 1)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, vocab, layers, dim, heads, kv_heads, ffn_dim, context, theta, eps):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, kv_heads, ffn_dim, eps) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight
        size = dim // heads
        angle = torch.outer(torch.arange(context).double(), theta ** (-torch.arange(0, size, 2).double() / size))
        self.register_buffer("cos", angle.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angle.sin().bfloat16(), persistent=False)
        init_(self, layers, ("out.weight", "down.weight"))

    def forward(self, idx, targets):
        x = self.tok(idx)
        cos, sin = self.cos[: idx.shape[1]], self.sin[: idx.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return mean_loss(self.head, self.norm(x), targets)


def make(model):
    """The model of a configuration's section [model]."""
    m = {"layers": 4, "dim": 256, "heads": 8, "context": 256, "norm_eps": 1e-5, "rope_theta": 10000.0, **model}
    if m["family"] == "gpt":
        return GPT(m["vocab"], m["layers"], m["dim"], m["heads"], m["context"])
    return Llama(m["vocab"], m["layers"], m["dim"], m["heads"], m.get("kv_heads") or m["heads"], m["ffn_dim"],
                 m["context"], m["rope_theta"], m["norm_eps"])


def adamw(model, lr, weight_decay, beta1=0.9, beta2=0.95, eps=1e-8):
    """AdamW over the parameters, fused; matrices decay, vectors do not."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(beta1, beta2), eps=eps, fused=True)
