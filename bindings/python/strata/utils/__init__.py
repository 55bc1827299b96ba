"""Data sets and loaders; checkpointing."""

from . import checkpoint as _checkpoint
from . import data

__all__ = ["checkpoint", "data"]

checkpoint = _checkpoint
