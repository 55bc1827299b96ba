"""torch.backends for scripts that set it: allow_tf32 is the engine's, the others are kept and change nothing. Every result of the engine is the same
from run to run, and it chooses its kernels without trying them out."""

from __future__ import annotations

from typing import Any

from . import _core, cuda as _cuda

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mps", "openmp"]


class _Backend:
    def __init__(self, available: Any, **settings: Any) -> None:
        self._available = available
        self.__dict__.update(settings)

    def is_available(self) -> bool:
        """Whether there is such a device."""
        return bool(self._available())

    is_built = is_available

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"st.backends has no setting '{name}'")


class _Matmul(_Backend):
    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 on a card may round their operands to TF32: the engine's own switch."""
        return _core.cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        _core.cuda_set_allow_tf32(bool(on))


cudnn = _Backend(lambda: False, enabled=False, benchmark=False, deterministic=True, allow_tf32=False, version=lambda: None)
mps = _Backend(lambda: False)
mkl = _Backend(lambda: False)
openmp = _Backend(lambda: False)
cpu = _Backend(lambda: True)
cuda = _Backend(_cuda.is_available, matmul=_Matmul(_cuda.is_available, allow_bf16_reduced_precision_reduction=False,
                                                   allow_fp16_reduced_precision_reduction=False))
