"""A transformer written by hand trains within a fraction of the memory that it takes, to the same losses.

    python examples/python/budget.py [--dim 192] [--blocks 6] [--batch 8] [--budget 60MiB] [--disk /scratch] [--device cuda]

Without --budget the loop runs without one first, and then in a half of what that took."""

import argparse
import sys
import tempfile
from typing import List, Optional, Tuple

import strata as st
from strata import Tensor, nn
from strata.nn import functional as F

VOCAB, TIME, HEADS, STEPS = 256, 128, 4, 6


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.before, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.after, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (p.reshape(b, t, HEADS, d // HEADS).transpose(1, 2) for p in self.qkv(self.before(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        x = x + self.down(F.gelu(self.up(self.after(x))))
        return x


class Transformer(nn.Module):
    def __init__(self, dim: int, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(blocks)])
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


def train(args: argparse.Namespace, budget: Optional[str]) -> Tuple[List[float], int]:
    """Losses of a few steps, and the most memory that tensors took."""
    st.manual_seed(1)
    model = Transformer(args.dim, args.blocks).to(args.device)
    optimizer = st.optim.AdamW(model.parameters(), lr=1e-3)
    losses: List[float] = []

    def steps() -> None:
        for _ in range(STEPS):
            tokens = st.randint(0, VOCAB, (args.batch, TIME), device=args.device)
            logits = model(tokens)
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), ((tokens + 1) % VOCAB).reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())

    if budget is None:
        st._core.memory_reset_peak(args.device)
        steps()
        return losses, int(st._core.memory_stats(args.device)["peak_total"])
    with st.memory.budget(budget, disk=args.disk, model=model, optimizer=optimizer) as plan:
        steps()
        print(plan.describe())
    return losses, plan.peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("dim", 192), ("blocks", 6), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--budget")
    parser.add_argument("--disk", default=tempfile.gettempdir())
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.budget is not None:
        losses, peak = train(args, args.budget)
        print(f"{peak / 2**20:.1f} MiB at most; losses {losses[0]:.6f} to {losses[-1]:.6f}")
        return 0
    whole, took = train(args, None)
    losses, peak = train(args, str(took // 2))
    print(f"{peak / 2**20:.1f} MiB instead of {took / 2**20:.1f}; the losses are {'the same' if losses == whole else 'others'}")
    return 0 if losses == whole and 2 * peak <= took else 1


if __name__ == "__main__":
    sys.exit(main())
