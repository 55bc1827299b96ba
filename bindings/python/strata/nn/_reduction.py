"""What losses did before ``reduction``: ``size_average`` and ``reduce``."""

from __future__ import annotations

import warnings
from typing import Optional


def legacy_reduction(size_average: Optional[bool], reduce: Optional[bool], reduction: str) -> str:
    """``reduction``, or what the two older arguments say where one is given, with PyTorch's warning."""
    if size_average is None and reduce is None:
        return reduction
    for name, value in (("size_average", size_average), ("reduce", reduce)):
        if isinstance(value, str):
            raise TypeError(f"{name} is a bool, got {value!r}; give reduction={value!r} by name")
    said = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{said}' instead.", stacklevel=3)
    return said
