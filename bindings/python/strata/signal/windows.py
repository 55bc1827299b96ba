"""torch.signal.windows, and torch's own names of them (hann_window, ..): the record signal_window."""

from __future__ import annotations

from typing import Any, Iterable, Optional

from .. import _core, _ops
from .._core import Tensor, dtype as DType
from .._functions import as_tensor

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
           "nuttall"]


def _make(name: str, size: int, a: float, sym: bool, dtype: Optional[DType], device: Any, requires_grad: bool) -> Tensor:
    chosen = _core.get_default_dtype() if dtype is None else dtype
    made = _ops.signal_window(name, size, float(a), sym, chosen, _core.get_default_device() if device is None else device)
    return made.requires_grad_() if requires_grad else made


def _window(name: str, doc: str) -> Any:
    def window(M: int, *, sym: bool = True, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
               requires_grad: bool = False) -> Tensor:
        return _make(name, M, 1.0, sym, dtype, device, requires_grad)

    window.__name__, window.__qualname__, window.__doc__ = name, name, doc
    return window


bartlett = _window("bartlett", "A triangle from 0 to 1 to 0.")
blackman = _window("blackman", "0.42 - 0.5 cos x + 0.08 cos 2x.")
cosine = _window("cosine", "Half a period of the sine.")
hann = _window("hann", "(1 - cos x) / 2.")
nuttall = _window("nuttall", "Nuttall's four cosines.")


def hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos x."""
    return _make("general_hamming", M, alpha, sym, dtype, device, requires_grad)


general_hamming = hamming


def exponential(M: int, *, center: Optional[float] = None, tau: float = 1.0, sym: bool = True, dtype: Optional[DType] = None,
                layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """exp(-|n - center| / tau), about the middle."""
    if center is not None:
        if sym:
            raise ValueError("exponential: a symmetric window has its center in the middle; center must be None")
        raise ValueError("exponential: center is not supported; the window is about the middle")
    return _make("exponential", M, tau, sym, dtype, device, requires_grad)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """exp(-((n - middle) / std)^2 / 2)."""
    return _make("gaussian", M, std, sym, dtype, device, requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - t^2)) / I0(beta)."""
    return _make("kaiser", M, beta, sym, dtype, device, requires_grad)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Tensor:
    """a[0] - a[1] cos x + a[2] cos 2x - .."""
    coefficients = as_tensor(list(a), _core.get_default_dtype() if dtype is None else dtype, device)
    made = _ops.general_cosine_window(coefficients, M, sym)
    return made.requires_grad_() if requires_grad else made


def _periodic(name: str, a: float) -> Any:
    def window(window_length: int, periodic: bool = True, *, dtype: Optional[DType] = None, layout: Any = None, device: Any = None,
               pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
        return _make(name, window_length, a, not periodic, dtype, device, requires_grad)

    window.__name__ = window.__qualname__ = f"{name}_window"
    window.__doc__ = f"signal.windows.{name}(), for spectra unless ``periodic`` is False."
    return window


bartlett_window, blackman_window = _periodic("bartlett", 1.0), _periodic("blackman", 1.0)
hann_window = _periodic("hann", 1.0)


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Optional[DType] = None,
                   layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos x, for spectra unless ``periodic`` is False."""
    return general_cosine(window_length, a=[alpha, beta], sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Optional[DType] = None, layout: Any = None,
                  device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """signal.windows.kaiser(), for spectra unless ``periodic`` is False."""
    return _make("kaiser", window_length, beta, not periodic, dtype, device, requires_grad)
