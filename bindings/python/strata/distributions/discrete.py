"""Distributions over whole numbers."""

from __future__ import annotations

from typing import Any, Optional

from .. import _composed, _ops
from .._core import Tensor, ones_like
from .._grad_mode import no_grad
from ..random import poisson
from .distribution import Distribution, broadcast


class _OfProbability(Distribution):
    """A probability, or its logit."""

    probs: Tensor
    logits: Tensor

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            (self.probs,) = broadcast(probs)
            self.logits = _composed.logit(self.probs, 1e-7 if self.probs.dtype.itemsize == 4 else 1e-15)
        else:
            (self.logits,) = broadcast(logits)
            self.probs = _ops.sigmoid(self.logits)
        super().__init__(self.probs.shape)


class Bernoulli(_OfProbability):
    """1 with a probability, else 0."""

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

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        return _ops.xlogy(value, self.rate * ones_like(value)) - self.rate - _composed.lgamma(value + 1)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate
