"""What values parameters and samples may have: ``constraint.check(value)`` says so for each event."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .. import _core, _functions as F, _ops
from .._core import Tensor

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "MixtureSameFamilyConstraint", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]


class Constraint:
    """A region of values. ``event_dim`` dimensions belong to one event."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event of ``value`` lies inside."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_") + "()"


class _Of(Constraint):
    """A test of each element."""

    def __init__(self, name: str, test: Callable[[Tensor], Tensor], discrete: bool = False, event_dim: int = 0) -> None:
        self._name, self._test, self.is_discrete, self.event_dim = name, test, discrete, event_dim

    def check(self, value: Tensor) -> Tensor:
        return self._test(value)

    def __repr__(self) -> str:
        return self._name


class _Bounds(Constraint):
    """Elements between bounds; NaN lies nowhere."""

    lower_bound: Any = None
    upper_bound: Any = None
    _strict_lower = False
    _strict_upper = False

    def check(self, value: Tensor) -> Tensor:
        inside: Any = value == value
        if self.lower_bound is not None:
            inside = inside & ((value > self.lower_bound) if self._strict_lower else (value >= self.lower_bound))
        if self.upper_bound is not None:
            inside = inside & ((value < self.upper_bound) if self._strict_upper else (value <= self.upper_bound))
        if self.is_discrete:
            inside = inside & (value % 1 == 0)
        found: Tensor = inside
        return found

    def __repr__(self) -> str:
        bounds = [f"{n}={v}" for n, v in (("lower_bound", self.lower_bound), ("upper_bound", self.upper_bound)) if v is not None]
        name = "".join(part[:1].upper() + part[1:] for part in type(self).__name__.split("_"))
        return f"{name}({', '.join(bounds)})"


class greater_than(_Bounds):
    """x > lower_bound."""

    _strict_lower = True

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class greater_than_eq(_Bounds):
    """x >= lower_bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class less_than(_Bounds):
    """x < upper_bound."""

    _strict_upper = True

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class interval(_Bounds):
    """lower_bound <= x <= upper_bound."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class half_open_interval(_Bounds):
    """lower_bound <= x < upper_bound."""

    _strict_upper = True

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class integer_interval(_Bounds):
    """Whole numbers between bounds."""

    is_discrete = True

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _IntegerGreaterThan(_Bounds):
    is_discrete = True

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class multinomial(Constraint):
    """Counts that are not negative and sum to at most upper_bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        good: Tensor = (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)
        return good


class independent(Constraint):
    """A constraint whose last dimensions make one event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value)
        n = self.reinterpreted_batch_ndims
        if inside.dim() < n:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return inside.reshape([*list(inside.shape)[: inside.dim() - n], -1]).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """What the components of a mixture allow."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        self.is_discrete, self.event_dim = base_constraint.is_discrete, base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        at = value.dim() - self.event_dim
        inside = self.base_constraint.check(value.unsqueeze(at))
        return inside.all(-1 - max(0, inside.dim() - 1 - at)) if inside.dim() > at else inside


class _Joined(Constraint):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class cat(_Joined):
    """Constraints of pieces of ``lengths`` along ``dim``."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Any = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    def check(self, value: Tensor) -> Tensor:
        pieces = F.split(value, self.lengths, self.dim)
        return F.cat([c.check(v) for c, v in zip(self.cseq, pieces)], self.dim)


class stack(_Joined):
    """Constraints of the slices along ``dim``."""

    def check(self, value: Tensor) -> Tensor:
        return F.stack([c.check(value.select(self.dim, i)) for i, c in enumerate(self.cseq)], self.dim)


class _Dependent(Constraint):
    """One that depends on other parameters: it cannot be checked by itself."""

    def __init__(self, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, is_discrete: bool = False, event_dim: int = 0) -> "_Dependent":
        return _Dependent(is_discrete, event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property that gives a constraint, as a decorator."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        property.__init__(self, fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> "dependent_property":  # type: ignore[override]
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether it depends on other parameters."""
    return isinstance(constraint, _Dependent)


def _triangular(x: Tensor) -> Tensor:
    return (x.tril() == x).flatten(-2).all(-1)


def _cholesky(x: Tensor) -> Tensor:
    return _triangular(x) & (x.diagonal(0, -2, -1) > 0).all(-1)


def _symmetric(x: Tensor) -> Tensor:
    return _ops.isclose(x, x.transpose(-2, -1), 1e-5, 1e-6).flatten(-2).all(-1)


def _definite(x: Tensor, strict: bool) -> Tensor:
    from .. import linalg

    inside = _symmetric(x)
    if not bool(inside.all()):
        return inside
    least = linalg.eigvalsh(x).amin([-1])
    return inside & (least > 0 if strict else least >= 0)


def _simplex(x: Tensor) -> Tensor:
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _one_hot(x: Tensor) -> Tensor:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _corr_cholesky(x: Tensor) -> Tensor:
    close = ((x * x).sum(-1) - 1).abs() < F.finfo(x.dtype).eps * x.shape[-1] * 10
    return _cholesky(x) & close.all(-1)


def _square(x: Tensor) -> Tensor:
    return _core.full(list(x.shape)[:-2], x.shape[-1] == x.shape[-2], dtype=_core.bool, device=x.device)


dependent = _Dependent()
boolean = _Of("Boolean()", lambda x: (x == 0) | (x == 1), True)
one_hot = _Of("OneHot()", _one_hot, True, 1)
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Of("Real()", lambda x: x == x)
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Of("Simplex()", _simplex, event_dim=1)
lower_triangular = _Of("LowerTriangular()", _triangular, event_dim=2)
lower_cholesky = _Of("LowerCholesky()", _cholesky, event_dim=2)
corr_cholesky = _Of("CorrCholesky()", _corr_cholesky, event_dim=2)
square = _Of("Square()", _square, event_dim=2)
symmetric = _Of("Symmetric()", _symmetric, event_dim=2)
positive_semidefinite = _Of("PositiveSemidefinite()", lambda x: _definite(x, False), event_dim=2)
positive_definite = _Of("PositiveDefinite()", lambda x: _definite(x, True), event_dim=2)
