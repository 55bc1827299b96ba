"""Pooling, resizing, padding."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "interpolate", "max_pool1d", "max_pool2d", "pad", "pixel_shuffle", "pixel_unshuffle", "upsample",
]


def max_pool1d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window; with ``return_indices`` also where it was."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window; with ``return_indices`` also where it was."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _max_pool(n: int, x: Tensor, kernel: Ints, stride: Optional[Ints], padding: Ints, dilation: Ints, ceil_mode: bool,
              return_indices: bool) -> Any:
    k = ints(kernel, n)
    s = k if stride is None else ints(stride, n)
    if return_indices:
        return ops.max_pool(x, k, s, ints(padding, n), ints(dilation, n), ceil_mode)
    pool = ops.max_pool1d if n == 1 else ops.max_pool2d
    return pool(x, k, s, ints(padding, n), ints(dilation, n), ceil_mode)


def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """The mean of each window."""
    return ops.avg_pool1d(input, ints(kernel_size, 1), [] if stride is None else ints(stride, 1), ints(padding, 1),
                          ceil_mode, count_include_pad)


def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """The mean of each window."""
    return ops.avg_pool2d(input, ints(kernel_size, 2), [] if stride is None else ints(stride, 2), ints(padding, 2),
                          ceil_mode, count_include_pad)


def _output_size(x: Tensor, size: Union[int, Sequence[Optional[int]]], n: int) -> List[int]:
    given = [size] * n if isinstance(size, int) else list(size)
    return [x.shape[i - n] if s is None else s for i, s in enumerate(given)]


def adaptive_avg_pool1d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows chosen so that the result has ``output_size``."""
    return ops.adaptive_avg_pool1d(input, _output_size(input, output_size, 1))


def adaptive_avg_pool2d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows chosen so that the result has ``output_size``; None keeps a dimension."""
    return ops.adaptive_avg_pool2d(input, _output_size(input, output_size, 2))


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


def interpolate(input: Tensor, size: Optional[Ints] = None, scale_factor: Optional[float] = None, mode: str = "nearest",
                align_corners: Optional[bool] = None) -> Tensor:
    """Resizes [N, C, L] or [N, C, H, W]; modes "nearest", "linear", "bilinear"."""
    sizes = None if size is None else ints(size, input.dim() - 2)
    return ops.interpolate(input, sizes, scale_factor, mode, bool(align_corners))


upsample = interpolate


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """(before, after) for the last dimension, then the one before it; modes constant, reflect, replicate, circular."""
    return ops.pad(input, list(pad), mode, 0 if value is None else value)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[.., C r^2, H, W] -> [.., C, H r, W r]."""
    r = upscale_factor
    *lead, c, h, w = list(input.shape)
    x = input.reshape([-1, c // (r * r), r, r, h, w]).permute([0, 1, 4, 2, 5, 3])
    return x.reshape([*lead, c // (r * r), h * r, w * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of pixel_shuffle()."""
    r = downscale_factor
    *lead, c, h, w = list(input.shape)
    x = input.reshape([-1, c, h // r, r, w // r, r]).permute([0, 1, 3, 5, 2, 4])
    return x.reshape([*lead, c * r * r, h // r, w // r])
