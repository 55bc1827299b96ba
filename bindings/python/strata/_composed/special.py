"""Bessel functions, zeta and what is made of it, whole numbers, matrices' functions; windows."""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple, Optional, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType
from .elementwise import digamma, lgamma

__all__ = [
    "adjoint", "angle", "bartlett_window", "blackman_window", "conj_physical",
    "frexp", "gcd", "hamming_window", "i0",
    "is_complex", "is_same_size", "is_signed", "kaiser_window", "lcm", "mvlgamma", 
    "nextafter", "polygamma", "renorm", "resolve_conj", "resolve_neg", "unravel_index",
]


def _real(input: Tensor) -> Tuple[Tensor, DType]:
    """In float64, and the dtype to return to."""
    return input.to(_core.float64), input.dtype if input.is_floating_point() else _core.get_default_dtype()


# ---- Bessel functions: means over a period, to which the trapezoid rule converges faster than any power


def bessel(input: Tensor, order: builtins.int, scaled: builtins.bool) -> Tensor:
    """I_order(x) = mean of exp(x cos t) cos(order t) over a period; ``scaled`` times exp(-|x|)."""
    x, kind = _real(input)
    size = _ops.abs(x)
    most = builtins.float(size.detach().max().item()) if x.numel() else 0.0
    points = 48 + 12 * math.ceil(math.sqrt(most)) if math.isfinite(most) else 48
    t = _core.arange(points, dtype=_core.float64, device=x.device) * (2 * math.pi / points)
    y = (_ops.exp(x.unsqueeze(-1) * _ops.cos(t) - size.unsqueeze(-1)) * _ops.cos(t * order)).mean(-1)
    return (y if scaled else y * _ops.exp(size)).to(kind)


def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of order 0."""
    return bessel(input, 0, False)


# ---- zeta

# B_2k / (2k)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


def zeta(x: Any, q: Any) -> Tensor:
    """Hurwitz's zeta function: the sum of (q + k)^-x, by Euler and Maclaurin's formula behind the first 12 terms."""
    s = x if isinstance(x, Tensor) else F.tensor(builtins.float(x), dtype=_core.float64)
    a = q if isinstance(q, Tensor) else F.tensor(builtins.float(q), dtype=_core.float64)
    kind = F.result_type(s, a)
    kind = kind if kind.is_floating_point else _core.get_default_dtype()
    s, a = s.to(_core.float64), a.to(_core.float64)
    total: Tensor = a**-s
    for k in range(1, 12):
        total = total + (a + k) ** -s
    w = a + 12
    total = total + w ** (1 - s) / (s - 1) + 0.5 * w**-s
    factor = s * w ** (-s - 1)
    for k, b in enumerate(_BERNOULLI):
        total = total + factor * b
        factor = factor * (s + (2 * k + 1)) * (s + (2 * k + 2)) / (w * w)
    return total.to(kind)


def polygamma(n: builtins.int, input: Tensor) -> Tensor:
    """Derivative n of digamma(), for positive numbers."""
    if n < 0:
        raise ValueError(f"polygamma(n, x) does not support negative n, got {n}")
    if n == 0:
        return digamma(input)
    return zeta(n + 1.0, input) * ((-1.0) ** (n + 1) * math.factorial(n))


def mvlgamma(input: Tensor, p: builtins.int) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
    total: Tensor = lgamma(input) + p * (p - 1) / 4 * math.log(math.pi)
    for j in range(1, p):
        total = total + lgamma(input - j / 2)
    return total


# ---- numbers


def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisors of whole numbers, by Euclid's algorithm."""
    if input.is_floating_point() or other.is_floating_point():
        raise _core.DTypeError("gcd: whole numbers are wanted")
    a, b = F.broadcast_tensors(_ops.abs(input), _ops.abs(other))
    while bool_of(b):
        left = b != 0
        a, b = F.where(left, b, a), F.where(left, _ops.remainder(a, F.where(left, b, 1)), 0)
    return a.contiguous()


def bool_of(x: Tensor) -> builtins.bool:
    """Whether any element is not 0."""
    return builtins.bool((x != 0).any().item())


def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiples of whole numbers."""
    divisor = gcd(input, other)
    return _ops.abs(_ops.floor_divide(input, F.where(divisor == 0, 1, divisor)) * other)


class _Frexp(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


def frexp(input: Tensor) -> _Frexp:
    """x as a mantissa of size 1/2 to 1 times a power of 2."""
    import numpy as np

    mantissa, exponent = np.frexp(input.detach().cpu().to(_core.float64).numpy())
    return _Frexp(F.tensor(mantissa, device=input.device).to(input.dtype),
                  F.tensor(exponent.astype("int32"), device=input.device))


def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The neighbour of each number in the direction of another."""
    import numpy as np

    if input.dtype not in (_core.float32, _core.float64) or other.dtype != input.dtype:
        raise _core.DTypeError("nextafter: two of float32 or float64 are wanted, got "
                               f"{input.dtype.name} and {other.dtype.name}")
    return F.tensor(np.nextafter(input.detach().cpu().numpy(), other.detach().cpu().numpy()), device=input.device)


def angle(input: Tensor) -> Tensor:
    """pi for negative numbers, 0 for others, NaN for NaN."""
    x = input if input.is_floating_point() else input.to(_core.get_default_dtype())
    found: Tensor = F.where(x < 0, math.pi, F.where(_ops.isnan(x), x, _core.zeros_like(x)))
    return found


def conj_physical(input: Tensor) -> Tensor:
    """The tensor itself: there are no complex ones."""
    return input


resolve_conj = resolve_neg = conj_physical


def is_complex(input: Tensor) -> builtins.bool:
    """False: there are no complex tensors."""
    return False


def is_signed(input: Tensor) -> builtins.bool:
    """Whether its dtype has negative numbers."""
    return input.dtype.is_signed


def is_same_size(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether both have one shape."""
    return input.shape == other.shape


# ---- statistics


class _Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


# ---- matrices


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return input.mT


def renorm(input: Tensor, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
    """The slices of ``dim`` scaled down to a p-norm of at most ``maxnorm``."""
    norms = _ops.norm(input, builtins.float(p), [d for d in range(input.dim()) if d != dim % input.dim()], True)
    found: Tensor = input * F.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    return found


def unravel_index(indices: Tensor, shape: Any) -> Tuple[Tensor, ...]:
    """Indices into a flat tensor as indices into one of ``shape``."""
    sizes = [shape] if isinstance(shape, builtins.int) else [builtins.int(v) for v in shape]
    found = []
    for size in reversed(sizes):
        found.append(_ops.remainder(indices, F.tensor(size, device=indices.device)))
        indices = _ops.floor_divide(indices, F.tensor(size, device=indices.device))
    return tuple(reversed(found))


# ---- windows


def _window(length: builtins.int, periodic: builtins.bool, dtype: Optional[DType], device: Any) -> Tuple[Tensor, DType, Any]:
    kind = dtype or _core.get_default_dtype()
    n = 0 if length == 1 else length if periodic else length - 1
    return _core.arange(length, dtype=_core.float64, device=device) / builtins.max(n, 1), kind, n


def bartlett_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                    device: Any = None) -> Tensor:
    """A triangle from 0 to 1 to 0."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    return (1 - _ops.abs(2 * at - 1)).to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def hamming_window(window_length: builtins.int, periodic: builtins.bool = True, alpha: builtins.float = 0.54,
                   beta: builtins.float = 0.46, *, dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """alpha - beta cos over a period."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    y = alpha - beta * _ops.cos(2 * math.pi * at)
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def blackman_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                    device: Any = None) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle, over a period."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    y = 0.42 - 0.5 * _ops.cos(2 * math.pi * at) + 0.08 * _ops.cos(4 * math.pi * at)
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def kaiser_window(window_length: builtins.int, periodic: builtins.bool = True, beta: builtins.float = 12.0, *,
                  dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """I0(beta sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    t = 2 * at - 1
    inside = _ops.sqrt(_ops.clamp(1 - t * t, 0, None))
    y = i0(inside * beta) / i0(F.tensor(builtins.float(beta), dtype=_core.float64, device=device))
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)
