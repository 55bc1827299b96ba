"""Every op record as it is: positional and named arguments of its schema, all of its results."""

from typing import Any

from . import _core

__all__ = sorted(_core.ops)
globals().update(_core.ops)


def __getattr__(name: str) -> Any:
    if name in _core.ops:  # a plugin's record
        return _core.ops[name]
    raise AttributeError(f"strata has no op named {name!r}")
