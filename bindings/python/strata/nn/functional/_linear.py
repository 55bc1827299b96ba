"""Linear maps and tables."""

from __future__ import annotations

from typing import Optional

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor

__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "one_hot"]


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


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of ``weight``; row ``padding_idx`` gets no gradient. The gradient is dense, also with ``sparse``; ``max_norm`` and
    ``scale_grad_by_freq`` are refused."""
    _plain_table("embedding", max_norm, scale_grad_by_freq)
    return ops.embedding(input, weight, padding_idx)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Optional[Tensor] = None, max_norm: Optional[float] = None,
                  norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Optional[Tensor] = None, include_last_offset: bool = False,
                  padding_idx: Optional[int] = None) -> Tensor:
    """Sums, means or maxima of the rows of ``weight`` that each bag names: input [bags, n], or [n] with ``offsets``. The
    gradient is dense, also with ``sparse``; ``max_norm`` and ``scale_grad_by_freq`` are refused."""
    _plain_table("embedding_bag", max_norm, scale_grad_by_freq)
    if not input.dtype == C.int64:
        input = input.to(C.int64)
    if offsets is not None and not offsets.dtype == C.int64:
        offsets = offsets.to(C.int64)
    return ops.embedding_bag(input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[..] i64 -> [.., num_classes]; -1 takes the largest element plus one."""
    return ops.one_hot(tensor, int(tensor.max().item()) + 1 if num_classes == -1 else num_classes)
