"""Resizing by matrices, sampling at positions, and what moves channels."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, List, Optional, Sequence, Tuple

from ... import _core as C
from ... import _ops as ops
from ..._autocast import in_full
from ..._core import Tensor

__all__ = ["affine_grid", "channel_shuffle", "grid_sample"]


# ---- resizing: what _pooling.interpolate asks for beside the record's modes


def _cubic(x: float, a: float) -> float:
    x = abs(x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _taps(i: int, size: int, step: float, mode: str, align_corners: bool, antialias: bool) -> List[Tuple[int, float]]:
    """Inputs and weights of output i."""
    if mode == "nearest-exact":
        return [(min(int(math.floor((i + 0.5) * step)), size - 1), 1.0)]
    if antialias:
        # As PyTorch (and Pillow): the kernel is as wide as the step, cut at the border, its weights add up to 1.
        wide = max(step, 1.0)
        reach = (2.0 if mode == "bicubic" else 1.0) * wide
        center = step * (i + 0.5)
        first, last = max(int(center - reach + 0.5), 0), min(int(center + reach + 0.5), size)
        weights = [
            _cubic((j - center + 0.5) / wide, -0.5) if mode == "bicubic" else max(0.0, 1 - abs((j - center + 0.5) / wide))
            for j in range(first, last)
        ]
        total = sum(weights)
        return [(first + j, w / total) for j, w in enumerate(weights)]
    at = i * step if align_corners else (i + 0.5) * step - 0.5
    low = math.floor(at)
    return [(min(max(low + j, 0), size - 1), _cubic(at - low - j, -0.75)) for j in range(-1, 3)]


@functools.lru_cache(maxsize=64)
def _resize_matrix(size: int, out: int, scale: Optional[float], mode: str, align_corners: bool,
                   antialias: bool) -> Tensor:
    if align_corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale is not None else size / out
    rows = [[0.0] * size for _ in range(out)]
    for i in range(out):
        for j, weight in _taps(i, size, step, mode, align_corners, antialias):
            rows[i][j] += weight
    return C._tensor(rows, C.float64, None)


def resize_by_matrices(x: Tensor, sizes: Sequence[int], scales: Sequence[Optional[float]], mode: str,
                       align_corners: bool, antialias: bool) -> Tensor:
    """The last dimensions of x, one after the other, each times a matrix."""
    for d, (out, scale) in enumerate(zip(sizes, scales)):
        dim = x.dim() - len(sizes) + d
        m = _resize_matrix(x.shape[dim], out, scale, mode, align_corners, antialias).to(x.dtype).to(x.device)
        x = x.movedim([dim], [-1]).matmul(m.transpose(0, 1)).movedim([-1], [dim])
    return x.contiguous()


# ---- sampling


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Positions for grid_sample(): ``theta`` [N, 2, 3] (or [N, 3, 4]) maps a result of ``size`` [N, C, H, W] ([N, C, D, H,
    W]) into the input, both from -1 to 1."""
    spatial = [int(v) for v in size][2:]
    n = len(spatial)
    if n not in (2, 3) or list(theta.shape) != [size[0], n, n + 1]:
        raise ValueError(f"affine_grid: theta of {list(theta.shape)} does not belong to a size of {list(size)}")
    axes = []
    for v in reversed(spatial):
        line = C.linspace(-1, 1, v, dtype=theta.dtype, device=theta.device) if v > 1 else C.zeros([v], dtype=theta.dtype,
                                                                                                 device=theta.device)
        axes.append(line if align_corners else line * ((v - 1) / v))
    places = [a.reshape([-1 if d == n - 1 - i else 1 for d in range(n)]).expand(spatial) for i, a in enumerate(axes)]
    ones = C.ones(spatial, dtype=theta.dtype, device=theta.device)
    base = ops.stack([*places, ones], n).reshape([-1, n + 1])
    return base.matmul(theta.transpose(1, 2)).reshape([size[0], *spatial, n])


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """x folded into [low, high]."""
    span = high - low
    if span <= 0:
        return x * 0
    x = (x - low).abs()
    rest = ops.fmod(x, span)
    return ops.where(ops.remainder(ops.floor(x / span), 2.0) == 0, rest, span - rest) + low


def _cubic_shares(t: Tensor) -> List[Tensor]:
    """Weights of the four neighbours of a position that lies ``t`` behind the second (Keys 1981, a = -0.75)."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _inside(place: Tensor, size: int, padding_mode: str, align_corners: Optional[bool]) -> Tensor:
    """The place moved into the input, unless what is outside are zeros."""
    if padding_mode == "reflection":
        place = _reflected(place, 0.0, size - 1.0) if align_corners else _reflected(place, -0.5, size - 0.5)
    return place if padding_mode == "zeros" else ops.clamp(place, 0, size - 1)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None) -> Tensor:
    """``input`` [N, C, H, W] at the positions ``grid`` [N, H', W', 2], (x, y) from -1 to 1 (or [N, C, D, H, W] at [N, D',
    H', W', 3]): [N, C, H', W']. Modes "bilinear", "nearest" and, in two dimensions, "bicubic"; outside are "zeros", the
    "border" or a "reflection"."""
    n = input.dim() - 2
    if n not in (2, 3) or grid.dim() != n + 2 or grid.shape[-1] != n or grid.shape[0] != input.shape[0]:
        raise ValueError(f"grid_sample: a grid of {list(grid.shape)} does not belong to an input of {list(input.shape)}")
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample: mode must be bilinear, nearest or bicubic, got {mode!r}")
    if mode == "bicubic" and n != 2:
        raise ValueError("grid_sample: bicubic interpolation is for inputs of four dimensions")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: padding_mode must be zeros, border or reflection, got {padding_mode!r}")
    input, grid = in_full(input, grid)
    batch, channels, spatial = input.shape[0], input.shape[1], list(input.shape)[2:]
    taps: List[List[Tuple[Tensor, Optional[Tensor]]]] = []  # of each dimension: positions and weights
    for d, size in enumerate(spatial):
        at = grid.select(-1, n - 1 - d)
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        if mode == "bicubic":  # the neighbours are moved inside, not the position
            low = ops.floor(at).detach()
            shares = _cubic_shares(at - low)
            taps.append([(_inside(low + (k - 1), size, padding_mode, align_corners), s) for k, s in enumerate(shares)])
            continue
        at = _inside(at, size, padding_mode, align_corners)
        if mode == "nearest":
            taps.append([(ops.round(at).detach(), None)])
        else:
            low = ops.floor(at).detach()
            taps.append([(low, low + 1 - at), (low + 1, at - low)])
    flat = input.reshape([batch, channels, -1])
    total: Any = None
    for choice in itertools.product(*taps):
        index: Any = 0
        weight: Any = None
        inside: Any = None
        for (place, share), size in zip(choice, spatial):
            within = (place >= 0) & (place <= size - 1)
            inside = within if inside is None else inside & within
            if share is not None:
                weight = share if weight is None else weight * share
            index = index * size + ops.clamp(place, 0, size - 1).to(C.int64)
        factor = inside.to(input.dtype) if weight is None else ops.where(inside, weight, 0)
        positions = index.reshape([batch, 1, -1]).expand([batch, channels, index.numel() // batch])
        part = ops.gather(flat, 2, positions) * factor.reshape([batch, 1, -1])
        total = part if total is None else total + part
    y: Tensor = total.reshape([batch, channels, *list(grid.shape)[1:-1]])
    return y


channel_shuffle = ops.channel_shuffle
