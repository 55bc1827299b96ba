"""Every op record as it is: positional and named arguments of its schema, all of its results. ``internal`` has those that
only other ops and gradient rules call."""

from types import SimpleNamespace
from typing import Any

from . import _core

internal = SimpleNamespace(**{name: _core.ops[name] for name in _core.internal_ops})
__all__ = sorted(set(_core.ops) - set(_core.internal_ops))
globals().update({name: _core.ops[name] for name in __all__})


def __getattr__(name: str) -> Any:
    if name in _core.shown_ops:  # a plugin's record
        return _core.ops[name]
    raise AttributeError(f"strata has no op named {name!r}")
