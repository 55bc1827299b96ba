"""torch.nn.functional's names and argument order over the op records."""

from __future__ import annotations

import math
import warnings
from typing import Any, List, Optional, Sequence, Tuple, Union

from .. import _core as C
from .. import _functions, _ops as ops
from .._core import Tensor
from .._grad_mode import no_grad

Ints = Union[int, Sequence[int]]

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "dropout", "dropout1d", "dropout2d", "elu", "embedding", "gaussian_nll_loss", "gelu", "glu",
    "group_norm", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss",
    "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax",
    "logsigmoid", "margin_ranking_loss", "max_pool1d", "max_pool2d", "mish", "mse_loss", "multi_head_attention",
    "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "prelu", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "swiglu", "tanh",
    "tanhshrink", "threshold", "triplet_margin_loss", "unfold", "upsample",
]


def _ints(value: Ints, n: int) -> List[int]:
    return [value] * n if isinstance(value, int) else [int(v) for v in value]


def _replace(x: Tensor, y: Tensor, inplace: bool) -> Tensor:
    return x.copy_(y) if inplace else y


# ---- linear, embedding


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """input weight^T + bias: [.., in] -> [.., out]."""
    return ops.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x1^T weight[o] x2 + bias[o]: [.., in1], [.., in2], weight [out, in1, in2] -> [.., out]."""
    lead = list(input1.shape)[:-1]
    a, b = input1.reshape([-1, input1.shape[-1]]), input2.reshape([-1, input2.shape[-1]])
    y = ops.einsum("ni,oij,nj->no", [a, weight, b])
    y = y if bias is None else y + bias
    return y.reshape([*lead, weight.shape[0]])


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None) -> Tensor:
    """Rows of ``weight``; row ``padding_idx`` gets no gradient."""
    return ops.embedding(input, weight, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[..] i64 -> [.., num_classes]; -1 takes the largest element plus one."""
    return ops.one_hot(tensor, int(tensor.max().item()) + 1 if num_classes == -1 else num_classes)


# ---- convolution


def _conv_padding(padding: Union[str, Ints], weight: Tensor, dilation: List[int]) -> Tuple[List[int], List[int]]:
    """The symmetric padding, and what "same" adds at each end before it: (before, after), last dimension first."""
    n = weight.dim() - 2
    if not isinstance(padding, str):
        return _ints(padding, n), []
    if padding == "valid":
        return [0] * n, []
    if padding != "same":
        raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
    total = [d * (k - 1) for d, k in zip(dilation, list(weight.shape)[2:])]
    if all(t % 2 == 0 for t in total):
        return [t // 2 for t in total], []
    extra: List[int] = []
    for t in reversed(total):
        extra += [0, t % 2]
    return [t // 2 for t in total], extra


def _conv(op: Any, x: Tensor, w: Tensor, b: Optional[Tensor], stride: Ints, padding: Union[str, Ints], dilation: Ints,
          groups: int) -> Tensor:
    n = w.dim() - 2
    strides, dilations = _ints(stride, n), _ints(dilation, n)
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
    (sd, sh, sw), (dd, dh, dw) = _ints(stride, 3), _ints(dilation, 3)
    pads, extra = _conv_padding(padding, weight, [dd, dh, dw])
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
    return ops.conv_transpose1d(input, weight, bias, _ints(stride, 1), _ints(padding, 1), _ints(output_padding, 1),
                                groups, _ints(dilation, 1))


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """The gradient of conv2d for its input, as a function."""
    return ops.conv_transpose2d(input, weight, bias, _ints(stride, 2), _ints(padding, 2), _ints(output_padding, 2),
                                groups, _ints(dilation, 2))


def unfold(input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Tensor:
    """Windows of [N, C, H, W] as columns: [N, C kh kw, windows]."""
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (_ints(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = ops.pad(input, [pw, pw, ph, ph]) if ph or pw else input
    n, c = x.shape[0], x.shape[1]
    oh, ow = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    rows = []
    for i in range(kh):
        for j in range(kw):
            y = ops.slice(x, 2, i * dh, i * dh + sh * (oh - 1) + 1, sh)
            rows.append(ops.slice(y, 3, j * dw, j * dw + sw * (ow - 1) + 1, sw))
    return ops.stack(rows, 2).reshape([n, c * kh * kw, oh * ow])


# ---- pooling, resizing


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
    k = _ints(kernel, n)
    s = k if stride is None else _ints(stride, n)
    if return_indices:
        return ops.max_pool(x, k, s, _ints(padding, n), _ints(dilation, n), ceil_mode)
    pool = ops.max_pool1d if n == 1 else ops.max_pool2d
    return pool(x, k, s, _ints(padding, n), _ints(dilation, n), ceil_mode)


def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """The mean of each window."""
    return ops.avg_pool1d(input, _ints(kernel_size, 1), [] if stride is None else _ints(stride, 1), _ints(padding, 1),
                          ceil_mode, count_include_pad)


def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """The mean of each window."""
    return ops.avg_pool2d(input, _ints(kernel_size, 2), [] if stride is None else _ints(stride, 2), _ints(padding, 2),
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
    sizes = None if size is None else _ints(size, input.dim() - 2)
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


# ---- norms


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None,
               bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """The last dimensions to mean 0 and variance 1, times weight plus bias."""
    return C.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None,
             eps: Optional[float] = None) -> Tensor:
    """The last dimensions over their root mean square, times weight. ``eps`` None is the dtype's machine
    epsilon."""
    return C.rms_norm(input, normalized_shape, weight, _functions.finfo(input.dtype).eps if eps is None else eps)


def group_norm(input: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:
    """Groups of channels of each item of [N, C, ..] to mean 0 and variance 1."""
    return C.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(input: Tensor, running_mean: Optional[Tensor], running_var: Optional[Tensor],
               weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel to mean 0 and variance 1: by the batch in training (the running statistics follow), else by them."""
    if not training and (running_mean is None or running_var is None):
        raise ValueError("Expected running_mean and running_var to be defined when training=False")
    if training and input.numel() // max(1, input.shape[1]) <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    return C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None,
                  weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of each item to mean 0 and variance 1."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, c = input.shape[0], input.shape[1]
    count = input.numel() // max(1, n * c)
    if count <= 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(input.shape)}")
    y, mean, rstd = ops.group_norm(input, c, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        with no_grad():
            var = (rstd.detach().reshape([n, c]) ** -2.0 + -eps) * (count / (count - 1))
            mean = mean.detach().reshape([n, c]).mean([0])
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(var.mean([0]).to(running_var.dtype), alpha=momentum)
    return y


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Over its p-norm along ``dim``, or over eps where that is smaller."""
    return input / ops.clamp(ops.norm(input, p, [dim], True), eps)


# ---- dropout


def _check_p(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and divides the others by 1 - p."""
    _check_p(p)
    if not training or p == 0.0:
        return input
    return _replace(input, C.dropout(input, p), inplace)


def _channel_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    _check_p(p)
    if not training or p == 0.0:
        return x
    kept = C.ones([x.shape[0], x.shape[1]] + [1] * (x.dim() - 2), dtype=x.dtype, device=x.device)
    return x * C.dropout(kept, p)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, L]."""
    return _replace(input, _channel_dropout(input, p, training), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, H, W]."""
    return _replace(input, _channel_dropout(input, p, training), inplace)


# ---- activations


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return _replace(input, ops.relu(input), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return _replace(input, ops.hardtanh(input, 0.0, 6.0), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's function of x; ``approximate`` "none" or "tanh"."""
    return ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)."""
    return _replace(input, ops.silu(input), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))."""
    return _replace(input, ops.mish(input), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha (exp(x) - 1)."""
    return _replace(input, ops.elu(input, alpha), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha (exp(x / alpha) - 1)."""
    return _replace(input, ops.elu(input / alpha, 1.0, alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the constants of arXiv:1706.02515."""
    return _replace(input, ops.elu(input, 1.6732632423543772, 1.0507009873554805), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope x."""
    return _replace(input, ops.leaky_relu(input, negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a slope for each channel (or one for all) that is learned."""
    if weight.numel() > 1 and input.dim() > 1:
        weight = weight.reshape([1, -1] + [1] * (input.dim() - 2))
    return ops.relu(input) - weight * ops.relu(-input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    return _replace(input, ops.hardtanh(input, min_val, max_val), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return _replace(input, ops.hardsigmoid(input), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x hardsigmoid(x)."""
    return _replace(input, ops.hardswish(input), inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta."""
    return ops.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (1 + input.abs())


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x towards 0 by lambd, 0 where it is nearer than that."""
    return input - ops.clamp(input, -lambd, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, or 0 where |x| <= lambd."""
    return ops.masked_fill(input, input.abs() <= lambd, 0)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - ops.tanh(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above ``threshold``, else ``value``."""
    return _replace(input, ops.masked_fill(input, input <= threshold, value), inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return ops.logsigmoid(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return ops.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a sigmoid(b) of the two halves along ``dim``."""
    a, b = ops.chunk(input, 2, dim)
    return a * ops.sigmoid(b)


def swiglu(input: Tensor, gate: Tensor) -> Tensor:
    """silu(input) gate."""
    return ops.swiglu(input, gate)


def _softmax_dim(dim: Optional[int], ndim: int, name: str) -> int:
    if dim is None:
        warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Give dim.", stacklevel=3)
        return 0 if ndim in (0, 1, 3) else 1
    return dim


def softmax(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along ``dim``."""
    return ops.softmax(input if dtype is None else input.to(dtype), _softmax_dim(dim, input.dim(), "softmax"))


def softmin(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """softmax(-x)."""
    return softmax(-input, _softmax_dim(dim, input.dim(), "softmin"), dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, dtype: Any = None) -> Tensor:
    """log(softmax(x))."""
    return ops.log_softmax(input if dtype is None else input.to(dtype), _softmax_dim(dim, input.dim(), "log_softmax"))


# ---- attention


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(q k^T scale + mask) v, without the [Tq, Tk] matrix in memory. Heads are grouped where they divide."""
    if query.dim() == 3:
        return scaled_dot_product_attention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), attn_mask,
                                            dropout_p, is_causal, scale).squeeze(0)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True groups them")
    return C.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)


def multi_head_attention(query: Tensor, key: Tensor, value: Tensor, num_heads: int,
                         attn_mask: Optional[Tensor] = None, is_causal: bool = False,
                         dropout_p: float = 0.0) -> Tensor:
    """Attention of projected [B, T, E] with ``num_heads`` heads of size E / num_heads: [B, Tq, E]."""

    def heads(x: Tensor) -> Tensor:
        return x.reshape([x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads]).transpose(1, 2)

    y = scaled_dot_product_attention(heads(query), heads(key), heads(value), attn_mask, dropout_p, is_causal)
    return y.transpose(1, 2).reshape([query.shape[0], query.shape[1], value.shape[2]])


# ---- losses


def _reduce(x: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return x.mean()
    if reduction == "sum":
        return x.sum()
    if reduction == "none":
        return x
    raise ValueError(f"{reduction} is not a valid value for reduction")


def _same_shape(op: str, input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"{op}: target size ({list(target.shape)}) must be the same as input size ({list(input.shape)})")


def _rows(x: Tensor, target: Tensor) -> Tuple[Tensor, Tensor, Optional[List[int]]]:
    """Class scores as [rows, C] and targets as [rows], with the shape that reduction "none" gives back."""
    if x.dim() == 1:
        return x.unsqueeze(0), target.reshape([1]), []
    if x.dim() == 2:
        return x, target, None
    shape = list(target.shape)
    return x.movedim([1], [-1]).reshape([-1, x.shape[1]]), target.reshape([-1]), shape


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, ignore_index: int = -100,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(input)[target] for i64 targets, or -sum(target log softmax(input)) for floating ones (probabilities).
    ``weight`` [C] weighs the classes. The loss of bf16 and f16 logits is f32."""
    if target.is_floating_point():
        logs = ops.log_softmax(input, 1 if input.dim() > 1 else 0)
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[1 if input.dim() > 1 else 0]
        loss = -(logs * target)
        if weight is not None:
            loss = loss * weight.reshape([1, -1] + [1] * (input.dim() - 2) if input.dim() > 1 else [-1])
        if reduction != "mean":
            return _reduce(loss.sum([1 if input.dim() > 1 else 0]), reduction)
        return loss.sum() / (input.numel() // input.shape[1 if input.dim() > 1 else 0])
    x, t, shape = _rows(input, target)
    if weight is None:
        loss = C.cross_entropy(x, t, ignore_index, reduction, label_smoothing)
        return loss.reshape(shape) if shape is not None and reduction == "none" else loss
    counts = t != ignore_index
    classes = ops.where(counts, t, C.zeros_like(t))
    weights = weight.index_select(0, classes) * counts.to(weight.dtype)
    logs = ops.log_softmax(x, 1)
    loss = -logs.gather(1, classes.unsqueeze(1)).squeeze(1) * weights
    if label_smoothing:
        smooth = -(logs * weight).sum([1]) * counts.to(weight.dtype)
        loss = loss * (1 - label_smoothing) + smooth * (label_smoothing / x.shape[1])
    if reduction == "mean":
        return loss.sum() / weights.sum()
    loss = loss.reshape(shape) if shape is not None else loss
    return _reduce(loss, reduction)


def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, ignore_index: int = -100,
             reduction: str = "mean") -> Tensor:
    """-input[target] of log-probabilities."""
    x, t, shape = _rows(input, target)
    if weight is None:
        loss = ops.nll_loss(x, t, ignore_index, reduction)
        return loss.reshape(shape) if shape is not None and reduction == "none" else loss
    counts = t != ignore_index
    classes = ops.where(counts, t, C.zeros_like(t))
    weights = weight.index_select(0, classes) * counts.to(weight.dtype)
    loss = -x.gather(1, classes.unsqueeze(1)).squeeze(1) * weights
    if reduction == "mean":
        return loss.sum() / weights.sum()
    return _reduce(loss.reshape(shape) if shape is not None else loss, reduction)


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)^2."""
    return ops.mse_loss(input, target, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return ops.l1_loss(input, target, reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""
    return ops.l1_loss(input, target, reduction) if beta == 0 else ops.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2)."""
    return ops.huber_loss(input, target, reduction, delta)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (log t - input) for log-probabilities ``input``; ``reduction`` also "batchmean"."""
    if reduction == "batchmean":
        return ops.kl_div(input, target, "sum", log_target) / input.shape[0]
    return ops.kl_div(input, target, reduction, log_target)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                         reduction: str = "mean") -> Tensor:
    """-(t log p + (1 - t) log(1 - p)); logarithms are at least -100."""
    _same_shape("binary_cross_entropy", input, target)
    loss = -(target * ops.clamp(ops.log(input), -100) + (1 - target) * ops.clamp(ops.log1p(-input), -100))
    return _reduce(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                     reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    """The same of sigmoid(input), without overflow; ``pos_weight`` weighs the positive targets."""
    _same_shape("binary_cross_entropy_with_logits", input, target)
    if weight is None and pos_weight is None:
        return ops.binary_cross_entropy_with_logits(input, target, reduction)
    if pos_weight is None:
        loss = ops.binary_cross_entropy_with_logits(input, target, "none")
    else:
        loss = (1 - target) * input - (1 + (pos_weight - 1) * target) * ops.logsigmoid(input)
    return _reduce(loss if weight is None else loss * weight, reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8,
                     reduction: str = "mean") -> Tensor:
    """exp(input) - target input, or input - target log(input + eps)."""
    loss = ops.exp(input) - target * input if log_input else input - target * ops.log(input + eps)
    if full:
        stirling = target * ops.log(target) - target + 0.5 * ops.log(target * (2 * math.pi))
        loss = loss + ops.masked_fill(stirling, target <= 1, 0)
    return _reduce(loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log var + (input - target)^2 / var) / 2, var at least eps."""
    with no_grad():
        floor = ops.clamp(var.detach(), eps) - var.detach()
    v = var + floor
    loss = 0.5 * (ops.log(v) + (input - target) ** 2 / v)
    return _reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-t x))."""
    return _reduce(ops.softplus(-target * input), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """x where t is 1, max(0, margin - x) where it is -1."""
    return _reduce(ops.where(target == 1, input, ops.relu(margin - input)), reduction)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                        reduction: str = "mean") -> Tensor:
    """max(0, -t (x1 - x2) + margin)."""
    return _reduce(ops.relu(-target * (input1 - input2) + margin), reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 over the product of their norms along ``dim``."""
    n1 = ops.clamp(ops.norm(x1, 2.0, [dim], True), eps)
    n2 = ops.clamp(ops.norm(x2, 2.0, [dim], True), eps)
    return ((x1 / n1) * (x2 / n2)).sum([dim])


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where t is 1, max(0, cos - margin) where it is -1."""
    cos = cosine_similarity(input1, input2, -1)
    return _reduce(ops.where(target == 1, 1 - cos, ops.relu(cos - margin)), reduction)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    return ops.norm(x1 - x2 + eps, p, [-1], keepdim)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = ops.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduce(ops.relu(near - far + margin), reduction)
