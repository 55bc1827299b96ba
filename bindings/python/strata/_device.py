"""Where factories make tensors."""

from __future__ import annotations

from typing import Any, Optional

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
