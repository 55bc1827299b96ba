"""safetensors files."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from . import _core
from ._core import Tensor

__all__ = ["load_file", "save_file"]


def save_file(tensors: Mapping[str, Tensor], path: Union[str, "os.PathLike[str]"],
              metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes tensors as a safetensors file, whole or not at all."""
    _core.save_safetensors(os.fspath(path), {k: v.detach() for k, v in tensors.items()}, dict(metadata or {}))


def load_file(path: Union[str, "os.PathLike[str]"], device: Any = None) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """The tensors of a safetensors file, and its metadata."""
    tensors, metadata = _core.load_safetensors(os.fspath(path))
    return {k: v if device is None else v.to(device) for k, v in tensors.items()}, metadata
