"""Convolutions."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple, Union

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from .._parts import Ints, ints

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold",
]


def _conv_padding(padding: Union[str, Ints], weight: Tensor, dilation: Tuple[int, ...]) -> Tuple[Tuple[int, ...], List[int]]:
    """The symmetric padding, and what "same" adds at each end before it: (before, after), last dimension first."""
    n = weight.dim() - 2
    if not isinstance(padding, str):
        return ints(padding, n), []
    if padding == "valid":
        return (0,) * n, []
    if padding != "same":
        raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
    total = [d * (k - 1) for d, k in zip(dilation, list(weight.shape)[2:])]
    if all(t % 2 == 0 for t in total):
        return tuple(t // 2 for t in total), []
    extra: List[int] = []
    for t in reversed(total):
        extra += [0, t % 2]
    return tuple(t // 2 for t in total), extra


def _conv(op: Any, x: Tensor, w: Tensor, b: Optional[Tensor], stride: Ints, padding: Union[str, Ints], dilation: Ints,
          groups: int) -> Tensor:
    n = w.dim() - 2
    strides, dilations = ints(stride, n), ints(dilation, n)
    if padding == "same" and any(s != 1 for s in strides):
        raise ValueError("padding='same' is not supported for strided convolutions")
    pads, extra = _conv_padding(padding, w, dilations)
    if extra:
        x = ops.pad(x, extra)
    y: Tensor = op(x, w, b, strides, pads, dilations, groups)
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
    """[N, C, D, H, W] -> [N, out, D', H', W'], as a sum of two-dimensional convolutions, one a slice of the kernel."""
    (sd, sh, sw), (dd, dh, dw) = ints(stride, 3), ints(dilation, 3)
    pads, extra = _conv_padding(padding, weight, (dd, dh, dw))
    unbatched = input.dim() == 4
    x = input.unsqueeze(0) if unbatched else input
    x = ops.pad(x, extra) if extra else x
    if pads[0]:
        x = ops.pad(x, [0, 0, 0, 0, pads[0], pads[0]])
    batch, depth = x.shape[0], x.shape[2]
    out_depth = (depth - dd * (weight.shape[2] - 1) - 1) // sd + 1
    if out_depth < 1:
        raise ValueError(f"conv3d: the kernel of {list(weight.shape)} does not fit into {list(input.shape)}")
    total: Optional[Tensor] = None
    for k in range(weight.shape[2]):
        planes = ops.slice(x, 2, k * dd, k * dd + sd * (out_depth - 1) + 1, sd)
        planes = planes.transpose(1, 2).reshape([batch * out_depth, x.shape[1], x.shape[3], x.shape[4]])
        y = ops.conv2d(planes, weight.select(2, k), bias if k == 0 else None, [sh, sw], pads[1:], [dh, dw], groups)
        total = y if total is None else total + y
    assert total is not None
    y = total.reshape([batch, out_depth, *list(total.shape)[1:]]).transpose(1, 2)
    return y.squeeze(0) if unbatched else y


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
    """The gradient of conv3d for its input, as a function: a sum of two-dimensional ones, one a slice of the kernel."""
    s, p, o, d = ints(stride, 3), ints(padding, 3), ints(output_padding, 3), ints(dilation, 3)
    unbatched = input.dim() == 4
    x = input.unsqueeze(0) if unbatched else input
    n, c, depth = x.shape[0], x.shape[1], x.shape[2]
    planes = x.transpose(1, 2).reshape([n * depth, c, x.shape[3], x.shape[4]])
    full = (depth - 1) * s[0] + d[0] * (weight.shape[2] - 1) + 1 + o[0]
    total: Optional[Tensor] = None
    for k in range(weight.shape[2]):
        y = ops.conv_transpose2d(planes, weight.select(2, k), None, s[1:], p[1:], o[1:], groups, d[1:])
        y = y.reshape([n, depth, *list(y.shape)[1:]]).transpose(1, 2)
        if s[0] > 1:  # a slice's planes lie ``stride`` apart
            y = ops.pad(y.unsqueeze(3), [0, 0, 0, 0, 0, s[0] - 1]).flatten(2, 3)
            y = y.narrow(2, 0, (depth - 1) * s[0] + 1)
        before = k * d[0]
        y = ops.pad(y, [0, 0, 0, 0, before, full - before - y.shape[2]])
        total = y if total is None else total + y
    assert total is not None
    y = total.narrow(2, p[0], full - 2 * p[0])
    if bias is not None:
        y = y + bias.reshape([-1, 1, 1, 1])
    return y.squeeze(0) if unbatched else y


def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
         stride: Ints = 1) -> Tensor:
    """Columns [N, C kh kw, windows] added up to images [N, C, H, W]: the gradient of unfold(), as a function."""
    (h, w), (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        ints(v, 2) for v in (output_size, kernel_size, dilation, padding, stride))
    n, c = input.shape[0], input.shape[1] // (kh * kw)
    oh, ow = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    if oh * ow != input.shape[2]:
        raise ValueError(f"fold: {oh} x {ow} windows of the image are wanted, got columns of {input.shape[2]}")
    # Each window's elements go to their places in the padded image, row-major.
    rows = C.arange(kh, device=input.device).reshape(-1, 1, 1, 1) * dh + C.arange(oh, device=input.device).reshape(-1, 1) * sh
    columns = C.arange(kw, device=input.device).reshape(-1, 1, 1) * dw + C.arange(ow, device=input.device) * sw
    places = (rows * (w + 2 * pw) + columns).reshape(-1)
    x = input.reshape([n * c, kh * kw * oh * ow])
    y = C.zeros([n * c, (h + 2 * ph) * (w + 2 * pw)], dtype=input.dtype, device=input.device)
    y = ops.index_add(y, 1, places, x).reshape([n, c, h + 2 * ph, w + 2 * pw])
    return y[:, :, ph : ph + h, pw : pw + w]


def unfold(input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Tensor:
    """Windows of [N, C, H, W] as columns: [N, C kh kw, windows]."""
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (ints(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = ops.pad(input, [pw, pw, ph, ph]) if ph or pw else input
    n, c = x.shape[0], x.shape[1]
    oh, ow = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    rows = []
    for i in range(kh):
        for j in range(kw):
            y = ops.slice(x, 2, i * dh, i * dh + sh * (oh - 1) + 1, sh)
            rows.append(ops.slice(y, 3, j * dw, j * dw + sw * (ow - 1) + 1, sw))
    return ops.stack(rows, 2).reshape([n, c * kh * kw, oh * ow])
