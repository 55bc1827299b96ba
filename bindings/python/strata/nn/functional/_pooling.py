"""Pooling, resizing, padding."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints

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
    return ops.avg_pool1d(input, ints(kernel_size, 1), _stride(stride, 1), ints(padding, 1),
                          ceil_mode, count_include_pad)


def _avg_pool(n: int, x: Tensor, kernel: Ints, stride: Optional[Ints], padding: Ints, ceil_mode: bool,
              count_include_pad: bool, divisor: Optional[int]) -> Tensor:
    pool = ops.avg_pool2d if n == 2 else ops.avg_pool3d
    return pool(x, ints(kernel, n), _stride(stride, n), ints(padding, n), ceil_mode,
                count_include_pad, divisor)


def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Optional[int] = None) -> Tensor:
    """The mean of each window, or its sum over ``divisor_override``."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Optional[int] = None) -> Tensor:
    """The mean of each window, or its sum over ``divisor_override``."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _stride(stride: Optional[Ints], n: int) -> Sequence[int]:
    return [] if stride is None else ints(stride, n)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return ops.lp_pool1d(input, norm_type, ints(kernel_size, 1), _stride(stride, 1), ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return ops.lp_pool2d(input, norm_type, ints(kernel_size, 2), _stride(stride, 2), ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1/p) of each window, p being ``norm_type``."""
    return ops.lp_pool3d(input, norm_type, ints(kernel_size, 3), _stride(stride, 3), ceil_mode)


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool1d found them; those with one place are added."""
    return ops.max_unpool1d(input, indices, ints(kernel_size, 1), _stride(stride, 1), ints(padding, 1),
                             output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool2d found them; those with one place are added."""
    return ops.max_unpool2d(input, indices, ints(kernel_size, 2), _stride(stride, 2), ints(padding, 2),
                             output_size)


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Zeros with the elements where max_pool3d found them; those with one place are added."""
    return ops.max_unpool3d(input, indices, ints(kernel_size, 3), _stride(stride, 3), ints(padding, 3),
                             output_size)


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
    factors = [scale_factor] if scale_factor is None or isinstance(scale_factor, (int, float)) else list(scale_factor)
    if len(factors) not in (1, n) or isinstance(scale_factor, (list, tuple)) and len(factors) != n:
        raise ValueError(f"scale_factor needs {n} entries, got {factors}")
    first, second, third = (*factors, None, None)[:3]
    return ops.interpolate(input, None if size is None else ints(size, n), first, mode, bool(align_corners),
                           bool(recompute_scale_factor), antialias, second, third)


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
