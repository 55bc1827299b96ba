"""What there are no complex numbers for, statistics, matrices' functions; windows."""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple, Optional, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = [
    "adjoint", "bartlett_window", "blackman_window", "conj_physical", "hamming_window", "is_complex",
    "is_same_size", "is_signed", "kaiser_window", "renorm", "resolve_conj", "resolve_neg", "unravel_index",
]


def conj_physical(input: Tensor) -> Tensor:
    """The tensor itself: there are no complex ones."""
    return input


resolve_conj = resolve_neg = conj_physical


def is_complex(input: Tensor) -> builtins.bool:
    """False: there are no complex tensors."""
    return False


def is_signed(input: Tensor) -> builtins.bool:
    """Whether its dtype has negative numbers."""
    return input.dtype.is_signed


def is_same_size(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether both have one shape."""
    return input.shape == other.shape


# ---- statistics


class _Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


# ---- matrices


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return input.mT


def renorm(input: Tensor, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
    """The slices of ``dim`` scaled down to a p-norm of at most ``maxnorm``."""
    norms = _ops.norm(input, builtins.float(p), [d for d in range(input.dim()) if d != dim % input.dim()], True)
    found: Tensor = input * F.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    return found


def unravel_index(indices: Tensor, shape: Any) -> Tuple[Tensor, ...]:
    """Indices into a flat tensor as indices into one of ``shape``."""
    sizes = [shape] if isinstance(shape, builtins.int) else [builtins.int(v) for v in shape]
    found = []
    for size in reversed(sizes):
        found.append(_ops.remainder(indices, F.tensor(size, device=indices.device)))
        indices = _ops.floor_divide(indices, F.tensor(size, device=indices.device))
    return tuple(reversed(found))


# ---- windows


def _window(length: builtins.int, periodic: builtins.bool, dtype: Optional[DType], device: Any) -> Tuple[Tensor, DType, Any]:
    kind = dtype or _core.get_default_dtype()
    n = 0 if length == 1 else length if periodic else length - 1
    return _core.arange(length, dtype=_core.float64, device=device) / builtins.max(n, 1), kind, n


def bartlett_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                    device: Any = None) -> Tensor:
    """A triangle from 0 to 1 to 0."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    return (1 - _ops.abs(2 * at - 1)).to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def hamming_window(window_length: builtins.int, periodic: builtins.bool = True, alpha: builtins.float = 0.54,
                   beta: builtins.float = 0.46, *, dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """alpha - beta cos over a period."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    y = alpha - beta * _ops.cos(2 * math.pi * at)
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def blackman_window(window_length: builtins.int, periodic: builtins.bool = True, *, dtype: Optional[DType] = None,
                    device: Any = None) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle, over a period."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    y = 0.42 - 0.5 * _ops.cos(2 * math.pi * at) + 0.08 * _ops.cos(4 * math.pi * at)
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)


def kaiser_window(window_length: builtins.int, periodic: builtins.bool = True, beta: builtins.float = 12.0, *,
                  dtype: Optional[DType] = None, device: Any = None) -> Tensor:
    """I0(beta sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    at, kind, n = _window(window_length, periodic, dtype, device)
    t = 2 * at - 1
    inside = _ops.sqrt(_ops.clamp(1 - t * t, 0, None))
    y = _ops.i0(inside * beta) / _ops.i0(F.tensor(builtins.float(beta), dtype=_core.float64, device=device))
    return y.to(kind) if n else _core.ones(window_length, dtype=kind, device=device)
