"""Hooks of modules: handles that end them, and what shows gradients to backward hooks."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, List, Optional, Tuple, TYPE_CHECKING

from .. import autograd
from .._core import Tensor

if TYPE_CHECKING:
    from .module import Module


class RemovableHandle:
    """Ends a hook; also a context manager that ends it."""

    _ids = itertools.count()

    def __init__(self, hooks: Dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self.id = next(RemovableHandle._ids)
        self._hooks: Optional[Dict[int, Any]] = hooks
        if prepend:
            rest = dict(hooks)
            hooks.clear()
            hooks[self.id] = hook
            hooks.update(rest)
        else:
            hooks[self.id] = hook

    def remove(self) -> None:
        """The hook is not called again."""
        if self._hooks is not None:
            self._hooks.pop(self.id, None)
            self._hooks = None

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


class _GradTap(autograd.Function):
    """The identity, which shows the gradients that pass it to ``tap`` and lets it replace them."""

    @staticmethod
    def forward(ctx: Any, tap: Callable[[Tuple[Optional[Tensor], ...]], Any], *tensors: Tensor) -> Any:
        ctx.tap = tap
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:
        replaced = ctx.tap(grads)
        return (None, *(grads if replaced is None else replaced))


def _tap(values: Any, tap: Callable[[Tuple[Optional[Tensor], ...]], Any]) -> Tuple[Any, bool]:
    """``values`` (one value or a tuple) with the tensors that have a gradient sent through _GradTap; whether any has."""
    items = values if isinstance(values, tuple) else (values,)
    places = [i for i, v in enumerate(items) if isinstance(v, Tensor) and v.requires_grad]
    if not places:
        return values, False

    def spread(grads: Tuple[Optional[Tensor], ...]) -> Any:
        full: List[Optional[Tensor]] = [None] * len(items)
        for place, grad in zip(places, grads):
            full[place] = grad
        replaced = tap(tuple(full))
        if replaced is None:
            return None
        if len(replaced) != len(items):
            raise RuntimeError(f"a backward hook returned {len(replaced)} gradients, expected {len(items)}")
        return tuple(replaced[place] for place in places)

    tapped = list(items)
    for place, tensor in zip(places, _GradTap.apply(spread, *(items[place] for place in places))):
        tapped[place] = tensor
    return (tuple(tapped) if isinstance(values, tuple) else tapped[0]), True


class BackwardHooks:
    """The full backward hooks of one call of a module."""

    def __init__(self, module: "Module", pre: List[Any], hooks: List[Any]) -> None:
        self.module, self.pre, self.hooks = module, pre, hooks
        self.grad_output: Any = None
        self.inputs = 1
        self.from_input = False

    def at_input(self, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
        self.inputs = len(args)
        tapped, self.from_input = _tap(args, self._on_input)
        return tuple(tapped)

    def at_output(self, result: Any) -> Any:
        return _tap(result, self._on_output)[0]

    def _on_output(self, grads: Tuple[Optional[Tensor], ...]) -> Any:
        replaced = None
        for hook in self.pre:
            out = hook(self.module, grads)
            if out is not None:
                grads = replaced = out if isinstance(out, tuple) else (out,)
        self.grad_output = grads
        if not self.from_input:
            self._call((None,) * self.inputs)
        return replaced

    def _on_input(self, grads: Tuple[Optional[Tensor], ...]) -> Any:
        return self._call(grads)

    def _call(self, grad_input: Tuple[Optional[Tensor], ...]) -> Any:
        replaced = None
        for hook in self.hooks:
            out = hook(self.module, grad_input, self.grad_output)
            if out is not None:
                grad_input = replaced = out if isinstance(out, tuple) else (out,)
        return replaced
