"""Choices between records: by what an argument is, and which results are wanted."""

from __future__ import annotations

import builtins
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = [
    "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "dsplit", "gradient", "histogram", "histogramdd", "hsplit",
    "index_put", "isin", "masked_fill", "masked_scatter", "median", "nanmean", "nanmedian", "nansum", "row_stack", "std_mean",
    "tensor_split", "trapz", "unique_consecutive", "vander", "var_mean", "vsplit",
]

Number = Union[builtins.int, builtins.float]


# ---- elements by place


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with a number, or a 0-dim tensor, where the mask is true; the two broadcast."""
    if not isinstance(value, Tensor):
        return _ops.masked_fill(input, mask, value)
    if value.dim():
        raise _core.ShapeError(f"masked_fill: value must be a number or 0-dim, got {list(value.shape)}")
    return _ops.where(mask, value.to(input.dtype), input)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """input with the elements of ``source``, in order, where the mask is true; input and mask broadcast."""
    shape = _core.broadcast_shapes(input.shape, mask.shape)
    return _ops.masked_scatter(input.expand(shape), mask.expand(shape), source)


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: Optional[builtins.int] = None) -> Tensor:
    """Any geometry over the elements of input's storage, from input's own first element where no offset is given."""
    return _ops.as_strided(input, size, stride, input.storage_offset() if storage_offset is None else storage_offset)


def index_put(input: Tensor, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
    """A copy with ``values`` at, or added to, the places that tensors of integers or masks name."""
    copy = input.clone()
    _core._index_put_(copy, tuple(indices), values, accumulate)
    return copy


def isin(elements: Any, test_elements: Any, *, assume_unique: builtins.bool = False, invert: builtins.bool = False) -> Tensor:
    """Which elements are among the others; either may be a tensor, a number or a list."""
    x, among = (t if isinstance(t, Tensor) else F.tensor(t) for t in (elements, test_elements))
    return _ops.isin(x, among, assume_unique, invert)


def unique_consecutive(input: Tensor, return_inverse: builtins.bool = False, return_counts: builtins.bool = False,
                       dim: Optional[builtins.int] = None) -> Any:
    """The first of each run of equal elements, or of equal slices along ``dim``; also which run each is in, and how long."""
    values, inverse, counts = _ops.unique_consecutive(input, return_inverse, return_counts, dim)
    parts = [values] + ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return parts[0] if len(parts) == 1 else tuple(parts)


# ---- shapes


def _each(name: str, tensors: Any) -> Any:
    op = _core.ops[name]
    if len(tensors) == 1:
        return op(tensors[0]) if isinstance(tensors[0], Tensor) else tuple(op(t) for t in tensors[0])
    return tuple(op(t) for t in tensors)


def atleast_1d(*tensors: Any) -> Any:
    """With one dimension where there were none."""
    return _each("atleast_1d", tensors)


def atleast_2d(*tensors: Any) -> Any:
    """With two dimensions where there were fewer."""
    return _each("atleast_2d", tensors)


def atleast_3d(*tensors: Any) -> Any:
    """With three dimensions where there were fewer."""
    return _each("atleast_3d", tensors)


row_stack = _ops.vstack


def tensor_split(input: Tensor, indices_or_sections: Any, dim: builtins.int = 0) -> Tuple[Tensor, ...]:
    """So many parts, as equal as can be, or parts that begin at the indices."""
    if isinstance(indices_or_sections, Tensor) and indices_or_sections.dim() == 0:
        indices_or_sections = builtins.int(indices_or_sections.item())
    if isinstance(indices_or_sections, builtins.int):
        return tuple(_ops.tensor_split(input, indices_or_sections, dim))
    at = indices_or_sections
    return tuple(_core._tensor_split_at(input, at if isinstance(at, Tensor) else F.tensor(list(at), dtype=_core.int64), dim))


def _split_along(name: str, least: builtins.int) -> Any:
    def function(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
        if input.dim() < least:
            raise _core.ShapeError(f"{name}: at least {least} dimensions are wanted, got {list(input.shape)}")
        dim = {"hsplit": 0 if input.dim() == 1 else 1, "vsplit": 0, "dsplit": 2}[name]
        at = indices_or_sections
        if isinstance(at, builtins.int) and (at < 1 or input.shape[dim] % at):
            raise ValueError(f"{name}: {input.shape[dim]} elements are not {at} equal parts")
        return tensor_split(input, at, dim)

    function.__name__ = function.__qualname__ = name
    return function


hsplit, vsplit, dsplit = _split_along("hsplit", 1), _split_along("vsplit", 2), _split_along("dsplit", 3)
hsplit.__doc__ = "tensor_split() along the second dimension (the only one of a vector), into equal parts."
vsplit.__doc__ = "tensor_split() along the first dimension, into equal parts."
dsplit.__doc__ = "tensor_split() along the third dimension, into equal parts."


def vander(x: Tensor, N: Optional[builtins.int] = None, increasing: builtins.bool = False) -> Tensor:
    """Powers of the elements of a vector, a row each."""
    return _ops.vander(x, N, increasing)


# ---- statistics


def _moments(name: str) -> Any:
    op = _core.ops[name]

    def function(input: Tensor, dim: Any = None, unbiased: Optional[builtins.bool] = None, keepdim: builtins.bool = False, *,
                 correction: Optional[Number] = None) -> Tuple[Tensor, Tensor]:
        if isinstance(dim, builtins.bool):
            dim, unbiased = None, dim
        result: Tuple[Tensor, Tensor] = op(input, F._dims(dim), F._correction(unbiased, correction), keepdim)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


var_mean, std_mean = _moments("var_mean"), _moments("std_mean")


def _in_dtype(name: str) -> Any:
    op = _core.ops[name]

    def function(input: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, dtype: Optional[DType] = None) -> Tensor:
        result: Tensor = op(input if dtype is None else input.to(dtype), F._dims(dim), keepdim)
        return result if dtype is None else result.to(dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


nansum, nanmean = _in_dtype("nansum"), _in_dtype("nanmean")


def median(input: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False) -> Any:
    """The lower median of all elements; along ``dim`` also where it is."""
    return _ops.median(input) if dim is None else _ops.median_dim(input, dim, keepdim)


def nanmedian(input: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False) -> Any:
    """median() of what is not NaN."""
    return _ops.nanmedian(input) if dim is None else _ops.nanmedian_dim(input, dim, keepdim)


class _Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class _Histogramdd(NamedTuple):
    hist: Tensor
    bin_edges: Tuple[Tensor, ...]


def _range(range: Optional[Sequence[Number]]) -> Optional[Tensor]:
    return None if range is None else F.tensor(list(range), dtype=_core.float64)


def histogram(input: Tensor, bins: Any, *, range: Optional[Sequence[Number]] = None, weight: Optional[Tensor] = None,
              density: builtins.bool = False) -> _Histogram:
    """How many elements, or what weight of them, lie in each of so many equal parts, or between ascending edges; the edges."""
    if isinstance(bins, builtins.int):
        bins = _ops.bin_edges(input.detach().reshape(-1, 1), [bins], _range(range))[0]
    return _Histogram(_ops.histogram(input, bins, weight, density), bins)


def histogramdd(input: Tensor, bins: Any, *, range: Optional[Sequence[Number]] = None, weight: Optional[Tensor] = None,
                density: builtins.bool = False) -> _Histogramdd:
    """histogram() of the points in the last dimension: ``bins`` is one number for all columns, one for each, or their edges."""
    columns = input.shape[-1]
    if isinstance(bins, builtins.int):
        bins = [bins] * columns
    if not isinstance(bins[0], Tensor):
        bins = _ops.bin_edges(input.detach().reshape(-1, columns), list(bins), _range(range))
    return _Histogramdd(_ops.histogramdd(input, list(bins), weight, density), tuple(bins))


trapz = _ops.trapezoid


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: builtins.int = 1) -> List[Tensor]:
    """Derivatives of samples along each dimension; ``spacing`` is a distance, one for each, or coordinates for each."""
    dims = [] if dim is None else [dim] if isinstance(dim, builtins.int) else list(dim)
    # A tensor alone is coordinates for the only dimension.
    entries = ([1] if spacing is None else
               [spacing] if isinstance(spacing, (Tensor, builtins.int, builtins.float)) else list(spacing))
    wanted = len(dims) if dims else input.dim()
    if isinstance(spacing, (list, tuple)) and len(entries) != wanted:
        raise ValueError(f"gradient: spacing has {len(entries)} entries, one for each of {wanted} dimensions is wanted")
    kind = input.dtype if input.is_floating_point() else _core.get_default_dtype()
    steps = [s if isinstance(s, Tensor) else F.tensor(s, dtype=kind, device=input.device) for s in entries]
    return list(_ops.gradient(input, steps, dims, edge_order))
