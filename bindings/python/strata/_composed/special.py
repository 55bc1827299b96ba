"""What there are no complex numbers for, statistics, matrices' functions; windows."""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple, Optional, Tuple

from .. import _core, _functions as F, _ops
from .._core import Tensor, dtype as DType

__all__ = [
    "addbmm", "adjoint", "bartlett_window", "blackman_window", "cholesky_inverse", "cholesky_solve", "conj_physical",
    "cumulative_trapezoid", "diagflat", "diagonal_scatter", "hamming_window", "histogram",
    "is_complex", "is_same_size", "is_signed", "kaiser_window", "matrix_exp", "nanmedian", "nanquantile",
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


def nanmedian(input: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False) -> Any:
    """median() of what is not NaN."""
    if dim is None:
        return nanmedian(input.reshape(-1), 0)[0]
    from .statistics import _ValuesIndices

    values, order = _ops.sort(F.where(_ops.isnan(input), math.inf, input), dim)
    count = _ops.logical_not(_ops.isnan(input)).sum([dim], True)
    at = _ops.clamp(_ops.floor_divide(count - 1, 2), 0, None)
    indices = order.gather(dim, at)
    found = input.gather(dim, indices)
    return _ValuesIndices(found, indices) if keepdim else _ValuesIndices(found.squeeze(dim), indices.squeeze(dim))


def nanquantile(input: Tensor, q: Any, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False, *,
                interpolation: str = "linear") -> Tensor:
    """quantile() of what is not NaN, with linear interpolation."""
    if interpolation != "linear":
        raise ValueError(f"nanquantile: interpolation is linear, got {interpolation!r}")
    share = q.to(input.dtype) if isinstance(q, Tensor) else F.tensor(q, dtype=input.dtype, device=input.device)
    x = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    none = _ops.isnan(x)
    ordered = _ops.sort(F.where(none, math.inf, x), -1)[0]
    count = _ops.logical_not(none).sum([-1], True)
    place = _ops.clamp(count - 1, 0, None).to(x.dtype) * share.reshape(-1)
    low, high = _ops.floor(place), _ops.ceil(place)
    a, b = ordered.gather(-1, low.to(_core.int64)), ordered.gather(-1, high.to(_core.int64))
    y: Tensor = F.where(low == high, a, a + (b - a) * (place - low))
    y = F.where(count == 0, math.nan, y)
    y = y.movedim(-1, 0)
    if keepdim:
        y = y.reshape([-1] + [1] * input.dim()) if dim is None else y.unsqueeze(dim % input.dim() + 1)
    return y.squeeze(0) if share.dim() == 0 else y


class _Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


def histogram(input: Tensor, bins: Any, *, range: Optional[Tuple[builtins.float, builtins.float]] = None,
              weight: Optional[Tensor] = None, density: builtins.bool = False) -> _Histogram:
    """How many elements (or how much of ``weight``) fall into ``bins`` equal bins, or between given edges."""
    import numpy as np

    x = input.detach().cpu().to(_core.float64).reshape(-1).numpy()
    edges = bins.cpu().to(_core.float64).numpy() if isinstance(bins, Tensor) else bins
    of = None if weight is None else weight.detach().cpu().to(_core.float64).reshape(-1).numpy()
    hist, found = np.histogram(x, edges, range, density=density, weights=of)
    return _Histogram(F.tensor(hist.astype("float64"), device=input.device).to(input.dtype),
                      F.tensor(found, device=input.device).to(input.dtype))


def cumulative_trapezoid(y: Tensor, x: Optional[Tensor] = None, *, dx: builtins.float = 1.0, dim: builtins.int = -1) -> Tensor:
    """The running integral by the trapezoid rule, one element shorter."""
    n = y.shape[dim]
    height = (y.narrow(dim, 0, n - 1) + y.narrow(dim, 1, n - 1)) * 0.5
    if x is None:
        return _ops.cumsum(height * dx, dim)
    if x.dim() == 1 and y.dim() > 1:
        x = x.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return _ops.cumsum(height * (x.narrow(dim, 1, n - 1) - x.narrow(dim, 0, n - 1)), dim)


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


def diagflat(input: Tensor, offset: builtins.int = 0) -> Tensor:
    """A matrix with all elements on a diagonal."""
    return _ops.diag(input.reshape(-1), offset)


def diagonal_scatter(input: Tensor, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0,
                     dim2: builtins.int = 1) -> Tensor:
    """A copy with ``src`` in place of a diagonal."""
    copy = input.clone()
    copy.diagonal(offset, dim1, dim2).copy_(src)
    return copy


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
