"""Optimizers with torch.optim's surface over the engine's fused ones, and the base of those written in Python. The engine's
take parameters of float32, bfloat16, float16 or float64, in any mixture; arithmetic and state are float32 (float64 for
float64). Parameters of 16 bits lose updates smaller than half of their last bit, unless one of these options, which each of
the engine's optimizers has, is given; they are fixed when it is made:

``master_weights``: the state has the weights in float32, and the parameter is always their rounding (4 bytes each more).
``compensated_weights``: the same for bfloat16 in 2 bytes each, what the parameter lacks of float32; not for Adafactor.
``stochastic_rounding``: bfloat16 parameters are rounded up or down at random, exactly on average; with ``rounding_seed``.
``low_state``: moments of bfloat16 parameters in bfloat16 too, as torch keeps them; rounded to nearest, slow ones never move.

and of parameters of any type but float64:

``state_8bit``: moments in 8 bits, with a scale for each 256 elements (``exp_avg`` and ``exp_avg_absmax`` in the state), for
parameters of ``min_8bit_size`` elements or more.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Tuple, Union

from .. import _core as C
from .._core import Tensor
from .._functions import tensor
from .._grad_mode import enable_grad, no_grad
from ..nn.hooks import RemovableHandle
from . import _layout

__all__ = ["Optimizer"]

ParamGroup = Dict[str, Any]
_NOTHING = nullcontext()
Params = Union[Iterable[Tensor], Iterable[ParamGroup], Iterable[Tuple[str, Tensor]]]


# Of every one of the engine's: what becomes of small updates of parameters of 16 bits, how moments are kept.
_LOW = ("master_weights", "compensated_weights", "stochastic_rounding", "low_state", "state_8bit", "min_8bit_size",
        "rounding_seed")


class Optimizer:
    """What every optimizer does. ``params``: tensors, (name, tensor) pairs, or dictionaries, each a group with options of
    its own. Options stand in ``param_groups`` and may be changed there between steps. An optimizer of one's own derives
    from it and writes step(), keeping what it needs in ``self.state[parameter]``."""

    _kind: str = ""  # the engine's name of it; "" where Python does the work
    _takes: Dict[str, Any] = {}  # arguments here, and the options of the engine that they are
    # What PyTorch's groups have beside the options: how it computes, which is one way here.
    _beside: Dict[str, Any] = {"foreach": None, "differentiable": False}

    def __init__(self, params: Params, defaults: Dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor")
        self.defaults = defaults
        self._taken = 0  # steps
        self.param_groups: List[ParamGroup] = []
        self._step_pre_hooks: Dict[int, Callable[..., Any]] = {}
        self._step_post_hooks: Dict[int, Callable[..., Any]] = {}
        self._engine: Optional[C.Optimizer] = None
        self._around: Any = None  # st.memory.budget
        self._own_state: Dict[Tensor, Dict[str, Any]] = defaultdict(dict)
        given: List[Any] = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self._append(dict(group))
        self._build()

    def _is_pytorchs(self) -> bool:
        """Whether its state and groups are laid out as PyTorch's; those of one written elsewhere are its own."""
        return bool(self._kind) or type(self).__module__.startswith("strata.")

    # ---- groups

    def _append(self, group: ParamGroup) -> None:
        found = group["params"]
        items: List[Any] = [found] if isinstance(found, Tensor) else list(found)
        if items and isinstance(items[0], tuple):
            group["param_names"] = [name for name, _ in items]
            items = [t for _, t in items]
        for item in items:
            if not isinstance(item, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(item).__name__}")
            if not item.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        group["params"] = items
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        if self._is_pytorchs():
            for name, value in self._beside.items():
                group.setdefault(name, value)
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        if len({id(p) for p in items}) != len(items) or any(id(p) in seen for p in items):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Adds parameters with options of their own; what the others have learned stays."""
        state = self._engine.state_dict() if self._engine is not None else {}
        self._append(dict(param_group))
        self._build()
        self._restore(state)

    def _options(self, group: ParamGroup) -> Dict[str, Any]:
        """A group's options under the names of the optimizer's record."""
        options: Dict[str, Any] = {}
        for name, to in (*self._takes.items(), *((name, name) for name in _LOW if name in group)):  # old pickles lack some
            value = group[name]
            for one, key in zip(value, to) if isinstance(to, tuple) else ((value, to),):
                if key.startswith("-"):
                    options[key[1:]] = -float(one)
                elif one is not None:
                    options[key] = float(one.item()) if isinstance(one, Tensor) else one
        return options

    def _switch(self, differentiable: bool = False, decoupled_weight_decay: bool = False) -> None:
        """PyTorch's arguments that are refused, or choose another of the engine's optimizers."""
        if differentiable:
            raise ValueError(f"{type(self).__name__}: differentiable is not supported")
        if decoupled_weight_decay and self._kind == "adam":
            self._kind = "adamw"
            self._beside = {**self._beside, "decoupled_weight_decay": True}

    def _build(self) -> None:
        if not self._kind:
            return
        if self._around is not None:
            raise ValueError(f"{type(self).__name__}: within st.memory.budget no state is loaded and no group added: do that before")
        named: List[Tuple[List[Tuple[str, Tensor]], Dict[str, Any]]] = []
        index = 0
        for group in self.param_groups:
            params = []
            for p in group["params"]:
                params.append((str(index), p))
                index += 1
            named.append((params, self._options(group)))
        self._engine = C.Optimizer(self._kind, named)

    def _restore(self, state: Dict[str, Tensor]) -> None:
        if state:
            assert self._engine is not None
            self._engine.load_state_dict(list(state.items()))

    def _sync(self) -> "C.Optimizer":
        assert self._engine is not None
        for i, group in enumerate(self.param_groups):
            self._engine.set_options(i, self._options(group))
        return self._engine

    # ---- steps

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Updates every parameter that has a gradient. ``closure`` computes the loss (and gradients) first; returns it."""
        for hook in list(self._step_pre_hooks.values()):
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._update(1.0)
        for hook in list(self._step_post_hooks.values()):
            hook(self, (closure,), {})
        return loss

    def _maximizes(self) -> bool:
        found = {bool(group.get("maximize", False)) for group in self.param_groups}
        if len(found) != 1:
            raise ValueError(f"{type(self).__name__}: maximize must be the same in all groups")
        return found.pop()

    def _before_replays(self) -> None:
        """A graph that is being captured: its replays take the options of their time, or say that they cannot."""
        known = weakref.ref(self)
        numbers = [{k: v for k, v in group.items() if k not in ("params", "initial_lr")} for group in self.param_groups]

        def update() -> None:
            now = known()
            if now is None:
                return
            now._taken += 1
            if now._engine is not None:
                now._sync()
            elif any(group[k] != v for group, kept in zip(now.param_groups, numbers) for k, v in kept.items()):
                raise C.DeviceError(f"{type(now).__name__}: an option was changed, but its update computes in Python, with the "
                                    "options of when it was captured in a CUDA graph")

        C.cuda_before_replays(update)

    def _update(self, grad_scale: float) -> None:
        with self._budgeted():
            self._update_now(grad_scale)

    def _budgeted(self) -> ContextManager[Any]:
        """Around an update: st.memory.budget, which this ends a step of, unless it looks from outside."""
        if self._around is None or "step" in self.__dict__:
            return _NOTHING
        around: ContextManager[Any] = self._around._step()
        return around

    def _update_now(self, grad_scale: float) -> None:
        self._taken += 1
        if C.cuda_capturing():
            self._before_replays()
        if self._engine is not None:
            self._sync().step(-grad_scale if self._maximizes() else grad_scale)
            return
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    scale = -grad_scale if group.get("maximize") else grad_scale
                    grad = p.grad.detach()
                    self._rule(p, grad if scale == 1.0 else grad * scale, self._own_state[p], group)

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        """The update of one parameter, for optimizers written in Python."""
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    def step_clipped(self, max_norm: float) -> float:
        """Scales the gradients so that their joint 2-norm is at most ``max_norm``, and steps, in one pass; the norm before.
        Where it is not finite nothing is updated."""
        if self._engine is None or self._maximizes():
            params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            norm = C.clip_grad_norm(params, float(max_norm))
            if math.isfinite(norm):
                self.step()
            return norm
        self._taken += 1
        with self._budgeted():
            return self._sync().step_clipped(float(max_norm))

    def set_home(self, where: str = "own", *, who: str = "device", cpu_share: float = -1.0, group_bytes: int = 64 << 20,
                 gradients_leave: bool = False, delayed: bool = False) -> None:
        """Where the state lives from now on, and who updates from it: ``where`` is a tier ("host", which is page-locked beside
        a card; "disk"; "own", the parameters' device), from which groups of ``group_bytes`` come for the update; ``who`` is the
        "device", the "cpu", or both ("split", ``cpu_share`` of the elements by the CPU; below 0 a share that is measured).
        ``gradients_leave`` and ``delayed`` as in C++'s StateHome. Only for the engine's optimizers: ValueError else."""
        if self._engine is None:
            raise ValueError(f"{type(self).__name__} is written in Python: its state has no home")
        C.optimizer_set_home(self._engine, where, who, float(cpu_share), group_bytes, gradients_leave, delayed)

    def finish(self) -> None:
        """Waits for the update that a ``delayed`` home has under way."""
        if self._engine is not None:
            C.optimizer_finish(self._engine)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = p.grad.detach().zero_()

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` runs before each step()."""
        return RemovableHandle(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` runs after each step()."""
        return RemovableHandle(self._step_post_hooks, hook)

    # ---- state

    @property
    def state(self) -> Dict[Tensor, Dict[str, Any]]:
        """What is kept for each parameter, by the parameter; tensors that share the optimizer's storage."""
        if not self._kind:
            return self._own_state
        by_index = self._state_by_index()
        found: Dict[Tensor, Dict[str, Any]] = defaultdict(dict)  # empty for a parameter without, as PyTorch's
        for i, p in enumerate(p for group in self.param_groups for p in group["params"]):
            if i in by_index:
                found[p] = by_index[i]
        return found

    def _state_by_index(self) -> Dict[int, Dict[str, Any]]:
        by_index: Dict[int, Dict[str, Any]] = defaultdict(dict)
        if self._engine is None:
            for i, p in enumerate(p for group in self.param_groups for p in group["params"]):
                if p in self._own_state:
                    by_index[i] = self._own_state[p]
            return dict(by_index)
        for key, value in self._engine.state_dict().items():
            index, _, name = key.partition(".")
            by_index[int(index)][name] = value
        return dict(by_index)

    def state_dict(self) -> Dict[str, Any]:
        """{"state": {number: {name: tensor}}, "param_groups": [options, parameters as numbers]}, laid out as PyTorch's;
        st.save() takes it."""
        groups = []
        index = 0
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = list(range(index, index + len(group["params"])))
            index += len(group["params"])
            groups.append(packed)
        state = self._state_by_index()
        index = 0
        if self._engine is not None:
            self._sync()
        for number, group in enumerate(self.param_groups):
            for p in group["params"]:
                if index in state and self._is_pytorchs():
                    state[index] = _layout.of_state(self._engine, number, state[index], self._taken, p)
                index += 1
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a state_dict(), PyTorch's too, options included. ValueError where groups or parameters do not
        correspond."""
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, saved in zip(self.param_groups, groups):
            if len(mine["params"]) != len(saved["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        for mine, saved in zip(self.param_groups, groups):
            for key, value in saved.items():
                if key not in ("params", "param_names"):
                    mine[key] = tuple(value) if key == "betas" else value
        self._build()
        params = [p for group in self.param_groups for p in group["params"]]
        state = {int(index): entries for index, entries in state_dict["state"].items()}
        self._taken = max([int(entries.get("step", 0)) for entries in state.values()], default=0)
        if self._is_pytorchs():
            state = {i: _layout.of_file(self._kind, entries, params[i]) for i, entries in state.items()}
        if self._engine is None:
            self._own_state = defaultdict(dict)
            for index, entries in state.items():
                # A copy: what was loaded may be loaded again.
                self._own_state[params[int(index)]] = {
                    k: v.detach().clone().to(params[int(index)].device) if isinstance(v, Tensor) else v
                    for k, v in entries.items()}
            return
        flat: Dict[str, Tensor] = {}
        for index, entries in state.items():
            for name, value in entries.items():
                flat[f"{index}.{name}"] = value if isinstance(value, Tensor) else tensor(value)
        self._restore(flat)

    def __getstate__(self) -> Dict[str, Any]:
        return {"defaults": self.defaults, "param_groups": self.param_groups, "saved": self.state_dict()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.defaults, self.param_groups = state["defaults"], state["param_groups"]
        self._step_pre_hooks, self._step_post_hooks = {}, {}
        self._engine, self._around, self._own_state, self._taken = None, None, defaultdict(dict), 0
        self._build()
        self.load_state_dict(state["saved"])

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k not in ("params", "param_names"))
        return text + ")"
