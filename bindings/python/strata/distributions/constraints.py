"""What values parameters and samples may have: ``constraint.check(value)`` says so for each event."""

from __future__ import annotations

from typing import Any, Sequence

from .. import _core, _functions as F
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
    """One of the engine's kinds, without bounds."""

    def __init__(self, kind: str, discrete: bool = False, event_dim: int = 0) -> None:
        self._kind, self.is_discrete, self.event_dim = kind, discrete, event_dim

    def check(self, value: Tensor) -> Tensor:
        return _core._check_constraint(self._kind, None, None, value)

    def __repr__(self) -> str:
        return _title(self._kind) + "()"


def _title(kind: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in kind.split("_"))


class _Bounds(Constraint):
    """Elements between bounds; NaN lies nowhere."""

    lower_bound: Any = None
    upper_bound: Any = None

    def check(self, value: Tensor) -> Tensor:
        kind = getattr(self, "_kind", type(self).__name__)
        return _core._check_constraint(kind, self.lower_bound, self.upper_bound, value)

    def __repr__(self) -> str:
        bounds = [f"{n}={v}" for n, v in (("lower_bound", self.lower_bound), ("upper_bound", self.upper_bound)) if v is not None]
        return f"{_title(type(self).__name__)}({', '.join(bounds)})"


class greater_than(_Bounds):
    """x > lower_bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class greater_than_eq(_Bounds):
    """x >= lower_bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class less_than(_Bounds):
    """x < upper_bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class interval(_Bounds):
    """lower_bound <= x <= upper_bound."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class half_open_interval(_Bounds):
    """lower_bound <= x < upper_bound."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class integer_interval(_Bounds):
    """Whole numbers between bounds."""

    is_discrete = True

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _IntegerGreaterThan(_Bounds):
    is_discrete = True
    _kind = "integer_greater_than_eq"

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class multinomial(Constraint):
    """Counts that are not negative and sum to at most upper_bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _core._check_constraint("multinomial", None, self.upper_bound, value)


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
        return _core._all_right(inside, n)

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


dependent = _Dependent()
boolean = _Of("boolean", True)
one_hot = _Of("one_hot", True, 1)
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Of("real")
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Of("simplex", event_dim=1)
lower_triangular = _Of("lower_triangular", event_dim=2)
lower_cholesky = _Of("lower_cholesky", event_dim=2)
corr_cholesky = _Of("corr_cholesky", event_dim=2)
square = _Of("square", event_dim=2)
symmetric = _Of("symmetric", event_dim=2)
positive_semidefinite = _Of("positive_semidefinite", event_dim=2)
positive_definite = _Of("positive_definite", event_dim=2)

# Those that have a name of their own, by kind and bounds.
integer_greater_than_eq = _IntegerGreaterThan
_NAMED = {("greater_than", 0.0, None): positive, ("greater_than_eq", 0.0, None): nonnegative,
          ("interval", 0.0, 1.0): unit_interval, ("integer_greater_than_eq", 0.0, None): nonnegative_integer}


def _of(kind: str, lower: Any, upper: Any, joined: int) -> Constraint:
    """What a record says, as one of these."""
    found: Constraint
    if not isinstance(lower, Tensor) and not isinstance(upper, Tensor) and (kind, lower, upper) in _NAMED:
        found = _NAMED[kind, lower, upper]
    elif lower is None and upper is None:
        found = real_vector if (kind, joined) == ("real", 1) else globals()[kind]
        joined = 0 if found is real_vector else joined
    else:
        number = int if kind in ("integer_interval", "integer_greater_than_eq", "multinomial") else float
        numbers = [b if isinstance(b, Tensor) else number(b) for b in (lower, upper) if b is not None]
        found = globals()[kind](*numbers)
    return independent(found, joined) if joined else found
