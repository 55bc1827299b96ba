"""What several layers and functions need."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Union

from .._core import Tensor, _put_over, _set_aside, dtype as DType, empty, is_grad_enabled
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


def replace(x: Tensor, function: Callable[[Tensor], Tensor], inplace: bool) -> Tensor:
    """``function`` of x, written over x where that is wanted; its gradient then reads what x was, whose memory is kept, or
    a copy of it where others see that memory."""
    if not inplace:
        return function(x)
    if not (x.requires_grad and is_grad_enabled()):
        return x.copy_(function(x))
    before = _set_aside(x)
    return x.copy_(function(x.clone())) if before is None else _put_over(x, function(before))


def check_p(p: float) -> None:
    """Refuses what is no probability."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
