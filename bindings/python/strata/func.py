"""Modules called with other parameters than their own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from . import _core
from ._core import Tensor
from ._grad_mode import enable_grad

__all__ = ["functional_call", "grad", "grad_and_value"]


@contextmanager
def _swapped(module: Any, values: Mapping[str, Tensor]) -> Iterator[None]:
    before: List[Tuple[Dict[str, Any], str, Any]] = []
    try:
        for name, value in values.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            for kind in (owner._parameters, owner._buffers):
                if leaf in kind:
                    before.append((kind, leaf, kind[leaf]))
                    kind[leaf] = value
                    break
            else:
                raise RuntimeError(f"functional_call: {type(module).__name__} has no parameter or buffer '{name}'")
        yield
    finally:
        for kind, leaf, value in reversed(before):
            kind[leaf] = value


def functional_call(
    module: Any, parameter_and_buffer_dicts: Union[Mapping[str, Tensor], Tuple[Mapping[str, Tensor], ...]], args: Any = None,
    kwargs: Optional[Mapping[str, Any]] = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:
    """module(*args) with the given tensors in place of the parameters and buffers of those names."""
    given = parameter_and_buffer_dicts
    values: Dict[str, Tensor] = {}
    for part in (given,) if isinstance(given, Mapping) else given:
        values.update(part)
    if tie_weights:
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        owners = {id(tensor): values[name] for name, tensor in named if name in values}
        for name, tensor in named:
            if name not in values and id(tensor) in owners:
                values[name] = owners[id(tensor)]
    if strict:
        wanted = {n for n, _ in module.named_parameters()} | {n for n, _ in module.named_buffers()}
        if wanted - set(values):
            raise RuntimeError(f"functional_call: missing {sorted(wanted - set(values))}")
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, values):
        return module(*arguments, **(kwargs or {}))


def _map(value: Any, fn: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, Mapping):
        return {k: _map(v, fn) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_map(v, fn) for v in value)
    return value


def grad_and_value(func: Callable[..., Any], argnums: Union[int, Tuple[int, ...]] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of ``func`` for its arguments ``argnums``, and its value."""

    def run(*args: Any, **kwargs: Any) -> Any:
        places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        leaves: List[Tensor] = []

        def leaf(t: Tensor) -> Tensor:
            # What already has a history keeps it, so that gradients of gradients work.
            made = t.view_as(t) if t.requires_grad else t.detach().requires_grad_()
            leaves.append(made)
            return made

        nested = _core.is_grad_enabled() and any_grad(args)
        with enable_grad():
            given = list(args)
            for place in places:
                given[place] = _map(args[place], leaf)
            value = func(*given, **kwargs)
            out = value[0] if has_aux else value
            found = iter(_core.grad(out, leaves, create_graph=nested, allow_unused=True))

            def next_of(t: Tensor) -> Tensor:
                g = next(found)
                return _core.zeros_like(t) if g is None else g

            grads = [_map(args[place], next_of) for place in places]
        kept = value if nested else _map(value, lambda t: t.detach())
        return (grads[0] if isinstance(argnums, int) else tuple(grads)), kept

    return run


def any_grad(values: Any) -> bool:
    """Whether a tensor in there has a history."""
    found: List[bool] = [False]

    def look(t: Tensor) -> None:
        found[0] = found[0] or t.requires_grad

    _map(values, look)
    return found[0]


def grad(func: Callable[..., Any], argnums: Union[int, Tuple[int, ...]] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of ``func``, which returns one number, for its arguments ``argnums``; with
    ``has_aux`` also the second thing that ``func`` returns."""
    both = grad_and_value(func, argnums, has_aux)

    def run(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return run


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ._compat import missing

        missing(__name__, name, __all__)
