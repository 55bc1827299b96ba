"""Activations."""

from __future__ import annotations

import warnings
from typing import Any, Optional

from ... import _ops as ops
from ..._core import Tensor, _leaky_relu_over
from .._parts import replace

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_",
    "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "selu", "selu_",
    "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "swiglu", "tanh", "tanhshrink",
    "threshold", "threshold_",
]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return input.relu_() if inplace else ops.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return replace(input, lambda x: ops.relu6(x), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's function of x; ``approximate`` "none" or "tanh"."""
    return ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)."""
    return replace(input, lambda x: ops.silu(x), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))."""
    return replace(input, lambda x: ops.mish(x), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha (exp(x) - 1)."""
    return replace(input, lambda x: ops.elu(x, alpha), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha (exp(x / alpha) - 1)."""
    return replace(input, lambda x: ops.celu(x, alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the constants of arXiv:1706.02515."""
    return replace(input, lambda x: ops.selu(x), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope x."""
    if inplace and negative_slope >= 0 and input.is_floating_point():
        return _leaky_relu_over(input, negative_slope)
    return replace(input, lambda x: ops.leaky_relu(x, negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a slope for each channel (or one for all) that is learned."""
    return ops.prelu(input, weight)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    return replace(input, lambda x: ops.hardtanh(x, min_val, max_val), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return replace(input, lambda x: ops.hardsigmoid(x), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x hardsigmoid(x)."""
    return replace(input, lambda x: ops.hardswish(x), inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta."""
    return ops.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return ops.softsign(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x towards 0 by lambd, 0 where it is nearer than that."""
    return ops.softshrink(input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, or 0 where |x| <= lambd."""
    return ops.hardshrink(input, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return ops.tanhshrink(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above ``threshold``, else ``value``."""
    return replace(input, lambda x: ops.threshold(x, threshold, value), inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return ops.logsigmoid(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return ops.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a sigmoid(b) of the two halves along ``dim``."""
    return ops.glu(input, dim)


def swiglu(input: Tensor, gate: Tensor) -> Tensor:
    """silu(input) gate."""
    return ops.swiglu(input, gate)


def _softmax_dim(dim: Optional[int], ndim: int, name: str) -> int:
    if dim is None:
        warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Give dim.", stacklevel=3)
        return 0 if ndim in (0, 1, 3) else 1
    return dim


def softmax(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along ``dim``."""
    return ops.softmax(input if dtype is None else input.to(dtype), _softmax_dim(dim, input.dim(), "softmax"))


def softmin(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """softmax(-x)."""
    return ops.softmin(input if dtype is None else input.to(dtype), _softmax_dim(dim, input.dim(), "softmin"))


def log_softmax(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """log(softmax(x))."""
    return ops.log_softmax(input if dtype is None else input.to(dtype), _softmax_dim(dim, input.dim(), "log_softmax"))


# ---- in place


def relu_(input: Tensor) -> Tensor:
    """relu() written over its argument."""
    return input.relu_()


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu() written over its argument."""
    return elu(input, alpha, True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu() written over its argument."""
    return leaky_relu(input, negative_slope, True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh() written over its argument."""
    return hardtanh(input, min_val, max_val, True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu() written over its argument."""
    return celu(input, alpha, True)


def selu_(input: Tensor) -> Tensor:
    """selu() written over its argument."""
    return selu(input, True)


_threshold = threshold  # below an argument has its name


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold() written over its argument."""
    return _threshold(input, threshold, value, True)
