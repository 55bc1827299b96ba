"""Functions that draw random numbers, beside plain dropout."""

from __future__ import annotations

from ... import _ops as ops
from ..._core import Tensor
from .._parts import check_p, replace
from ._activation import leaky_relu

__all__ = ["alpha_dropout", "feature_alpha_dropout", "gumbel_softmax", "rrelu", "rrelu_"]


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU: what is dropped becomes SELU's floor, and mean and variance are kept."""
    check_p(p)
    return replace(input, lambda x: ops.alpha_dropout(x, p), inplace) if training and p > 0 else input


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout() of whole channels of [N, C, ..]."""
    check_p(p)
    return replace(input, lambda x: ops.feature_alpha_dropout(x, p), inplace) if training and p > 0 else input


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """x where positive, else x times a slope: drawn from [lower, upper) for each element in training, else their mean."""
    if lower > upper:
        raise ValueError(f"rrelu: lower {lower} is above upper {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return replace(input, lambda x: ops.rrelu(x, lower, upper), inplace)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """rrelu(), in place."""
    return rrelu(input, lower, upper, training, True)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of softmax((logits + Gumbel noise) / tau); with ``hard`` one-hot, with the gradient of the soft one."""
    return ops.gumbel_softmax(logits, tau, hard, dim)
