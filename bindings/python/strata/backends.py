"""torch.backends for scripts that set it: the settings are kept and change nothing. Every result of the engine is the same
from run to run, and it chooses its kernels without trying them out."""

from __future__ import annotations

from typing import Any

from . import cuda as _cuda

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


cudnn = _Backend(lambda: False, enabled=False, benchmark=False, deterministic=True, allow_tf32=False, version=lambda: None)
mps = _Backend(lambda: False)
mkl = _Backend(lambda: False)
openmp = _Backend(lambda: False)
cpu = _Backend(lambda: True)
cuda = _Backend(_cuda.is_available, matmul=_Backend(_cuda.is_available, allow_tf32=False,
                                                    allow_bf16_reduced_precision_reduction=False,
                                                    allow_fp16_reduced_precision_reduction=False))
