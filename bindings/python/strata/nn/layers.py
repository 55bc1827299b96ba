"""Linear layers, embeddings, convolutions, pooling, norms, dropout. Names, arguments, parameter names and initial values
are PyTorch's."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Tuple, Union

from .. import _core as C
from .. import _ops as ops
from .._core import Tensor, dtype as DType, empty, int64, ones, zeros
from .._grad_mode import no_grad
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

Ints = Union[int, Sequence[int]]
Device = Any

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "CosineSimilarity", "Dropout", "Dropout1d", "Dropout2d", "Embedding", "Flatten", "GroupNorm",
    "Identity", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm", "Linear", "MaxPool1d", "MaxPool2d", "PairwiseDistance",
    "PixelShuffle", "PixelUnshuffle", "RMSNorm", "Unflatten", "Unfold", "Upsample", "ZeroPad2d",
]


def _new(shape: Sequence[int], device: Device, dtype: Optional[DType]) -> Parameter:
    return Parameter(empty(list(shape), dtype=dtype, device=device))


def _tuple(value: Ints, n: int) -> Tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * n
    found = tuple(int(v) for v in value)
    if len(found) == 1:
        return found * n
    if len(found) != n:
        raise ValueError(f"wants one or {n} numbers, got {found}")
    return found


class Identity(Module):
    """Returns what it gets; takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Dimensions start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        shape = list(input.shape)
        dim = self.dim % len(shape)
        return input.reshape([*shape[:dim], *self.unflattened_size, *shape[dim + 1 :]])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """x weight^T + bias: [.., in] -> [.., out]. Parameters: weight [out, in], bias [out]; both uniform in +- 1 / sqrt(in)."""

    weight: Parameter
    bias: Optional[Parameter]

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device = None, dtype: Optional[DType] = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _new([out_features, in_features], device, dtype)
        self.register_parameter("bias", _new([out_features], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return ops.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1^T weight[o] x2 + bias[o]. Parameters: weight [out, in1, in2], bias [out]."""

    weight: Parameter
    bias: Optional[Parameter]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = _new([out_features, in1_features, in2_features], device, dtype)
        self.register_parameter("bias", _new([out_features], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(in1)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Embedding(Module):
    """Rows of a table: indices [..] (i64) -> [.., dim]. Parameter: weight [num, dim], drawn from N(0, 1)."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: Optional[int] = None,
        device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = _new([num_embeddings, embedding_dim], device, dtype)
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: Optional[int] = None) -> "Embedding":
        """An embedding over a given table."""
        made = cls(embeddings.shape[0], embeddings.shape[1], padding_idx)
        made.weight = Parameter(embeddings, not freeze)
        return made

    def reset_parameters(self) -> None:
        """Draws the table again; the row of padding_idx is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return ops.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


# ---- convolutions


class _Conv(Module):
    weight: Parameter
    bias: Optional[Parameter]

    def __init__(
        self,
        spatial: int,
        transposed: bool,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints,
        padding: Union[str, Ints],
        output_padding: Ints,
        dilation: Ints,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Device,
        dtype: Optional[DType],
    ) -> None:
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups {groups} must divide in_channels {in_channels} and out_channels {out_channels}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"padding_mode must be one of zeros, reflect, replicate, circular, but got {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _tuple(kernel_size, spatial)
        self.stride = _tuple(stride, spatial)
        self.padding: Union[str, Tuple[int, ...]] = padding if isinstance(padding, str) else _tuple(padding, spatial)
        self.output_padding = _tuple(output_padding, spatial)
        self.dilation = _tuple(dilation, spatial)
        self.padding_mode = padding_mode
        self._transposed = transposed
        shape = [in_channels, out_channels // groups] if transposed else [out_channels, in_channels // groups]
        self.weight = _new([*shape, *self.kernel_size], device, dtype)
        self.register_parameter("bias", _new([out_channels], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(fan_in)."""
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def _padded(self, x: Tensor) -> Tuple[Tensor, Union[str, Ints]]:
        if self.padding_mode == "zeros":
            return x, self.padding
        pads: List[int] = []
        for i in reversed(range(len(self.kernel_size))):
            if isinstance(self.padding, str):
                total = self.dilation[i] * (self.kernel_size[i] - 1) if self.padding == "same" else 0
                pads += [total // 2, total - total // 2]
            else:
                pads += [self.padding[i], self.padding[i]]
        return F.pad(x, pads, self.padding_mode), 0

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        zero = (0,) * len(self.kernel_size)
        if self.padding != zero:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * len(self.kernel_size):
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zero:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """[N, C, L] -> [N, out, L']. Parameters: weight [out, in / groups, k], bias [out]."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Union[str, Ints] = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(1, False, in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias,
                         padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        x, padding = self._padded(input)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """[N, C, H, W] -> [N, out, H', W']. Parameters: weight [out, in / groups, kh, kw], bias [out]."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Union[str, Ints] = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(2, False, in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias,
                         padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        x, padding = self._padded(input)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """[N, C, D, H, W] -> [N, out, D', H', W'], composed of two-dimensional convolutions."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Union[str, Ints] = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(3, False, in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias,
                         padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        x, padding = self._padded(input)
        return F.conv3d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose1d(_Conv):
    """The gradient of Conv1d as a layer. Parameters: weight [in, out / groups, k], bias [out]."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
        output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1, padding_mode: str = "zeros",
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError('Only "zeros" padding mode is supported for ConvTranspose1d')
        super().__init__(1, True, in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation,
                         groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, self.output_padding,
                                  self.groups, self.dilation)


class ConvTranspose2d(_Conv):
    """The gradient of Conv2d as a layer. Parameters: weight [in, out / groups, kh, kw], bias [out]."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
        output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1, padding_mode: str = "zeros",
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError('Only "zeros" padding mode is supported for ConvTranspose2d')
        super().__init__(2, True, in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation,
                         groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, self.output_padding,
                                  self.groups, self.dilation)


class Unfold(Module):
    """Windows of [N, C, H, W] as columns [N, C kh kw, windows]."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


# ---- pooling, resizing


class _MaxPool(Module):
    def __init__(
        self, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, dilation: Ints = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class MaxPool2d(_MaxPool):
    """The largest element of each window."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class _AvgPool(Module):
    def __init__(
        self, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AdaptivePool(Module):
    def __init__(self, output_size: Union[int, Sequence[Optional[int]]], return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """Means of windows chosen so that the result has ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Means of windows chosen so that the result has ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptivePool):
    """Maxima of windows chosen so that the result has ``output_size``."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptivePool):
    """Maxima of windows chosen so that the result has ``output_size``."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class Upsample(Module):
    """Resizes [N, C, L] or [N, C, H, W]; modes "nearest", "linear", "bilinear"."""

    def __init__(
        self, size: Optional[Ints] = None, scale_factor: Optional[float] = None, mode: str = "nearest",
        align_corners: Optional[bool] = None,
    ) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.scale_factor = None if scale_factor is None else float(scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        what = f"scale_factor={self.scale_factor}" if self.scale_factor is not None else f"size={self.size}"
        return f"{what}, mode={self.mode!r}"


class PixelShuffle(Module):
    """[.., C r^2, H, W] -> [.., C, H r, W r]."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """The inverse of PixelShuffle."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ZeroPad2d(Module):
    """Zeros around [.., H, W]: (left, right, top, bottom)."""

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = _tuple(padding, 4)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding)

    def extra_repr(self) -> str:
        return f"{self.padding}"


# ---- norms


class LayerNorm(Module):
    """The last dimensions to mean 0 and variance 1. Parameters: weight 1, bias 0, of ``normalized_shape``."""

    weight: Optional[Parameter]
    bias: Optional[Parameter]

    def __init__(
        self, normalized_shape: Ints, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", _new(self.normalized_shape, device, dtype) if elementwise_affine else None)
        self.register_parameter("bias", _new(self.normalized_shape, device, dtype) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight 1, bias 0."""
        _affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return C.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


def _affine(weight: Optional[Parameter], bias: Optional[Parameter]) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class RMSNorm(Module):
    """The last dimensions over their root mean square. Parameter: weight 1, of ``normalized_shape``."""

    weight: Optional[Parameter]

    def __init__(
        self, normalized_shape: Ints, eps: Optional[float] = None, elementwise_affine: bool = True,
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", _new(self.normalized_shape, device, dtype) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight 1."""
        _affine(self.weight, None)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Groups of channels of each item of [N, C, ..] to mean 0 and variance 1. Parameters: weight and bias [C]."""

    weight: Optional[Parameter]
    bias: Optional[Parameter]

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", _new([num_channels], device, dtype) if affine else None)
        self.register_parameter("bias", _new([num_channels], device, dtype) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight 1, bias 0."""
        _affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _RunningNorm(Module):
    weight: Optional[Parameter]
    bias: Optional[Parameter]
    running_mean: Optional[Tensor]
    running_var: Optional[Tensor]
    num_batches_tracked: Optional[Tensor]
    ranks: Tuple[int, ...] = ()

    def __init__(
        self, num_features: int, eps: float, momentum: Optional[float], affine: bool, track_running_stats: bool,
        device: Device, dtype: Optional[DType],
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", _new([num_features], device, dtype) if affine else None)
        self.register_parameter("bias", _new([num_features], device, dtype) if affine else None)
        track = track_running_stats
        self.register_buffer("running_mean", zeros([num_features], dtype=dtype, device=device) if track else None)
        self.register_buffer("running_var", ones([num_features], dtype=dtype, device=device) if track else None)
        self.register_buffer("num_batches_tracked", zeros([], dtype=int64, device=device) if track else None)
        _affine(self.weight, self.bias)

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1, of no batches."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with no_grad():
                self.running_mean.fill_(0)
                self.running_var.fill_(1)
                self.num_batches_tracked.fill_(0)

    def reset_parameters(self) -> None:
        """weight 1, bias 0, and reset_running_stats()."""
        self.reset_running_stats()
        _affine(self.weight, self.bias)

    def _check_input(self, input: Tensor) -> None:
        if input.dim() not in self.ranks:
            wanted = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean over all batches
                momentum = 1.0 / float(self.num_batches_tracked.item())
        by_batch = self.training or self.running_mean is None
        return F.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight, self.bias, by_batch, momentum, self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Each channel of [N, C] or [N, C, L] over the batch in training, by the running statistics in evaluation."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """The same for [N, C, H, W]."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """The same for [N, C, D, H, W]."""

    ranks = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        unbatched = input.dim() == min(self.ranks)
        x = input.unsqueeze(0) if unbatched else input
        momentum = 0.1 if self.momentum is None else self.momentum
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats, momentum, self.eps)
        return y.squeeze(0) if unbatched else y


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each item of [N, C, L] to mean 0 and variance 1."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """The same for [N, C, H, W]."""

    ranks = (3, 4)


# ---- dropout, distances


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        F._check_p(p)
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training, zeroes each element with probability p and divides the others by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """The same for whole channels of [N, C, L]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """The same for whole channels of [N, C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class CosineSimilarity(Module):
    """x1 . x2 over the product of their norms along ``dim``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
