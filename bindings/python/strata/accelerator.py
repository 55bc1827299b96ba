"""torch.accelerator: the CUDA device, where there is one."""

from __future__ import annotations

from typing import Any, Optional

from . import _core, cuda

__all__ = ["current_accelerator", "current_device_index", "current_stream", "device_count", "is_available", "set_device_index",
           "set_stream", "synchronize"]


def is_available() -> bool:
    """Whether there is a card."""
    return cuda.is_available()


def device_count() -> int:
    """Cards."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Optional[_core.device]:
    """``device("cuda")``; None without a card."""
    return _core.device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """0."""
    return 0


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Takes 0."""
    if cuda._index(device) != 0:
        raise ValueError(f"set_device_index: there is one device, number 0, got {device}")


set_device_idx = set_device_index


def current_stream(device: Any = None) -> Any:
    """cuda.current_stream()."""
    return cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """cuda.stream() for the rest of the program."""
    cuda.stream(stream).__enter__()


def synchronize(device: Any = None) -> None:
    """Waits for the card; without one there is nothing to wait for."""
    if cuda.is_available():
        cuda.synchronize(device)
