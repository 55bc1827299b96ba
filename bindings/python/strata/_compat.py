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
    "contiguous_format", "get_float32_matmul_precision", "preserve_format", "set_float32_matmul_precision",
    "strided", "use_deterministic_algorithms",
]


def _typed(name: str, dtype: DType) -> Any:
    def make(*args: Any) -> Tensor:
        if args and builtins.all(isinstance(a, int) for a in args):
            return _core.zeros(*args, dtype=dtype)
        return tensor(args[0], dtype=dtype) if args else _core.zeros(0, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A {dtype.name} tensor of the numbers given, or of a size."
    return make


FloatTensor, DoubleTensor = _typed("FloatTensor", _core.float32), _typed("DoubleTensor", _core.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", _core.float16), _typed("BFloat16Tensor", _core.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", _core.int64), _typed("IntTensor", _core.int32)
ShortTensor, CharTensor = _typed("ShortTensor", _core.int16), _typed("CharTensor", _core.int8)
ByteTensor, BoolTensor = _typed("ByteTensor", _core.uint8), _typed("BoolTensor", _core.bool)


class memory_format:
    """How PyTorch lays out images. Here the engine chooses inside its kernels: every value means the same."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"strata.{self._name}"


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided = memory_format("strided")


# ---- settings: the engine is deterministic, always


def use_deterministic_algorithms(mode: builtins.bool, *, warn_only: builtins.bool = False) -> None:
    """Nothing to switch: every result is the same from run to run."""


def are_deterministic_algorithms_enabled() -> builtins.bool:
    """True: they always are."""
    return True


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
    "compile": "modules run as they are; st.cuda.CUDAGraph records and repeats the work of a step",
    "jit": "there is no TorchScript; save the state_dict with st.save()",
    "onnx": "nothing writes ONNX; st.save() writes safetensors, which other programs read",
    "fx": "there is no graph tracing; hooks of modules see values as they pass",
    "distributed": "one process, one card",
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
    "vmap": "write the batch dimension out, or use einsum",
    "hub": "load a state_dict from a safetensors file: st.load()",
    "profiler": "`strata lab` measures ops; st.cuda.Event measures between two points of a stream",
    "mps": "devices are cpu and cuda",
    "xpu": "devices are cpu and cuda",
    "sparse_coo_tensor": "there are no sparse tensors",
    "uint16": "use int32",
    "uint32": "use int64",
    "uint64": "use int64",
    "storage": "tensors share memory by views; x.numpy() shows the elements",
    "set_default_tensor_type": "use set_default_dtype() and set_default_device()",
    "SyncBatchNorm": "there is one process: use BatchNorm2d",
    "DataParallel": "there is one card: call the module itself",
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
