"""Memory tiers: a training loop within a budget, and the parts that keep things elsewhere while nobody uses them.

    with st.memory.budget(device="20GiB", host="100GiB", disk="/scratch", model=model, optimizer=optimizer) as plan:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(plan.describe())

Losses, gradients and weights are bit for bit those of the loop without it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union, cast

from . import _core as C
from ._core import Tensor
from .errors import OutOfMemoryError
from .nn.container import ModuleDict, ModuleList, Sequential
from .nn.module import Module
from .optim.lbfgs import LBFGS
from .optim.optimizer import Optimizer

__all__ = ["Streamed", "budget", "move_parameters", "near_stats", "offload", "recompute", "set_near_limit", "tier", "use_disk"]

Bytes = Union[None, int, str]
Folders = Union[None, str, Sequence[str]]


def _folders(disk: Folders) -> str:
    return "" if disk is None else disk if isinstance(disk, str) else ":".join(disk)


def _kind(module: Module) -> str:
    if isinstance(module, Sequential):
        return "Sequential"
    return "ModuleList" if isinstance(module, (ModuleList, ModuleDict)) else type(module).__name__


def _tree(model: Module) -> Tuple[List[Tuple[str, str]], List[Tuple[str, Tensor]]]:
    """What the engine has to know of a network: its modules' paths and kinds, its parameters."""
    if not isinstance(model, Module):
        raise TypeError(f"model must be a Module, got {type(model).__name__}")
    return [(name, _kind(m)) for name, m in model.named_modules()], list(model.named_parameters())


class budget:
    """Keeps an ordinary loop over ``model`` and ``optimizer`` to so many bytes of each tier: ``device`` (of a card's memory;
    of RAM where the model is on the CPU), ``host`` (of the host's beside a card) and folders on a ``disk``. Bytes are ints
    or texts ("7.2GiB"). Each optimizer.step() ends a step: any number of forward and backward passes, evaluation between.

    The first two steps run with as much elsewhere as can be, and the second is recorded; what is where from the third on
    is planned from that. ``activations`` ("keep", "host", "disk"), ``recompute`` ("none", "blocks"), ``state`` and
    ``parameters`` ("device", "host", "disk") and ``update`` ("device", "cpu", "split") say what the plan would choose.
    An optimizer written in Python keeps state and weights where they are.

    The device's memory for tensors is bounded as long as it lasts: a request past it is an OutOfMemoryError that names a
    budget to try. At the end weights and state return to the device where there is room; else they stay where they are,
    and are read there. One thread, one budget at a time for each device."""

    def __init__(self, device: Bytes = None, host: Bytes = None, disk: Folders = None, *, model: Module, optimizer: Optimizer,
                 activations: str = "auto", recompute: str = "auto", state: str = "auto", update: str = "auto",
                 parameters: str = "auto") -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"budget: optimizer must be an Optimizer, got {type(optimizer).__name__}")
        if isinstance(optimizer, LBFGS):
            raise ValueError("budget: LBFGS computes losses within its step(), so that a step has no end before it")
        self._keys = {"device": "" if device is None else str(device), "host": "" if host is None else str(host),
                      "disk": _folders(disk), "activations": activations, "recompute": recompute, "state": state,
                      "update": update, "parameters": parameters}
        self._model, self._optimizer = model, optimizer
        self._scope: Optional[C.Budget] = None
        self._last: Dict[str, Any] = {}

    def __enter__(self) -> "budget":
        if self._optimizer._around is not None:
            raise ValueError("budget: the optimizer is within one already")
        modules, parameters = _tree(self._model)
        self._scope = C.Budget(modules, parameters, self._optimizer._engine, self._keys)
        self._optimizer._around = self
        # A step() of its own is seen from outside.
        if type(self._optimizer).step is not Optimizer.step:
            inner = self._optimizer.step

            def step(*args: Any, **kwargs: Any) -> Any:
                with self._step():
                    return inner(*args, **kwargs)

            self._optimizer.__dict__["step"] = step
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        scope = self._scope
        assert scope is not None
        self._last = {"plan": scope.plan(), "planned": scope.planned, "peak": scope.peak, "text": scope.describe()}
        advice = scope.advice() if isinstance(error, OutOfMemoryError) else ""
        self._optimizer._around = None
        self._optimizer.__dict__.pop("step", None)
        try:
            scope.close()
        finally:
            self._scope = None
        if advice:
            raise OutOfMemoryError(f"{error}\n{advice}") from error

    def _step(self) -> "_Update":
        assert self._scope is not None
        return _Update(self._scope)

    @property
    def planned(self) -> bool:
        """Whether the steps go by a plan yet: from the third on."""
        return bool(self._scope.planned if self._scope is not None else self._last.get("planned", False))

    @property
    def plan(self) -> Dict[str, Any]:
        """What is where now, and the forecast: weights, state, activations (places), leaving, kept, peak_device, peak_host,
        peak_disk, peak_without (bytes), recomputed (parts), seconds, seconds_without, bound, fits."""
        return dict(self._scope.plan() if self._scope is not None else self._last.get("plan", {}))

    @property
    def peak(self) -> int:
        """Most bytes of the device's tensors at once so far."""
        return int(self._scope.peak if self._scope is not None else self._last.get("peak", 0))

    def describe(self) -> str:
        """The plan as lines, and what was used and moved so far."""
        return str(self._scope.describe() if self._scope is not None else self._last.get("text", ""))

    def __repr__(self) -> str:
        return f"<budget {', '.join(f'{k}={v!r}' for k, v in self._keys.items() if v not in ('', 'auto'))}>"


class _Update:
    """Around an update."""

    def __init__(self, scope: "C.Budget") -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._scope.before_update()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._scope.after_update()
        else:
            self._scope.update_failed()


class offload:
    """Saved tensors leave during the forward passes within it, and return ahead of their backward (whether that is within
    or after): to the ``"host"``'s memory or a ``"disk"`` (:func:`use_disk`). The first passes are measured, and from then on
    so much leaves as costs no more than ``slowdown`` times the step; ``most_kept`` bounds what stays instead, whatever that
    costs. With ``recompute`` what a cheap call made is made again. Gradients have the bits that they have without.

    >>> saved = st.memory.offload("disk")
    >>> with saved:
    ...     loss = model.loss(x)
    >>> loss.backward()
    """

    def __init__(self, away: str = "host", *, recompute: bool = False, min_bytes: int = 1 << 20, keep_bytes: int = 256 << 20,
                 slowdown: float = 1.02, most_kept: int = 0) -> None:
        self._offload = C.SavedTensorOffload(away, recompute, min_bytes, keep_bytes, slowdown, most_kept)

    def __enter__(self) -> "offload":
        self._offload.enter()
        return self

    def __exit__(self, *_: Any) -> None:
        self._offload.exit()

    def stats(self) -> Dict[str, Any]:
        """Bytes saved, sent, fetched, kept, forwarded, recomputed and refused, passes, seconds_waited."""
        return dict(self._offload.stats())


class recompute:
    """Forward in stretches whose calls backward runs again: the same kernels on the same arguments, so the same bits.
    ``inputs`` names the tier where what comes into a stretch is kept; within an :class:`offload` it leaves as other
    saved tensors do.

    >>> with st.memory.recompute() as again:
    ...     for block in blocks:
    ...         again.begin()
    ...         x = block(x)
    ...     again.keep()        # the head, where backward begins
    ...     loss = head(x)
    """

    def __init__(self, inputs: str = "own") -> None:
        self._again = C.Recompute(inputs)

    def __enter__(self) -> "recompute":
        self._again.enter()
        return self

    def __exit__(self, *_: Any) -> None:
        self._again.exit()

    def begin(self) -> None:
        """What forward calls from now on is a stretch of its own."""
        self._again.begin()

    def keep(self) -> None:
        """What follows keeps what it saves."""
        self._again.keep()


class Streamed:
    """Makes the parameters of ``model`` live on a tier, from which they come a part at a time, the next ones while one
    computes. Within ``with streamed:`` (forward and backward of a step) calls bring them ahead; outside they come when they
    are read. At most ``near_bytes`` are near at once, by default as much as ``parts_near`` of the largest part take.
    Gradients go to the tier as they are made, activations of a part are computed again with ``recompute``."""

    def __init__(self, model: Module, tier: str = "pinned", *, near_bytes: int = 0, parts_near: int = 2, gradients: bool = True,
                 recompute: bool = True, inputs: str = "own") -> None:
        modules, parameters = _tree(model)
        self._streamed = C.Streamed(modules, parameters, tier, near_bytes, parts_near, gradients, recompute, inputs)

    def __enter__(self) -> "Streamed":
        self._streamed.enter()
        return self

    def __exit__(self, *_: Any) -> None:
        self._streamed.exit()

    def parts(self) -> List[Dict[str, Any]]:
        """Name, bytes, reads in the last forward and a note of each part."""
        return list(self._streamed.parts())

    def stats(self) -> Dict[str, Any]:
        """bytes_ahead, bytes_late, visits, unforeseen, seconds_waited."""
        return dict(self._streamed.stats())

    def report(self) -> str:
        """A line for each part and one of stats()."""
        return str(self._streamed.report())


def move_parameters(model: Module, tier: str) -> None:
    """Moves a network's parameters with their gradients to a tier of their device; ``"own"`` is the way back."""
    C.move_parameters(*_tree(model), tier)


def tier(name: str) -> "C.TierScope":
    """New tensors of this thread are made on a tier within it: a network that the device has no room for is made so."""
    return C.TierScope(name)


def use_disk(folders: Folders, limit: int = 0) -> None:
    """Tensors of tier "disk" live in files in these folders from now on, in ``limit`` bytes at most (0: as there is room).
    ValueError while tensors live in the files that there were."""
    C.memory_use_disk(_folders(folders), limit)


def near_stats(device: C.DeviceLike, tier: str) -> Dict[str, Any]:
    """What moved between a tier's home and a device's own memory so far."""
    return dict(C.memory_near_stats(cast(C.device, device), tier))


def set_near_limit(bytes: int, device: C.DeviceLike, tier: str) -> int:
    """At most so many bytes of a tier's tensors near at once; 0: as much as there is. The previous number."""
    return int(C.memory_set_near_limit(bytes, cast(C.device, device), tier))
