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
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (ints(v, 2) for v in (kernel_size, dilation, padding, stride))
    if input.dim() == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    x = ops.pad(input, [pw, pw, ph, ph]) if ph or pw else input
    x = x.unfold(2, dh * (kh - 1) + 1, sh).unfold(3, dw * (kw - 1) + 1, sw)[..., ::dh, ::dw]
    n, c, oh, ow = list(x.shape)[:4]
    return x.permute([0, 1, 4, 5, 2, 3]).reshape([n, c * kh * kw, oh * ow])


def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
         stride: Ints = 1) -> Tensor:
    """Adds up the columns [N, C kh kw, windows] of unfold() where they came from: [N, C, *output_size]."""
    if input.dim() == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    (h, w), (kh, kw), (dh, dw) = ints(output_size, 2), ints(kernel_size, 2), ints(dilation, 2)
    (ph, pw), (sh, sw) = ints(padding, 2), ints(stride, 2)
    eh, ew, h, w = dh * (kh - 1) + 1, dw * (kw - 1) + 1, h + 2 * ph, w + 2 * pw
    oh, ow = (h - eh) // sh + 1, (w - ew) // sw + 1
    n, c = input.shape[0], input.shape[1] // (kh * kw)
    if c * kh * kw != input.shape[1] or input.shape[2] != oh * ow:
        raise ValueError(f"fold: {list(input.shape)} does not hold {oh} x {ow} windows of {kh} x {kw}")
    x = input.reshape([n, c, kh, kw, oh, ow])
    rows = ops.internal.slice_backward(x, [n, c, eh, kw, oh, ow], 2, 0, eh, dh).permute([0, 1, 4, 5, 3, 2])
    rows = ops.internal.unfold_backward(rows, [n, c, h, ow, kw], 2, eh, sh)
    rows = ops.internal.slice_backward(rows, [n, c, h, ow, ew], 4, 0, ew, dw)
    y = ops.internal.unfold_backward(rows, [n, c, h, w], 3, ew, sw)
    return y[:, :, ph : h - ph, pw : w - pw].contiguous() if ph or pw else y
