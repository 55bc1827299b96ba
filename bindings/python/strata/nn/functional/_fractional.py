"""Pooling with windows at places that are drawn (Graham, arXiv:1412.6071), and the names of what also returns indices."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints
from ._pooling import (
    adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, max_pool1d, max_pool2d, max_pool3d,
)

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices",
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
]

Ratio = Union[float, Sequence[float]]


def _starts(sample: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Where the windows along one dimension begin: [N, C] samples in [0, 1) -> [N, C, out]. The last ends at the border."""
    last = C.full([*sample.shape, 1], size - kernel, dtype=C.int64, device=sample.device)
    if out == 1:
        return last
    step = (size - kernel) / (out - 1)
    at = sample.unsqueeze(2)
    steps = C.arange(out - 1, dtype=sample.dtype, device=sample.device)
    return ops.cat([((steps + at) * step).to(C.int64) - (at * step).to(C.int64), last], 2)


def _fractional(n: int, input: Tensor, kernel_size: Ints, output_size: Optional[Ints], output_ratio: Optional[Ratio],
                samples: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{n}d"
    if input.dim() == n + 1:
        y, at = _fractional(n, input.unsqueeze(0), kernel_size, output_size, output_ratio, samples)
        return y.squeeze(0), at.squeeze(0)
    if input.dim() != n + 2:
        raise ValueError(f"{name}: an input of {n + 1} or {n + 2} dimensions is wanted, got {list(input.shape)}")
    batch, channels, spatial = input.shape[0], input.shape[1], list(input.shape)[2:]
    kernel = ints(kernel_size, n)
    if output_size is not None:
        sizes: Sequence[int] = ints(output_size, n)
    elif output_ratio is not None:
        ratios = [output_ratio] * n if isinstance(output_ratio, (int, float)) else list(output_ratio)
        sizes = [int(size * ratio) for size, ratio in zip(spatial, ratios)]
    else:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    for size, out, k in zip(spatial, sizes, kernel):
        if out < 1 or k < 1 or out + k - 1 > size:
            raise ValueError(f"{name}: windows of {list(kernel)} do not give {list(sizes)} from {spatial}")
    if samples is None:
        samples = C.rand([batch, channels, n], dtype=C.float64 if input.dtype == C.float64 else C.float32, device=input.device)
    elif list(samples.shape) != [batch, channels, n]:
        raise ValueError(f"{name}: samples are [{batch}, {channels}, {n}], got {list(samples.shape)}")
    index: Any = 0  # of every element of every window: [N, C, out .., kernel ..]
    for d, (size, out, k) in enumerate(zip(spatial, sizes, kernel)):
        drawn = samples.select(2, n - 1 - d if n == 2 else d)  # PyTorch's order: width and height, but depth first
        rows = _starts(drawn, size, out, k).unsqueeze(3) + C.arange(k, device=input.device)
        shape = [batch, channels] + [1] * (2 * n)
        shape[2 + d], shape[2 + n + d] = out, k
        index = index * size + rows.reshape(shape)
    windows = index.reshape([batch, channels, *sizes, -1])
    flat = input.reshape([batch, channels, -1])
    values = flat.gather(2, windows.reshape([batch, channels, -1])).reshape(list(windows.shape))
    which = values.detach().argmax(-1, True)
    return values.gather(-1, which).squeeze(-1), windows.gather(-1, which).squeeze(-1)


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Ints, output_size: Optional[Ints] = None, output_ratio: Optional[Ratio] = None,
    return_indices: bool = False, _random_samples: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """fractional_max_pool2d() and where the elements were in the plane."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor, kernel_size: Ints, output_size: Optional[Ints] = None, output_ratio: Optional[Ratio] = None,
    return_indices: bool = False, _random_samples: Optional[Tensor] = None,
) -> Any:
    """The largest elements of windows that begin at random steps, so that the result has ``output_size``, or
    ``output_ratio`` of the input's; with ``return_indices`` also where they were."""
    found = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Ints, output_size: Optional[Ints] = None, output_ratio: Optional[Ratio] = None,
    return_indices: bool = False, _random_samples: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """fractional_max_pool3d() and where the elements were in the volume."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Ints, output_size: Optional[Ints] = None, output_ratio: Optional[Ratio] = None,
    return_indices: bool = False, _random_samples: Optional[Tensor] = None,
) -> Any:
    """fractional_max_pool2d() of volumes."""
    found = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def _with_indices(pool: Any) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        kwargs["return_indices"] = True
        return pool(*args, **kwargs)

    function.__name__ = function.__qualname__ = pool.__name__ + "_with_indices"
    function.__doc__ = f"{pool.__name__}(..., return_indices=True)."
    return function


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    _with_indices(pool) for pool in (max_pool1d, max_pool2d, max_pool3d))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _with_indices(pool) for pool in (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))
