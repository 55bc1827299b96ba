"""Jacobians, Hessians and their products with vectors, torch.autograd.functional: the engine's
(strata/ops/derivatives)."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import _core
from ._core import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(value: Any) -> Tuple[Tensor, ...]:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


class _Called:
    """A function of tensors that knows whether it gives one, or several."""

    def __init__(self, func: Callable[..., Any], number: str = "") -> None:
        self.func, self.number, self.single = func, number, True

    def __call__(self, *x: Tensor) -> Any:
        y = self.func(*x)
        self.single = isinstance(y, Tensor)
        if self.number and (not self.single or y.numel() != 1):
            raise RuntimeError(f"{self.number}: the function must return one number")
        return y

    def like(self, values: Tuple[Any, ...]) -> Any:
        """As what the function gave: one, or several."""
        return values[0] if self.single else values


def _like(values: Tuple[Any, ...], given: Any) -> Any:
    return values[0] if isinstance(given, Tensor) else values


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """Derivatives of every element of func(*inputs) by every element of the inputs: [output shape, input shape]; tuples where
    outputs or inputs are tuples."""
    f = _Called(func)
    found = _core._jacobian(f, _tuple(inputs), create_graph, strict)
    return f.like(tuple(_like(row, inputs) for row in found))


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """Second derivatives of the one number func(*inputs)."""
    found = _core._hessian(_Called(func, "hessian"), _tuple(inputs), create_graph, strict)
    return _like(tuple(_like(row, inputs) for row in found), inputs)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), and its Jacobian multiplied by ``v`` (like the outputs) from the left."""
    f = _Called(func)
    outputs, products = _core._vjp(f, _tuple(inputs), _tuple(v), create_graph, strict)
    return f.like(outputs), _like(products, inputs)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), and its Jacobian multiplied by ``v`` (like the inputs) from the right, by differentiating twice."""
    f = _Called(func)
    outputs, products = _core._jvp(f, _tuple(inputs), _tuple(v), create_graph, strict)
    return f.like(outputs), f.like(products)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), one number, and its Hessian times ``v``."""
    outputs, products = _core._hvp(_Called(func, "hvp"), _tuple(inputs), _tuple(v), create_graph, strict)
    return outputs[0], _like(products, inputs)


vhp = hvp  # the Hessian is symmetric
