"""Parameter: a tensor that a Module lists among what it trains."""

from __future__ import annotations

from typing import Optional

from .._core import Tensor, empty

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that registers itself where it becomes an attribute of a Module. Shares the elements of ``data``."""

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = True) -> "Parameter":
        self: Parameter = (empty([0]) if data is None else data.detach())._as_subclass(cls)
        if requires_grad != self.requires_grad:
            self.requires_grad_(requires_grad)
        return self

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__


class Buffer(Tensor):
    """A tensor that registers itself as a buffer where it becomes an attribute of a Module."""

    persistent: bool

    def __new__(cls, data: Tensor, *, persistent: bool = True) -> "Buffer":
        self: Buffer = data.detach()._as_subclass(cls)
        self.persistent = persistent
        return self
