"""torch.backends for scripts that set it. A setting that the engine has is switched; of one that it has not, the first change
says what happens instead. Every result is the same from run to run, and kernels are chosen without trying them out."""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Tuple

from . import _core, cuda as _cuda
from ._once import once

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

# A setting: its value, and what happens whatever it is set to.
Setting = Tuple[Any, str]


class _Backend(types.ModuleType):
    """A module of PyTorch's with settings; `import strata.backends.cudnn as cudnn` finds it too."""

    def __init__(self, name: str, available: Callable[[], bool], doc: str, **settings: Setting) -> None:
        super().__init__(f"{__name__}.{name}", doc)
        self.__dict__.update(_available=available, _short=name, _says={k: says for k, (_, says) in settings.items()})
        self.__dict__.update({k: value for k, (value, _) in settings.items()})
        if "." not in name:
            sys.modules[f"{__name__}.{name}"] = self

    def is_available(self) -> bool:
        """Whether there is such a device or library."""
        return bool(self._available())

    is_built = is_available

    def __setattr__(self, name: str, value: Any) -> None:
        says: Dict[str, str] = self.__dict__["_says"]
        if name in says:
            if value != self.__dict__[name] and says[name]:
                once(f"{self._short}.{name}", f"backends.{self._short}.{name} = {value!r} changes nothing: {says[name]}")
        elif not name.startswith("__") and name not in self.__dict__ and not hasattr(type(self), name):
            raise AttributeError(f"strata.backends.{self._short} has no setting '{name}'; it has {', '.join(says) or 'none'}")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"strata.backends.{self._short} has no setting '{name}'; it has {', '.join(self._says) or 'none'}")

    @contextmanager
    def flags(self, **settings: Any) -> Iterator[None]:
        """The settings inside a ``with``."""
        before = {k: getattr(self, k) for k in settings}
        for k, v in settings.items():
            if v is not None:
                setattr(self, k, v)
        try:
            yield
        finally:
            for k, v in before.items():  # quietly: what changes nothing was said when it was set
                self.__dict__.update({k: v}) if k in self._says else setattr(self, k, v)


_chooses = "the engine chooses its convolutions by their shapes, without trying them out"


class _Convolutions(_Backend):
    @property
    def allow_tf32(self) -> bool:
        """Whether float32 convolutions and recurrent networks on a card may round operands to TF32: the engine's switch."""
        return _core.allow_tf32_convolutions()

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        _core.set_allow_tf32_convolutions(bool(on))

    @property
    def fp32_precision(self) -> str:
        """The same in newer words: "tf32" or "ieee"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, word: str) -> None:
        if word not in ("tf32", "ieee", "none"):
            raise ValueError(f"backends.cudnn.fp32_precision: tf32 or ieee is wanted, got {word!r}")
        self.allow_tf32 = word != "ieee"


cudnn = _Convolutions(
    "cudnn", lambda: False, "cuDNN's settings; the engine has kernels of its own and does not load it.",
    enabled=(True, "the engine has kernels of its own and uses no cuDNN"),
    benchmark=(False, _chooses), benchmark_limit=(10, _chooses),
    deterministic=(True, "every result is the same from run to run"),
)
cudnn.__dict__.update(version=lambda: None, is_acceptable=lambda tensor: False, CUDNN_TENSOR_DTYPES=set())
mps = _Backend("mps", lambda: False, "Apple's devices: there are none here.")
mkl = _Backend("mkl", lambda: False, "Intel's MKL, which the engine does not use.")
mkldnn = _Backend(
    "mkldnn", lambda: True, "oneDNN, which computes products and convolutions on the CPU.",
    enabled=(True, "oneDNN computes products and convolutions where it is faster"),
    deterministic=(True, "every result is the same from run to run"), allow_tf32=(False, "CPUs have no TF32"),
)
openmp = _Backend("openmp", lambda: False, "The engine has threads of its own: st.set_num_threads().")
cpu = _Backend("cpu", lambda: True, "The CPU.")
cpu.__dict__["get_cpu_capability"] = lambda: "DEFAULT"
opt_einsum = _Backend("opt_einsum", lambda: False, "opt_einsum, which is not used.",
                      enabled=(False, "einsum goes from left to right"), strategy=(None, "einsum goes from left to right"))

_reduced = "products accumulate in float32"
_one_attention = "there is one kernel of attention for each device, which never writes the matrix of weights out"


class _Attention:
    """Which of PyTorch's kernels of attention may run: kept, and said once to change nothing."""

    def __init__(self) -> None:
        self.on = {"flash": True, "mem_efficient": True, "math": True, "cudnn": False}

    def functions(self) -> Dict[str, Any]:
        """enable_flash_sdp() and its kin."""
        made: Dict[str, Any] = {}
        for kind in self.on:
            made[f"enable_{kind}_sdp"] = self._enable(kind)
            made[f"{kind}_sdp_enabled"] = lambda kind=kind: self.on[kind]
        return made

    def _enable(self, kind: str) -> Callable[[bool], None]:
        def enable(enabled: bool) -> None:
            if bool(enabled) != self.on[kind]:
                once("sdp", f"enable_{kind}_sdp({bool(enabled)}) changes nothing: {_one_attention}")
            self.on[kind] = bool(enabled)

        return enable


@contextmanager
def _sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
                enable_cudnn: bool = True) -> Iterator[None]:
    once("sdp", f"sdp_kernel() changes nothing: {_one_attention}", 4)
    yield


class _Matmul(_Backend):
    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 on a card may round their operands to TF32: the engine's own switch."""
        return _core.cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        _core.cuda_set_allow_tf32(bool(on))


cuda = _Backend("cuda", _cuda.is_available, "CUDA's settings.",
                preferred_linalg_library=("default", "cuSOLVER computes decompositions"))
cuda.__dict__.update(
    matmul=_Matmul("cuda.matmul", _cuda.is_available, "Of matrix products.",
                   allow_bf16_reduced_precision_reduction=(False, _reduced),
                   allow_fp16_reduced_precision_reduction=(False, _reduced)),
    cufft_plan_cache=types.SimpleNamespace(size=0, max_size=0, clear=lambda: None), sdp_kernel=_sdp_kernel,
    **_Attention().functions(),
)
