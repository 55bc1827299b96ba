"""Linear maps and tables."""

from __future__ import annotations

from typing import Any, Optional

from ... import _core as C
from ... import _ops as ops, _records as records
from ..._core import Tensor
from ._loss import cross_entropy

__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "linear_cross_entropy", "one_hot"]


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """input weight^T + bias: [.., in] -> [.., out]."""
    return ops.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x1^T weight[o] x2 + bias[o]: [.., in1], [.., in2], weight [out, in1, in2] -> [.., out]."""
    return ops.bilinear(input1, input2, weight, bias)


def _table(weight: Tensor, used: Tensor, max_norm: Optional[float], norm_type: float, scale_grad_by_freq: bool) -> Tensor:
    """The table as it is to be read: its used rows scaled down to ``max_norm``, in place, its gradients by frequency."""
    if max_norm is not None:
        rows, values = ops.renormed_rows(weight.detach(), used, max_norm, float(norm_type))
        weight.detach().index_put_([rows], values)
    return ops.rows_by_frequency(weight, used) if scale_grad_by_freq else weight


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of ``weight``; row ``padding_idx`` gets no gradient. ``max_norm`` first scales the rows that are used down to that
    ``norm_type``-norm, in the table itself; ``scale_grad_by_freq`` divides the gradient of a row by how often it was used. The
    gradient is dense, also with ``sparse``."""
    return ops.embedding(input, _table(weight, input, max_norm, norm_type, scale_grad_by_freq), padding_idx)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Optional[Tensor] = None, max_norm: Optional[float] = None,
                  norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Optional[Tensor] = None, include_last_offset: bool = False,
                  padding_idx: Optional[int] = None) -> Tensor:
    """Sums, means or maxima of the rows of ``weight`` that each bag names: input [bags, n], or [n] with ``offsets``. The
    gradient is dense, also with ``sparse``; ``max_norm`` and (not for maxima) ``scale_grad_by_freq`` as in embedding()."""
    check_bag(scale_grad_by_freq, mode)
    table = _table(weight, input, max_norm, norm_type, scale_grad_by_freq)
    return ops.embedding_bag(input, table, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


def check_bag(scale_grad_by_freq: bool, mode: str) -> None:
    """Refuses what bags do not do."""
    if scale_grad_by_freq and mode == "max":
        raise ValueError("embedding_bag: max mode does not support scaling the gradient by the frequency")


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Optional[Tensor] = None,
                         weight: Optional[Tensor] = None, reduction: str = "mean", ignore_index: Optional[int] = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """cross_entropy() of input linear_weight^T + linear_bias, [.., in] and classes [..]. Without bias, class weights and more
    dimensions the logits are never in memory as a whole, whatever ``options`` say."""
    ignored = -100 if ignore_index is None else ignore_index
    if linear_bias is None and weight is None and linear_weight.dim() == 2 and not target.is_floating_point():
        rows, classes = input.reshape([-1, input.shape[-1]]), target.reshape([-1])
        loss = records.linear_cross_entropy(rows, linear_weight, classes, ignored, reduction, label_smoothing)
        return loss.reshape(list(target.shape)) if reduction == "none" else loss
    bias = None if linear_bias is None else linear_bias.reshape([-1])
    logits = ops.linear(input, linear_weight.reshape([-1, linear_weight.shape[-1]]), bias)
    logits = logits.reshape([*list(input.shape)[:-1], *list(linear_weight.shape)[:-1]])
    return cross_entropy(logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[..] i64 -> [.., num_classes]; -1 takes the largest element plus one."""
    return C.one_hot(tensor, num_classes)
