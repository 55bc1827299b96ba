"""A mixture-of-experts language model: top-2 routing, a loop over experts with index_add_, balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(vocab=50, context=12, dim=16, hidden=32, experts=4, layers=2, heads=2, batch=4, amp=False),
    "cpu": dict(vocab=2000, context=64, dim=192, hidden=384, experts=8, layers=3, heads=4, batch=8, amp=False),
    "card": dict(vocab=32000, context=1024, dim=768, hidden=2048, experts=8, layers=8, heads=12, batch=16, amp=True),
}


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoeBlock(nn.Module):
    def __init__(self, dim, hidden, num_experts, top_k=2):
        super().__init__()
        self.num_experts, self.top_k = num_experts, top_k
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(num_experts)])

    def forward(self, hidden_states):
        batch, length, dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, dim)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights = routing_weights / routing_weights.sum(dim=-1, keepdim=True)
        routing_weights = routing_weights.to(hidden_states.dtype)
        final = torch.zeros((batch * length, dim), dtype=hidden_states.dtype, device=hidden_states.device)
        expert_mask = F.one_hot(selected, num_classes=self.num_experts).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            idx, top_x = torch.where(expert_mask[i])
            if top_x.shape[0] == 0:
                continue
            current = expert(hidden_states[top_x]) * routing_weights[top_x, idx, None]
            final.index_add_(0, top_x, current.to(hidden_states.dtype))
        return final.reshape(batch, length, dim), router_logits


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.attention = nn.MultiheadAttention(cfg.dim, cfg.heads, batch_first=True)
        self.moe = SparseMoeBlock(cfg.dim, cfg.hidden, cfg.experts)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0]
        y, logits = self.moe(self.norm2(x))
        return x + y, logits


class MoeModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.position = nn.Parameter(0.02 * torch.randn(cfg.context, cfg.dim))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(cfg.context))

    def forward(self, tokens):
        x, routing = self.embed(tokens) + self.position, []
        for block in self.blocks:
            x, logits = block(x, self.mask)
            routing.append(logits)
        return self.head(x), torch.cat(routing)


def load_balancing_loss(router_logits, experts, top_k=2):
    weights = router_logits.float().softmax(-1)
    selected = weights.topk(top_k, dim=-1).indices
    tokens_per_expert = F.one_hot(selected, experts).float().mean(dim=0)
    return experts * torch.sum(tokens_per_expert * weights.mean(dim=0).unsqueeze(0))


def train(cfg, rng, device, prepare):
    data = torch.from_numpy(rng.integers(0, cfg.vocab // 4, (3, cfg.batch, cfg.context + 1))).to(device)
    model = prepare(MoeModel(cfg).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for batch in data:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                logits, routing = model(batch[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, cfg.vocab), batch[:, 1:].reshape(-1))
            loss = loss + 0.01 * load_balancing_loss(routing, cfg.experts)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss
