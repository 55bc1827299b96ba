"""Dropout. Names and arguments are PyTorch's."""

from __future__ import annotations

from typing import Callable

from .._core import Tensor
from . import functional as F
from ._parts import check_p
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    _function: Callable[..., Tensor]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_p(p)
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.p, self.training, self.inplace)


class Dropout(_Dropout):
    """In training, zeroes each element with probability p and divides the others by 1 - p."""

    _function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """The same for whole channels of [N, C, L]."""

    _function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """The same for whole channels of [N, C, H, W]."""

    _function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """The same for whole channels of [N, C, D, H, W]."""

    _function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """In training, dropout for SELU: mean and variance are kept."""

    _function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """The same for whole channels of [N, C, ..]."""

    _function = staticmethod(F.feature_alpha_dropout)
