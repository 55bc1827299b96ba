"""Transforms of real numbers into what a constraint allows: ``biject_to`` one to one, ``transform_to`` any that covers
it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Hashable

from .._core import Tensor
from . import constraints
from .constraints import Constraint
from .transforms import (
    AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform, ExpTransform, IndependentTransform,
    LowerCholeskyTransform, PositiveDefiniteTransform, SigmoidTransform, SoftmaxTransform, StackTransform,
    StickBreakingTransform, Transform, identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


def _key(constraint: Any) -> Hashable:
    """A class of constraints, or the kind of one that has no class of its own."""
    if isinstance(constraint, type):
        return constraint
    kind: Any = getattr(constraint, "_kind", None) or type(constraint)
    return kind  # type: ignore[no-any-return]


class ConstraintRegistry:
    """Functions from constraints to transforms, by the constraints' classes."""

    def __init__(self) -> None:
        self._factories: Dict[Hashable, Factory] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Takes a function for a class of constraints, or that of one; a decorator without it."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        if not isinstance(constraint, (Constraint, type)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._factories[_key(constraint)] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        factory = self._factories.get(_key(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _above(c: Any) -> Transform:
    """From exp(x), which is all of it above 0."""
    if not isinstance(c.lower_bound, Tensor) and c.lower_bound == 0:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(c.lower_bound, 1)])


def _between(c: Any) -> Transform:
    bounds = (c.lower_bound, c.upper_bound)
    if not any(isinstance(b, Tensor) for b in bounds) and bounds == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(bounds[0], bounds[1] - bounds[0])])


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda c: identity_transform)
    _registry.register(constraints.independent, lambda c, to=_registry: IndependentTransform(
        to(c.base_constraint), c.reinterpreted_batch_ndims))
    _registry.register(constraints.greater_than, _above)
    _registry.register(constraints.greater_than_eq, _above)
    _registry.register(constraints.less_than, lambda c: ComposeTransform([
        ExpTransform(), AffineTransform(c.upper_bound, -1)]))
    _registry.register(constraints.interval, _between)
    _registry.register(constraints.half_open_interval, _between)
    _registry.register(constraints.corr_cholesky, lambda c: CorrCholeskyTransform())
    _registry.register(constraints.cat, lambda c, to=_registry: CatTransform([to(p) for p in c.cseq], c.dim, c.lengths))
    _registry.register(constraints.stack, lambda c, to=_registry: StackTransform([to(p) for p in c.cseq], c.dim))
biject_to.register(constraints.simplex, lambda c: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda c: PositiveDefiniteTransform())
