"""Linear maps and tables."""

from __future__ import annotations

from typing import Optional

from ... import _ops as ops
from ..._core import Tensor

__all__ = ["bilinear", "embedding", "linear", "one_hot"]


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


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None) -> Tensor:
    """Rows of ``weight``; row ``padding_idx`` gets no gradient."""
    return ops.embedding(input, weight, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[..] i64 -> [.., num_classes]; -1 takes the largest element plus one."""
    return ops.one_hot(tensor, int(tensor.max().item()) + 1 if num_classes == -1 else num_classes)
