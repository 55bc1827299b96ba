"""torch.utils.dlpack: tensors as DLPack capsules and back."""

from __future__ import annotations

from typing import Any

from ._core import Tensor, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule for from_dlpack() of any library, once."""
    return tensor.__dlpack__()
