"""Data sets and loaders; checkpointing."""

from . import checkpoint as _checkpoint
from . import _pytree, data, tensorboard

__all__ = ["checkpoint", "data", "tensorboard"]

checkpoint = _checkpoint
