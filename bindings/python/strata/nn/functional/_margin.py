"""Losses with margins, and distances within a batch."""

from __future__ import annotations

from typing import Callable, Optional

from ... import _ops as ops
from ..._core import Tensor
from .._reduction import legacy_reduction
from ._loss import pairwise_distance

__all__ = [
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "pdist",
    "triplet_margin_with_distance_loss",
]

pdist = ops.pdist


def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Optional[Tensor] = None,
                      size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                      reduction: str = "mean") -> Tensor:
    """The sum over the other classes of max(0, margin - x[target] + x)^p, over the number of classes; ``p`` 1 or 2."""
    return ops.multi_margin_loss(input, target, p, margin, weight, legacy_reduction(size_average, reduce, reduction))


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None,
                           reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """The sum over pairs of a target class and another of max(0, 1 - x[target] + x[other]), over the number of classes;
    ``target`` [N, C] holds class indices, and ends where -1 stands."""
    return ops.multilabel_margin_loss(input, target, legacy_reduction(size_average, reduce, reduction))


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                reduction: str = "mean") -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log sigmoid(-x)), the mean over the classes."""
    return ops.multilabel_soft_margin_loss(input, target, weight, legacy_reduction(size_average, reduce, reduction))


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance; pairwise_distance() if None."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    return ops.triplet_margin_of_distances(near, far, distance(positive, negative) if swap else None, margin, reduction)
