"""Parameter: a tensor that a Module lists among what it trains."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .._core import Tensor, empty

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that registers itself where it becomes an attribute of a Module. Shares the elements of ``data``."""

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = True) -> "Parameter":
        source = empty([0]) if data is None else data.detach()
        self = source._as_subclass(cls)
        if requires_grad != self.requires_grad:
            self.requires_grad_(requires_grad)
        return self

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parameter":
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        copied: Parameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return _rebuild, (self.detach(), self.requires_grad)


def _rebuild(data: Tensor, requires_grad: bool) -> Parameter:
    return Parameter(data, requires_grad)


class Buffer(Tensor):
    """A tensor that registers itself as a buffer where it becomes an attribute of a Module."""

    persistent: bool

    def __new__(cls, data: Tensor, *, persistent: bool = True) -> "Buffer":
        self = data.detach()._as_subclass(cls)
        self.persistent = persistent
        return self
