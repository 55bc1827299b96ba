"""Distributions over real numbers."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _core, _functions as F, _ops, linalg
from .._core import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, broadcast

_LOG_2PI = math.log(2 * math.pi)


class _LocScale(Distribution):
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    def _standard(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.scale * self._standard_noise(sample_shape)

    def _standard_noise(self, sample_shape: Any) -> Tensor:
        raise NotImplementedError


class Normal(_LocScale):
    """Normal numbers of mean ``loc`` and standard deviation ``scale``."""

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def _standard_noise(self, sample_shape: Any) -> Tensor:
        return self._noise(self.loc, sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * self._standard(value) ** 2 - self.scale.log() - 0.5 * _LOG_2PI

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * _LOG_2PI + self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + _ops.erf(self._standard(value) / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        """The number below which a share ``value`` lies."""
        return self.loc + self.scale * _ops.erfinv(2 * value - 1) * math.sqrt(2)


class LogNormal(Distribution):
    """exp of normal numbers."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.positive

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.base_dist = Normal(loc, scale, validate_args)
        self.loc, self.scale = self.base_dist.loc, self.base_dist.scale
        super().__init__(self.base_dist.batch_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        return self.base_dist.log_prob(value.log()) - value.log()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def variance(self) -> Tensor:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()


class HalfNormal(Distribution):
    """Sizes of normal numbers of mean 0."""

    arg_constraints = {"scale": constraints.positive}
    support: Constraint = constraints.nonnegative

    has_rsample = True

    def __init__(self, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.base_dist = Normal(0.0, scale, validate_args)
        self.scale = self.base_dist.scale
        super().__init__(self.base_dist.batch_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = F.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)
        return found

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class Laplace(_LocScale):
    """Density exp(-|x - loc| / scale) / (2 scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    def _standard_noise(self, sample_shape: Any) -> Tensor:
        u = self._unit(self.loc, sample_shape) - 0.5
        return -_ops.sign(u) * _ops.log1p(-2 * u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - self._standard(value).abs()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * _ops.expm1(-z.abs())


class Cauchy(_LocScale):
    """Density 1 / (pi scale (1 + z^2))."""

    @property
    def mean(self) -> Tensor:
        return _core.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return _core.full_like(self.loc, math.inf)

    def _standard_noise(self, sample_shape: Any) -> Tensor:
        return (math.pi * (self._unit(self.loc, sample_shape) - 0.5)).tan()

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - _ops.log1p(self._standard(value) ** 2)

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_LocScale):
    """The largest of many: density exp(-z - exp(-z)) / scale."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * 0.5772156649015329

    @property
    def variance(self) -> Tensor:
        return math.pi**2 / 6 * self.scale**2

    def _standard_noise(self, sample_shape: Any) -> Tensor:
        return -(-self._unit(self.loc, sample_shape).log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return -z - (-z).exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + 1.5772156649015329


class StudentT(Distribution):
    """Student's t with ``df`` degrees of freedom."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Optional[bool] = None) -> None:
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        squares = 2 * _ops.standard_gamma((self.df / 2).expand(self._extended(sample_shape)))
        return self.loc + self.scale * self._noise(self.loc, sample_shape) * (self.df / squares).sqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        constant = self.scale.log() + 0.5 * (self.df * math.pi).log() + _ops.lgamma(self.df / 2) - _ops.lgamma(
            (self.df + 1) / 2)
        return -0.5 * (self.df + 1) * _ops.log1p(z**2 / self.df) - constant

    @property
    def mean(self) -> Tensor:
        found: Tensor = F.where(self.df > 1, self.loc, math.nan)
        return found

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        found: Tensor = F.where(self.df > 2, finite, F.where(self.df > 1, math.inf, math.nan))
        return found


class Uniform(Distribution):
    """Equally likely numbers in [low, high)."""

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: Optional[bool] = None) -> None:
        self.low, self.high = broadcast(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError(f"Uniform is not defined when low >= high: low is {self.low}, high {self.high}")

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + (self.high - self.low) * self._noise(self.low, sample_shape, uniform=True)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        found: Tensor = F.where(inside, -(self.high - self.low).log(), -math.inf)
        return found

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class Exponential(Distribution):
    """Waiting times at a rate."""

    arg_constraints = {"rate": constraints.positive}
    support: Constraint = constraints.nonnegative

    has_rsample = True

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return -self._unit(self.rate, sample_shape).log() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate**-2


class Gamma(Distribution):
    """Gamma numbers of shape ``concentration`` and ``rate``."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Constraint = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: Optional[bool] = None) -> None:
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _ops.standard_gamma(self.concentration.expand(self._extended(sample_shape))) / self.rate
        return drawn.clamp(F.finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - _ops.lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + _ops.lgamma(a) + (1 - a) * _ops.digamma(a)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2


class Beta(Distribution):
    """Shares in (0, 1)."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Constraint = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Optional[bool] = None) -> None:
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        both = F.stack([self.concentration1, self.concentration0], -1)
        return _ops.dirichlet(both.expand([*self._extended(sample_shape), 2])).select(-1, 0)

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return _ops.lgamma(a) + _ops.lgamma(b) - _ops.lgamma(a + b)

    def log_prob(self, value: Tensor) -> Tensor:
        return (self.concentration1 - 1) * value.log() + (self.concentration0 - 1) * _ops.log1p(-value) - self._log_beta()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        total = a + b
        return self._log_beta() - (a - 1) * _ops.digamma(a) - (b - 1) * _ops.digamma(b) + (
            total - 2) * _ops.digamma(total)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))


class Dirichlet(Distribution):
    """Shares that sum to 1 over the last dimension."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Constraint = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: Optional[bool] = None) -> None:
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _ops.dirichlet(self.concentration.expand(self._extended(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return ((a - 1) * value.log()).sum(-1) + _ops.lgamma(a.sum(-1)) - _ops.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        n, total = a.shape[-1], a.sum(-1)
        return (_ops.lgamma(a).sum(-1) - _ops.lgamma(total) - (n - total) * _ops.digamma(total)
                - ((a - 1) * _ops.digamma(a)).sum(-1))

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))


class MultivariateNormal(Distribution):
    """Normal vectors: a mean and a covariance, a precision or the covariance's Cholesky triangle."""

    arg_constraints = {"loc": constraints.real_vector, "scale_tril": constraints.lower_cholesky}
    support: Constraint = constraints.real_vector

    has_rsample = True

    def __init__(self, loc: Tensor, covariance_matrix: Optional[Tensor] = None, precision_matrix: Optional[Tensor] = None,
                 scale_tril: Optional[Tensor] = None, validate_args: Optional[bool] = None) -> None:
        if sum(m is not None for m in (covariance_matrix, precision_matrix, scale_tril)) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if scale_tril is None:
            matrix = linalg.inv(precision_matrix) if precision_matrix is not None else covariance_matrix
            assert matrix is not None
            scale_tril = linalg.cholesky(matrix)
        n = loc.shape[-1]
        batch = list(_core.broadcast_shapes(loc.shape[:-1], scale_tril.shape[:-2]))
        self.loc, self.scale_tril = loc.expand([*batch, n]), scale_tril.expand([*batch, n, n])
        super().__init__(batch, [n], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def covariance_matrix(self) -> Tensor:
        return self.scale_tril @ self.scale_tril.mT

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + (self.scale_tril @ self._noise(self.loc, sample_shape).unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return _ops.diagonal(self.scale_tril, 0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        z = linalg.solve(self.scale_tril, (value - self.loc).unsqueeze(-1)).squeeze(-1)
        return -0.5 * ((z**2).sum(-1) + self.loc.shape[-1] * _LOG_2PI) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self.loc.shape[-1] * (1 + _LOG_2PI) + self._half_log_det()


class Chi2(Gamma):
    """Sums of ``df`` squares of standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: Optional[bool] = None) -> None:
        (self.df,) = broadcast(df)
        super().__init__(0.5 * self.df, _core.full_like(self.df, 0.5), validate_args)


class FisherSnedecor(Distribution):
    """Ratios of two chi-squared numbers, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support: Constraint = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: Optional[bool] = None) -> None:
        self.df1, self.df2 = broadcast(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended(sample_shape)
        above = _ops.standard_gamma((self.df1 / 2).expand(shape)) / self.df1
        below = _ops.standard_gamma((self.df2 / 2).expand(shape)) / self.df2
        tiny = F.finfo(above.dtype).tiny
        return (above / below.clamp(tiny)).clamp(tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        half1, half2, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        constant = _ops.lgamma(half1 + half2) - _ops.lgamma(half1) - _ops.lgamma(half2)
        return (constant + half1 * ratio.log() + (half1 - 1) * value.log() - (half1 + half2) * _ops.log1p(ratio * value))

    @property
    def mean(self) -> Tensor:
        found: Tensor = F.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)
        return found


class HalfCauchy(Distribution):
    """Sizes of Cauchy's numbers."""

    arg_constraints = {"scale": constraints.positive}
    support: Constraint = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.base_dist = Cauchy(0.0, scale, validate_args)
        self.scale = self.base_dist.scale
        super().__init__(self.base_dist.batch_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = F.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)
        return found

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
