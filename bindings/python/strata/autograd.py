"""Gradients: backward, grad, functions with a gradient of their own, hooks on what is saved, checks."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

from . import _core
from ._core import FunctionCtx, is_grad_enabled
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function", "FunctionCtx", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck",
    "inference_mode", "is_grad_enabled", "no_grad", "once_differentiable", "saved_tensors_hooks", "set_detect_anomaly",
    "set_grad_enabled", "Variable", "functional", "graph",
]


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Adds the gradients of the tensors' weighted sum to every leaf's grad, or to that of the ``inputs`` alone."""
    if inputs is None:
        return _core.backward(tensors, grad_tensors, retain_graph, create_graph)
    wanted = [inputs] if isinstance(inputs, _core.Tensor) else list(inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    found = _core.grad(tensors, wanted, grad_tensors, retain_graph, create_graph, True)
    with set_grad_enabled(create_graph):
        for x, g in zip(wanted, found):
            if g is not None:
                x.grad = g if x.grad is None else x.grad + g


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: Optional[bool] = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> Tuple[_core.Tensor, ...]:
    """The gradients of the outputs' weighted sum for the inputs. Where an output does not depend on an input:
    AutogradError, None with ``allow_unused``, zeros with ``materialize_grads``."""
    if is_grads_batched:
        return _grad_rows(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    unused = materialize_grads if allow_unused is None else allow_unused
    found = _core.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, unused)
    if not materialize_grads:
        return found
    leaves = [inputs] if isinstance(inputs, _core.Tensor) else list(inputs)
    return tuple(_core.zeros_like(x) if g is None else g for g, x in zip(found, leaves))


def _grad_rows(outputs: Any, inputs: Any, grad_outputs: Any, retain_graph: Optional[bool], create_graph: bool,
               allow_unused: Optional[bool], materialize_grads: bool) -> Tuple[_core.Tensor, ...]:
    """grad() for each row of the grad_outputs, side by side."""
    given = [grad_outputs] if isinstance(grad_outputs, _core.Tensor) else list(grad_outputs or [None])
    counts = {int(g.shape[0]) for g in given if g is not None}
    if len(counts) != 1:
        raise ValueError("grad: with is_grads_batched the grad_outputs have one number of rows")
    count, rows = counts.pop(), []
    for i in range(count):
        keep = True if i + 1 < count else retain_graph
        rows.append(grad(outputs, inputs, [None if g is None else g[i] for g in given], keep, create_graph, True, allow_unused,
                         False, materialize_grads))
    joined: List[Any] = [None if column[0] is None else _core.ops["stack"](list(column), 0) for column in zip(*rows)]
    return tuple(joined)


class Function:
    """Derive from it to give code of your own a gradient of your own: static ``forward(ctx, *args)`` (or ``forward(*args)``
    and ``setup_context(ctx, inputs, output)``) and ``backward(ctx, *grads)``, called through ``apply``. Nothing in forward is
    recorded; backward gives one gradient (or None) for each argument of forward, and can be differentiated again where it is
    written with ops."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("a Function needs a static forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a Function needs a static backward(ctx, *grads)")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        """For a ``forward(*args)`` without ctx: keeps here, after it, what backward needs."""
        raise NotImplementedError("setup_context is not implemented.")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        return _core.apply_function(cls if cls.setup_context is Function.setup_context else _whole(cls), *args)


def _whole(cls: Any) -> Any:
    """``cls`` with its forward and setup_context as one forward(ctx, ..)."""
    made = vars(cls).get("_made_whole")
    if made is None:

        def forward(ctx: Any, *args: Any) -> Any:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
            return output

        made = cls._made_whole = type(cls.__name__, (cls,), {"forward": staticmethod(forward)})
    return made


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a backward that is not written with ops: its results have no history."""

    def wrapped(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            return function(ctx, *grads)

    return wrapped


class saved_tensors_hooks:
    """Inside, what ops save for backward goes through ``pack``, and comes back through ``unpack``."""

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self._hooks = (pack, unpack)
        self._scope = _core.SavedTensorHooksScope()

    def __enter__(self) -> None:
        self._scope.enter(*self._hooks)

    def __exit__(self, *error: object) -> None:
        self._scope.exit()


class detect_anomaly:
    """Inside, the first NaN in a result or gradient is an AutogradError that names the op behind it."""

    def __init__(self, check_nan: bool = True) -> None:
        self._scope = _core.AnomalyScope()

    def __enter__(self) -> None:
        self._scope.enter()

    def __exit__(self, *error: object) -> None:
        self._scope.exit()


class set_detect_anomaly(detect_anomaly):
    """detect_anomaly() by a bool: at once, and inside a ``with``."""

    _always: Optional[detect_anomaly] = None

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._mode = mode
        always = set_detect_anomaly._always
        if always is not None:
            always.__exit__()
            set_detect_anomaly._always = None
        self._before = always is not None
        if mode:
            set_detect_anomaly._always = detect_anomaly()
            set_detect_anomaly._always.__enter__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        set_detect_anomaly(self._before)


def Variable(data: _core.Tensor, requires_grad: bool = False) -> _core.Tensor:
    """PyTorch's old name of a tensor: a leaf over the same elements."""
    made = data.detach()
    return made.requires_grad_() if requires_grad else made


def _check(run: Any, fn: Any, inputs: Any, eps: float, atol: float, rtol: float, raise_exception: bool) -> bool:
    if isinstance(inputs, _core.Tensor):
        inputs = (inputs,)
    ok, _, report = run(fn, tuple(inputs), eps, atol, rtol)
    if not ok and raise_exception:
        raise _core.AutogradError(f"gradcheck: {report}")
    return bool(ok)


def gradcheck(fn: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True) -> bool:
    """Compares the gradients of fn(*inputs), in float64, with central differences."""
    return _check(_core._gradcheck, fn, inputs, eps, atol, rtol, raise_exception)


def gradgradcheck(fn: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  raise_exception: bool = True) -> bool:
    """The same for the gradients of the gradients."""
    return _check(_core._gradgradcheck, fn, inputs, eps, atol, rtol, raise_exception)


class graph:
    """torch.autograd.graph's names."""

    saved_tensors_hooks = saved_tensors_hooks


from . import _derivatives as functional  # noqa: E402
