"""Functions by the names and arguments of the Python array API standard (2023.12) where PyTorch's differ or are missing.
docs/library/python_array_api.md lists what is left out."""

from __future__ import annotations

import builtins
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _core, _functions as F, _ops
from ._core import Tensor, dtype as DType

__array_api_version__ = "2023.12"

_SIGNED = (_core.int8, _core.int16, _core.int32, _core.int64)
_UNSIGNED = (_core.uint8,)
_FLOATS = (_core.float32, _core.float64)
_OTHER_FLOATS = (_core.float16, _core.bfloat16)
_KINDS: Dict[str, Tuple[DType, ...]] = {
    "bool": (_core.bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATS + _OTHER_FLOATS,
    "complex floating": (),
    "numeric": _SIGNED + _UNSIGNED + _FLOATS + _OTHER_FLOATS,
}


# ---- dtypes


def astype(x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """x converted; with ``copy`` False x itself where nothing changes."""
    y = x.to(dtype) if device is None else x.to(device).to(dtype)
    if not y._same_tensor(x):
        return y
    return x.clone() if copy else x


def isdtype(dtype: DType, kind: Union[DType, str, Tuple[Union[DType, str], ...]]) -> builtins.bool:
    """Whether a dtype is of a kind: "integral", "real floating", ..., a dtype, or one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}")
        return dtype in _KINDS[kind]
    return dtype == kind


def can_cast(from_: Union[DType, Tensor], to: DType, /) -> builtins.bool:
    """Whether promotion of the two gives the second."""
    dtype = from_.dtype if isinstance(from_, Tensor) else from_
    return _core.promote_types(dtype, to) == to


class _Info:
    """What the namespace can do."""

    def capabilities(self) -> Dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> Any:
        return _core.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> Dict[str, DType]:
        return {"real floating": _core.get_default_dtype(), "integral": _core.int64, "indexing": _core.int64}

    def devices(self) -> List[Any]:
        return [_core.device("cpu")] + [_core.device("cuda", i) for i in range(_core.cuda_device_count())]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Dict[str, DType]:
        of_standard = (_core.bool,) + _SIGNED + _UNSIGNED + _FLOATS
        return {t.name: t for t in of_standard if kind is None or isdtype(t, kind)}


def __array_namespace_info__() -> _Info:
    return _Info()


# ---- making arrays


def meshgrid(*arrays: Any, indexing: str = "ij") -> List[Tensor]:
    """Coordinates of a grid. The default is PyTorch's "ij"; the standard's is "xy"."""
    tensors = list(arrays[0]) if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else list(arrays)
    if len(tensors) < 2:
        return [t.reshape(-1).clone() for t in tensors]
    return list(_ops.meshgrid(tensors, indexing))


def tril(x: Tensor, diagonal: builtins.int = 0, *, k: Optional[builtins.int] = None) -> Tensor:
    """The lower triangle of the matrices."""
    return _ops.tril(x, diagonal if k is None else k)


def triu(x: Tensor, diagonal: builtins.int = 0, *, k: Optional[builtins.int] = None) -> Tensor:
    """The upper triangle of the matrices."""
    return _ops.triu(x, diagonal if k is None else k)


def eye(n: builtins.int, m: Optional[builtins.int] = None, *, k: builtins.int = 0, dtype: Any = None, device: Any = None,
        requires_grad: builtins.bool = False) -> Tensor:
    """Ones on the main diagonal (or the ``k``-th above it), zeros elsewhere."""
    if k == 0:
        return _core.eye(n, m, dtype=dtype, device=device, requires_grad=requires_grad)
    x = _core.zeros(n, n if m is None else m, dtype=dtype, device=device)
    if -x.shape[0] < k < x.shape[1]:
        x.diagonal(k).fill_(1)
    return x.requires_grad_() if requires_grad else x


def linspace(start: Any, end: Any, num: Optional[builtins.int] = None, *, steps: Optional[builtins.int] = None,
             endpoint: builtins.bool = True, dtype: Any = None, device: Any = None,
             requires_grad: builtins.bool = False) -> Tensor:
    """``num`` (PyTorch: ``steps``) values from start to end; without ``endpoint`` the end itself is left out."""
    steps = num if steps is None else steps
    if steps is None:
        raise TypeError("linspace() missing the number of values: num, or steps")
    if endpoint:
        return _core.linspace(start, end, steps, dtype=dtype, device=device, requires_grad=requires_grad)
    x = _core.linspace(start, end, steps + 1, dtype=dtype, device=device)[:steps]
    return x.requires_grad_() if requires_grad else x


# ---- elementwise


def positive(x: Tensor, /) -> Tensor:
    """x itself."""
    return +x


def real(x: Tensor, /) -> Tensor:
    """x itself: there are no complex tensors."""
    return x


def conj(x: Tensor, /) -> Tensor:
    """x itself: there are no complex tensors."""
    return x


# ---- reductions, searching, sorting


def cumulative_sum(x: Tensor, /, *, axis: Optional[builtins.int] = None, dtype: Optional[DType] = None,
                   include_initial: builtins.bool = False) -> Tensor:
    """Sums of the elements up to each along ``axis``."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError("cumulative_sum: axis is needed where there is not exactly one dimension")
        axis = 0
    if dtype is not None:
        x = x.to(dtype)
    y = _ops.cumsum(x, axis)
    if include_initial:
        shape = list(y.shape)
        shape[axis] = 1
        y = _ops.cat([_core.zeros(shape, dtype=y.dtype, device=y.device), y], axis)
    return y if dtype is None else y.to(dtype)


def prod(x: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, axis: Any = None, dtype: Optional[DType] = None,
         keepdims: builtins.bool = False) -> Tensor:
    """The product over ``dim`` (all without one); integers and bool in int64."""
    if dtype is not None:
        x = x.to(dtype)
    dims = axis if axis is not None else dim
    x, dims = F._over(x, dims, axis)
    y = _ops.prod(x, [] if dims is None else dims, (keepdim or keepdims) and axis != ())
    return y if dtype is None else y.to(dtype)


def argmax(x: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False, *, axis: Optional[builtins.int] = None,
           keepdims: builtins.bool = False) -> Tensor:
    """Where the first largest element is, along ``dim`` or in row-major order of all."""
    return _ops.argmax(x, dim if axis is None else axis, keepdim or keepdims)


def argmin(x: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False, *, axis: Optional[builtins.int] = None,
           keepdims: builtins.bool = False) -> Tensor:
    """Where the first smallest element is, along ``dim`` or in row-major order of all."""
    return _ops.argmin(x, dim if axis is None else axis, keepdim or keepdims)


def sort(input: Tensor, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True, *,
         axis: Optional[builtins.int] = None) -> Any:
    """The elements in order and where they came from; with ``axis`` the elements only, as the standard has it."""
    result = _ops.sort(input, dim if axis is None else axis, descending)
    return result if axis is None else result[0]


def argsort(input: Tensor, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True, *,
            axis: Optional[builtins.int] = None) -> Tensor:
    return _ops.argsort(input, dim if axis is None else axis, descending)


def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: builtins.bool = False, right: builtins.bool = False,
                 side: Optional[str] = None, sorter: Optional[Tensor] = None) -> Tensor:
    """Where to insert values into an ascending sequence, or into one that is ascending in the order of ``sorter``: "left" or
    "right" of equal ones."""
    x1, x2 = sorted_sequence, input
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted: side must be left or right and agree with right={right}, got {side!r}")
    if sorter is not None:
        x1 = _ops.take_along_dim(x1, sorter, -1)
    if not isinstance(x2, Tensor):
        x2 = F.tensor(x2, dtype=x1.dtype, device=x1.device)
    t = _core.promote_types(x1.dtype, x2.dtype)
    return _ops.searchsorted(x1.to(t), x2.to(t), right or side == "right", out_int32)


def _logical(name: str) -> Any:
    op = _core.ops[name]

    def function(x: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, axis: Any = None,
                 keepdims: builtins.bool = False) -> Tensor:
        x, dims = F._over(x, dim if axis is None else axis, axis)
        result: Tensor = op(x, [] if dims is None else dims, (keepdim or keepdims) and axis != ())
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor:
    return _ops.unique(x, False, False)[0]


def unique_counts(x: Tensor, /) -> UniqueCounts:
    values, _, counts = _ops.unique(x, False, True)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    values, inverse, _ = _ops.unique(x, True, False)
    return UniqueInverse(values, inverse)


def unique_all(x: Tensor, /) -> UniqueAll:
    values, inverse, counts = _ops.unique(x, True, True)
    flat = inverse.reshape(-1)
    order = _ops.argsort(flat, 0)
    starts = _ops.cumsum(counts, 0) - counts
    indices = order[starts] if counts.numel() else starts
    return UniqueAll(values, indices, inverse.reshape(x.shape), counts)


# ---- shapes


def permute_dims(x: Tensor, /, axes: Sequence[builtins.int]) -> Tensor:
    return _ops.permute(x, axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    return x.mT


def expand_dims(x: Tensor, /, axis: builtins.int = 0) -> Tensor:
    return x.unsqueeze(axis)


def concat(arrays: Sequence[Tensor], /, dim: Optional[builtins.int] = 0, *, axis: Optional[builtins.int] = 0) -> Tensor:
    """One after the other along ``axis``; None joins the flattened arrays."""
    where = dim if axis == 0 else axis
    if where is None:
        return F.cat([a.reshape(-1) for a in arrays], 0)
    return F.cat(arrays, where)


concatenate = concat


def flip(x: Tensor, dims: Any = None, *, axis: Any = None) -> Tensor:
    """The order along the dimensions reversed: all of them where none is named."""
    which = dims if axis is None else axis
    return _ops.flip(x, list(range(x.ndim)) if which is None else which) if x.ndim else x.clone()


def roll(x: Tensor, shift: Any = None, axis: Any = None, *, shifts: Any = None, dims: Any = None) -> Tensor:
    """Elements moved along ``axis``, those beyond the end coming back at the start."""
    shift = shifts if shift is None else shift
    axis = dims if axis is None else axis
    if axis is not None and isinstance(axis, (tuple, list)) and isinstance(shift, builtins.int):
        shift = [shift] * len(axis)
    return _ops.roll(x, shift, [] if axis is None else axis) if x.ndim else x.clone()


def repeat(x: Tensor, repeats: Any, /, *, axis: Optional[builtins.int] = None) -> Tensor:
    """Each element several times in a row, as repeat_interleave (Tensor.repeat() is PyTorch's: tile)."""
    if isinstance(repeats, (tuple, list)):
        repeats = F.tensor(repeats, device=x.device)
    return F.repeat_interleave(x, repeats, axis)


def unstack(x: Tensor, /, *, axis: builtins.int = 0) -> Tuple[Tensor, ...]:
    return tuple(_ops.unbind(x, axis))


def broadcast_arrays(*arrays: Tensor) -> List[Tensor]:
    return F.broadcast_tensors(*arrays)


def take(x: Tensor, indices: Tensor, *, axis: Optional[builtins.int] = None) -> Tensor:
    """The slices that the 1-D indices name along ``axis``; without one, as PyTorch's, elements by their row-major place."""
    if axis is None:
        return _ops.take(x, indices)
    indices = F.where(indices < 0, indices + x.shape[axis], indices)
    return _ops.index_select(x, axis, indices)


# ---- products


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: builtins.int = -1) -> Tensor:
    """Sums of the products along ``axis``; dtypes are promoted."""
    t = _core.promote_types(x1.dtype, x2.dtype)
    return _ops.linalg_vecdot(x1.to(t), x2.to(t), axis)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product; operands of different dtypes are promoted, unlike in PyTorch."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype is not x2.dtype:
        t = _core.promote_types(x1.dtype, x2.dtype)
        return _ops.matmul(x1.to(t), x2.to(t))
    return _ops.matmul(x1, x2)


all, any = _logical("all"), _logical("any")  # noqa: A001

__all__ = [
    _name for _name, _value in list(globals().items())
    if not _name.startswith("_") and type(_value).__name__ != "module" and getattr(_value, "__module__", "") != "typing"
    and _name not in ("Device", "DType", "Number", "annotations")
]
