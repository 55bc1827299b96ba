"""Sampling at positions, and what moves channels."""

from __future__ import annotations

from typing import Optional, Sequence

from ... import _ops as ops
from ..._core import Tensor

__all__ = ["affine_grid", "channel_shuffle", "grid_sample"]


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Positions for grid_sample(): ``theta`` [N, 2, 3] (or [N, 3, 4]) maps a result of ``size`` [N, C, H, W] ([N, C, D, H,
    W]) into the input, both from -1 to 1."""
    return ops.affine_grid(theta, list(size), align_corners)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None) -> Tensor:
    """``input`` [N, C, H, W] at the positions ``grid`` [N, H', W', 2], (x, y) from -1 to 1 (or [N, C, D, H, W] at [N, D',
    H', W', 3]): [N, C, H', W']. Modes "bilinear", "nearest" and, in two dimensions, "bicubic"; outside are "zeros", the
    "border" or a "reflection"."""
    return ops.grid_sample(input, grid, mode, padding_mode, bool(align_corners))


channel_shuffle = ops.channel_shuffle
