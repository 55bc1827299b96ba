"""Invertible maps between values, with the logarithms of their derivatives."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Set

from .. import _core
from .._core import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, engine as engine_distribution
from .families import _RECORDS, _constraint

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]


def _is(a: Any, b: Tensor) -> bool:
    """Whether a value is the one that is remembered, through whichever handle."""
    return a is b or (a is not None and _core._same_tensor(a, b))


class Transform:
    """y = transform(x) and x = transform.inv(y). ``sign`` is 1 where it rises, -1 where it falls."""

    bijective = False
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached: Any = (None, None)

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> "Transform":
        """The inverse transform."""
        return _Inverse(self)

    @property
    def sign(self) -> Any:
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> "Transform":
        """The same transform, remembering its last value or not."""
        self._cache_size = cache_size
        return self

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        before, after = self._cached
        if _is(before, x):
            found: Tensor = after
            return found
        y = self._call(x)
        self._cached = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        before, after = self._cached
        if self._cache_size and _is(after, y):
            found: Tensor = before
            return found
        return self._inverse(y)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy / dx|."""
        raise NotImplementedError

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of y for x of ``shape``."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of x for y of ``shape``."""
        return shape

    def __repr__(self) -> str:
        return type(self).__name__ + "()"


_OWN: Set[type] = set()  # classes whose maps are the engine's


def engine(t: Transform) -> _core.Transform:
    """``t`` as the engine sees it: its own, or one that Python defines or remembers values of."""
    return t._t if type(t) in _OWN and isinstance(t, _Shell) and not t._cache_size else _core.Transform.of(t)


class _Shell(Transform):
    """One of the engine's, ``_t``, which ``_build`` makes of what the class was given."""

    _t: _core.Transform

    def _build(self) -> _core.Transform:
        raise NotImplementedError

    def __getstate__(self) -> Dict[str, Any]:
        return {**{k: v for k, v in self.__dict__.items() if k != "_t"}, "_cached": (None, None)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._t = self._build()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__:
            _OWN.add(cls)

    @property
    def sign(self) -> Any:
        return self._t.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self._t.forward(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._t.inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._t.log_abs_det_jacobian(x, y)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._t.forward_shape(tuple(shape))

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._t.inverse_shape(tuple(shape))

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) in _OWN and type(self) is type(other) and self._t.equals(other._t))

    __hash__ = Transform.__hash__


class _Inverse(_Shell):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._inv = transform
        self._t = self._build()
        self.bijective = transform.bijective

    def _build(self) -> _core.Transform:
        return engine(self._inv).inv()

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return self._inv.codomain

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return self._inv.domain

    @property
    def inv(self) -> Transform:
        return self._inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)


def _wider(constraint: Constraint, event_dim: int) -> Constraint:
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


class ComposeTransform(_Shell):
    """One after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self._t = self._build()
        self.bijective = self._t.bijective

    def _build(self) -> _core.Transform:
        return _core.Transform.compose([engine(p) for p in self.parts])

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return _wider(self.parts[0].domain, self._t.event_dims[0]) if self.parts else constraints.real

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return _wider(self.parts[-1].codomain, self._t.event_dims[1]) if self.parts else constraints.real

    @property
    def inv(self) -> Transform:
        return ComposeTransform([p.inv for p in reversed(self.parts)])

    def __repr__(self) -> str:
        return "ComposeTransform(" + ", ".join(map(repr, self.parts)) + ")"


identity_transform = ComposeTransform([])


class IndependentTransform(_Shell):
    """A transform whose last ``reinterpreted_batch_ndims`` dimensions make one event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self._t = self._build()
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def _build(self) -> _core.Transform:
        return _core.Transform.independent(engine(self.base_transform), self.reinterpreted_batch_ndims)


_SAID: Dict[str, Any] = {record["name"]: record for record in _RECORDS["transforms"]}


class _Recorded(_Shell):
    """One of the engine's records, by the name of the class."""

    _record: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        said = _SAID.get(cls.__name__) if cls.__module__ == __name__ else None
        if said:
            cls._record, cls.bijective, cls.__doc__ = said["name"], said["bijective"], said["doc"]
            cls.domain, cls.codomain = _constraint(said["domain"]), _constraint(said["codomain"])

    def __init__(self, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self._make()

    def _build(self) -> _core.Transform:
        return _core.Transform.make(self._record, *self._given)

    def _make(self, values: Sequence[Any] = (), shapes: Sequence[Any] = (), event_dim: int = 0) -> None:
        self._given = list(values), list(shapes), event_dim
        self._t = self._build()
        if event_dim or shapes:
            self.domain, self.codomain = constraints._of(*self._t.domain), constraints._of(*self._t.codomain)


class ReshapeTransform(_Recorded):
    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        Transform.__init__(self, cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        self._make(shapes=(self.in_shape, self.out_shape))


class ExpTransform(_Recorded): ...


class PowerTransform(_Recorded):
    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        Transform.__init__(self, cache_size)
        self.exponent = exponent
        self._make([exponent])


class SigmoidTransform(_Recorded): ...


class SoftplusTransform(_Recorded): ...


class TanhTransform(_Recorded): ...


class AbsTransform(_Recorded): ...


class AffineTransform(_Recorded):
    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        Transform.__init__(self, cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        self._make([loc, scale], event_dim=event_dim)

    @property
    def event_dim(self) -> int:
        return self._event_dim


class SoftmaxTransform(_Recorded): ...


class StickBreakingTransform(_Recorded): ...


class LowerCholeskyTransform(_Recorded): ...


class CorrCholeskyTransform(_Recorded): ...


class PositiveDefiniteTransform(_Recorded): ...


class CumulativeDistributionTransform(_Shell):
    """y = distribution.cdf(x): uniform where x is of the distribution."""

    bijective = True
    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution
        self._t = self._build()

    def _build(self) -> _core.Transform:
        return _core.Transform.cumulative(engine_distribution(self.distribution))

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return self.distribution.support


class CatTransform(_Shell):
    """A transform for each piece along ``dim``."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Optional[Sequence[int]] = None,
                 cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths: List[int] = [1] * len(self.transforms) if lengths is None else list(lengths)
        self._t = self._build()
        self.bijective = self._t.bijective

    def _build(self) -> _core.Transform:
        return _core.Transform.cat([engine(t) for t in self.transforms], self.dim, self.lengths)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Shell):
    """A transform for each slice along ``dim``."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self._t = self._build()
        self.bijective = self._t.bijective

    def _build(self) -> _core.Transform:
        return _core.Transform.stack([engine(t) for t in self.transforms], self.dim)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
