"""What scripts that compare models share."""

import torch


def logits_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Logits [B, T, vocab] in f32, without a cache."""
    with torch.no_grad():
        return model(input_ids=tokens, use_cache=False).logits.float()


def compare(name: str, got: torch.Tensor, want: torch.Tensor, most: float) -> float:
    """The largest difference as a share of the largest number; ends the program where it is not below `most`."""
    off = (got - want).abs().max().item() / want.abs().max().item()
    if not off < most:
        raise SystemExit(f"{name}: logits are off by {off}")
    return off
