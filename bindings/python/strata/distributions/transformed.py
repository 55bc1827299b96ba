"""Distributions of transformed values."""

from __future__ import annotations

from typing import Any, Optional

from .._core import Tensor
from .._grad_mode import no_grad
from .constraints import Constraint, independent
from .distribution import Distribution, Independent
from .transforms import ComposeTransform, Transform, _sum_right


class TransformedDistribution(Distribution):
    """Values of ``base_distribution`` that went through ``transforms``, one after the other."""

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: Optional[bool] = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        chain = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        domain = chain.domain.event_dim
        if len(base_shape) < domain:
            raise ValueError(f"base_distribution needs to have shape with size at least {domain}, but got {base_shape}.")
        shape = tuple(chain.forward_shape(base_shape))
        extra = domain - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, extra) if extra > 0 else base_distribution
        change = chain.codomain.event_dim - domain
        event = max(chain.codomain.event_dim, len(base_distribution.event_shape) + change)
        cut = len(shape) - event
        super().__init__(shape[:cut], shape[cut:], validate_args)
        self.has_rsample = self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        inside = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        missing = len(self.event_shape) - inside.event_dim
        return independent(inside, missing) if missing > 0 else inside

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for t in self.transforms:
                x = t(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        event, total, y = len(self.event_shape), 0.0, value
        found: Any = total
        for t in reversed(self.transforms):
            x = t.inv(y)
            event += t.domain.event_dim - t.codomain.event_dim
            found = found - _sum_right(t.log_abs_det_jacobian(x, y), event - t.domain.event_dim)
            y = x
        result: Tensor = found + _sum_right(self.base_dist.log_prob(y), event - len(self.base_dist.event_shape))
        return result

    def _monotone(self, value: Tensor) -> Any:
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        return sign

    def cdf(self, value: Tensor) -> Tensor:
        sign = self._monotone(value)
        for t in reversed(self.transforms):
            value = t.inv(value)
        share: Tensor = self.base_dist.cdf(value)
        turned: Tensor = sign * (share - 0.5) + 0.5
        return turned

    def icdf(self, value: Tensor) -> Tensor:
        """The number below which a share ``value`` lies."""
        x = self.base_dist.icdf(self._monotone(value) * (value - 0.5) + 0.5)
        for t in self.transforms:
            x = t(x)
        return x
