"""Layers whose number of inputs is known only when they are first called; they then become the plain layer."""

from __future__ import annotations

from typing import Any, Dict, List, Type

from .._core import Tensor, empty
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
    "LazyLinear",
]


class _Lazy(Module):
    _becomes: Type[Module]
    _without_parameters = True
    _like: Tensor

    def _channel_dim(self, input: Tensor) -> int:
        kind = self._becomes
        if kind is Linear:
            return -1
        if issubclass(kind, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            return 1
        return -1 - int(kind.__name__[-2])  # before the spatial dimensions, with a batch or without

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._arguments = (args, kwargs)
        # What to() and its kin convert until there are parameters.
        self.register_buffer("_like", empty([0], dtype=kwargs.get("dtype"), device=kwargs.get("device")), persistent=False)

    def forward(self, input: Tensor) -> Any:
        args, kwargs = self._arguments
        hooks: Dict[str, Any] = {k: v for k, v in self.__dict__.items() if k.endswith("_hooks")}
        training, kind, like = self.training, self._becomes, self._like
        wanted: List[Any] = [input.shape[self._channel_dim(input)], *args]
        self.__dict__.clear()
        object.__setattr__(self, "__class__", kind)
        kind.__init__(self, *wanted, **kwargs)
        self.__dict__.update(hooks)
        self.train(training)
        self.to(input.device, like.dtype)
        return self.forward(input)

    def extra_repr(self) -> str:
        args, kwargs = self._arguments
        return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])


class LazyLinear(_Lazy):
    """Linear of as many inputs as the first call brings."""

    _becomes = Linear


class LazyConv1d(_Lazy):
    """Conv1d of as many inputs as the first call brings."""

    _becomes = Conv1d


class LazyConv2d(_Lazy):
    """Conv2d of as many inputs as the first call brings."""

    _becomes = Conv2d


class LazyConv3d(_Lazy):
    """Conv3d of as many inputs as the first call brings."""

    _becomes = Conv3d


class LazyConvTranspose1d(_Lazy):
    """ConvTranspose1d of as many inputs as the first call brings."""

    _becomes = ConvTranspose1d


class LazyConvTranspose2d(_Lazy):
    """ConvTranspose2d of as many inputs as the first call brings."""

    _becomes = ConvTranspose2d


class LazyConvTranspose3d(_Lazy):
    """ConvTranspose3d of as many inputs as the first call brings."""

    _becomes = ConvTranspose3d


class LazyBatchNorm1d(_Lazy):
    """BatchNorm1d of as many inputs as the first call brings."""

    _becomes = BatchNorm1d


class LazyBatchNorm2d(_Lazy):
    """BatchNorm2d of as many inputs as the first call brings."""

    _becomes = BatchNorm2d


class LazyBatchNorm3d(_Lazy):
    """BatchNorm3d of as many inputs as the first call brings."""

    _becomes = BatchNorm3d


class LazyInstanceNorm1d(_Lazy):
    """InstanceNorm1d of as many inputs as the first call brings."""

    _becomes = InstanceNorm1d


class LazyInstanceNorm2d(_Lazy):
    """InstanceNorm2d of as many inputs as the first call brings."""

    _becomes = InstanceNorm2d


class LazyInstanceNorm3d(_Lazy):
    """InstanceNorm3d of as many inputs as the first call brings."""

    _becomes = InstanceNorm3d
