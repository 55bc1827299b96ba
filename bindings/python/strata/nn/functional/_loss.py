"""Losses and distances."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, List, Optional, Tuple

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from ..._autocast import in_full
from ..._grad_mode import no_grad
from ...autograd import Function
from .._reduction import legacy_reduction

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "ctc_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "nll_loss", "pairwise_distance", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss",
]


def _reduce(x: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or x itself."""
    if reduction == "mean":
        return x.mean()
    if reduction == "sum":
        return x.sum()
    if reduction == "none":
        return x
    raise ValueError(f"{reduction} is not a valid value for reduction")


def _same_shape(op: str, input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"{op}: target size ({list(target.shape)}) must be the same as input size ({list(input.shape)})")


def _rows(x: Tensor, target: Tensor) -> Tuple[Tensor, Tensor, Optional[List[int]]]:
    """Class scores as [rows, C] and targets as [rows], with the shape that reduction "none" gives back."""
    if x.dim() == 1:
        return x.unsqueeze(0), target.reshape([1]), []
    if x.dim() == 2:
        return x, target, None
    shape = list(target.shape)
    return x.movedim([1], [-1]).reshape([-1, x.shape[1]]), target.reshape([-1]), shape


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
                  ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(input)[target] for i64 targets, or -sum(target log softmax(input)) for floating ones (probabilities).
    ``weight`` [C] weighs the classes. The loss of bf16 and f16 logits is f32."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.is_floating_point():
        logs = ops.log_softmax(input, 1 if input.dim() > 1 else 0)
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[1 if input.dim() > 1 else 0]
        loss = -(logs * target)
        if weight is not None:
            loss = loss * weight.reshape([1, -1] + [1] * (input.dim() - 2) if input.dim() > 1 else [-1])
        if reduction != "mean":
            return _reduce(loss.sum([1 if input.dim() > 1 else 0]), reduction)
        return loss.sum() / (input.numel() // input.shape[1 if input.dim() > 1 else 0])
    x, t, shape = _rows(input, target)
    if weight is None:
        loss = C.cross_entropy(x, t, ignore_index, reduction, label_smoothing)
        return loss.reshape(shape) if shape is not None and reduction == "none" else loss
    counts = t != ignore_index
    classes = ops.where(counts, t, C.zeros_like(t))
    weights = weight.index_select(0, classes) * counts.to(weight.dtype)
    logs = ops.log_softmax(x, 1)
    loss = -logs.gather(1, classes.unsqueeze(1)).squeeze(1) * weights
    if label_smoothing:
        smooth = -(logs * weight).sum([1]) * counts.to(weight.dtype)
        loss = loss * (1 - label_smoothing) + smooth * (label_smoothing / x.shape[1])
    if reduction == "mean":
        return loss.sum() / weights.sum()
    loss = loss.reshape(shape) if shape is not None else loss
    return _reduce(loss, reduction)


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
    """-input[target] of log-probabilities."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    (input,) = in_full(input)
    x, t, shape = _rows(input, target)
    if weight is None:
        loss = ops.nll_loss(x, t, ignore_index, reduction)
        return loss.reshape(shape) if shape is not None and reduction == "none" else loss
    counts = t != ignore_index
    classes = ops.where(counts, t, C.zeros_like(t))
    weights = weight.index_select(0, classes) * counts.to(weight.dtype)
    loss = -x.gather(1, classes.unsqueeze(1)).squeeze(1) * weights
    if reduction == "mean":
        return loss.sum() / weights.sum()
    return _reduce(loss.reshape(shape) if shape is not None else loss, reduction)


def _warn_of_sizes(input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
                      "This will likely lead to incorrect results due to broadcasting. "
                      "Please ensure they have the same size.", stacklevel=3)


def _check_weight(weight: Tensor, input: Tensor) -> None:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")


def _pairs(loss: Callable[..., Tensor], input: Tensor, target: Tensor, reduction: str, weight: Optional[Tensor]) -> Tensor:
    if input.shape != target.shape:
        _warn_of_sizes(input, target)
    if weight is None:
        return loss(input, target, reduction)
    _check_weight(weight, input)
    weighted = loss(input, target, "none") * weight
    return weighted.sum() / weight.sum() if reduction == "mean" else _reduce(weighted, reduction)


def mse_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
             reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:
    """(input - target)^2. With ``weight`` the mean is over the weights."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _pairs(ops.mse_loss, input, target, reduction, weight)


def l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
            reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:
    """|input - target|. With ``weight`` the mean is over the weights."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _pairs(ops.l1_loss, input, target, reduction, weight)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _warn_of_sizes(input, target)
    return ops.l1_loss(input, target, reduction) if beta == 0 else ops.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Optional[Tensor] = None) -> Tensor:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2). ``weight`` multiplies it; the mean is over the elements."""
    _warn_of_sizes(input, target)
    if weight is None:
        return ops.huber_loss(input, target, reduction, delta)
    _check_weight(weight, input)
    return _reduce(ops.huber_loss(input, target, "none", delta) * weight, reduction)


def kl_div(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (log t - input) for log-probabilities ``input``; ``reduction`` also "batchmean"."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction == "batchmean":
        return ops.kl_div(input, target, "sum", log_target) / input.shape[0]
    return ops.kl_div(input, target, reduction, log_target)


class _BinaryCrossEntropy(Function):
    """Logarithms are at least -100, and the denominator of the gradient at least 1e-12: PyTorch's bounds."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(p, target)
        return (target - 1) * ops.clamp(ops.log1p(-p), -100) - target * ops.clamp(ops.log(p), -100)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], Optional[Tensor]]:
        p, target = ctx.saved_tensors
        of_p = grad * (p - target) / ops.clamp((1 - p) * p, 1e-12) if ctx.needs_input_grad[0] else None
        of_target = None
        if ctx.needs_input_grad[1]:
            of_target = grad * (ops.clamp(ops.log1p(-p), -100) - ops.clamp(ops.log(p), -100))
        return of_p, of_target


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                         size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                         reduction: str = "mean") -> Tensor:
    """-(t log p + (1 - t) log(1 - p)); logarithms are at least -100."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _same_shape("binary_cross_entropy", input, target)
    input, target = in_full(input, target)
    loss: Tensor = _BinaryCrossEntropy.apply(input, target)
    return _reduce(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                     size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                     reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    """The same of sigmoid(input), without overflow; ``pos_weight`` weighs the positive targets."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _same_shape("binary_cross_entropy_with_logits", input, target)
    input, target = in_full(input, target)
    if weight is None and pos_weight is None:
        return ops.binary_cross_entropy_with_logits(input, target, reduction)
    if pos_weight is None:
        loss = ops.binary_cross_entropy_with_logits(input, target, "none")
    else:
        loss = (1 - target) * input - (1 + (pos_weight - 1) * target) * ops.logsigmoid(input)
    return _reduce(loss if weight is None else loss * weight, reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: Optional[bool] = None, eps: float = 1e-8, reduce: Optional[bool] = None,
                     reduction: str = "mean") -> Tensor:
    """exp(input) - target input, or input - target log(input + eps)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = in_full(input, target)
    loss = ops.exp(input) - target * input if log_input else input - target * ops.log(input + eps)
    if full:
        stirling = target * ops.log(target) - target + 0.5 * ops.log(target * (2 * math.pi))
        loss = loss + ops.masked_fill(stirling, target <= 1, 0)
    return _reduce(loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log var + (input - target)^2 / var) / 2, var at least eps."""
    with no_grad():
        floor = ops.clamp(var.detach(), eps) - var.detach()
    v = var + floor
    loss = 0.5 * (ops.log(v) + (input - target) ** 2 / v)
    return _reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-t x))."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = in_full(input, target)
    return _reduce(ops.softplus(-target * input), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: Optional[bool] = None,
                         reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """x where t is 1, max(0, margin - x) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = in_full(input, target)
    return _reduce(ops.where(target == 1, input, ops.relu(margin - input)), reduction)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                        size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -t (x1 - x2) + margin)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input1, input2, target = in_full(input1, input2, target)
    return _reduce(ops.relu(-target * (input1 - input2) + margin), reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 over the product of their norms along ``dim``."""
    n1 = ops.clamp(ops.norm(x1, 2.0, [dim], True), eps)
    n2 = ops.clamp(ops.norm(x2, 2.0, [dim], True), eps)
    return ((x1 / n1) * (x2 / n2)).sum([dim])


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                          size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where t is 1, max(0, cos - margin) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input1, input2 = in_full(input1, input2)
    cos = cosine_similarity(input1, input2, -1)
    return _reduce(ops.where(target == 1, 1 - cos, ops.relu(cos - margin)), reduction)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    return ops.norm(x1 - x2 + eps, p, [-1], keepdim)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: Optional[bool] = None,
                        reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    anchor, positive, negative = in_full(anchor, positive, negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = ops.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduce(ops.relu(near - far + margin), reduction)
