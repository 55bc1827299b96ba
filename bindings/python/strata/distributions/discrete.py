"""Distributions over whole numbers."""

from __future__ import annotations

from typing import Any, Optional

from .. import _ops
from .. import _functions as F
from .._core import Tensor, ones_like
from .._grad_mode import no_grad
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, broadcast


class _OfProbability(Distribution):
    """A probability, or its logit."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    probs: Tensor
    logits: Tensor

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            (self.probs,) = broadcast(probs)
            self.logits = _ops.logit(self.probs, 1e-7 if self.probs.dtype.itemsize == 4 else 1e-15)
        else:
            (self.logits,) = broadcast(logits)
            self.probs = _ops.sigmoid(self.logits)
        super().__init__(self.probs.shape, validate_args=validate_args)


class Bernoulli(_OfProbability):
    """1 with a probability, else 0."""

    support: Constraint = constraints.boolean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return (self._noise(self.probs, sample_shape, uniform=True) < self.probs).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        # -softplus(-logit) where the value is 1, -softplus(logit) where it is 0
        return value * self.logits - _ops.softplus(self.logits)

    def entropy(self) -> Tensor:
        return _ops.softplus(self.logits) - self.probs * self.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Geometric(_OfProbability):
    """Failures before the first success."""

    support: Constraint = constraints.nonnegative_integer

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return (self._unit(self.probs, sample_shape).log() / _ops.log1p(-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        return value * _ops.log1p(-self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return (_ops.softplus(self.logits) - self.probs * self.logits) / self.probs

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs


class Poisson(Distribution):
    """Numbers of events at a rate."""

    arg_constraints = {"rate": constraints.nonnegative}
    support: Constraint = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return _ops.poisson(self.rate.expand(self._extended(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        return _ops.xlogy(value, self.rate * ones_like(value)) - self.rate - _ops.lgamma(value + 1)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate


class Binomial(Distribution):
    """Successes of ``total_count`` trials."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
                       "logits": constraints.real}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None,
                 validate_args: Optional[bool] = None) -> None:
        each = Bernoulli(probs, logits, validate_args)
        self.total_count, self.probs, self.logits = broadcast(total_count, each.probs, each.logits)
        self.total_count = self.total_count.to(self.probs.dtype)
        super().__init__(self.probs.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended(sample_shape)
            return _ops.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        choices = _ops.lgamma(n + 1) - _ops.lgamma(value + 1) - _ops.lgamma(n - value + 1)
        return choices + value * self.logits - n * _ops.softplus(self.logits)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)


class NegativeBinomial(Distribution):
    """Successes before ``total_count`` failures."""

    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support: Constraint = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        each = _OfProbability(probs, logits, validate_args)
        self.total_count, self.probs, self.logits = broadcast(total_count, each.probs, each.logits)
        self.total_count = self.total_count.to(self.probs.dtype)
        super().__init__(self.probs.shape, validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            rate = _ops.standard_gamma(self.total_count.expand(self._extended(sample_shape))) * self.logits.exp()
            return _ops.poisson(rate)

    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        plain = n * _ops.logsigmoid(-self.logits) + value * _ops.logsigmoid(self.logits)
        choices = _ops.lgamma(n + value) - _ops.lgamma(value + 1) - _ops.lgamma(n)
        found: Tensor = plain + F.where(n + value == 0, 0.0, choices)
        return found

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def variance(self) -> Tensor:
        return self.mean / _ops.sigmoid(-self.logits)
