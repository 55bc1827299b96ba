"""Elements by place: membership, filling, scattering."""

from __future__ import annotations

import builtins
import math
from typing import Any, Optional, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = [
    "index_copy", "index_fill", "isin", "scatter_reduce", "select_scatter", "slice_scatter", "unique_consecutive",
]


def isin(elements: Any, test_elements: Any, *, assume_unique: builtins.bool = False, invert: builtins.bool = False) -> Tensor:
    """Which elements are among the others."""
    x = elements if isinstance(elements, Tensor) else F.tensor(elements)
    among = test_elements if isinstance(test_elements, Tensor) else F.tensor(test_elements)
    found = _ops.any(x.unsqueeze(-1) == among.reshape(-1), [-1])
    return _ops.logical_not(found) if invert else found


def unique_consecutive(input: Tensor, return_inverse: builtins.bool = False, return_counts: builtins.bool = False,
                       dim: None = None) -> Any:
    """The elements without repetitions in a row; also which of them each is, and how often in a row."""
    x = input.reshape(-1)
    new = _ops.cat([_core.ones([builtins.min(1, x.shape[0])], dtype=_core.bool, device=x.device), x[1:] != x[:-1]], 0)
    inverse = _ops.cumsum(new.to(_core.int64), 0) - 1
    values = x[new]
    parts = [values]
    if return_inverse:
        parts.append(inverse.reshape(input.shape))
    if return_counts:
        parts.append(_ops.bincount(inverse, None, values.shape[0]))
    return parts[0] if len(parts) == 1 else tuple(parts)


def index_fill(input: Tensor, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
    """The slices that ``index`` names along ``dim`` filled with a number."""
    where = _core.zeros(input.shape[dim], dtype=_core.bool, device=input.device)
    where[index] = True
    shape = [1] * input.dim()
    shape[dim] = -1
    return _ops.masked_fill(input, where.reshape(shape), value.item() if isinstance(value, Tensor) else value)


def index_copy(input: Tensor, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
    """The slices that ``index`` names along ``dim`` replaced by those of ``source``."""
    shape = [1] * input.dim()
    shape[dim] = -1
    return _ops.scatter(input, dim, index.reshape(shape).expand(source.shape), source)


def scatter_reduce(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor, reduce: str, *,
                   include_self: builtins.bool = True) -> Tensor:
    """What ``src`` sends to each place, joined by ``reduce``: sum, prod, mean, amax or amin; with ``include_self`` also
    what was there."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueError(f"scatter_reduce: reduce must be sum, prod, mean, amax or amin, got {reduce!r}")
    sent = src[tuple(slice(0, s) for s in index.shape)]
    ones = _core.ones(index.shape, dtype=_core.int64, device=input.device)
    count = _ops.scatter_add(_core.zeros(input.shape, dtype=_core.int64, device=input.device), dim, index, ones)
    base = input
    if not include_self:
        low, high = _limits(input.dtype)
        start = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]
        base = _ops.masked_fill(input, count > 0, start)
    if reduce in ("sum", "mean"):
        total = _ops.scatter_add(base, dim, index, sent)
        if reduce == "sum":
            return total
        number = _ops.clamp(count + 1 if include_self else count, 1)
        return total / number.to(input.dtype) if input.is_floating_point() else F.div(total, number, rounding_mode="floor")
    x, places, values = base.movedim(dim, -1), index.movedim(dim, -1), sent.movedim(dim, -1)
    if x.shape[:-1] != places.shape[:-1]:
        raise _core.ShapeError(f"scatter_reduce: {reduce} wants an index of the input's size but along dim, got "
                               f"{list(index.shape)} for {list(input.shape)}")
    if reduce != "prod":
        values, order = _ops.sort(values, -1, reduce == "amin")  # the best for each place last
        places = places.gather(-1, order)
    places, order = _ops.sort(places, -1)  # stable
    values = values.gather(-1, order)
    n = x.shape[-1]
    changes = places[..., 1:] != places[..., :-1]
    edge = _core.ones([*places.shape[:-1], 1], dtype=_core.bool, device=x.device)
    neutral = _limits(input.dtype)[0 if reduce == "amax" else 1] if reduce != "prod" else 1

    def only(now: Tensor) -> Tensor:  # what is not meant now goes beyond the end
        spread = _core.full([*x.shape[:-1], n + 1], neutral, dtype=x.dtype, device=x.device)
        return _ops.scatter(spread, -1, F.where(now, places, n), values).narrow(-1, 0, n)

    if reduce != "prod":
        last = only(_ops.cat([changes, edge], -1))
        return (_ops.maximum if reduce == "amax" else _ops.minimum)(x, last).movedim(-1, dim)
    at = _core.arange(places.shape[-1], device=x.device).expand(places.shape)
    turn = at - _ops.cummax(F.where(_ops.cat([edge, changes], -1), at, 0), -1)[0]
    for k in range(builtins.int(turn.max().item()) + 1 if turn.numel() else 0):
        x = x * only(turn == k)
    return x.movedim(-1, dim)


def _limits(dtype: DType) -> Tuple[Any, Any]:
    if dtype.is_floating_point:
        return -math.inf, math.inf
    info = F.iinfo(dtype)
    return info.min, info.max


def slice_scatter(input: Tensor, src: Tensor, dim: builtins.int = 0, start: Optional[builtins.int] = None,
                  end: Optional[builtins.int] = None, step: builtins.int = 1) -> Tensor:
    """A copy with ``src`` in place of a slice."""
    index = _core.arange(input.shape[dim], device=input.device)[slice(start, end, step)]
    return index_copy(input, dim, index, src)


def select_scatter(input: Tensor, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
    """A copy with ``src`` in place of one slice."""
    place = F.tensor([index % input.shape[dim]], device=input.device)
    return index_copy(input, dim, place, src.unsqueeze(dim))
