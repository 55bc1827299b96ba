"""Functions beside the op records: factories, choices between records, PyTorch's and NumPy's other names."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any, NamedTuple, Optional, Sequence, Union

from . import _core, _ops
from ._core import Size, Tensor, device as Device, dtype as DType
from ._core import (  # noqa: F401
    arange,
    allclose,
    batch_norm,
    broadcast_shapes as _broadcast_two,
    clamp,
    dropout,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    frombuffer,
    full,
    full_like,
    linspace,
    logspace,
    normal,
    one_hot,
    ones,
    ones_like,
    prod,
    promote_types,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    rotary_tables,
    scaled_dot_product_attention,
    swiglu,
    tril_indices,
    triu_indices,
    unflatten,
    uniform,
    zeros,
    zeros_like,
)

Number = Union[builtins.bool, builtins.int, builtins.float]

pi = math.pi
e = math.e
inf = math.inf
nan = math.nan
newaxis = None

# PyTorch's names of the dtypes.
float = _core.float32
double = _core.float64
half = _core.float16
long = _core.int64
int = _core.int32
short = _core.int16


class return_types:
    """Results of functions that give several tensors."""

    class max(NamedTuple):
        values: Tensor
        indices: Tensor

    class min(NamedTuple):
        values: Tensor
        indices: Tensor


# ---- making tensors


def tensor(data: Any, *, dtype: Optional[DType] = None, device: Any = None, requires_grad: builtins.bool = False,
           pin_memory: builtins.bool = False) -> Tensor:
    """A new tensor with a copy of numbers, nested sequences of them, or an array."""
    t = _core._tensor(data, dtype, device)
    if requires_grad:
        t.requires_grad_()
    return t.pin_memory() if pin_memory else t


def as_tensor(data: Any, dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """The data as a tensor, sharing its memory where it can."""
    if isinstance(data, Tensor):
        t = data
    elif hasattr(data, "__array_interface__") and getattr(data, "shape", ()) != () and data.flags.writeable:
        t = from_numpy(data)
    elif hasattr(data, "__dlpack__") and not hasattr(data, "__array_interface__"):
        t = from_dlpack(data)
    else:
        return tensor(data, dtype=dtype, device=device)
    if device is not None:
        t = t.to(device)
    return t if dtype is None else t.to(dtype)


def asarray(obj: Any, /, *, dtype: Optional[DType] = None, device: Any = None,
            copy: Optional[builtins.bool] = None) -> Tensor:
    """The array API's as_tensor: ``copy`` True always copies, False never does (ValueError where it would have to)."""
    if copy is True:
        return tensor(obj, dtype=dtype, device=device)
    t = as_tensor(obj, dtype, device)
    if copy is False:
        shares = t is obj or (hasattr(obj, "__array_interface__") or hasattr(obj, "__dlpack__")) and (
            (dtype is None or as_tensor(obj).dtype == t.dtype) and (device is None or as_tensor(obj).device == t.device))
        if not shares:
            raise ValueError("asarray: this needs a copy, and copy=False forbids it")
    return t


def is_tensor(obj: Any) -> builtins.bool:
    """Whether it is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(x: Tensor) -> builtins.bool:
    return x.dtype.is_floating_point


def numel(x: Tensor) -> builtins.int:
    return x.numel()


def clone(x: Tensor) -> Tensor:
    return x.clone()


# ---- arithmetic with choices


def pow(input: Any, exponent: Any) -> Tensor:
    """input to the power exponent."""
    result: Tensor = operator.pow(input, exponent)
    return result


def div(input: Any, other: Any, *, rounding_mode: Optional[str] = None) -> Tensor:
    """True division, or rounded to "floor" or "trunc"."""
    if rounding_mode is None:
        result: Tensor = operator.truediv(input, other)
        return result
    if not isinstance(input, Tensor):
        input = _core.wrap_number(input, other.device)
    if not isinstance(other, Tensor):
        other = _core.wrap_number(other, input.device)
    return _core._div_mode(input, other, rounding_mode)


divide = true_divide = div


def rsub(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input."""
    result: Tensor = other - (input if alpha == 1 else input * alpha)
    return result


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where the condition holds, else other; with the condition alone: the indices of its true elements."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        return _core._where_scalars(condition, input, other)
    return _ops.where(condition, input, other)


def equal(input: Any, other: Any) -> builtins.bool:
    """Whether two tensors have the same shape and elements."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return _core.equal(input, other)
    return builtins.bool((input == other) if not isinstance(input, Tensor) and not isinstance(other, Tensor) else False)


def clamp_min(input: Tensor, min: Any) -> Tensor:
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    return clamp(input, max=max)


def clip(input: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """clamp() by NumPy's name; without bounds a copy."""
    if min is None and max is None:
        return input.clone()
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        lo = min if min is None or isinstance(min, Tensor) else _core.wrap_number(min, input.device)
        hi = max if max is None or isinstance(max, Tensor) else _core.wrap_number(max, input.device)
        return clamp(input, lo, hi)
    return clamp(input, min, max)


# ---- reductions with choices


def _dims(dim: Any) -> Any:
    return [] if dim is None else dim


def _over(input: Tensor, dim: Any, axis: Any) -> tuple[Tensor, Any]:
    """The array API's ``axis=()`` reduces nothing: a new dimension of 1 stands for it. PyTorch's empty ``dim`` means all."""
    if axis is None or axis != ():
        return input, dim
    return input.unsqueeze(-1), -1


def _extreme(input: Tensor, dim: Any, keepdim: builtins.bool, axis: Any, keepdims: builtins.bool, of_two: Any, of_all: Any,
             along: Any, standard: Any, pair: Any) -> Any:
    """What max() and min() share: the choice between elementwise, whole, along a dimension, and the array API's form."""
    if isinstance(dim, Tensor):
        return of_two(input, dim)
    if axis == ():
        return input.clone()
    if axis is not None or keepdims:
        return standard(input, _dims(axis if axis is not None else dim), keepdims or keepdim)
    return of_all(input) if dim is None else pair(*along(input, dim, keepdim))


def max(input: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, axis: Any = None,
        keepdims: builtins.bool = False) -> Any:
    """The largest element; along ``dim`` also where it is; of two tensors the larger, elementwise."""
    return _extreme(input, dim, keepdim, axis, keepdims, _ops.maximum, _core._max, _ops.max_dim, _ops.amax, return_types.max)


def min(input: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, axis: Any = None,
        keepdims: builtins.bool = False) -> Any:
    """The smallest element; along ``dim`` also where it is; of two tensors the smaller, elementwise."""
    return _extreme(input, dim, keepdim, axis, keepdims, _ops.minimum, _core._min, _ops.min_dim, _ops.amin, return_types.min)


def _correction(unbiased: Optional[builtins.bool], correction: Optional[Number]) -> builtins.float:
    if unbiased is not None:
        return 1.0 if unbiased else 0.0
    return 1.0 if correction is None else builtins.float(correction)


def var(input: Tensor, dim: Any = None, unbiased: Optional[builtins.bool] = None, keepdim: builtins.bool = False, *,
        correction: Optional[Number] = None, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The variance: squared differences from the mean, divided by the number less ``correction`` (1)."""
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    input, dim = _over(input, dim if axis is None else axis, axis)
    return _ops.var(input, _dims(dim), _correction(unbiased, correction), (keepdim or keepdims) and axis != ())


def std(input: Tensor, dim: Any = None, unbiased: Optional[builtins.bool] = None, keepdim: builtins.bool = False, *,
        correction: Optional[Number] = None, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The standard deviation, as var()."""
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    input, dim = _over(input, dim if axis is None else axis, axis)
    return _ops.std(input, _dims(dim), _correction(unbiased, correction), (keepdim or keepdims) and axis != ())


def sum(input: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, dtype: Optional[DType] = None, axis: Any = None,
        keepdims: builtins.bool = False) -> Tensor:
    """The sum over ``dim`` (all without one); integers and bool in int64."""
    if dtype is None and axis is None:  # as most calls are
        return _ops.sum(input, [] if dim is None else dim, keepdim or keepdims)
    if dtype is not None:
        input = input.to(dtype)
    input, dim = _over(input, dim if axis is None else axis, axis)
    y = _ops.sum(input, _dims(dim), (keepdim or keepdims) and axis != ())
    return y if dtype is None else y.to(dtype)


def mean(input: Tensor, dim: Any = None, keepdim: builtins.bool = False, *, dtype: Optional[DType] = None, axis: Any = None,
         keepdims: builtins.bool = False) -> Tensor:
    """The mean over ``dim`` (all without one)."""
    if dtype is None and axis is None:  # as most calls are
        return _ops.mean(input, [] if dim is None else dim, keepdim or keepdims)
    if dtype is not None:
        input = input.to(dtype)
    input, dim = _over(input, dim if axis is None else axis, axis)
    return _ops.mean(input, _dims(dim), (keepdim or keepdims) and axis != ())


def _scan(name: str) -> Any:
    op = _core.ops[name]

    def function(input: Tensor, dim: Any = None, *, dtype: Optional[DType] = None, **options: Any) -> Tensor:
        if dim is not None:
            options["dim"] = dim
        result: Tensor = op(input if dtype is None else input.to(dtype), **options)
        return result if dtype is None else result.to(dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


cumsum, cumprod = _scan("cumsum"), _scan("cumprod")


def norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
    """(sum |x|^p)^(1/p)."""
    if p == "fro" or p is None:
        p = 2
    return _ops.norm(input, builtins.float(p), _dims(dim), keepdim)


def softmax(input: Tensor, dim: builtins.int = -1, *, dtype: Optional[DType] = None) -> Tensor:
    """exp(x) divided by its sum along ``dim``."""
    return _ops.softmax(input if dtype is None else input.to(dtype), dim)


def log_softmax(input: Tensor, dim: builtins.int = -1, *, dtype: Optional[DType] = None) -> Tensor:
    """The logarithm of softmax."""
    return _ops.log_softmax(input if dtype is None else input.to(dtype), dim)


def nonzero(input: Tensor, *, as_tuple: builtins.bool = False) -> Any:
    """Positions of the elements that are not 0: one row each, or with ``as_tuple`` one tensor for each dimension."""
    rows = _ops.nonzero(input if input.dim() or not as_tuple else input.reshape(1))
    if not as_tuple:
        return rows
    return tuple(rows.select(1, i).contiguous() for i in range(rows.shape[1]))


def argwhere(input: Tensor) -> Tensor:
    return _ops.nonzero(input)


def unique(input: Tensor, sorted: builtins.bool = True, return_inverse: builtins.bool = False,
           return_counts: builtins.bool = False, dim: Optional[builtins.int] = None) -> Any:
    """The different values in ascending order, or the different slices along ``dim``; also where each is among them, and
    how often each occurs."""
    values, inverse, counts = (_ops.unique(input, return_inverse, return_counts) if dim is None
                               else _ops.unique_dim(input, dim, return_inverse, return_counts))
    parts = [values] + ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return parts[0] if len(parts) == 1 else tuple(parts)


def topk(input: Tensor, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True,
         sorted: builtins.bool = True) -> Any:
    """The k largest (or smallest) elements along ``dim``, in order, and where they are."""
    return _ops.topk(input, k, dim, largest)


def msort(input: Tensor) -> Tensor:
    return _ops.msort(input)


# ---- shapes


def reshape(input: Tensor, shape: Any, *, copy: Optional[builtins.bool] = None) -> Tensor:
    """The elements in row-major order under another shape: a view where possible."""
    if copy is True:
        return input.clone().reshape(shape)
    if copy is False:
        return input.view(shape)
    return input.reshape(shape)


def flatten(input: Tensor, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
    return input.flatten(start_dim, end_dim)


def ravel(input: Tensor) -> Tensor:
    return input.reshape(-1)


def squeeze(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    if axis is None:
        return input.squeeze(dim)
    for a in axis if isinstance(axis, (tuple, list)) else (axis,):
        if input.shape[a] != 1:  # the standard's argument is stricter than PyTorch's
            raise ValueError(f"squeeze: dimension {a} of {input.shape} is not 1")
    return input.squeeze(axis)


def unsqueeze(input: Tensor, dim: builtins.int) -> Tensor:
    return input.unsqueeze(dim)


def narrow(input: Tensor, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
    return input.narrow(dim, start, length)


def t(input: Tensor) -> Tensor:
    return input.t()


def split(input: Tensor, split_size_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Views of one size along ``dim``, or of the sizes given."""
    if isinstance(split_size_or_sections, builtins.int):
        return _ops.split(input, split_size_or_sections, dim)
    sizes = list(split_size_or_sections)
    if builtins.sum(sizes) != input.shape[dim]:
        raise _core.ShapeError(f"split: sizes {sizes} do not add up to {input.shape[dim]}")
    parts, at = [], 0
    for size in sizes:
        parts.append(input.narrow(dim, at, size))
        at += size
    return tuple(parts)


def broadcast_shapes(*shapes: Sequence[builtins.int]) -> Size:
    shape = Size()
    for s in shapes:
        shape = _broadcast_two(shape, s)
    return shape


def broadcast_tensors(*tensors: Tensor) -> list[Tensor]:
    """All of them expanded to their common shape."""
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return [t.expand(shape) for t in tensors]


def _joined(op: Any, tensors: Sequence[Tensor], dim: builtins.int) -> Tensor:
    """The op of the tensors, which are promoted to one dtype where they have several."""
    items = list(tensors)
    try:
        joined: Tensor = op(items, dim)
        return joined
    except _core.DTypeError:
        kind = result_type(*(empty([1], dtype=t.dtype, device="meta") for t in items))
        joined = op([t.to(kind) for t in items], dim)
        return joined


def cat(tensors: Sequence[Tensor], dim: builtins.int = 0) -> Tensor:
    """One after the other along ``dim``; different dtypes are promoted."""
    return _joined(_ops.cat, tensors, dim)


def stack(tensors: Sequence[Tensor], dim: builtins.int = 0, *, axis: Optional[builtins.int] = None) -> Tensor:
    """Side by side along a new dimension ``dim``; different dtypes are promoted."""
    return _joined(_ops.stack, tensors, dim if axis is None else axis)


def repeat_interleave(input: Tensor, repeats: Any, dim: Optional[builtins.int] = None, *,
                      output_size: Optional[builtins.int] = None) -> Tensor:
    """Each element along ``dim`` several times in a row; ``output_size``, where given, is how many that makes."""
    repeated: Tensor = (_core._repeat_interleave if isinstance(repeats, Tensor) else _ops.repeat_interleave)(input, repeats, dim)
    made = repeated.shape[0 if dim is None else dim]
    if output_size is not None and made != output_size:
        raise ValueError(f"repeat_interleave: output_size is {output_size}, the repeats make {made}")
    return repeated


chunk = _ops.chunk
cross_entropy, relu6, selu, cdist = _ops.cross_entropy, _ops.relu6, _ops.selu, _ops.cdist


def scatter(input: Tensor, dim: builtins.int, index: Tensor, src: Any = None, *, value: Any = None,
            reduce: Optional[str] = None) -> Tensor:
    """input with the elements that index names along ``dim`` replaced by those of ``src``, or by one number; with ``reduce``
    "add" or "multiply" joined with them."""
    src = value if src is None else src
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise ValueError(f"scatter: reduce must be add or multiply, got {reduce!r}")
        values = src if isinstance(src, Tensor) else full(index.shape, src, dtype=input.dtype, device=input.device)
        return _ops.scatter_reduce(input, dim, index, values, "sum" if reduce == "add" else "prod")
    if isinstance(src, Tensor):
        return _ops.scatter(input, dim, index, _of_index(src, index))
    return _core._scatter_scalar(input, dim, index, src)


def _of_index(src: Tensor, index: Tensor) -> Tensor:
    """The part of ``src`` that an index names: it may be smaller."""
    if src.dim() != index.dim() or src.shape == index.shape:
        return src
    return src[tuple(slice(0, size) for size in index.shape)]


def scatter_add(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
    """input plus the elements of ``src`` at the places that index names along ``dim``."""
    return _ops.scatter_add(input, dim, index, _of_index(src, index))


# ---- settings


def manual_seed(seed: builtins.int) -> None:
    """Restarts the random numbers of every op."""
    _core.manual_seed(seed & 0xFFFFFFFFFFFFFFFF)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an elementwise op of these gives."""
    tensors = [a for a in arrays_and_dtypes if isinstance(a, Tensor)]
    dtypes = [a for a in arrays_and_dtypes if isinstance(a, DType)]
    numbers = [a for a in arrays_and_dtypes if not isinstance(a, (Tensor, DType))]
    wrapped = tensors + [empty(1, dtype=d, device="meta") for d in dtypes] + [_core.wrap_number(n) for n in numbers]
    if not wrapped:
        raise ValueError("result_type: at least one argument is wanted")
    current = wrapped[0]
    kind = current.dtype
    for other in wrapped[1:]:
        kind = _core.result_type_of_tensors(current, other)
        if current.dtype != kind or current.dim() < other.dim():
            current = other if other.dtype == kind and other.dim() >= current.dim() else empty(1, dtype=kind, device="meta")
    return kind


# ---- numbers of the dtypes


class finfo:
    """What a floating dtype can hold."""

    bits: builtins.int
    eps: builtins.float
    max: builtins.float
    min: builtins.float
    resolution: builtins.float
    smallest_normal: builtins.float
    tiny: builtins.float

    def __init__(self, type: Any = None) -> None:
        t = _core.get_default_dtype() if type is None else type.dtype if isinstance(type, Tensor) else _as_dtype(type)
        if not t.is_floating_point:
            raise TypeError(f"finfo: a floating dtype is wanted, got {t}")
        self.dtype = t
        self.__dict__.update(t._limits)

    def __repr__(self) -> str:
        return f"finfo(eps={self.eps}, max={self.max}, min={self.min}, tiny={self.tiny}, dtype={self.dtype})"


class iinfo:
    """What an integer dtype can hold."""

    bits: builtins.int
    max: builtins.int
    min: builtins.int

    def __init__(self, type: Any) -> None:
        t = type.dtype if isinstance(type, Tensor) else _as_dtype(type)
        if t.is_floating_point or t.name == "bool":
            raise TypeError(f"iinfo: an integer dtype is wanted, got {t}")
        self.dtype = t
        self.__dict__.update(t._limits)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def _as_dtype(t: Any) -> DType:
    return _core._tensor(0, t, "cpu").dtype


__all__ = [
    _name for _name, _value in list(globals().items())
    if not _name.startswith("_") and type(_value).__name__ != "module" and getattr(_value, "__module__", "") != "typing"
    and _name not in ("Device", "DType", "Number", "annotations")
]
