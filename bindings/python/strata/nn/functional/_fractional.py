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


def _fractional(n: int, input: Tensor, kernel_size: Ints, output_size: Optional[Ints], output_ratio: Optional[Ratio],
                samples: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    if input.dim() not in (n + 1, n + 2):
        raise ValueError(f"fractional_max_pool{n}d: an input of {n + 1} or {n + 2} dimensions is wanted, got {list(input.shape)}")
    if output_size is None and output_ratio is None:
        raise ValueError(f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio")
    if samples is None:
        samples = C.rand([input.shape[0] if input.dim() == n + 2 else 1, input.shape[-n - 1], n],
                         dtype=C.float64 if input.dtype == C.float64 else C.float32, device=input.device)
    if output_size is not None:
        return ops.fractional_max_pool(input, samples, ints(kernel_size, n), ints(output_size, n))
    ratios = [output_ratio] if isinstance(output_ratio, (int, float)) else list(output_ratio or [])
    return ops.fractional_max_pool(input, samples, ints(kernel_size, n), None, *ratios)


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
