"""A step as a list of calls."""

import threading
from typing import Any, Callable, Dict

from . import _core
from ._core import Recording
from .nn.module import Module

_state = threading.local()


def _named(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Module.__call__ that tells the engine whose forward runs: names are those below the module that was called first."""

    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not getattr(_state, "recording", False):
            return plain(self, *args, **kwargs)
        names: Dict[int, str] = getattr(_state, "names", {})
        outermost = id(self) not in names
        before_names = names
        if outermost:
            _state.names = {id(m): name for name, m in self.named_modules()}
        path = _state.names[id(self)]
        before = _core._enter_module(path) if path else None
        try:
            return plain(self, *args, **kwargs)
        finally:
            if before is not None:
                _core._leave_module(before)
            if outermost:
                _state.names = before_names

    return call


_lock = threading.Lock()
_recorders = 0
_plain_call = Module.__call__


def record(fn: Callable[[], Any], *, values: bool = False) -> Recording:
    """The calls that ``fn()`` makes on this thread, as a :class:`Recording`: forward, backward and updates, with shapes, dtypes,
    storages and their lifetimes, cost, module and phase. With ``values`` the bytes of what no call made are kept, so that
    ``replay()`` needs nothing else. ``str()`` gives a line a call, ``table()`` sums up, ``to_text()`` is for files."""
    global _recorders
    before = getattr(_state, "recording", False)
    with _lock:
        _recorders += 1
        if _recorders == 1:
            Module.__call__ = _named(_plain_call)  # type: ignore[method-assign]
    _state.recording = True
    try:
        return _core._record(fn, values)
    finally:
        _state.recording = before
        with _lock:
            _recorders -= 1
            if _recorders == 0:
                Module.__call__ = _plain_call  # type: ignore[method-assign]
