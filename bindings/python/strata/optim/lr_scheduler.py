"""Learning rates over time, as torch.optim.lr_scheduler: step() after each optimizer step (or epoch)."""

from __future__ import annotations

import inspect
import json
import math
from bisect import bisect_right
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from .. import _core as C
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "ScheduleLR", "SequentialLR", "StepLR",
]


class LRScheduler:
    """Base: ``get_lr()`` gives the rates of all groups at step ``last_epoch``, counted from 0."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in param_groups when resuming an optimizer")
        self.base_lrs: List[float] = [float(g["initial_lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: List[float] = []
        self.step()

    def get_lr(self) -> List[float]:
        """The rates of all groups now."""
        raise NotImplementedError

    def get_last_lr(self) -> List[float]:
        """The rates that step() set last."""
        return self._last_lr

    def step(self, epoch: Optional[int] = None) -> None:
        """The next step's rates."""
        if epoch is None:
            self.last_epoch += 1
            self._set(self.get_lr())
        else:
            self.last_epoch = epoch
            self._set(self._rates_at(epoch))

    def _rates_at(self, epoch: int) -> List[float]:
        """The rates of a step that does not follow the one before."""
        return self.get_lr()

    def _set(self, rates: Sequence[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates):
            group["lr"] = lr
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]

    def _now(self) -> List[float]:
        return [float(g["lr"]) for g in self.optimizer.param_groups]

    def state_dict(self) -> Dict[str, Any]:
        """All but the optimizer; functions are left out."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a state_dict()."""
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler  # its name before PyTorch 2.0, from which many programs still derive


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(step)``, one function or one for each group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], List[Callable[[int], float]]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self._lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self._lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self._lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self._lambdas)]

    def state_dict(self) -> Dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "_lambdas"}


class MultiplicativeLR(LambdaLR):
    """Each step's rate is the one before times ``lr_lambda(step)``."""

    def get_lr(self) -> List[float]:
        if self.last_epoch <= 0:
            return self._now()
        return [lr * f(self.last_epoch) for lr, f in zip(self._now(), self._lambdas)]


_RECORDS: Dict[str, Any] = {record["name"]: record for record in json.loads(C._schedule_records())}


class _Recorded(LRScheduler):
    """A scheduler whose rates are the engine's: the options of its record are attributes, lists of numbers one for each group.
    Each step starts from what the rate is, so that several schedulers work on one rate, as in ChainedScheduler."""

    _record = ""

    def _schedule(self, group: int = 0) -> C.LrSchedule:
        options = {o["name"]: getattr(self, o["name"]) for o in _RECORDS[self._record]["options"] if hasattr(self, o["name"])}
        options.update(self._of_group(group))
        return C.LrSchedule(self._record, options)

    def _of_group(self, group: int) -> Dict[str, Any]:
        """Options that attributes of the same names do not say."""
        return {}

    def get_lr(self) -> List[float]:
        return [self._schedule(i).next(self.last_epoch, lr, base)
                for i, (lr, base) in enumerate(zip(self._now(), self.base_lrs))]

    def _rates_at(self, epoch: int) -> List[float]:
        return [self._schedule(i)(epoch, base) for i, base in enumerate(self.base_lrs)]

    def _cycle(self, wanted: bool) -> None:
        if wanted:
            for i, group in enumerate(self.optimizer.param_groups):
                _set_momentum(group, self._schedule(i).momentum(self.last_epoch))


class _Whole(_Recorded):
    """One of which the record says all: its options are arguments, in the record's order."""

    _signature = inspect.Signature()

    def __init_subclass__(cls) -> None:
        if "_record" in vars(cls):
            record, kind = _RECORDS[cls._record], inspect.Parameter.POSITIONAL_OR_KEYWORD
            options = [inspect.Parameter(o["name"], kind, default=inspect.Parameter.empty if o["required"] else o["default"])
                       for o in record["options"]]
            cls._signature = inspect.Signature(
                [inspect.Parameter("optimizer", kind), *options, inspect.Parameter("last_epoch", kind, default=-1)])
            cls.__signature__ = cls._signature  # type: ignore[attr-defined]
            cls.__doc__ = record["doc"]

    def __init__(self, *args: Any, **options: Any) -> None:
        given = self._signature.bind(*args, **options)
        given.apply_defaults()
        last_epoch = given.arguments.pop("last_epoch")
        self.__dict__.update(given.arguments)
        super().__init__(self.optimizer, last_epoch)


class StepLR(_Whole):
    _record = "StepLR"


class MultiStepLR(_Whole):
    _record = "MultiStepLR"


class ConstantLR(_Whole):
    _record = "ConstantLR"


class LinearLR(_Whole):
    _record = "LinearLR"


class PolynomialLR(_Whole):
    _record = "PolynomialLR"


class ExponentialLR(_Whole):
    _record = "ExponentialLR"


class CosineAnnealingLR(_Whole):
    _record = "CosineAnnealingLR"


class CosineAnnealingWarmRestarts(_Whole):
    _record = "CosineAnnealingWarmRestarts"
    _FINE = 2**24  # parts of a step: with periods as much longer, whole numbers say where a fractional epoch is
    _part = 0.0  # by how much of a step the rate is ahead of last_epoch

    def step(self, epoch: Optional[float] = None) -> None:
        """The next step's rates, or those of ``epoch``, which need not be whole: ``step(epoch + i / batches)``."""
        if epoch is None and self._part == 0.0:
            return super().step()
        if epoch is None:
            self.last_epoch += 1
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self.last_epoch = math.floor(epoch)
            self._part = float(epoch) - self.last_epoch
        fine = self._FINE if self._part else 1
        self._set(self._rates_at(round((self.last_epoch + self._part) * fine)))

    def _of_group(self, group: int) -> Dict[str, Any]:
        return {"T_0": vars(self)["T_0"] * self._FINE} if self._part else {}


class ScheduleLR(_Recorded):
    """Any of the engine's schedules, by the name of its record: ``ScheduleLR(optimizer, "wsd", total=1000, warmup=50,
    decay=200)``; docs/reference/schedules.md has their options."""

    def __init__(self, optimizer: Optimizer, schedule: str, last_epoch: int = -1, **options: Any) -> None:
        C.LrSchedule(schedule, options)  # says what is wrong
        self._record = schedule
        self.__dict__.update(options)
        LRScheduler.__init__(self, optimizer, last_epoch)


def _check_momentum(optimizer: Optimizer, wanted: bool) -> None:
    if wanted and not any(name in optimizer.defaults for name in ("momentum", "betas")):
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")


def _set_momentum(group: Dict[str, Any], momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class CyclicLR(_Recorded):
    """Up from base_lr to max_lr over ``step_size_up`` steps and down again over ``step_size_down``, for ever (Smith 2017).
    ``mode``: "triangular"; "triangular2", each cycle half as high as the one before; "exp_range", times gamma^step. Or a
    ``scale_fn`` of the cycle's number (from 1) or, with ``scale_mode`` "iterations", of the step. Momentum goes the other
    way, with ``cycle_momentum``."""

    _record = "CyclicLR"

    def __init__(
        self, optimizer: Optimizer, base_lr: Union[float, List[float]], max_lr: Union[float, List[float]],
        step_size_up: int = 2000, step_size_down: Optional[int] = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Optional[Callable[[float], float]] = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        _check_momentum(optimizer, cycle_momentum)
        count = len(optimizer.param_groups)
        bases = list(base_lr) if isinstance(base_lr, (list, tuple)) else [base_lr] * count
        self.max_lrs = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * count
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, bases):
                group["lr"] = group["initial_lr"] = lr
        self.step_size_up = step_size_up
        self.step_size_down = step_size_up if step_size_down is None else step_size_down
        self.mode, self.gamma, self._scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        super().__init__(optimizer, last_epoch)

    def _of_group(self, group: int) -> Dict[str, Any]:
        options: Dict[str, Any] = {"base_lr": self.base_lrs[group], "max_lr": self.max_lrs[group]}
        if self._scale_fn is not None:
            cycle = self.last_epoch // (self.step_size_up + self.step_size_down) + 1
            options.update(mode="triangular", scale=self._scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch))
        return options

    def get_lr(self) -> List[float]:
        self._cycle(self.cycle_momentum)
        return super().get_lr()


class OneCycleLR(_Recorded):
    """Up from max_lr / div_factor to max_lr over pct_start of the steps, then down to that start over final_div_factor
    (Smith and Topin 2018). With ``cycle_momentum`` the momentum (or beta1) goes the other way, from max_momentum to
    base_momentum and back."""

    _record = "OneCycleLR"

    def __init__(
        self, optimizer: Optimizer, max_lr: Union[float, List[float]], total_steps: Optional[int] = None,
        epochs: Optional[int] = None, steps_per_epoch: Optional[int] = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
        max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        _check_momentum(optimizer, cycle_momentum)
        self.total_steps, self.anneal_strategy, self.cycle_momentum = total_steps, anneal_strategy, cycle_momentum
        self.pct_start, self.three_phase, self.base_momentum, self.max_momentum = pct_start, three_phase, base_momentum, max_momentum
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        count = len(optimizer.param_groups)
        self._peaks = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * count
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group["initial_lr"] = self._peaks[i] / div_factor
        super().__init__(optimizer, last_epoch)

    def _of_group(self, group: int) -> Dict[str, Any]:
        return {"max_lr": self._peaks[group], "three_phase": float(self.three_phase)}

    def get_lr(self) -> List[float]:
        self._cycle(self.cycle_momentum)
        return super().get_lr()


class _Several(LRScheduler):
    _schedulers: List[LRScheduler]

    def state_dict(self) -> Dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


class SequentialLR(_Several):
    """Schedulers one after the other; the next one starts at each milestone."""

    def __init__(
        self, optimizer: Optimizer, schedulers: List[LRScheduler], milestones: List[int], last_epoch: int = -1
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
                f"points, but got number of schedulers {len(schedulers)} and the number of milestones to be equal to "
                f"{len(milestones)}"
            )
        self.optimizer, self._schedulers, self._milestones = optimizer, schedulers, list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in schedulers:
            scheduler.last_epoch -= 1
        schedulers[0].step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: Optional[int] = None) -> None:
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Schedulers at the same time: each step() steps them all, one after the other, on the same rates."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Optimizer] = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        self.optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError("ChainedScheduler does not support ReduceLROnPlateau, which wants a quantity")
            if scheduler.optimizer is not self.optimizer:
                raise ValueError(
                    f"ChainedScheduler expects all schedulers to belong to one optimizer, but that at index {i} has another"
                )
        self._schedulers = list(schedulers)
        self._last_lr = self._now()

    def step(self, epoch: Optional[int] = None) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._now()


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` where a quantity, given to step(), has not become better for ``patience`` steps."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: Union[float, List[float]] = 0.0, eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode {mode} or threshold_mode {threshold_mode} is unknown!")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [float(min_lr)] * count
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = self._now()

    def step(self, metrics: Any = None, epoch: Optional[int] = None) -> None:  # type: ignore[override]
        """Takes the quantity's newest value."""
        if metrics is None:
            raise TypeError("ReduceLROnPlateau.step() wants the quantity that is watched")
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        seen = self.best if math.isfinite(self.best) else math.nan
        rule = C.Plateau(self.mode == "max", self.factor, self.patience, self.threshold, self.threshold_mode == "rel", self.cooldown,
                         self.eps, seen, self.num_bad_epochs, self.cooldown_counter)
        if rule.step(current):
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                group["lr"] = rule.lowered(float(group["lr"]), least)
        self.num_bad_epochs, self.cooldown_counter = rule.bad, rule.cooling
        if not math.isnan(rule.best):
            self.best = rule.best
        self._last_lr = self._now()


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
