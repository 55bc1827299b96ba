"""graphed(): a training step as one CUDA graph."""

from __future__ import annotations

import enum
import functools
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _core as C
from ._core import Tensor
from .errors import DeviceError
from .nn.module import Module
from .optim.optimizer import Optimizer

__all__ = ["Graphed", "graphed"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), C.dtype, C.device, slice, range, enum.Enum)
_HELD = (Module, Optimizer, type)


class _Hole:
    """Where a tensor stood."""

    def __repr__(self) -> str:
        return "tensor"


_HOLE = _Hole()


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuples, lists and dictionaries, with ``change`` of what is in them."""
    if isinstance(value, dict):
        return type(value)((k, _map(v, change)) for k, v in value.items()) if type(value) is not dict else {
            k: _map(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, C.Size):
        changed = [_map(v, change) for v in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return change(value)


def _without_tensors(value: Any, into: List[Tensor]) -> Any:
    def change(v: Any) -> Any:
        if not isinstance(v, Tensor):
            return v
        into.append(v)
        return _HOLE

    return _map(value, change)


def _with_tensors(value: Any, tensors: Sequence[Optional[Tensor]]) -> Any:
    left: Iterator[Optional[Tensor]] = iter(tensors)
    return _map(value, lambda v: next(left) if v is _HOLE else v)


class Graphed:
    """What graphed() returns: call it as the step."""

    def __init__(self, step: Callable[..., Any], warmup: int = 1, most: int = 8, fallback: bool = False) -> None:
        if not callable(step):
            raise TypeError(f"graphed: a function is wanted, got {type(step).__name__}")
        self._step = step
        self._options: Dict[str, Any] = dict(warmup=warmup, most=most, fallback=fallback)
        self._steps = C.GraphedSteps(warmup, most, fallback)
        self._held: Dict[int, Any] = {}  # arguments that are known by who they are
        self._warned = False
        self._reason = self._note = ""  # why it was not captured, where that came from the step
        functools.update_wrapper(self, step)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A step that is a method has graphs of its own for each object."""
        if instance is None:
            return self
        bound = Graphed(self._step.__get__(instance, owner), **self._options)
        instance.__dict__[self._step.__name__] = bound
        return bound

    def _name(self, value: Any) -> Any:
        if value is _HOLE or isinstance(value, _PLAIN + (C.Size,)):
            return f"{type(value).__qualname__} {value!r}"
        if isinstance(value, _HELD) or callable(value):
            self._held[id(value)] = value
            return f"{type(value).__qualname__} {id(value)}"
        raise TypeError(
            f"graphed: an argument of type {type(value).__name__}; arguments are tensors, numbers, strings, None, dtypes, devices, "
            "modules, functions, and tuples, lists and dictionaries of those")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors: List[Tensor] = []
        plain: Any = None
        rest = b""
        if not kwargs and all(isinstance(a, Tensor) for a in args):  # the commonest, without taking apart
            tensors.extend(args)
        else:
            plain = _without_tensors((args, kwargs), tensors)
            rest = repr(_map(plain, self._name)).encode()

        def step(given: Sequence[Optional[Tensor]]) -> Tuple[List[Tensor], Any]:
            now, named = (given, {}) if plain is None else _with_tensors(plain, given)
            try:
                made = self._step(*now, **named)
            except Exception as e:
                if C.cuda_capturing():
                    self._reason = str(e)
                if not C.cuda_capturing() or not isinstance(e, DeviceError):
                    raise
                raise DeviceError(
                    f"graphed: the step cannot be captured as one graph: {e}. Nothing of this call was run. Leave that out "
                    "of the step, or let it run op by op with fallback=True") from e
            results: List[Tensor] = []
            shape = _without_tensors(made, results)
            return [t.detach() for t in results], shape

        self._reason = ""
        found, shape = self._steps.call(tensors, rest, step)
        if self._reason:
            self._note = f"graphed: the step runs op by op: {self._reason}"
        if not self._warned and self.note:
            self._warned = True
            warnings.warn(self.note, stacklevel=2)
        return found[0] if shape is _HOLE else _with_tensors(shape, found)

    @property
    def graphs(self) -> int:
        """Graphs that are kept now."""
        return self._steps.graphs

    @property
    def captures(self) -> int:
        """How often the step was captured."""
        return self._steps.captures

    @property
    def replays(self) -> int:
        """Calls that were a replay of a graph that was there."""
        return self._steps.replays

    @property
    def note(self) -> str:
        """With ``fallback``: why the step was not captured when that was last tried; empty where it was."""
        return self._steps.note and (self._note or self._steps.note)

    def clear(self) -> None:
        """Drops the graphs and gives their memory back; the next calls begin anew. After an optimizer's
        load_state_dict(), which makes other tensors than those that the graphs know."""
        self._steps.clear()
        self._held.clear()

    def __repr__(self) -> str:
        return f"<graphed {getattr(self._step, '__qualname__', self._step)!s}: {self.graphs} graphs>"


def graphed(step: Optional[Callable[..., Any]] = None, *, warmup: int = 1, most: int = 8, fallback: bool = False) -> Any:
    """The training step (forward, backward, update) as something to call in its place, with the same bits; also a decorator.

    >>> @st.graphed
    ... def train_step(x, y):
    ...     loss = F.cross_entropy(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     return loss

    On a CUDA device the first ``warmup`` calls with arguments of a kind run the function, the next one records what it queues
    as a CUDA graph, and from then on a call copies its tensors to where the graph reads them and launches it. On the CPU each
    call runs the function. Results are tensors of their own, without history: later calls leave them alone. At most ``most``
    graphs are kept, the one used longest ago goes.

    Tensors in tuples, lists and dictionaries are arguments; anything else among them (numbers, strings, modules) is plain, and
    other plain values, shapes, strides or dtypes make another graph. What the function knows without being given it is read
    and written where it was. What it does on the host (printing, counting, ``scheduler.step()``, which belongs between calls)
    happens at the first calls only, and so does switching a module with ``train()`` or ``eval()``. Random numbers, learning
    rates and the gradients that tensors hold between calls are those of eager.

    What cannot be recorded (``item()`` and whatever else reads a value of the device, GradScaler, an optimizer that computes on
    the host) is a DeviceError that names the op, and nothing of that call has happened. With ``fallback`` the step runs op by
    op then, with one warning."""
    if step is None:
        return lambda function: Graphed(function, warmup, most, fallback)
    return Graphed(step, warmup, most, fallback)
