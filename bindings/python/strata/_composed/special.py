"""What there are no complex numbers for, statistics, matrices' functions; windows."""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple, Optional, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = [
    "addbmm", "adjoint", "bartlett_window", "blackman_window", "cholesky_inverse", "cholesky_solve",
    "conj_physical", "hamming_window", "is_complex", "is_same_size", "is_signed", "kaiser_window", "matrix_exp",
    "renorm", "resolve_conj", "resolve_neg", "unravel_index", "vdot",
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


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta input + alpha times the sum of the products of the matrices."""
    product = _ops.bmm(batch1, batch2).sum([0]) * alpha
    found: Tensor = product if beta == 0 else product + input * beta
    return found


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """dot(): there are no complex numbers."""
    return _ops.dot(input, other)


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


def cholesky_solve(B: Tensor, L: Tensor, upper: builtins.bool = False) -> Tensor:
    """The solution of A X = B by A's Cholesky factor."""
    from ..linalg import solve_triangular

    low = L.mT if upper else L
    return solve_triangular(low.mT, solve_triangular(low, B, upper=False), upper=True)


def cholesky_inverse(L: Tensor, upper: builtins.bool = False) -> Tensor:
    """The inverse of A by its Cholesky factor."""
    one = _core.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand(list(L.shape))
    return cholesky_solve(one, L, upper)


def matrix_exp(A: Tensor) -> Tensor:
    """exp of square matrices: 18 terms of the series at a scale at which they are exact, squared up again."""
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise _core.ShapeError(f"matrix_exp: square matrices are wanted, got {list(A.shape)}")
    most = builtins.float(_ops.abs(A.detach()).sum([-1]).max().item()) if A.numel() else 0.0
    halvings = builtins.max(0, math.ceil(math.log2(most))) if most > 0 and math.isfinite(most) else 0
    x = A * 0.5**halvings
    one = _core.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    y: Tensor = one + x / 18
    for k in range(17, 0, -1):
        y = one + (x / k) @ y
    for _ in range(halvings):
        y = y @ y
    return y if A.numel() else A.clone()


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
