"""Small helpers."""

from __future__ import annotations

import builtins
from typing import Any, Optional, Union

from .. import _core, _functions as F
from .._core import Tensor, dtype as DType

__all__ = ["detach", "is_nonzero", "scalar_tensor", "zero_"]

Number = Union[builtins.int, builtins.float]


def scalar_tensor(s: Number, *, dtype: Optional[DType] = None, device: Any = None,
                  requires_grad: builtins.bool = False) -> Tensor:
    """A tensor of no dimensions."""
    return F.tensor(s, dtype=dtype or _core.get_default_dtype(), device=device, requires_grad=requires_grad)


def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the only element is not 0."""
    return builtins.bool(input)


def detach(input: Tensor) -> Tensor:
    """The same elements without history."""
    return input.detach()


def zero_(input: Tensor) -> Tensor:
    """Filled with zeros."""
    return input.zero_()
