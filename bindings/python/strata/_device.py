"""Where factories make tensors."""

from __future__ import annotations

import threading
from typing import Any, List, Optional

from . import _core


class default_device:
    """``with st.default_device("cuda"):`` new tensors are made there; "meta" allocates nothing."""

    def __init__(self, device: Any) -> None:
        self._device = _core.device(device)
        self._scope = _core.DeviceScope()

    def __enter__(self) -> None:
        self._scope.enter(self._device)

    def __exit__(self, *error: object) -> None:
        self._scope.exit()


class _Entered(threading.local):
    """The scopes of ``with st.device(..)`` that this thread is in: a device itself holds nothing."""

    def __init__(self) -> None:
        self.scopes: List[default_device] = []


_entered = _Entered()


def _enter(self: _core.device) -> _core.device:
    scope = default_device(self)
    scope.__enter__()
    _entered.scopes.append(scope)
    return self


def _exit(self: _core.device, *error: object) -> None:
    _entered.scopes.pop().__exit__()


setattr(_core.device, "__enter__", _enter)
setattr(_core.device, "__exit__", _exit)

_lasting: Optional[default_device] = None


def set_default_device(device: Any) -> None:
    """Makes it the device of new tensors on this thread; None or "cpu" goes back."""
    global _lasting
    if _lasting is not None:
        _lasting.__exit__()
        _lasting = None
    if device is not None:
        _lasting = default_device(device)
        _lasting.__enter__()
