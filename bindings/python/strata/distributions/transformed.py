"""Distributions of transformed values."""

from __future__ import annotations

from typing import Any, Optional

from .. import _core
from .constraints import Constraint, independent
from .distribution import _OWN, Distribution, Independent, Shell, engine as engine_distribution, shape_of
from .transforms import ComposeTransform, Transform, engine


class TransformedDistribution(Shell):
    """Values of ``base_distribution`` that went through ``transforms``, one after the other."""

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: Optional[bool] = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        extra = ComposeTransform(self.transforms).domain.event_dim - len(base_distribution.event_shape)
        wider = 0 < extra <= len(base_distribution.batch_shape)
        self.base_dist: Distribution = Independent(base_distribution, extra) if wider else base_distribution
        self._take(self._build(), validate_args)
        self.has_rsample = self.base_dist.has_rsample

    def _build(self) -> _core.Distribution:
        return _core.Distribution.transformed(engine_distribution(self.base_dist), [engine(t) for t in self.transforms])

    @property
    def support(self) -> Constraint:
        inside = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        missing = len(self.event_shape) - inside.event_dim
        return independent(inside, missing) if missing > 0 else inside

    def expand(self, batch_shape: Any, _instance: Any = None) -> "TransformedDistribution":
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape(shape_of(batch_shape) + self.event_shape)
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        TransformedDistribution.__init__(new, base, self.transforms, False)
        new._validate_args = self._validate_args
        return new  # type: ignore[no-any-return]


_OWN.add(TransformedDistribution)
