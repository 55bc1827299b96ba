"""Pooling, padding, shuffling."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "channel_shuffle", "lp_pool1d", "lp_pool2d", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "pad", "pixel_shuffle", "pixel_unshuffle",
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


def _split_pool(pool1d: Any, pool2d: Any, x: Tensor, *options: Any) -> Tensor:
    """A pool over [N, C, D, H, W]: ``options`` are tuples of three; each pool gets its dimensions' part of them."""
    unbatched = x.dim() == 4
    x = x.unsqueeze(0) if unbatched else x
    n, c, d, h, w = x.shape
    y: Tensor = pool2d(x.reshape(n, c * d, h, w), *(o[1:] for o in options))
    h, w = y.shape[2], y.shape[3]
    y = y.reshape(n, c, d, h, w).permute(0, 1, 3, 4, 2).reshape(n, c * h * w, d)
    y = pool1d(y, *(o[:1] for o in options))
    y = y.reshape(n, c, h, w, y.shape[2]).permute(0, 1, 4, 2, 3)
    return y.squeeze(0) if unbatched else y


def max_pool3d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    """The largest element of each window of [N, C, D, H, W]; indices are not given."""
    if return_indices:
        raise ValueError("max_pool3d: return_indices is not supported in three dimensions")
    k = ints(kernel_size, 3)

    def pool(op: Any) -> Any:
        return lambda x, k, s, p, d: op(x, k, s, p, d, ceil_mode)

    return _split_pool(pool(ops.max_pool1d), pool(ops.max_pool2d), input, k, k if stride is None else ints(stride, 3),
                       ints(padding, 3), ints(dilation, 3))


def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of [N, C, D, H, W]."""
    k = ints(kernel_size, 3)

    def pool(op: Any) -> Any:
        return lambda x, k, s, p: op(x, k, s, p, ceil_mode, count_include_pad)

    return _split_pool(pool(ops.avg_pool1d), pool(ops.avg_pool2d), input, k, k if stride is None else ints(stride, 3),
                       ints(padding, 3))


def adaptive_avg_pool3d(input: Tensor, output_size: Union[int, Sequence[Optional[int]]]) -> Tensor:
    """Means of windows of [N, C, D, H, W] chosen so that the result has ``output_size``; None keeps a dimension."""
    return _split_pool(ops.adaptive_avg_pool1d, ops.adaptive_avg_pool2d, input, tuple(_output_size(input, output_size, 3)))


def _lp_pool(n: int, x: Tensor, p: float, kernel_size: Ints, stride: Optional[Ints], ceil_mode: bool) -> Tensor:
    k = ints(kernel_size, n)
    means = (avg_pool1d if n == 1 else avg_pool2d)(x**p, k, stride, 0, ceil_mode)
    total = means
    for size in k:
        total = total * size
    return ops.sign(total) * ops.relu(ops.abs(total)) ** (1.0 / p)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum x^p)^(1/p) of each window."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None,
              ceil_mode: bool = False) -> Tensor:
    """(sum x^p)^(1/p) of each window."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(x: Tensor, indices: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                output_size: Optional[Sequence[int]]) -> Tensor:
    n = len(kernel)
    lead, size = list(x.shape)[:-n], list(x.shape)[-n:]
    wanted = [(s - 1) * st - 2 * p + k for s, st, p, k in zip(size, stride, padding, kernel)]
    if output_size is not None:
        wanted = list(output_size)[-n:]
    total = 1
    for s in wanted:
        total *= s
    flat = ops.scatter(C.zeros([*lead, total], dtype=x.dtype, device=x.device), -1, indices.flatten(-n), x.flatten(-n))
    return flat.reshape([*lead, *wanted])


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Elements back to where max_pool1d() took them from; zeros elsewhere."""
    k = ints(kernel_size, 1)
    return _max_unpool(input, indices, k, k if stride is None else ints(stride, 1), ints(padding, 1), output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
                 output_size: Optional[Sequence[int]] = None) -> Tensor:
    """Elements back to where max_pool2d() took them from; zeros elsewhere."""
    k = ints(kernel_size, 2)
    return _max_unpool(input, indices, k, k if stride is None else ints(stride, 2), ints(padding, 2), output_size)


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


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """(before, after) for the last dimension, then the one before it; modes constant, reflect, replicate, circular."""
    return ops.pad(input, list(pad), mode, 0 if value is None else value)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels [g C/g] as [C/g g]."""
    n, c, *rest = list(input.shape)
    return input.reshape([n, groups, c // groups, *rest]).transpose(1, 2).reshape([n, c, *rest])


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
