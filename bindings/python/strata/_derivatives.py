"""Jacobians, Hessians and their products with vectors: torch.autograd.functional."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

from . import _core, _ops as ops
from ._core import Tensor, grad, zeros_like
from ._grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Union[Tensor, Tuple[Tensor, ...]]


def _tuple(value: Any) -> Tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _like(values: List[Any], given: Any) -> Any:
    return values[0] if isinstance(given, Tensor) else tuple(values)


def _leaves(inputs: Any, create_graph: bool) -> Tuple[Tensor, ...]:
    """The inputs as tensors to differentiate by; with ``create_graph`` still part of their graph."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in _tuple(inputs))


def _done(value: Any, create_graph: bool) -> Any:
    if create_graph:
        return value
    return value.detach() if isinstance(value, Tensor) else tuple(_done(v, False) for v in value)


def _grads(output: Tensor, inputs: Tuple[Tensor, ...], weights: Optional[Tensor], create_graph: bool, strict: bool) -> List[Tensor]:
    found: Any = [None] * len(inputs)
    if output.requires_grad:
        found = grad(output, list(inputs), weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise RuntimeError("the function's result does not depend on all of its inputs (strict=True)")
    return [zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """Derivatives of every element of func(*inputs) by every element of the inputs: [output shape, input shape]; tuples where
    outputs or inputs are tuples."""
    with enable_grad():
        x = _leaves(inputs, create_graph)
        given = func(*x)
        rows = []
        for y in _tuple(given):
            flat = y.reshape([-1])
            columns: List[List[Tensor]] = [[] for _ in x]
            for i in range(flat.shape[0]):
                for column, g in zip(columns, _grads(flat[i], x, None, create_graph, strict)):
                    column.append(g)
            made = [ops.stack(column, 0).reshape([*y.shape, *t.shape]) if column else
                    _core.zeros([*y.shape, *t.shape], dtype=t.dtype, device=t.device) for column, t in zip(columns, x)]
            rows.append(_like([_done(m, create_graph) for m in made], inputs))
    return rows[0] if isinstance(given, Tensor) else tuple(rows)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """Second derivatives of the one number func(*inputs)."""

    def first(*x: Tensor) -> Any:
        with enable_grad():
            y = func(*x)
            if not isinstance(y, Tensor) or y.numel() != 1:
                raise RuntimeError("hessian: the function must return one number")
            found = _grads(y.reshape([]), x, None, True, strict)
        return _like(list(found), inputs)

    return jacobian(first, inputs, create_graph, strict)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), and its Jacobian multiplied by ``v`` (like the outputs) from the left."""
    with enable_grad():
        x = _leaves(inputs, create_graph)
        given = func(*x)
        outputs = _tuple(given)
        weights = [None] * len(outputs) if v is None else list(_tuple(v))
        total: Optional[List[Tensor]] = None
        for y, w in zip(outputs, weights):
            found = _grads(y, x, w, create_graph, strict)
            total = found if total is None else [a + b for a, b in zip(total, found)]
    assert total is not None
    return _done(given, create_graph), _done(_like(total, inputs), create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), and its Jacobian multiplied by ``v`` (like the inputs) from the right, by differentiating twice."""
    with enable_grad():
        x = _leaves(inputs, create_graph)
        given = func(*x)
        ways = [_core.ones_like(t) for t in x] if v is None else list(_tuple(v))
        products = []
        for y in _tuple(given):
            dummy = zeros_like(y).requires_grad_()
            back = _grads(y, x, dummy, True, strict)
            total = sum((g * w).sum() for g, w in zip(back, ways))
            assert isinstance(total, Tensor)
            products.append(_grads(total, (dummy,), None, create_graph, False)[0])
    return _done(given, create_graph), _done(_like(products, given), create_graph)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """func(*inputs), one number, and its Hessian times ``v``."""
    with enable_grad():
        x = _leaves(inputs, create_graph)
        y = func(*x)
        first = _grads(y.reshape([]), x, None, True, strict)
        ways = [_core.ones_like(t) for t in x] if v is None else list(_tuple(v))
        total = sum((g * w).sum() for g, w in zip(first, ways))
        assert isinstance(total, Tensor)
        found = _grads(total, x, None, create_graph, False)
    return _done(y, create_graph), _done(_like(found, inputs), create_graph)


vhp = hvp  # the Hessian is symmetric
