"""Special functions by torch.special's names."""

from __future__ import annotations

import math
from typing import Any, Optional

from . import _composed, _core, _functions as F, _ops
from ._composed.special import bessel, zeta
from ._core import Tensor
from ._composed import digamma, erfinv, i0, logit, polygamma, sinc
from ._ops import erf, erfc, exp2, expm1, log1p, log_softmax, logsumexp, round, softmax, xlogy

__all__ = [
    "bessel_j0", "bessel_j1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln", "i0",
    "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]

expit = _ops.sigmoid
gammaln, psi, multigammaln = _composed.lgamma, digamma, _composed.mvlgamma
modified_bessel_i0 = i0


def i0e(input: Tensor) -> Tensor:
    """i0() times exp(-|x|)."""
    return bessel(input, 0, True)


def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of order 1."""
    return bessel(input, 1, False)


def i1e(input: Tensor) -> Tensor:
    """i1() times exp(-|x|)."""
    return bessel(input, 1, True)


modified_bessel_i1 = i1


def _bessel_j(input: Tensor, order: int) -> Tensor:
    x = input.to(_core.float64)
    most = float(x.detach().abs().max().item()) if x.numel() else 0.0
    points = 64 + 2 * math.ceil(most) if math.isfinite(most) else 64
    t = (_core.arange(points, dtype=_core.float64, device=x.device) + 0.5) * (2 * math.pi / points)
    y = _ops.cos(t * order - x.unsqueeze(-1) * _ops.sin(t)).mean(-1)
    return y.to(input.dtype if input.is_floating_point() else _core.get_default_dtype())


def bessel_j0(input: Tensor) -> Tensor:
    """The Bessel function of order 0: the mean of cos(x sin t) over a period."""
    return _bessel_j(input, 0)


def bessel_j1(input: Tensor) -> Tensor:
    """The Bessel function of order 1."""
    return _bessel_j(input, 1)


def entr(input: Tensor) -> Tensor:
    """-x log x; 0 at 0, -inf below."""
    inside = input > 0
    x = F.where(inside, input, 1.0)
    found: Tensor = F.where(inside, -x * _ops.log(x), F.where(input == 0, 0.0, F.where(_ops.isnan(input), math.nan, -math.inf)))
    return found.to(input.dtype)


def ndtr(input: Tensor) -> Tensor:
    """The share of a standard normal distribution below x."""
    return _ops.erfc(input * -math.sqrt(0.5)) * 0.5


def ndtri(input: Tensor) -> Tensor:
    """The inverse of ndtr()."""
    return erfinv(2 * input.to(_core.float64) - 1).to(input.dtype) * math.sqrt(2.0)


def erfcx(input: Tensor) -> Tensor:
    """erfc(x) exp(x^2); above 20 by its asymptotic series."""
    x = input.to(_core.float64)
    large = x > 20
    v = F.where(large, x, 20.0)
    r = 1 / (2 * v * v)
    far = (1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r)))) / (v * math.sqrt(math.pi))
    u = F.where(large, 0.0, x)
    found: Tensor = F.where(large, far, _ops.erfc(u) * _ops.exp(u * u)).to(input.dtype)
    return found


def log_ndtr(input: Tensor) -> Tensor:
    """log ndtr(x), without underflow."""
    x = input.to(_core.float64)
    low = x < -1
    v = F.where(low, x, -1.0)
    tail = _ops.log(erfcx(-v * math.sqrt(0.5)) * 0.5) - v * v / 2
    found: Tensor = F.where(low, tail, _ops.log1p(-0.5 * _ops.erfc(F.where(low, 0.0, x) * math.sqrt(0.5)))).to(input.dtype)
    return found


def xlog1py(input: Any, other: Any) -> Tensor:
    """x log(1 + y), 0 where x is 0."""
    like: Optional[Tensor] = input if isinstance(input, Tensor) else other
    assert like is not None
    a = input if isinstance(input, Tensor) else F.tensor(float(input), dtype=like.dtype, device=like.device)
    b = other if isinstance(other, Tensor) else F.tensor(float(other), dtype=like.dtype, device=like.device)
    found: Tensor = F.where(_ops.isnan(b), b, F.where(a == 0, 0.0, a * _ops.log1p(F.where(a == 0, 0.0, b))))
    return found
