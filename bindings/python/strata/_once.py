"""Warnings that are given once: what a setting of PyTorch's means here, where it changes nothing."""

from __future__ import annotations

import warnings
from typing import Any, Set

_said: Set[str] = set()


def once(key: str, text: str, stacklevel: int = 3) -> None:
    """Warns, unless it was said before."""
    if key not in _said:
        _said.add(key)
        warnings.warn(text, UserWarning, stacklevel=stacklevel)
