"""Resizing, and reading images between their elements."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints
from ._pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

__all__ = ["affine_grid", "grid_sample", "interpolate", "upsample"]

Factors = Union[None, float, Sequence[float]]


def _positions(size: int, out: int, scale: Optional[float], align: bool, like: Tensor) -> Tensor:
    """Where the outputs lie in the input."""
    at = C.arange(out, dtype=C.float64, device=like.device)
    if align:
        return at * ((size - 1) / (out - 1)) if out > 1 else at * 0
    return (at + 0.5) * (size / out if scale is None else 1 / scale) - 0.5


def _resize_axis(x: Tensor, dim: int, out: int, scale: Optional[float], mode: str, align: bool) -> Tensor:
    """One dimension resized: a sum of input slices with weights."""
    size = x.shape[dim]
    if mode in ("nearest", "nearest-exact"):
        at = C.arange(out, dtype=C.float64, device=x.device) + (0.5 if mode == "nearest-exact" else 0.0)
        at = at * (size / out if scale is None else 1 / scale)
        return ops.index_select(x, dim, ops.floor(at).clamp(0, size - 1).to(C.int64))
    at = _positions(size, out, scale, align, x)
    if mode == "linear":
        at = at.clamp(0, None)
    low = ops.floor(at)
    t = at - low
    if mode == "linear":
        taps = [(0, 1 - t), (1, t)]
    else:  # Keys' cubic convolution with a = -0.75
        a = -0.75

        def near(v: Tensor) -> Tensor:
            return ((a + 2) * v - (a + 3)) * v * v + 1

        def far(v: Tensor) -> Tensor:
            return ((a * v - 5 * a) * v + 8 * a) * v - 4 * a

        taps = [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]
    shape = [1] * x.dim()
    shape[dim] = out
    total: Optional[Tensor] = None
    for shift, weight in taps:
        y = ops.index_select(x, dim, (low + shift).clamp(0, size - 1).to(C.int64)) * weight.to(x.dtype).reshape(shape)
        total = y if total is None else total + y
    assert total is not None
    return total


def interpolate(input: Tensor, size: Optional[Ints] = None, scale_factor: Factors = None, mode: str = "nearest",
                align_corners: Optional[bool] = None, recompute_scale_factor: Optional[bool] = None,
                antialias: bool = False) -> Tensor:
    """Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W]; modes "nearest", "nearest-exact", "area", and "linear", "bilinear",
    "bicubic" or "trilinear" by the number of dimensions."""
    n = input.dim() - 2
    if antialias:
        raise ValueError("interpolate: antialias is not supported; mode 'area' averages what it shrinks")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: exactly one of size and scale_factor is wanted")
    factors: List[Optional[float]] = [None] * n
    if scale_factor is not None:
        given = [scale_factor] * n if isinstance(scale_factor, (int, float)) else list(scale_factor)
        factors = [float(f) for f in given]
    sizes = list(ints(size, n)) if size is not None else [int(s * f) for s, f in zip(list(input.shape)[2:], factors) if f]
    if len(sizes) != n:
        raise ValueError(f"interpolate: {n} sizes or factors are wanted for {list(input.shape)}")
    simple = mode == "nearest" or mode == ("linear", "bilinear", "")[n - 1]
    if n <= 2 and simple and (size is not None or recompute_scale_factor or len(set(factors)) == 1):
        factor = None if size is not None or recompute_scale_factor else factors[0]
        return ops.interpolate(input, sizes if factor is None else None, factor, mode, bool(align_corners))
    if mode == "area":
        pools: Any = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        y: Tensor = pools[n - 1](input, sizes)
        return y
    if mode not in ("nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[n - 1]) and not (mode == "bicubic" and n == 2):
        raise ValueError(f"interpolate: mode {mode!r} does not fit an input of {input.dim()} dimensions")
    kind = mode if mode.startswith("nearest") else "cubic" if mode == "bicubic" else "linear"
    x = input
    for i in range(n):
        x = _resize_axis(x, i + 2, sizes[i], None if recompute_scale_factor else factors[i], kind, bool(align_corners))
    return x


upsample = interpolate


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Where the elements of an image [N, C, H, W] are to be read after the maps theta [N, 2, 3], in [-1, 1]: [N, H, W, 2]."""
    if len(size) != 4 or theta.dim() != 3:
        raise ValueError(f"affine_grid: maps [N, 2, 3] and an image [N, C, H, W] are wanted, got {list(theta.shape)} and "
                         f"{list(size)}")

    def axis(n: int) -> Tensor:
        at = C.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else C.zeros(1, dtype=theta.dtype,
                                                                                             device=theta.device)
        return at if align_corners else at * ((n - 1) / n)

    h, w = size[2], size[3]
    x, y = axis(w).expand([h, w]), axis(h).unsqueeze(1).expand([h, w])
    base = ops.stack([x, y, C.ones([h, w], dtype=theta.dtype, device=theta.device)], -1).reshape([1, h * w, 3])
    return ops.matmul(base.expand([theta.shape[0], h * w, 3]), theta.transpose(1, 2)).reshape([theta.shape[0], h, w, 2])


def _reflected(at: Tensor, low: float, high: float) -> Tensor:
    """Coordinates mirrored into [low, high]."""
    span = high - low
    if span <= 0:
        return at * 0
    away = ops.abs(at - low)
    turns = ops.floor(away / span).detach()
    rest = away - turns * span
    even = (turns % 2) == 0
    return ops.where(even, rest + low, high - rest)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None) -> Tensor:
    """Images [N, C, H, W] read at the places of ``grid`` [N, H', W', 2], (x, y) in [-1, 1]; mode "bilinear" or "nearest",
    padding_mode "zeros", "border" or "reflection"."""
    if input.dim() != 4 or grid.dim() != 4 or grid.shape[-1] != 2:
        raise ValueError(f"grid_sample: an image [N, C, H, W] and a grid [N, H', W', 2] are wanted, got {list(input.shape)} "
                         f"and {list(grid.shape)}")
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: mode bilinear or nearest, padding_mode zeros, border or reflection are wanted, got "
                         f"{mode!r} and {padding_mode!r}")
    n, c, h, w = input.shape
    out_h, out_w = grid.shape[1], grid.shape[2]

    def place(at: Tensor, size: int) -> Tensor:
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        if padding_mode == "reflection":
            at = _reflected(at, 0, size - 1) if align_corners else _reflected(at, -0.5, size - 0.5)
        return at if padding_mode == "zeros" else at.clamp(0, size - 1)

    x, y = place(grid.select(-1, 0), w), place(grid.select(-1, 1), h)
    flat = input.reshape([n, c, h * w])

    def read(column: Tensor, row: Tensor) -> Tensor:
        inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
        where = (row.clamp(0, h - 1) * w + column.clamp(0, w - 1)).to(C.int64).reshape([n, 1, out_h * out_w])
        found = flat.gather(2, where.expand([n, c, out_h * out_w])).reshape([n, c, out_h, out_w])
        return found * inside.to(input.dtype).unsqueeze(1)

    if mode == "nearest":
        return read(ops.round(x).detach(), ops.round(y).detach())
    left, top = ops.floor(x).detach(), ops.floor(y).detach()
    right_share, bottom_share = (x - left).unsqueeze(1), (y - top).unsqueeze(1)
    parts: List[Tuple[Tensor, Tensor]] = [
        (read(left, top), (1 - right_share) * (1 - bottom_share)), (read(left + 1, top), right_share * (1 - bottom_share)),
        (read(left, top + 1), (1 - right_share) * bottom_share), (read(left + 1, top + 1), right_share * bottom_share),
    ]
    total = parts[0][0] * parts[0][1]
    for value, weight in parts[1:]:
        total = total + value * weight
    return total
