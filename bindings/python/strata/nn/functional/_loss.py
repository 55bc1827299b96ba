"""Losses and distances: PyTorch's arguments, in front of the records."""

from __future__ import annotations

import warnings
from typing import Any, Optional

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._reduction import legacy_reduction

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "ctc_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "nll_loss", "pairwise_distance", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss",
]

cosine_similarity = ops.cosine_similarity
pairwise_distance = ops.pairwise_distance


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
                  ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(input)[target] for integer targets, or -sum(target log softmax(input)) for floating ones (probabilities).
    ``weight`` [C] weighs the classes. The loss of bf16 and f16 logits is f32."""
    return ops.cross_entropy(input, target, weight, ignore_index, legacy_reduction(size_average, reduce, reduction),
                             label_smoothing)


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification of log_probs [T, N, C] (or [T, C]): targets [N, S] or one after the other;
    lengths are tensors or sequences of numbers. The loss of bf16 and f16 is f32."""

    def lengths(given: Any) -> Tensor:
        t = given if isinstance(given, Tensor) else C._tensor(given, C.int64)
        return t.to(C.int64).to(log_probs.device)

    return ops.ctc_loss(log_probs, targets.to(log_probs.device), lengths(input_lengths), lengths(target_lengths), blank,
                        reduction, zero_infinity)


def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
             ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """-input[target] of log-probabilities. ``weight`` [C] weighs the classes."""
    return ops.nll_loss(input, target, weight, ignore_index, legacy_reduction(size_average, reduce, reduction))


def _warn_of_sizes(input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
                      "This will likely lead to incorrect results due to broadcasting. "
                      "Please ensure they have the same size.", stacklevel=3)


def mse_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
             reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:
    """(input - target)^2. With ``weight`` the mean is over the weights."""
    _warn_of_sizes(input, target)
    return ops.mse_loss(input, target, legacy_reduction(size_average, reduce, reduction), weight)


def l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
            reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:
    """|input - target|. With ``weight`` the mean is over the weights."""
    _warn_of_sizes(input, target)
    return ops.l1_loss(input, target, legacy_reduction(size_average, reduce, reduction), weight)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""
    _warn_of_sizes(input, target)
    return ops.smooth_l1_loss(input, target, legacy_reduction(size_average, reduce, reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Optional[Tensor] = None) -> Tensor:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2). ``weight`` multiplies it; the mean is over the elements."""
    _warn_of_sizes(input, target)
    return ops.huber_loss(input, target, reduction, delta, weight)


def kl_div(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (log t - input) for log-probabilities ``input``; ``reduction`` also "batchmean"."""
    return ops.kl_div(input, target, legacy_reduction(size_average, reduce, reduction), log_target)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                         size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                         reduction: str = "mean") -> Tensor:
    """-(t log p + (1 - t) log(1 - p)); logarithms are at least -100."""
    return ops.binary_cross_entropy(input, target, weight, legacy_reduction(size_average, reduce, reduction))


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                     size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                     reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    """The same of sigmoid(input), without overflow; ``pos_weight`` weighs the positive targets."""
    return ops.binary_cross_entropy_with_logits(input, target, weight, legacy_reduction(size_average, reduce, reduction),
                                                pos_weight)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: Optional[bool] = None, eps: float = 1e-8, reduce: Optional[bool] = None,
                     reduction: str = "mean") -> Tensor:
    """exp(input) - target input, or input - target log(input + eps)."""
    return ops.poisson_nll_loss(input, target, log_input, full, eps, legacy_reduction(size_average, reduce, reduction))


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log var + (input - target)^2 / var) / 2, var at least eps; var is a tensor or a number."""
    if not isinstance(var, Tensor):
        var = C.full([], float(var), dtype=input.dtype, device=input.device)
    return ops.gaussian_nll_loss(input, target, var, full, eps, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-t x))."""
    return ops.soft_margin_loss(input, target, legacy_reduction(size_average, reduce, reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: Optional[bool] = None,
                         reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """x where t is 1, max(0, margin - x) where it is -1."""
    return ops.hinge_embedding_loss(input, target, margin, legacy_reduction(size_average, reduce, reduction))


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                        size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -t (x1 - x2) + margin)."""
    return ops.margin_ranking_loss(input1, input2, target, margin, legacy_reduction(size_average, reduce, reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                          size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where t is 1, max(0, cos - margin) where it is -1."""
    return ops.cosine_embedding_loss(input1, input2, target, margin, legacy_reduction(size_average, reduce, reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: Optional[bool] = None,
                        reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    return ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap,
                                   legacy_reduction(size_average, reduce, reduction))
