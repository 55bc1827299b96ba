"""Pooling and resizing. Names and arguments are PyTorch's."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

from .._core import Tensor
from . import functional as F
from ._parts import Ints, ints
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "ChannelShuffle", "FractionalMaxPool2d",
    "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "PixelShuffle", "PixelUnshuffle",
    "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
]


class _MaxPool(Module):
    _function: Callable[..., Any]

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

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                                    self.return_indices)


class MaxPool1d(_MaxPool):
    """The largest element of each window."""

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest element of each window."""

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest element of each window."""

    _function = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    _function: Callable[..., Tensor]
    _spatial: int

    def __init__(self, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size, self.padding = ints(kernel_size, self._spatial), ints(padding, self._spatial)
        self.stride = self.kernel_size if stride is None else ints(stride, self._spatial)

    def forward(self, input: Tensor, indices: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Zeros with the elements where MaxPool1d found them."""

    _function, _spatial = staticmethod(F.max_unpool1d), 1


class MaxUnpool2d(_MaxUnpool):
    """Zeros with the elements where MaxPool2d found them."""

    _function, _spatial = staticmethod(F.max_unpool2d), 2


class MaxUnpool3d(_MaxUnpool):
    """Zeros with the elements where MaxPool3d found them."""

    _function, _spatial = staticmethod(F.max_unpool3d), 3


class _AvgPool(Module):
    _function: Callable[..., Tensor]

    def __init__(
        self, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                                    self.count_include_pad)


class AvgPool1d(_AvgPool):
    """The mean of each window."""

    _function = staticmethod(F.avg_pool1d)


class _AvgPoolOver(_AvgPool):
    def __init__(
        self, kernel_size: Ints, stride: Optional[Ints] = None, padding: Ints = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                              self.divisor_override)


class AvgPool2d(_AvgPoolOver):
    """The mean of each window, or its sum over ``divisor_override``."""

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolOver):
    """The mean of each window, or its sum over ``divisor_override``."""

    _function = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    _function: Callable[..., Tensor]

    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Optional[Ints] = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """(sum of x^p)^(1/p) of each window."""

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """(sum of x^p)^(1/p) of each window."""

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """(sum of x^p)^(1/p) of each window."""

    _function = staticmethod(F.lp_pool3d)


class _AdaptivePool(Module):
    _function: Callable[..., Any]

    def __init__(self, output_size: Union[int, Sequence[Optional[int]]]) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, input: Tensor) -> Tensor:
        y: Tensor = self._function(input, self.output_size)
        return y


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Union[int, Sequence[Optional[int]]], return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima of windows chosen so that the result has ``output_size``."""

    _function = staticmethod(F.adaptive_max_pool3d)


class Upsample(Module):
    """Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W]; modes as in functional.interpolate."""

    def __init__(
        self, size: Optional[Ints] = None, scale_factor: Optional[Union[float, Sequence[float]]] = None,
        mode: str = "nearest", align_corners: Optional[bool] = None, recompute_scale_factor: Optional[bool] = None,
    ) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor
        self.scale_factor: Optional[Union[float, Sequence[float]]] = scale_factor
        if isinstance(scale_factor, (int, float)):
            self.scale_factor = float(scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                             self.recompute_scale_factor)

    def extra_repr(self) -> str:
        what = f"scale_factor={self.scale_factor}" if self.scale_factor is not None else f"size={self.size}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode "nearest"."""

    def __init__(self, size: Optional[Ints] = None, scale_factor: Optional[float] = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode "bilinear" and aligned corners."""

    def __init__(self, size: Optional[Ints] = None, scale_factor: Optional[float] = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class _FractionalMaxPool(Module):
    _function: Callable[..., Any]
    _dims: int
    _random_samples: Optional[Tensor]

    def __init__(
        self, kernel_size: Ints, output_size: Optional[Ints] = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Optional[Tensor] = None,
    ) -> None:
        super().__init__()
        n, name = self._dims, type(self).__name__
        self.kernel_size = ints(kernel_size, n)
        if min(self.kernel_size) < 1:
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio" if output_size is None
                             else "only one of output_size and output_ratio may be specified")
        self.output_size = None if output_size is None else ints(output_size, n)
        single = isinstance(output_ratio, (int, float))
        self.output_ratio = None if output_ratio is None else (output_ratio,) * n if single else tuple(output_ratio)
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                                    self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows that begin at random steps; see functional.fractional_max_pool2d."""

    _dims, _function = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """FractionalMaxPool2d of volumes."""

    _dims, _function = 3, staticmethod(F.fractional_max_pool3d)


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


class ChannelShuffle(Module):
    """Channels of ``groups`` groups interleaved."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
