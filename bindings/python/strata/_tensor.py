"""Methods of Tensor that are written in Python."""

from __future__ import annotations

from typing import Any, Optional

from . import _array_api, _composed, _core, _functions as F, _ops
from ._core import Tensor


def _method(function: Any, name: Optional[str] = None) -> Any:
    setattr(Tensor, name or function.__name__, function)
    return function


# Functions that choose between records: as methods they do the same.
for _name in ("max", "min", "cumsum", "cumprod", "var", "std", "sum", "mean", "norm", "prod", "clamp", "clamp_min",
              "clamp_max", "clip", "div", "divide", "true_divide", "nonzero", "argwhere", "unique", "split",
              "repeat_interleave", "scatter", "scatter_add", "topk", "msort", "softmax", "log_softmax", "allclose", "equal",
              "rsub", "pow"):
    _function = getattr(F, _name)

    def _bound(function: Any) -> Any:
        def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            return function(self, *args, **kwargs)

        method.__name__ = function.__name__
        method.__doc__ = function.__doc__
        return method

    # Python functions bind by themselves; the core's do not.
    setattr(Tensor, _name, _function if type(_function).__name__ == "function" else _bound(_function))
for _name in _composed.METHODS:
    setattr(Tensor, _name, getattr(_composed, _name))
for _name in ("positive", "conj", "take", "sort", "argsort"):
    setattr(Tensor, _name, getattr(_array_api, _name))
_pow_ = vars(Tensor)["pow_"]


@_method
def pow_(self: Tensor, exponent: Any) -> Tensor:
    """pow(), written over the tensor."""
    result: Tensor = _pow_(self, exponent) if isinstance(exponent, Tensor) else _ops.pow_scalar_(self, exponent)
    return result


_method(pow_, "__ipow__")
_backward = vars(Tensor)["backward"]


@_method
def backward(self: Tensor, gradient: Optional[Tensor] = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Adds the gradient of every leaf, or of the ``inputs`` alone, to its grad."""
    if inputs is None:
        _backward(self, gradient, retain_graph, create_graph)
    else:
        from .autograd import backward as of_some

        of_some(self, gradient, retain_graph, create_graph, inputs)


@_method
def where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    return _ops.where(condition, self, other)


def _in_place(name: str, function: Any) -> None:
    """A method that computes and copies, for functions that are no records."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # A gradient may read what is written over: it gets a copy of its own.
        recorded = _core.is_grad_enabled() and self.requires_grad and not self.is_leaf
        return self.copy_(function(self.clone() if recorded else self, *args, **kwargs))

    method.__name__ = name
    method.__doc__ = f"{name[:-1]}(), written over the tensor."
    setattr(Tensor, name, method)


def _rounded_div(divisions: Any) -> Any:
    def div_(self: Tensor, other: Any, *, rounding_mode: Optional[str] = None) -> Tensor:
        """div(), written over the tensor."""
        if rounding_mode not in divisions:
            raise ValueError(f'div_: rounding_mode is {rounding_mode!r}, it can be "floor", "trunc" or None')
        written: Tensor = divisions[rounding_mode](self, other)
        return written

    return div_


Tensor.div_ = _rounded_div({None: Tensor.__dict__["div_"], "floor": Tensor.__dict__["floor_divide_"],  # type: ignore[method-assign]
                            "trunc": Tensor.__dict__["trunc_divide_"]})
for _name in ("divide_", "true_divide_"):
    setattr(Tensor, _name, Tensor.div_)
for _name in ("scatter_", "scatter_add_"):  # an index may be smaller than what it sends
    setattr(Tensor, "_" + _name + "of", Tensor.__dict__[_name])
    delattr(Tensor, _name)
_in_place("clip_", _core.clamp)
_in_place("clamp_min_", F.clamp_min)
_in_place("clamp_max_", F.clamp_max)
for _name in ("cumprod", "cumsum"):
    _in_place(_name + "_", getattr(F, _name))


@_method
def scatter_(self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Optional[str] = None) -> Tensor:
    """scatter(), written over the tensor."""
    if isinstance(src, Tensor) and reduce is None:
        written: Tensor = Tensor.__dict__["_scatter_of"](self, dim, index, F._of_index(src, index))
        return written
    return self.copy_(F.scatter(self, dim, index, src, value=value, reduce=reduce))


@_method
def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """scatter_add(), written over the tensor."""
    written: Tensor = Tensor.__dict__["_scatter_add_of"](self, dim, index, F._of_index(src, index))
    return written


@_method
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The main diagonal filled with a number; with ``wrap`` again after each square of a tall matrix."""
    if self.dim() < 2 or (self.dim() > 2 and len(set(self.shape)) != 1):
        raise _core.ShapeError(f"fill_diagonal_: a matrix, or equal sizes are wanted, got {list(self.shape)}")
    places = [_core.arange(min(self.shape), device=self.device)] * self.dim()
    if wrap and self.dim() == 2 and self.shape[0] > self.shape[1]:
        flat = _core.arange(0, self.shape[0] * self.shape[1], self.shape[1] + 1, device=self.device)
        places = [F.div(flat, self.shape[1], rounding_mode="floor"), flat % self.shape[1]]
    self[tuple(places)] = fill_value
    return self


def _reviewed(name: str, view: Any) -> None:
    """A method after which the tensor itself is another view of its elements."""

    def method(self: Tensor, *args: Any) -> Tensor:
        self.data = view(self.data, *args)
        return self

    method.__name__ = name
    method.__doc__ = f"{name[:-1]}() of the tensor itself."
    setattr(Tensor, name, method)


for _name, _view in {"t_": F.t, "transpose_": _ops.transpose, "swapaxes_": _ops.transpose, "swapdims_": _ops.transpose}.items():
    _reviewed(_name, _view)


@_method
def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Another shape: the elements there are, then zeros."""
    shape = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else list(sizes)
    made = _core.zeros(shape, dtype=self.dtype, device=self.device)
    count = min(made.numel(), self.numel())
    made.reshape(-1)[:count] = self.data.reshape(-1)[:count]
    self.data = made
    return self


@_method
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dimensions that broadcasting to the tensor's shape would repeat."""
    shape = list(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else list(size)
    lead = self.dim() - len(shape)
    dims = list(range(lead)) + [lead + i for i, s in enumerate(shape) if s == 1 and self.shape[lead + i] != 1]
    return F.sum(self, dims, True).reshape(shape) if dims else self


@_method
def apply_(self: Tensor, callable: Any) -> Tensor:
    """Each element replaced by a Python function of it; slow."""
    return self.copy_(F.tensor([callable(v) for v in self.reshape(-1).tolist()], dtype=self.dtype).reshape(self.shape))


@_method
def share_memory_(self: Tensor) -> Tensor:
    """The tensor itself: threads share all memory."""
    return self


@_method
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    self.data = self.data.squeeze(dim)
    return self


@_method
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    self.data = self.data.unsqueeze(dim)
    return self


@_method
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A NumPy array over the same memory; with ``force`` from any device, with or without gradient. Of a tensor that is at home
    on another tier (a disk) it is a copy."""
    import numpy as np

    t = self.detach().cpu() if force else self
    if t.requires_grad:
        raise _core.AutogradError("numpy: the tensor requires a gradient; use detach().numpy()")
    if t.device.type != "cpu":
        raise _core.DeviceError(f"numpy: the tensor is on {t.device}; use cpu().numpy()")
    if _core._bytes_move(t):
        t = t.to(tier="own")
    if t.dtype == _core.bfloat16:
        try:
            import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise _core.DTypeError("numpy: NumPy has no bfloat16 without the package ml_dtypes; use float().numpy()") from None
        return np.asarray(t.view(_core.int16)).view(ml_dtypes.bfloat16)
    return np.asarray(memoryview(t))


@_method
def __array__(self: Tensor, dtype: Any = None, copy: Optional[bool] = None) -> Any:
    import numpy as np

    a = self.numpy()
    if dtype is not None and a.dtype != np.dtype(dtype):
        if copy is False:
            raise ValueError("another dtype needs a copy, and copy=False forbids it")
        return a.astype(dtype)
    return a.copy() if copy else a


@_method
def __array_namespace__(self: Tensor, *, api_version: Optional[str] = None) -> Any:
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12"):
        raise ValueError(f"the array API of {api_version!r} is not offered; 2023.12 is")
    import strata

    return strata


@_method
def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    return self.to(device)


@_method
def clone(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own memory; gradients flow through."""
    return _ops.clone(self, False) if memory_format is None else self.to(copy=True, memory_format=memory_format)


@_method
def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """self[indices] = values, or += with ``accumulate``; the indices are tensors of integers or masks."""
    _core._index_put_(self, tuple(indices), values, accumulate)
    return self


@_method
def polygamma(self: Tensor, n: int) -> Tensor:
    """Derivative n of digamma()."""
    return _ops.polygamma(n, self)


_in_place("polygamma_", polygamma)


@_method
def record_stream(self: Tensor, stream: Any) -> None:
    """Its memory is not reused before the stream has passed."""
    _core.cuda_record_stream(self, stream)


@_method
def resize_as_(self: Tensor, other: Tensor) -> Tensor:
    """resize_() to the shape of another."""
    method: Any = self.resize_
    found: Tensor = method(other.shape)
    return found


@_method
def is_nonzero(self: Tensor) -> bool:
    """Whether the only element is not 0."""
    return bool(self)


@_method
def is_conj(self: Tensor) -> bool:
    """False: there are no complex tensors."""
    return False


@_method
def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """put(), written over the tensor."""
    return self.copy_(_ops.put(self, index, source, accumulate))


@_method
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """nn.functional.prelu()."""
    from .nn import functional

    return functional.prelu(self, weight)


@_method
def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """nn.functional.hardshrink()."""
    from .nn import functional

    return functional.hardshrink(self, lambd)


@_method
def unsafe_chunk(self: Tensor, chunks: int, dim: int = 0) -> Any:
    """chunk()."""
    return _ops.chunk(self, chunks, dim)


@_method
def storage(self: Tensor) -> Any:
    """The memory behind the tensor, as elements: the same for tensors that share it."""
    from ._storage import TypedStorage

    view: Any = self._whole_storage()  # type: ignore[attr-defined, unused-ignore]
    return TypedStorage(view)


@_method
def untyped_storage(self: Tensor) -> Any:
    """The memory behind the tensor, as bytes."""
    return self.storage().untyped()


typed_storage = _method(storage, "typed_storage")


@_method
def as_subclass(self: Tensor, cls: Any) -> Any:
    """The same tensor as an object of a subclass."""
    return self._as_subclass(cls)


@_method
def is_shared(self: Tensor) -> bool:
    """False: memory is not shared between processes."""
    return False


@_method
def is_inference(self: Tensor) -> bool:
    """False: inference mode records nothing, and marks nothing."""
    return False


@_method
def type_as(self: Tensor, other: Tensor) -> Tensor:
    return self.to(other.dtype)


@_method
def random_(self: Tensor, low: int = 0, high: Optional[int] = None) -> Tensor:
    if high is None:
        low, high = 0, low or 2**24
    return self.copy_(_core.randint(low, high, self.shape, device=self.device))


def _new(name: str) -> None:
    make = getattr(_core, name)

    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        made: Tensor = make(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)
        return made

    method.__name__ = "new_" + name
    setattr(Tensor, "new_" + name, method)


for _name in ("zeros", "ones", "empty"):
    _new(_name)


@_method
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return _core.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device)


@_method
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return F.tensor(data, dtype=dtype or self.dtype, device=device or self.device)


def _rebuild(cls: Any, data: bytes, shape: Any, dtype: Any, device: str, requires_grad: bool) -> Tensor:
    t = _core.empty(shape, dtype=dtype)
    if t.numel():
        memoryview(t.reshape(-1).view(_core.int16) if dtype == _core.bfloat16 else t.reshape(-1)).cast("B")[:] = data
    if device != "cpu":
        t = t.to(device)
    if requires_grad:
        t.requires_grad_()
    result: Tensor = t if cls is Tensor else t._as_subclass(cls)
    return result


@_method
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    host = self.detach().cpu().contiguous()
    flat = host.reshape(-1)
    bits = flat.view(_core.int16) if host.dtype == _core.bfloat16 else flat
    data = memoryview(bits).tobytes() if host.numel() else b""
    return _rebuild, (type(self), data, self.shape, self.dtype, str(self.device), self.is_leaf and self.requires_grad)


@_method
def __copy__(self: Tensor) -> Tensor:
    t = self.detach()
    if self.is_leaf and self.requires_grad:
        t.requires_grad_()
    return t if type(self) is Tensor else t._as_subclass(type(self))


@_method
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        copied: Tensor = memo[id(self)]
        return copied
    if not self.is_leaf:
        raise _core.AutogradError("deepcopy: only leaves can be copied deeply; use detach().clone()")
    with F_no_grad():
        t = self.detach().clone()
    if self.requires_grad:
        t.requires_grad_()
    if self.grad is not None:
        t.grad = self.grad.detach().clone()
    if type(self) is not Tensor:
        t = t._as_subclass(type(self))
    memo[id(self)] = t
    return t


from ._grad_mode import no_grad as F_no_grad  # noqa: E402


def _grad_fn(self: Tensor) -> Any:
    return _core._grad_fn(self)


Tensor.grad_fn = property(_grad_fn, doc="The recorded op behind the tensor, or None for a leaf.")  # type: ignore[assignment]
for _name, _value, _doc in (
    ("is_cpu", lambda self: self.device.type == "cpu", "Whether it is on the CPU."),
    ("is_sparse", lambda self: False, "False: there are no sparse tensors."),
    ("is_quantized", lambda self: False, "False: there are no quantised tensors."),
    ("is_meta", lambda self: self.device.type == "meta", "Whether it has a shape and no elements."),
    ("real", lambda self: self, "The tensor itself: there are no complex ones."),
    ("H", lambda self: self.mT if self.dim() else self, "The last two dimensions exchanged: there are no complex tensors."),
    ("mH", lambda self: self.mT, "The last two dimensions exchanged: there are no complex tensors."),
    ("layout", lambda self: _strided, "st.strided."),
):
    if _name not in Tensor.__dict__:
        setattr(Tensor, _name, property(_value, doc=_doc))

from ._compat import strided as _strided  # noqa: E402
