"""Derivatives as functions of functions; modules called with other parameters than their own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _core, _derivatives, _ops
from ._core import Tensor
from ._vmap import vmap
from ._grad_mode import enable_grad

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp",
           "vmap"]


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


def stack_module_state(models: Sequence[Any]) -> Tuple[Dict[str, Tensor], Dict[str, Tensor]]:
    """Parameters and buffers of modules of one class, each stacked along a new first dimension: an ensemble for ``vmap`` over
    ``functional_call``."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(kind: str) -> Dict[str, Tensor]:
        parts = [dict(getattr(m, kind)()) for m in models]
        made = {name: _ops.stack([part[name].detach() for part in parts]) for name in parts[0]}
        return {name: t.requires_grad_(parts[0][name].requires_grad) for name, t in made.items()}

    return stacked("named_parameters"), stacked("named_buffers")


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


def _of_places(func: Callable[..., Any], argnums: Union[int, Tuple[int, ...]], args: Tuple[Any, ...]) -> Tuple[Any, Any]:
    """``func`` as a function of its arguments ``argnums`` alone, the others being those of ``args``; and these arguments."""
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def of_places(*chosen: Tensor) -> Any:
        given = list(args)
        for place, value in zip(places, chosen):
            given[place] = value
        return func(*given)

    return of_places, tuple(args[p] for p in places)


def jacrev(func: Callable[..., Any], argnums: Union[int, Tuple[int, ...]] = 0) -> Callable[..., Any]:
    """The function that gives the Jacobian of ``func`` for its arguments ``argnums``, row by row."""

    def run(*args: Any) -> Any:
        of_places, chosen = _of_places(func, argnums, args)
        nested = _core.is_grad_enabled() and any_grad(args)
        found = _derivatives.jacobian(of_places, chosen, nested)
        if not isinstance(argnums, int):
            return found
        several = isinstance(found[0], tuple)  # outputs
        return tuple(row[0] for row in found) if several else found[0]

    return run


jacfwd = jacrev


def hessian(func: Callable[..., Any], argnums: Union[int, Tuple[int, ...]] = 0) -> Callable[..., Any]:
    """The function that gives the second derivatives of ``func``, which returns one number."""

    def run(*args: Any) -> Any:
        of_places, chosen = _of_places(func, argnums, args)
        found = _derivatives.hessian(of_places, chosen)
        return found[0][0] if isinstance(argnums, int) else found

    return run


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func(*primals), and the function that multiplies its Jacobian from the left; with ``has_aux`` also the second thing
    that ``func`` returns."""
    leaves: List[Tensor] = []

    def leaf(t: Tensor) -> Tensor:
        made = t.view_as(t) if t.requires_grad else t.detach().requires_grad_()
        leaves.append(made)
        return made

    with enable_grad():
        made = func(*(_map(p, leaf) for p in primals))
    out = made[0] if has_aux else made
    results: List[Tensor] = []
    _map(out, results.append)

    def of(*cotangents: Any) -> Any:
        given: List[Tensor] = []
        for c in cotangents:
            _map(c, given.append)
        total: List[Tensor] = [_core.zeros_like(t) for t in leaves]
        for y, g in zip(results, given):
            if y.requires_grad:
                parts = _core.grad(y, leaves, g, retain_graph=True, allow_unused=True)
                total = [t if part is None else t + part for t, part in zip(total, parts)]
        found = iter(total)
        return tuple(_map(p, lambda _: next(found)) for p in primals)

    shown = _map(out, lambda t: t.detach())
    return (shown, of, made[1]) if has_aux else (shown, of)


def jvp(func: Callable[..., Any], primals: Tuple[Tensor, ...], tangents: Tuple[Tensor, ...]) -> Tuple[Any, Any]:
    """func(*primals), and its Jacobian times ``tangents``, by differentiating twice."""
    return _derivatives.jvp(func, tuple(primals), tuple(tangents))


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ._compat import missing

        missing(__name__, name, __all__)
