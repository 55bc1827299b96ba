"""Names that PyTorch programs use around the mathematics: shapes, typed constructors, settings; and what to use instead of
what is not there."""

from __future__ import annotations

import builtins
from typing import Any, Dict, NoReturn

from . import _core
from ._core import Size, Tensor, dtype as DType
from ._functions import tensor

__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "ShortTensor", "BFloat16Tensor", "Size", "are_deterministic_algorithms_enabled", "channels_last", "channels_last_3d",
    "contiguous_format", "get_float32_matmul_precision", "preserve_format", "set_default_tensor_type",
    "set_float32_matmul_precision", "strided", "use_deterministic_algorithms",
]


class _Kind(type):
    """The class of FloatTensor and its kin: called they make a tensor, asked they know whether one is theirs."""

    dtype: DType
    device: str

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        where = cls.device if device is None else device
        if builtins.len(args) == 1 and isinstance(args[0], Size):
            return _core.zeros(args[0], dtype=cls.dtype, device=where)
        if args and builtins.all(isinstance(a, int) for a in args):
            return _core.zeros(*args, dtype=cls.dtype, device=where)
        return tensor(args[0], dtype=cls.dtype, device=where) if args else _core.zeros(0, dtype=cls.dtype, device=where)

    def __instancecheck__(cls, value: Any) -> builtins.bool:
        return isinstance(value, Tensor) and value.dtype == cls.dtype and value.device.type == cls.device


def _typed(name: str, dtype: DType, device: str = "cpu") -> Any:
    module = "torch" if device == "cpu" else f"torch.{device}"
    return _Kind(name, (), {"dtype": dtype, "device": device, "__module__": module,
                            "__doc__": f"A {dtype.name} tensor of the numbers given, or of a size."})


# PyTorch's names of tensors by dtype. They keep PyTorch's module, so that x.type() is what programs compare it with.
_BY_NAME: Dict[str, DType] = {
    "FloatTensor": _core.float32, "DoubleTensor": _core.float64, "HalfTensor": _core.float16, "BFloat16Tensor": _core.bfloat16,
    "LongTensor": _core.int64, "IntTensor": _core.int32, "ShortTensor": _core.int16, "CharTensor": _core.int8,
    "ByteTensor": _core.uint8, "BoolTensor": _core.bool,
}
(FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor) = (
    _typed(name, dtype) for name, dtype in _BY_NAME.items())
CUDA_TYPES = {name: _typed(name, dtype, "cuda") for name, dtype in _BY_NAME.items()}


def type_of(self: Tensor, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
    """Another dtype, by a dtype, a class (FloatTensor) or its name; without one the name, "torch.FloatTensor", as PyTorch's
    programs compare it."""
    if dtype is None:
        name = next(name for name, t in _BY_NAME.items() if t == self.dtype)
        return ("torch.cuda." if self.is_cuda else "torch.") + name
    if isinstance(dtype, str):
        path, _, last = dtype.rpartition(".")
        if last in _BY_NAME:
            return self.to("cuda" if path.endswith("cuda") else "cpu", _BY_NAME[last])
    if isinstance(dtype, _Kind):
        return self.to(dtype.device, dtype.dtype)
    if dtype is Tensor:
        return self.to(_core.get_default_dtype())
    return self.to(dtype)


setattr(Tensor, "type", type_of)


class memory_format:
    """How images lie in memory: row-major, or with their channels innermost, which convolutions on a card take as they lie."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{_core._shown_as()}.{self._name}"


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided = memory_format("strided")


# ---- settings: the engine is deterministic, always


def use_deterministic_algorithms(mode: builtins.bool, *, warn_only: builtins.bool = False) -> None:
    """Nothing to switch: every result is the same from run to run."""


def are_deterministic_algorithms_enabled() -> builtins.bool:
    """True: they always are."""
    return True


def set_default_tensor_type(t: Any, /) -> None:
    """The dtype and device of FloatTensor, "torch.cuda.FloatTensor" and the like for what is made from here on."""
    kind = t
    if isinstance(t, str):
        path, _, last = t.rpartition(".")
        kind = (CUDA_TYPES if path.endswith("cuda") else globals()).get(last)
    if not isinstance(kind, _Kind) or not kind.dtype.is_floating_point:
        raise TypeError(f"set_default_tensor_type: a floating type like FloatTensor is wanted, got {t!r}")
    from ._device import set_default_device

    _core.set_default_dtype(kind.dtype)
    set_default_device(kind.device)


_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """"highest": products of float32 in float32. "high" and "medium": a card may round their operands to TF32."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: highest, high or medium is wanted, got {precision!r}")
    _core.cuda_set_allow_tf32(precision != "highest")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """The word for what the engine does: backends.cuda.matmul.allow_tf32 sets it too."""
    if not _core.cuda_allow_tf32():
        return "highest"
    return "high" if _precision == "highest" else _precision


# ---- what is not there

MISSING: Dict[str, str] = {
    "onnx": "nothing writes ONNX; st.save() writes safetensors, which other programs read",
    "fx": "there is no graph tracing; hooks of modules see values as they pass",
    "multiprocessing": "use threads: the engine releases the GIL while it computes",
    "sparse": "there are no sparse tensors; index_add, scatter_add and gather do what graph networks need",
    "fft": "there are no complex tensors and no Fourier transforms; use numpy.fft on x.numpy()",
    "stft": "there are no complex tensors; use scipy.signal on x.numpy()",
    "istft": "there are no complex tensors; use scipy.signal on x.numpy()",
    "quantization": "st.int8_matmul and st.fp8_quantize are what there is",
    "ao": "st.int8_matmul and st.fp8_quantize are what there is",
    "complex64": "there are no complex tensors; keep real and imaginary parts in a dimension of 2",
    "complex128": "there are no complex tensors; keep real and imaginary parts in a dimension of 2",
    "complex": "there are no complex tensors; keep real and imaginary parts in a dimension of 2",
    "view_as_complex": "there are no complex tensors; st.rotary turns pairs of numbers",
    "view_as_real": "there are no complex tensors",
    "polar": "there are no complex tensors; st.rotary turns pairs of numbers",
    "mps": "devices are cpu and cuda",
    "xpu": "devices are cpu and cuda",
    "sparse_coo_tensor": "there are no sparse tensors",
    "uint16": "use int32",
    "uint32": "use int64",
    "uint64": "use int64",
    "CrossMapLRN2d": "use LocalResponseNorm",
    "eig": "there are no complex tensors; eigh is for symmetric matrices",
    "eigvals": "there are no complex tensors; eigvalsh is for symmetric matrices",
}


def missing(module: str, name: str, among: Any) -> NoReturn:
    """AttributeError for a name that a module does not have: what to use instead, or names like it."""
    import difflib

    text = f"module '{module}' has no attribute '{name}'"
    if name in MISSING:
        text += f": {MISSING[name]}"
    elif not name.startswith("_"):
        close = difflib.get_close_matches(name, list(among), 3)
        text += f"; there is {', '.join(close)}" if close else ""
        text += ". docs/library/python.md lists what differs from PyTorch"
    raise AttributeError(text)
