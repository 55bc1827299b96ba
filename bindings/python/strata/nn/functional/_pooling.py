"""Pooling, resizing, padding."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Union

from ... import _ops as ops
from ..._autocast import in_full
from ..._core import Tensor
from .._parts import Ints, ints
from ._sampling import resize_by_matrices

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "interpolate", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "pad",
    "pixel_shuffle", "pixel_unshuffle", "upsample", "upsample_bilinear", "upsample_nearest",
]


def max_pool1d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window; with ``return_indices`` also where it was."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window; with ``return_indices`` also where it was."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window; with ``return_indices`` also where it was."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _max_pool(n: int, x: Tensor, kernel: Ints, stride: Optional[Ints], padding: Ints, dilation: Ints, ceil_mode: bool,
              return_indices: bool) -> Any:
    k = ints(kernel, n)
    s = k if stride is None else ints(stride, n)
    if return_indices:
        return ops.max_pool(x, k, s, ints(padding, n), ints(dilation, n), ceil_mode)
    pool = (ops.max_pool1d, ops.max_pool2d, ops.max_pool3d)[n - 1]
    return pool(x, k, s, ints(padding, n), ints(dilation, n), ceil_mode)


def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """The mean of each window."""
    return ops.avg_pool1d(input, ints(kernel_size, 1), [] if stride is None else ints(stride, 1), ints(padding, 1),
                          ceil_mode, count_include_pad)


def _avg_pool(n: int, x: Tensor, kernel: Ints, stride: Optional[Ints], padding: Ints, ceil_mode: bool,
              count_include_pad: bool, divisor: Optional[int]) -> Tensor:
    pool = ops.avg_pool2d if n == 2 else ops.avg_pool3d
    return pool(x, ints(kernel, n), [] if stride is None else ints(stride, n), ints(padding, n), ceil_mode,
                count_include_pad, divisor)


def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Optional[int] = None) -> Tensor:
    """The mean of each window, or its sum over ``divisor_override``."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Optional[int] = None) -> Tensor:
    """The mean of each window, or its sum over ``divisor_override``."""
    (input,) = in_full(input)
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(n: int, x: Tensor, p: float, kernel: Ints, stride: Optional[Ints], ceil_mode: bool) -> Tensor:
    k = ints(kernel, n)
    pool = (ops.avg_pool1d, ops.avg_pool2d, ops.avg_pool3d)[n - 1]
    mean = pool(x**p, k, [] if stride is None else ints(stride, n), [0] * n, ceil_mode)
    return (mean * math.prod(k)) ** (1.0 / p)  # as PyTorch: a window at the border counts as a whole one


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(n: int, x: Tensor, indices: Tensor, kernel: Ints, stride: Optional[Ints], padding: Ints,
                output_size: Optional[Sequence[int]]) -> Tensor:
    k, p = ints(kernel, n), ints(padding, n)
    s = k if stride is None else ints(stride, n)
    usual = [(x.shape[i - n] - 1) * s[i] - 2 * p[i] + k[i] for i in range(n)]
    size = usual if output_size is None else [int(v) for v in output_size][-n:]
    if any(abs(a - b) >= step for a, b, step in zip(size, usual, s)):
        raise ValueError(f"max_unpool{n}d: output_size {size} must be within a stride of {usual}")
    return ops.plane_scatter(x, indices, size)


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool1d found them; those with one place are added."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool2d found them; those with one place are added."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool3d found them; those with one place are added."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _output_size(x: Tensor, size: Union[int, Sequence[Optional[int]]], n: int) -> List[int]:
    given = [size] * n if isinstance(size, int) else list(size)
    return [x.shape[i - n] if s is None else s for i, s in enumerate(given)]


def adaptive_avg_pool1d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows chosen so that the result has ``output_size``."""
    return ops.adaptive_avg_pool1d(input, _output_size(input, output_size, 1))


def adaptive_avg_pool2d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows chosen so that the result has ``output_size``; None keeps a dimension."""
    return ops.adaptive_avg_pool2d(input, _output_size(input, output_size, 2))


def adaptive_avg_pool3d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows chosen so that the result has ``output_size``; None keeps a dimension."""
    (input,) = in_full(input)
    return ops.adaptive_avg_pool3d(input, _output_size(input, output_size, 3))


def adaptive_max_pool1d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]],
                        return_indices: bool = False) -> Any:
    """Maxima of windows chosen so that the result has ``output_size``."""
    size = _output_size(input, output_size, 1)
    return ops.adaptive_max_pool(input, size) if return_indices else ops.adaptive_max_pool1d(input, size)


def adaptive_max_pool2d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]],
                        return_indices: bool = False) -> Any:
    """Maxima of windows chosen so that the result has ``output_size``."""
    size = _output_size(input, output_size, 2)
    return ops.adaptive_max_pool(input, size) if return_indices else ops.adaptive_max_pool2d(input, size)


def adaptive_max_pool3d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]],
                        return_indices: bool = False) -> Any:
    """Maxima of windows chosen so that the result has ``output_size``."""
    size = _output_size(input, output_size, 3)
    return ops.adaptive_max_pool(input, size) if return_indices else ops.adaptive_max_pool3d(input, size)


def interpolate(input: Tensor, size: Optional[Ints] = None,
                scale_factor: Optional[Union[float, Sequence[float]]] = None, mode: str = "nearest",
                align_corners: Optional[bool] = None, recompute_scale_factor: Optional[bool] = None,
                antialias: bool = False) -> Tensor:
    """Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W]; modes "nearest", "nearest-exact", "linear", "bilinear",
    "trilinear", "bicubic", "area". ``antialias`` goes with "bilinear" and "bicubic"."""
    n = input.dim() - 2
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    if antialias and not (mode in ("bilinear", "bicubic") and n == 2):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined")
    sizes = None if size is None else ints(size, n)
    scales: List[Optional[float]] = [None] * n
    if sizes is None and scale_factor is not None:
        single = isinstance(scale_factor, (int, float))
        given = [float(scale_factor)] * n if single else [float(v) for v in scale_factor]  # type: ignore
        if len(given) != n:
            raise ValueError(f"scale_factor needs {n} entries, got {given}")
        if mode != "area" and not recompute_scale_factor:
            scales = list(given)
            if len(set(given)) == 1 and not antialias and mode not in ("bicubic", "nearest-exact"):
                return ops.interpolate(input, None, given[0], mode, bool(align_corners))
        sizes = tuple(int(math.floor(v * f)) for v, f in zip(list(input.shape)[2:], given))
    assert sizes is not None
    if mode == "area":
        return ops.adaptive_avg_pool(input, sizes)
    if mode in ("bicubic", "nearest-exact") or antialias:
        if mode == "bicubic" and n != 2:
            raise ValueError(f"mode bicubic wants a 4-D input, got {list(input.shape)}")
        return resize_by_matrices(input, sizes, scales, mode, bool(align_corners), antialias)
    if all(f is None for f in scales):
        return ops.interpolate(input, sizes, None, mode, bool(align_corners))
    for d, f in enumerate(scales):  # a factor for each dimension: one after the other
        rest = input.movedim([2 + d], [-1])
        shape = list(rest.shape)
        step = ops.interpolate(rest.reshape([1, -1, shape[-1]]), None, f, "nearest" if mode == "nearest" else "linear",
                               bool(align_corners))
        input = step.reshape([*shape[:-1], step.shape[-1]]).movedim([-1], [2 + d])
    return input.contiguous()


def upsample_nearest(input: Tensor, size: Optional[Ints] = None, scale_factor: Optional[float] = None) -> Tensor:
    """interpolate() with mode "nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Optional[Ints] = None, scale_factor: Optional[float] = None) -> Tensor:
    """interpolate() with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


upsample = interpolate


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """(before, after) for the last dimension, then the one before it; modes constant, reflect, replicate, circular."""
    return ops.pad(input, list(pad), mode, 0 if value is None else value)


pixel_shuffle, pixel_unshuffle = ops.pixel_shuffle, ops.pixel_unshuffle
