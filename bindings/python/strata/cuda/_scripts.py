"""What scripts written for PyTorch ask around their work: which card, what it can do, what is used."""

from __future__ import annotations

import warnings
from typing import Any

from .. import _core
from ..errors import OutOfMemoryError

__all__ = [
    "OutOfMemoryError", "device", "device_of", "init", "ipc_collect", "is_bf16_supported", "is_initialized",
    "max_memory_cached", "memory_cached", "memory_summary", "reset_max_memory_allocated", "reset_max_memory_cached", "set_device",
]


def init() -> None:
    """Nothing to do: a card is taken when it is first used."""


def is_initialized() -> bool:
    """Whether there is a card to be used."""
    return _core.cuda_device_count() > 0


def ipc_collect() -> None:
    """Nothing to do: memory is not shared between processes."""


def set_device(device: Any) -> None:
    """Takes the card that "cuda" means, which is 0; CUDA_VISIBLE_DEVICES says which that is."""
    from . import _index

    if _index(device) > 0:
        raise ValueError(f"set_device: \"cuda\" means card 0 here, got {device!r}; CUDA_VISIBLE_DEVICES chooses another, "
                         "and device='cuda:1' names one where a tensor is made")


class device:
    """``with st.cuda.device(0):``; see set_device()."""

    def __init__(self, device: Any) -> None:
        set_device(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


class device_of(device):
    """``with st.cuda.device_of(x):`` the card of a tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else 0)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the card multiplies bfloat16 matrices (compute capability 8 and above)."""
    return is_initialized() and _core.cuda_properties(0).major >= 8


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """memory_stats() as lines of text: bytes in use, at most, and reserved, and by tag."""
    from . import memory_stats

    if not is_initialized():
        return "no card"
    stats = memory_stats(device)
    wanted = [k for k in sorted(stats) if isinstance(stats[k], int) and "." not in k]
    return "\n".join(f"{k:28} {stats[k]:>18,}" for k in wanted)


def _older(name: str, new: str) -> Any:
    def function(device: Any = None) -> Any:
        from .. import cuda

        warnings.warn(f"`cuda.{name}` has been renamed to `cuda.{new}`", FutureWarning, stacklevel=2)
        return getattr(cuda, new)(device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The older name of {new}()."
    return function


memory_cached = _older("memory_cached", "memory_reserved")
max_memory_cached = _older("max_memory_cached", "max_memory_reserved")
reset_max_memory_allocated = _older("reset_max_memory_allocated", "reset_peak_memory_stats")
reset_max_memory_cached = _older("reset_max_memory_cached", "reset_peak_memory_stats")
