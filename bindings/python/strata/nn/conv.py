"""Convolutions. Names, arguments, parameter names and initial values are PyTorch's."""

from __future__ import annotations

import math
from typing import Callable, List, Optional, Sequence, Tuple, Union

from .._core import Tensor, dtype as DType
from . import functional as F
from ._parts import Device, Ints, draw_uniform, new_parameter, ints
from .module import Module
from .parameter import Parameter

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Fold", "Unfold",
]


class _Conv(Module):
    weight: Parameter
    bias: Optional[Parameter]
    _function: Callable[..., Tensor]
    _spatial: int
    _transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Union[str, Ints] = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups {groups} must divide in_channels {in_channels} and out_channels {out_channels}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"padding_mode must be one of zeros, reflect, replicate, circular, but got {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        n = self._spatial
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = ints(kernel_size, n), ints(stride, n), ints(dilation, n)
        self.padding: Union[str, Tuple[int, ...]] = padding if isinstance(padding, str) else ints(padding, n)
        self.output_padding = (0,) * n
        self.padding_mode = padding_mode
        shape = [in_channels, out_channels // groups] if self._transposed else [out_channels, in_channels // groups]
        self.weight = new_parameter([*shape, *self.kernel_size], device, dtype)
        self.register_parameter("bias", new_parameter([out_channels], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(fan_in)."""
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        draw_uniform(bound, self.weight, self.bias)

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

    def forward(self, input: Tensor) -> Tensor:
        x, padding = self._padded(input)
        return self._function(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """[N, C, L] -> [N, out, L']. Parameters: weight [out, in / groups, k], bias [out]."""

    _function, _spatial = staticmethod(F.conv1d), 1


class Conv2d(_Conv):
    """[N, C, H, W] -> [N, out, H', W']. Parameters: weight [out, in / groups, kh, kw], bias [out]."""

    _function, _spatial = staticmethod(F.conv2d), 2


class Conv3d(_Conv):
    """[N, C, D, H, W] -> [N, out, D', H', W']. Parameters: weight [out, in / groups, kd, kh, kw], bias [out]."""

    _function, _spatial = staticmethod(F.conv3d), 3


class _ConvTranspose(_Conv):
    _transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
        output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1, padding_mode: str = "zeros",
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device,
                         dtype)
        self.output_padding = ints(output_padding, self._spatial)

    def forward(self, input: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        """``output_size`` chooses among the sizes that the stride leaves open, in place of output_padding."""
        extra = self.output_padding
        if output_size is not None:
            n = self._spatial
            assert not isinstance(self.padding, str)
            least = [(s - 1) * st - 2 * p + d * (k - 1) + 1 for s, st, p, d, k in zip(
                list(input.shape)[-n:], self.stride, self.padding, self.dilation, self.kernel_size)]
            extra = tuple(o - m for o, m in zip(list(output_size)[-n:], least))
            if any(not 0 <= e < st for e, st in zip(extra, self.stride)):
                raise ValueError(f"requested an output size of {list(output_size)}, but valid sizes range from {least} to "
                                 f"{[m + st - 1 for m, st in zip(least, self.stride)]}")
        return self._function(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """The gradient of Conv1d as a layer. Parameters: weight [in, out / groups, k], bias [out]."""

    _function, _spatial = staticmethod(F.conv_transpose1d), 1


class ConvTranspose2d(_ConvTranspose):
    """The gradient of Conv2d as a layer. Parameters: weight [in, out / groups, kh, kw], bias [out]."""

    _function, _spatial = staticmethod(F.conv_transpose2d), 2


class ConvTranspose3d(_ConvTranspose):
    """The gradient of Conv3d as a layer. Parameters: weight [in, out / groups, kd, kh, kw], bias [out]."""

    _function, _spatial = staticmethod(F.conv_transpose3d), 3


class Unfold(Module):
    """Windows of [N, C, H, W] as columns [N, C kh kw, windows]."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns [N, C kh kw, windows] added up to [N, C, *output_size]."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
