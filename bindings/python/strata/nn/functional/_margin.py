"""Losses with margins, and distances within a batch."""

from __future__ import annotations

from typing import Callable, Optional

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from ..._autocast import in_full
from .._reduction import legacy_reduction
from ._loss import _reduce, pairwise_distance

__all__ = [
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "pdist",
    "triplet_margin_with_distance_loss",
]


def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Optional[Tensor] = None,
                      size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                      reduction: str = "mean") -> Tensor:
    """The sum over the other classes of max(0, margin - x[target] + x)^p, over the number of classes; ``p`` 1 or 2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    (input,) = in_full(input)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if input.dim() == 1:
        loss = multi_margin_loss(input.unsqueeze(0), target.reshape([1]), p, margin, weight, reduction="none")
        return loss.squeeze(0) if reduction == "none" else _reduce(loss, reduction)
    at = target.unsqueeze(1)
    short = ops.relu(margin - input.gather(1, at) + input)
    if p == 2:
        short = short * short
    if weight is not None:
        short = short * weight.index_select(0, target).unsqueeze(1)
    others = at != C.arange(input.shape[1], device=input.device)
    return _reduce((short * others.to(short.dtype)).sum([1]) / input.shape[1], reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None,
                           reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """The sum over pairs of a target class and another of max(0, 1 - x[target] + x[other]), over the number of classes;
    ``target`` [N, C] holds class indices, and ends where -1 stands."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    (input,) = in_full(input)
    if input.dim() == 1:
        loss = multilabel_margin_loss(input.unsqueeze(0), target.unsqueeze(0), reduction="none")
        return loss.squeeze(0) if reduction == "none" else _reduce(loss, reduction)
    used = ops.cumsum((target < 0).to(C.int64), 1) == 0
    at = ops.where(used, target, 0)
    named = ops.scatter_add(C.zeros(list(input.shape), dtype=C.int64, device=input.device), 1, at, used.to(C.int64)) > 0
    short = ops.relu(1 - input.gather(1, at).unsqueeze(2) + input.unsqueeze(1))
    pairs = used.unsqueeze(2) & ~named.unsqueeze(1)
    return _reduce((short * pairs.to(short.dtype)).sum([1, 2]) / input.shape[1], reduction)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                reduction: str = "mean") -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log sigmoid(-x)), the mean over the classes."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = in_full(input, target)
    loss = -(target * ops.logsigmoid(input) + (1 - target) * ops.logsigmoid(-input))
    return _reduce((loss if weight is None else loss * weight).mean([-1]), reduction)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance; pairwise_distance() if None."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return _reduce(ops.relu(near - far + margin), reduction)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows of [N, M]: [N (N - 1) / 2]."""
    if input.dim() != 2:
        raise ValueError(f"pdist: wants [N, M], got {list(input.shape)}")
    n = input.shape[0]
    first, second = C.triu_indices(n, n, 1, device=input.device).unbind(0)
    return ops.norm(input.index_select(0, first) - input.index_select(0, second), p, [1])
