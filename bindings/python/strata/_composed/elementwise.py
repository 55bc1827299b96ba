"""Elementwise functions, special functions among them; small helpers."""

from __future__ import annotations

import builtins
import math
from typing import Any, Optional, Union

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType
from .._grad_mode import no_grad

__all__ = [
    "cosine_similarity", "deg2rad", "detach", "digamma", "erfinv", "float_power", "hann_window", "heaviside",
    "is_nonzero", "isneginf", "isposinf", "isreal", "ldexp", "lgamma", "logaddexp2", "logit", "rad2deg",
    "scalar_tensor", "sgn", "sinc", "zero_",
]

Number = Union[builtins.int, builtins.float]


def logit(input: Tensor, eps: Optional[builtins.float] = None) -> Tensor:
    """log(x / (1 - x)), x limited to [eps, 1 - eps]."""
    x = input if eps is None else _ops.clamp(input, eps, 1 - eps)
    return _ops.log(x / (1 - x))


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2^x + 2^y)."""
    return _ops.logaddexp(input * math.log(2), other * math.log(2)) / math.log(2)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below 0, ``values`` at 0, 1 above."""
    found: Tensor = F.where(input == 0, values.to(input.dtype), (input > 0).to(input.dtype))
    return found


sgn = _ops.sign


def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return input * (math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return input * (180 / math.pi)


def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    zero = input == 0
    x = _ops.masked_fill(input, zero, 1) * math.pi
    found: Tensor = F.where(zero, 1.0, _ops.sin(x) / x)
    return found


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """x 2^y."""
    return input * _ops.exp2(other.to(_core.get_default_dtype() if not other.is_floating_point() else other.dtype))


def float_power(input: Any, exponent: Any) -> Tensor:
    """Powers in float64."""
    a = input.to(_core.float64) if isinstance(input, Tensor) else input
    b = exponent.to(_core.float64) if isinstance(exponent, Tensor) else exponent
    return F.pow(a, b)


def isposinf(input: Tensor) -> Tensor:
    """Which elements are +inf."""
    return input == math.inf


def isneginf(input: Tensor) -> Tensor:
    """Which elements are -inf."""
    return input == -math.inf


def isreal(input: Tensor) -> Tensor:
    """All of them: there are no complex tensors."""
    return _core.ones(input.shape, dtype=_core.bool, device=input.device)


# Coefficients of Lanczos' approximation with g = 7 and 9 terms (https://en.wikipedia.org/wiki/Lanczos_approximation).
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)


def lgamma(input: Tensor) -> Tensor:
    """log |Gamma(x)|, by Lanczos' approximation in float64; below 1/2 by reflection."""
    kind = input.dtype if input.is_floating_point() else _core.get_default_dtype()
    x = input.to(_core.float64)
    low = x < 0.5
    z = F.where(low, 1 - x, x) - 1
    total = _core.full(z.shape, _LANCZOS[0], dtype=_core.float64, device=z.device)
    for i, c in enumerate(_LANCZOS[1:]):
        total = total + c / (z + (i + 1))
    t = z + 7.5
    y = 0.5 * math.log(2 * math.pi) + (z + 0.5) * _ops.log(t) - t + _ops.log(total)
    mirrored = math.log(math.pi) - _ops.log(_ops.abs(_ops.sin(math.pi * F.where(low, x, 0.25)))) - y
    found: Tensor = F.where(low, mirrored, y).to(kind)
    return found


def digamma(input: Tensor) -> Tensor:
    """The derivative of lgamma(): shifted above 6 and expanded there; below 1/2 by reflection."""
    kind = input.dtype if input.is_floating_point() else _core.get_default_dtype()
    x = input.to(_core.float64)
    low = x < 0.5
    z = F.where(low, 1 - x, x)
    y = _core.zeros(z.shape, dtype=_core.float64, device=z.device)
    for i in range(8):
        y = y - 1 / (z + i)
    z = z + 8
    r = 1 / (z * z)
    y = y + _ops.log(z) - 0.5 / z - r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132)))))
    angle = math.pi * F.where(low, x, 0.25)
    found: Tensor = F.where(low, y - math.pi * _ops.cos(angle) / _ops.sin(angle), y).to(kind)
    return found


def erfinv(input: Tensor) -> Tensor:
    """The inverse of erf(), by Winitzki's approximation and three steps of Halley's method in float64."""
    kind = input.dtype if input.is_floating_point() else _core.get_default_dtype()
    x = input.to(_core.float64)
    inside = _ops.abs(x) < 1
    v = F.where(inside, x, 0.0)
    with no_grad():
        w = _ops.log1p(-(v * v).detach())
        a = 2 / (math.pi * 0.147) + w / 2
        y = _ops.sign(v.detach()) * _ops.sqrt(_ops.sqrt(a * a - w / 0.147) - a)
        for _ in range(3):
            error = (_ops.erf(y) - v.detach()) / (2 / math.sqrt(math.pi) * _ops.exp(-y * y))
            y = y - error / (1 + y * error)
    # One step of Newton's carries the gradient; its value is that of y.
    y = y - (_ops.erf(y) - v) * (math.sqrt(math.pi) / 2 * _ops.exp(y * y))
    edge = F.where(_ops.abs(x) == 1, _ops.sign(x) * math.inf, math.nan)
    found: Tensor = F.where(inside, y, edge).to(kind)
    return found


def scalar_tensor(s: Number, *, dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """A tensor of no dimensions."""
    return F.tensor(s, dtype=dtype or _core.get_default_dtype(), device=device)


def hann_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                device: Any = None) -> Tensor:
    """sin^2 over a period."""
    if window_length == 1:
        return _core.ones(1, dtype=dtype or _core.float32, device=device)
    n = window_length if periodic else window_length - 1
    return _ops.sin(_core.arange(window_length, dtype=dtype or _core.float32, device=device) * (math.pi / builtins.max(n, 1))) ** 2


def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the only element is not 0."""
    return builtins.bool(input)


def detach(input: Tensor) -> Tensor:
    """The same elements without history."""
    return input.detach()


def zero_(input: Tensor) -> Tensor:
    """Filled with zeros."""
    return input.zero_()


def cosine_similarity(x1: Tensor, x2: Tensor, dim: builtins.int = 1, eps: builtins.float = 1e-8) -> Tensor:
    """x1 . x2 over the product of their norms along ``dim``."""
    from ..nn import functional

    return functional.cosine_similarity(x1, x2, dim, eps)
