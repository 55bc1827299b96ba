"""Functions that draw random numbers, beside plain dropout."""

from __future__ import annotations

import math
from typing import Any

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._parts import check_p, replace
from ._activation import leaky_relu

__all__ = ["alpha_dropout", "feature_alpha_dropout", "gumbel_softmax", "rrelu", "rrelu_"]

_SELU_FLOOR = -1.7580993408473766  # what SELU goes to: its scale times its alpha


def _kept(like: Tensor, shape: Any, p: float) -> Tensor:
    """1 with probability 1 - p, else 0."""
    return (C.rand(shape, dtype=C.float32, device=like.device) >= p).to(like.dtype)


def _channels(x: Tensor) -> Any:
    return [x.shape[0], x.shape[1]] + [1] * (x.dim() - 2)


def _alpha_dropout(x: Tensor, shape: Any, p: float, training: bool, inplace: bool) -> Tensor:
    check_p(p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return replace(x, lambda v: v * 0, inplace)
    kept = _kept(x, shape, p)
    a = 1 / math.sqrt((_SELU_FLOOR**2 * p + 1) * (1 - p))
    return replace(x, lambda v: v * (kept * a) + ((kept - 1) * (-_SELU_FLOOR * a) - _SELU_FLOOR * a * p), inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU: what is dropped becomes SELU's floor, and mean and variance are kept."""
    return _alpha_dropout(input, list(input.shape), p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout() of whole channels of [N, C, ..]."""
    return _alpha_dropout(input, _channels(input), p, training, inplace)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """x where positive, else x times a slope: drawn from [lower, upper) for each element in training, else their mean."""
    if lower > upper:
        raise ValueError(f"rrelu: lower {lower} is above upper {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = (C.rand(list(input.shape), dtype=C.float32, device=input.device) * (upper - lower) + lower).to(input.dtype)
    return replace(input, lambda x: ops.where(x > 0, x, x * slope), inplace)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """rrelu(), in place."""
    return rrelu(input, lower, upper, training, True)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of softmax((logits + Gumbel noise) / tau); with ``hard`` one-hot, with the gradient of the soft one."""
    u = C.rand(list(logits.shape), dtype=C.float32, device=logits.device)
    noise = -ops.log(-ops.log1p(-u) + 1e-20)  # -log of an exponential variable; u is never 1
    soft = ops.softmax((logits + noise.to(logits.dtype)) / tau, dim)
    if not hard:
        return soft
    at = soft.detach().argmax(dim, True)
    one = ops.scatter(C.zeros_like(soft), dim, at, C.ones(list(at.shape), dtype=soft.dtype, device=soft.device))
    return one - soft.detach() + soft
