"""The families of distributions: a class for each of the engine's records, with its parameters and constraints."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from .. import _core
from .._core import Tensor
from .._grad_mode import enable_grad
from . import constraints
from .constraints import Constraint
from .distribution import _OWN, Distribution, ExponentialFamily, Shell, shape_of

_RECORDS: Dict[str, Any] = json.loads(_core._distribution_records())


class Parameter:
    """An attribute: a parameter as it was given, or what the engine makes of the others."""

    def __init__(self, name: str, doc: str, count: bool) -> None:
        self._name, self.__doc__, self._count = name, doc, count

    def __get__(self, d: Any, kind: Any = None) -> Any:
        if d is None:
            return self
        with enable_grad():
            value = d._d.parameter(self._name)
        d.__dict__[self._name] = found = int(value.item()) if self._count else value
        return found


class Recorded(Shell):
    """A family with parameters."""

    _record: Dict[str, Any]
    _names: List[str]
    _family: type

    def _make(self, given: Any, validate_args: Optional[bool]) -> None:
        if validate_args is not None:
            self._validate_args = validate_args
        named = list(zip(self._names, given))
        self._take(_core.Distribution.make(self._record["name"], named, bool(self._validate_args)))
        if self.arg_constraints is not self._family.arg_constraints:  # type: ignore[attr-defined]
            Distribution.__init__(self, self.batch_shape, self.event_shape)

    @property
    def param_shape(self) -> Any:
        """The shape of probs or logits, whichever was given."""
        given = [p["name"] for p in self._record["parameters"] if p["role"] == "one_of" and self._d.given(p["name"])]
        return self._d.parameter(given[0]).shape if given else self.batch_shape

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(self._family, _instance)
        new._take(self._d.expand(shape_of(batch_shape)))
        new._validate_args = self._validate_args
        return new

    def __getstate__(self) -> Dict[str, Any]:
        given = [(name, self._d.parameter(name)) for name in self._names if self._d.given(name)]
        return {**super().__getstate__(), "_given": given}

    def _build(self) -> _core.Distribution:
        return _core.Distribution.make(self._record["name"], self.__dict__.pop("_given"), False)


class RecordedExponential(Recorded, ExponentialFamily):
    """One of the exponential family."""

    entropy = Shell.entropy


def _constraint(said: Dict[str, Any]) -> Constraint:
    return constraints._of(said["kind"], said["lower"], said["upper"], said["joined"])


def _constructor(parameters: List[Dict[str, Any]]) -> Any:
    """``__init__`` with the record's parameters in order; alternatives and those with defaults may be left out."""
    left_out = {p["name"]: "None" if p["default"] is None else str(tuple(p["default"]) if p["role"] == "pair" else p["default"])
                for p in parameters if p["role"] == "one_of" or p["default"] is not None}
    names = [p["name"] for p in parameters]
    arguments = ", ".join(f"{n}={left_out[n]}" if n in left_out else n for n in names)
    space: Dict[str, Any] = {}
    given = f"({', '.join(names)},)"
    exec(f"def __init__(self, {arguments}, validate_args=None):\n    self._make({given}, validate_args)\n", space)
    return space["__init__"]


def _support(self: Recorded) -> Constraint:
    return constraints._of(*self._d.support)


def _class(record: Dict[str, Any], made: Dict[str, type]) -> type:
    parameters = [p for p in record["parameters"] if p["role"] != "derived"]
    functions = record["functions"]
    fixed = record["support"]["kind"] != "dependent"
    space: Dict[str, Any] = {
        "__doc__": record["doc"], "__module__": __name__, "_record": record, "_names": [p["name"] for p in parameters],
        "__init__": _constructor(parameters), "has_rsample": "rsample" in functions,
        "has_enumerate_support": "enumerate_support" in functions,
        "support": _constraint(record["support"]) if fixed else constraints.dependent_property(_support),
        "arg_constraints": {p["name"]: _constraint(p["constraint"])
                            for p in parameters if p["role"] in ("batch", "one_of")},
    }
    for p in record["parameters"]:
        space[p["name"]] = Parameter(p["name"], p["doc"], p["role"] == "count")
    plain = RecordedExponential if record["exponential"] else Recorded
    kind: Any = type(record["name"], (made[record["parent"]] if record["parent"] else plain,), space)
    kind._family = kind
    return kind  # type: ignore[no-any-return]


_MADE: Dict[str, type] = {}
for _record in sorted(_RECORDS["distributions"], key=lambda r: bool(r["parent"])):
    _MADE[_record["name"]] = _class(_record, _MADE)
globals().update(_MADE)
_OWN.update(_MADE.values())


def _base(family: str, make: Any) -> None:
    setattr(_MADE[family], "base_dist", property(make, doc="What is transformed."))


_base("LogNormal", lambda d: _MADE["Normal"](d.loc, d.scale))
_base("HalfNormal", lambda d: _MADE["Normal"](0.0, d.scale))
_base("HalfCauchy", lambda d: _MADE["Cauchy"](0.0, d.scale))
