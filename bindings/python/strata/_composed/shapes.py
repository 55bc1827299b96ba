"""Joining, cutting and turning tensors; grids and combinations."""

from __future__ import annotations

import builtins
import itertools
from typing import Any, Optional, Sequence, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "column_stack", "combinations", "dstack",
    "fliplr", "flipud", "hsplit", "rot90", "row_stack", "tensor_split", "vander", "vsplit",
]


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the third dimension."""
    return F.cat([_at_least(t, 3) for t in tensors], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns, matrices side by side."""
    return F.cat([t.reshape(-1, 1) if t.dim() < 2 else t for t in tensors], 1)


row_stack = F.vstack


def _at_least(t: Tensor, n: builtins.int) -> Tensor:
    if t.dim() >= n:
        return t
    if n == 3:
        return t.reshape(1, 1, 1) if t.dim() == 0 else t.reshape(1, -1, 1) if t.dim() == 1 else t.unsqueeze(-1)
    return t.reshape([1] * (n - t.dim()) + list(t.shape))


def _at_least_all(tensors: Any, n: builtins.int) -> Any:
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    made = tuple(_at_least(t, n) for t in items)
    return made[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else made


def atleast_1d(*tensors: Any) -> Any:
    """With one dimension where there were none."""
    return _at_least_all(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """With two dimensions where there were fewer."""
    return _at_least_all(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """With three dimensions where there were fewer."""
    return _at_least_all(tensors, 3)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: builtins.int = 0) -> Tuple[Tensor, ...]:
    """So many parts, as equal as can be, or parts that begin at the indices."""
    size = input.shape[dim]
    if isinstance(indices_or_sections, builtins.int):
        n = indices_or_sections
        if not 1 <= n <= 1 << 20:
            raise ValueError(f"tensor_split: indices_or_sections must be 1 to 2^20 parts, got {n}")
        small, more = divmod(size, n)
        ends = list(itertools.accumulate([small + 1] * more + [small] * (n - more)))
    else:
        given = indices_or_sections.tolist() if isinstance(indices_or_sections, Tensor) else list(indices_or_sections)
        ends = [builtins.min(i if i >= 0 else i + size, size) for i in given] + [size]
    starts = [0] + ends[:-1]
    return tuple(input.narrow(dim, builtins.min(s, size), builtins.max(e - s, 0)) for s, e in zip(starts, ends))


def hsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split() along the second dimension (the only one of a vector)."""
    return tensor_split(input, indices_or_sections, 0 if input.dim() == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split() along the first dimension."""
    return tensor_split(input, indices_or_sections, 0)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given ones along its diagonal."""
    blocks = [_at_least(t, 2) for t in tensors]
    width = builtins.sum(b.shape[1] for b in blocks)
    rows, left = [], 0
    for b in blocks:
        rows.append(_ops.pad(b, [left, width - left - b.shape[1]]))
        left += b.shape[1]
    return _ops.cat(rows, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every choice of one element from each vector, a row each."""
    if len(tensors) == 1:
        return tensors[0]
    return _ops.stack([g.reshape(-1) for g in _ops.meshgrid(list(tensors), "ij")], 1)


def combinations(input: Tensor, r: builtins.int = 2, with_replacement: builtins.bool = False) -> Tensor:
    """Every choice of r elements of a vector, a row each."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    places = F.tensor(rows, dtype=_core.int64, device=input.device).reshape(-1, r)
    return _ops.index_select(input, 0, places.reshape(-1)).reshape(-1, r)


def rot90(input: Tensor, k: builtins.int = 1, dims: Sequence[builtins.int] = (0, 1)) -> Tensor:
    """Turned ``k`` times by 90 degrees, from the first of the dims to the second."""
    a, b = dims
    k %= 4
    if k == 2:
        return _ops.flip(input, [a, b])
    if k == 1:
        return _ops.flip(input, [b]).transpose(a, b)
    return _ops.flip(input.transpose(a, b), [b]) if k == 3 else input.clone()


def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse."""
    return _ops.flip(input, [1])


def flipud(input: Tensor) -> Tensor:
    """The rows in reverse."""
    return _ops.flip(input, [0])


def vander(x: Tensor, N: Optional[builtins.int] = None, increasing: builtins.bool = False) -> Tensor:
    """Powers of the elements of a vector, a row each."""
    powers = _core.arange(x.shape[0] if N is None else N, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else _ops.flip(powers, [0]))
