"""What several layers and functions need."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from .._core import Tensor, dtype as DType, empty, is_grad_enabled
from . import init
from .parameter import Parameter

Ints = Union[int, Sequence[int]]
Device = Any


def new_parameter(shape: Sequence[int], device: Device, dtype: Optional[DType]) -> Parameter:
    """A parameter without values."""
    return Parameter(empty(list(shape), dtype=dtype, device=device))


def draw_uniform(bound: float, *parameters: Optional[Parameter]) -> None:
    """New values, uniform in +- bound."""
    for parameter in parameters:
        if parameter is not None:
            init.uniform_(parameter, -bound, bound)


def ints(value: Ints, n: int) -> Tuple[int, ...]:
    """One number for each of ``n`` dimensions."""
    if isinstance(value, int):
        return (value,) * n
    found = tuple(int(v) for v in value)
    if len(found) == 1:
        return found * n
    if len(found) != n:
        raise ValueError(f"wants one or {n} numbers, got {found}")
    return found


def kept(x: Tensor, inplace: bool) -> Tensor:
    """``x``, or where it will be written over while its gradient is recorded, a copy that the gradient can read."""
    return x.clone() if inplace and x.requires_grad and is_grad_enabled() else x


def replace(x: Tensor, y: Tensor, inplace: bool) -> Tensor:
    """``y``, written over ``x`` where that is wanted."""
    return x.copy_(y) if inplace else y


def check_p(p: float) -> None:
    """Refuses what is no probability."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
