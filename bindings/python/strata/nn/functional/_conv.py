"""Convolutions."""

from __future__ import annotations

from typing import Any, Optional, Union

from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold",
]


def _conv(op: Any, x: Tensor, w: Tensor, b: Optional[Tensor], stride: Ints, padding: Union[str, Ints], dilation: Ints,
          groups: int) -> Tensor:
    n = w.dim() - 2
    strides, dilations = ints(stride, n), ints(dilation, n)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ValueError("padding='same' is not supported for strided convolutions")
        return ops.conv_same(x, w, b, dilations, groups)
    if isinstance(padding, str) and padding != "valid":
        raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
    y: Tensor = op(x, w, b, strides, 0 if isinstance(padding, str) else ints(padding, n), dilations, groups)
    return y


def conv1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1,
           padding: Union[str, Ints] = 0, dilation: Ints = 1, groups: int = 1) -> Tensor:
    """[N, C, L] -> [N, out, L']; ``padding`` may be "same" or "valid"."""
    return _conv(ops.conv1d, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1,
           padding: Union[str, Ints] = 0, dilation: Ints = 1, groups: int = 1) -> Tensor:
    """[N, C, H, W] -> [N, out, H', W']."""
    return _conv(ops.conv2d, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1,
           padding: Union[str, Ints] = 0, dilation: Ints = 1, groups: int = 1) -> Tensor:
    """[N, C, D, H, W] -> [N, out, D', H', W']."""
    return _conv(ops.conv3d, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """The gradient of conv1d for its input, as a function."""
    return ops.conv_transpose1d(input, weight, bias, ints(stride, 1), ints(padding, 1), ints(output_padding, 1),
                                groups, ints(dilation, 1))


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """The gradient of conv2d for its input, as a function."""
    return ops.conv_transpose2d(input, weight, bias, ints(stride, 2), ints(padding, 2), ints(output_padding, 2),
                                groups, ints(dilation, 2))


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """The gradient of conv3d for its input, as a function."""
    return ops.conv_transpose3d(input, weight, bias, ints(stride, 3), ints(padding, 3), ints(output_padding, 3),
                                groups, ints(dilation, 3))


def unfold(input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Tensor:
    """Windows of [N, C, H, W] as columns: [N, C kh kw, windows]."""
    return ops.im2col(input, *(ints(v, 2) for v in (kernel_size, dilation, padding, stride)))


def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
         stride: Ints = 1) -> Tensor:
    """Adds up the columns [N, C kh kw, windows] of unfold() where they came from: [N, C, *output_size]."""
    return ops.col2im(input, *(ints(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)))
