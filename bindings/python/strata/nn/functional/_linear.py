"""Linear maps and tables."""

from __future__ import annotations

from typing import Optional

from ... import _composed, _core as C
from ... import _ops as ops
from ..._core import Tensor

__all__ = [
    "bilinear", "embedding", "embedding_bag", "linear", "one_hot",
]


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """input weight^T + bias: [.., in] -> [.., out]."""
    return ops.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x1^T weight[o] x2 + bias[o]: [.., in1], [.., in2], weight [out, in1, in2] -> [.., out]."""
    lead = list(input1.shape)[:-1]
    a, b = input1.reshape([-1, input1.shape[-1]]), input2.reshape([-1, input2.shape[-1]])
    y = ops.einsum("ni,oij,nj->no", [a, weight, b])
    y = y if bias is None else y + bias
    return y.reshape([*lead, weight.shape[0]])


def _plain_table(name: str, max_norm: Optional[float], scale_grad_by_freq: bool) -> None:
    if max_norm is not None or scale_grad_by_freq:
        raise ValueError(f"{name}: max_norm and scale_grad_by_freq are not supported; normalize() rows where they are used")


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of ``weight``; row ``padding_idx`` gets no gradient."""
    _plain_table("embedding", max_norm, scale_grad_by_freq)
    return ops.embedding(input, weight, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[..] i64 -> [.., num_classes]; -1 takes the largest element plus one."""
    return ops.one_hot(tensor, int(tensor.max().item()) + 1 if num_classes == -1 else num_classes)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Optional[Tensor] = None, max_norm: None = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Optional[Tensor] = None, include_last_offset: bool = False,
                  padding_idx: Optional[int] = None) -> Tensor:
    """Sums, means or maxima of rows of a table: indices [B, N], or [n] in bags that begin at ``offsets`` -> [B, dim]."""
    _plain_table("embedding_bag", max_norm, scale_grad_by_freq)
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode must be sum, mean or max, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ValueError("embedding_bag: per_sample_weights want mode='sum'")
    if input.dim() == 2:
        bags, n = input.shape
        bag = C.arange(bags, device=input.device).repeat_interleave(n)
    elif offsets is None:
        raise ValueError("embedding_bag: offsets are wanted for indices of one dimension")
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        bags = starts.shape[0]
        place = C.arange(input.shape[0], device=input.device)
        bag = ops.searchsorted(starts.contiguous(), place, True) - 1
    flat = input.reshape([-1])
    rows = ops.embedding(flat, weight, padding_idx)
    weights = None if per_sample_weights is None else per_sample_weights.reshape([-1])
    counted = C.ones(flat.shape, dtype=weight.dtype, device=weight.device)
    if padding_idx is not None:
        counted = counted * (flat != padding_idx % weight.shape[0]).to(weight.dtype)
    if mode == "max":
        where = bag.unsqueeze(1).expand(rows.shape)
        rows = ops.masked_fill(rows, counted.unsqueeze(1) == 0, float("-inf"))
        low = C.full([bags, weight.shape[1]], float("-inf"), dtype=weight.dtype, device=weight.device)
        best = _composed.scatter_reduce(low, 0, where, rows, "amax")
        return ops.masked_fill(best, best == float("-inf"), 0)
    rows = rows * counted.unsqueeze(1) if weights is None else rows * (counted * weights).unsqueeze(1)
    total = ops.index_add(C.zeros([bags, weight.shape[1]], dtype=weight.dtype, device=weight.device), 0, bag, rows)
    if mode == "sum":
        return total
    count = ops.index_add(C.zeros([bags], dtype=weight.dtype, device=weight.device), 0, bag, counted)
    return total / count.clamp(1, None).unsqueeze(1)
