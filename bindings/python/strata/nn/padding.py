"""Padding layers. Names and arguments are PyTorch's."""

from __future__ import annotations

from .._core import Tensor
from . import functional as F
from ._parts import Ints, ints
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]


class _Pad(Module):
    _spatial: int
    _mode = "constant"

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = ints(padding, 2 * self._spatial)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros around [.., L]: (left, right)."""

    _spatial = 1


class ZeroPad2d(_Pad):
    """Zeros around [.., H, W]: (left, right, top, bottom)."""

    _spatial = 2


class ZeroPad3d(_Pad):
    """Zeros around [.., D, H, W]: (left, right, top, bottom, front, back)."""

    _spatial = 3


class ConstantPad1d(_ConstantPad):
    """One value around [.., L]."""

    _spatial = 1


class ConstantPad2d(_ConstantPad):
    """One value around [.., H, W]."""

    _spatial = 2


class ConstantPad3d(_ConstantPad):
    """One value around [.., D, H, W]."""

    _spatial = 3


class ReflectionPad1d(_Pad):
    """[.., L] mirrored at its ends, which are not repeated."""

    _spatial, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """[.., H, W] mirrored at its edges, which are not repeated."""

    _spatial, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """[.., D, H, W] mirrored at its sides, which are not repeated."""

    _spatial, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """[.., L] with its ends repeated."""

    _spatial, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """[.., H, W] with its edges repeated."""

    _spatial, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """[.., D, H, W] with its sides repeated."""

    _spatial, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """[.., L] continued from its other end."""

    _spatial, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """[.., H, W] continued from its other edges."""

    _spatial, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """[.., D, H, W] continued from its other sides."""

    _spatial, _mode = 3, "circular"
