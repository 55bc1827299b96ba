"""Small helpers."""

from __future__ import annotations

import builtins
import math
from typing import Any, Optional, Union

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = ["cosine_similarity", "detach", "hann_window", "is_nonzero", "scalar_tensor", "zero_"]

Number = Union[builtins.int, builtins.float]


def scalar_tensor(s: Number, *, dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """A tensor of no dimensions."""
    return F.tensor(s, dtype=dtype or _core.get_default_dtype(), device=device)


def hann_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                device: Any = None) -> Tensor:
    """sin^2 over a period."""
    if window_length == 1:
        return _core.ones(1, dtype=dtype or _core.float32, device=device)
    n = window_length if periodic else window_length - 1
    return _ops.sin(_core.arange(window_length, dtype=dtype or _core.float32, device=device) * (math.pi / builtins.max(n, 1))) ** 2


def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the only element is not 0."""
    return builtins.bool(input)


def detach(input: Tensor) -> Tensor:
    """The same elements without history."""
    return input.detach()


def zero_(input: Tensor) -> Tensor:
    """Filled with zeros."""
    return input.zero_()


def cosine_similarity(x1: Tensor, x2: Tensor, dim: builtins.int = 1, eps: builtins.float = 1e-8) -> Tensor:
    """x1 . x2 over the product of their norms along ``dim``."""
    from ..nn import functional

    return functional.cosine_similarity(x1, x2, dim, eps)
