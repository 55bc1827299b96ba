"""Plugins: shared libraries that bring ops of their own."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, Tuple, Union

from . import _core, _ops


class Plugin(NamedTuple):
    """What was loaded: its name and version as it says them, its file, and the ops that it brought."""

    name: str
    version: str
    path: str
    ops: Tuple[str, ...]


def load_plugin(path: Union[str, "os.PathLike[str]"]) -> Plugin:
    """Loads a plugin; its ops become ``st.NAME`` and methods of Tensor, as all others. PluginError where it is refused."""
    name, version, file, ops = _core.load_plugin(os.fspath(path))
    package = sys.modules[__package__]
    for op in _core._add_new_ops():
        setattr(_ops, op, _core.ops[op])
        if not hasattr(package, op):
            setattr(package, op, _core.shown_ops[op])
    return Plugin(name, version, file, tuple(ops))
