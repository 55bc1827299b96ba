"""Learning rates over time, as torch.optim.lr_scheduler: step() after each optimizer step (or epoch)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
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


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._now()
        return [lr * self.gamma for lr in self._now()]

    def _rates_at(self, epoch: int) -> List[float]:
        return [base * self.gamma ** (epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at each of the milestones."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        times = Counter(self.milestones)[self.last_epoch]
        return [lr * self.gamma**times for lr in self._now()]

    def _rates_at(self, epoch: int) -> List[float]:
        return [base * self.gamma ** bisect_right(self.milestones, epoch) for base in self.base_lrs]


class _FactorLR(LRScheduler):
    """The initial rate times a factor of the step. Each step multiplies what the rate is by the factor's change, so that
    several schedulers work on one rate, as in ChainedScheduler."""

    def _factor(self, epoch: int) -> float:
        raise NotImplementedError

    def get_lr(self) -> List[float]:
        before = self._factor(self.last_epoch - 1) if self.last_epoch > 0 else 1.0
        now = self._factor(self.last_epoch)
        return [lr if now == before else lr * (now / before) if before else base * now
                for lr, base in zip(self._now(), self.base_lrs)]

    def _rates_at(self, epoch: int) -> List[float]:
        return [base * self._factor(epoch) for base in self.base_lrs]


class ConstantLR(_FactorLR):
    """Times ``factor`` for the first ``total_iters`` steps."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class LinearLR(_FactorLR):
    """From start_factor to end_factor of the rate in a straight line over ``total_iters`` steps."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        part = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * part


class PolynomialLR(_FactorLR):
    """The rate times (1 - step / total_iters)^power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        left: float = (1.0 - min(epoch, self.total_iters) / self.total_iters) ** self.power
        return left


class ExponentialLR(LRScheduler):
    """Times ``gamma`` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return self._now() if self.last_epoch == 0 else [lr * self.gamma for lr in self._now()]

    def _rates_at(self, epoch: int) -> List[float]:
        return [base * self.gamma**epoch for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the rate to ``eta_min`` over ``T_max`` steps (Loshchilov and Hutter, SGDR, 2017), and back."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _part(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> List[float]:
        if self.last_epoch == 0:
            return self._now()
        if (self.last_epoch - 1) % (2 * self.T_max) == self.T_max:  # up again from nothing
            rise = self._part(self.T_max + 1)
            return [lr + (base - self.eta_min) * rise for lr, base in zip(self._now(), self.base_lrs)]
        change = self._part(self.last_epoch) / self._part(self.last_epoch - 1)
        return [self.eta_min + (lr - self.eta_min) * change for lr in self._now()]

    def _rates_at(self, epoch: int) -> List[float]:
        return [self.eta_min + (base - self.eta_min) * self._part(epoch) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines one after the other, the first of ``T_0`` steps, each ``T_mult`` times as long as the one before."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or T_mult < 1:
            raise ValueError(f"Expected positive integer T_0 and T_mult >= 1, but got {T_0} and {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, 0
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        at, period = self.last_epoch, self.T_0
        while at >= period:
            at -= period
            period *= self.T_mult
        self.T_cur, self.T_i = at, period
        part = (1 + math.cos(math.pi * at / period)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]


def _check_momentum(optimizer: Optimizer, wanted: bool) -> None:
    if wanted and not any(name in optimizer.defaults for name in ("momentum", "betas")):
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")


def _set_momentum(group: Dict[str, Any], momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr over ``step_size_up`` steps and down again over ``step_size_down``, for ever (Smith 2017).
    ``mode``: "triangular"; "triangular2", each cycle half as high as the one before; "exp_range", times gamma^step. Or a
    ``scale_fn`` of the cycle's number (from 1) or, with ``scale_mode`` "iterations", of the step. Momentum goes the other
    way, with ``cycle_momentum``."""

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
        self.mode, self.gamma, self._scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        super().__init__(optimizer, last_epoch)

    def _scale(self, x: float) -> float:
        if self._scale_fn is not None:
            return self._scale_fn(x)
        if self.mode == "triangular":
            return 1.0
        return float(2.0 ** (1 - x) if self.mode == "triangular2" else self.gamma**x)

    def get_lr(self) -> List[float]:
        length = self.step_size_up + self.step_size_down
        cycle, at = self.last_epoch // length + 1, self.last_epoch % length
        part = at / self.step_size_up if at <= self.step_size_up else (length - at) / self.step_size_down
        height = part * self._scale(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                _set_momentum(group, self.max_momentum - (self.max_momentum - self.base_momentum) * height)
        return [base + (most - base) * height for base, most in zip(self.base_lrs, self.max_lrs)]


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr over pct_start of the steps, then down to that start over final_div_factor
    (Smith and Topin 2018). With ``cycle_momentum`` the momentum (or beta1) goes the other way, from max_momentum to
    base_momentum and back."""

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
        count = len(optimizer.param_groups)
        peaks = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * count
        if three_phase:
            ends = [pct_start * total_steps - 1, 2 * pct_start * total_steps - 2, total_steps - 1.0]
            points = [("initial", "peak"), ("peak", "initial"), ("initial", "least")]
            momenta = [(max_momentum, base_momentum), (base_momentum, max_momentum), (max_momentum, max_momentum)]
        else:
            ends = [pct_start * total_steps - 1, total_steps - 1.0]
            points = [("initial", "peak"), ("peak", "least")]
            momenta = [(max_momentum, base_momentum), (base_momentum, max_momentum)]
        self._ends, self._points, self._momenta = ends, points, momenta
        self._rates = [
            {"initial": peak / div_factor, "peak": peak, "least": peak / div_factor / final_div_factor} for peak in peaks
        ]
        for group, rates in zip(optimizer.param_groups, self._rates):
            if last_epoch == -1:
                group["initial_lr"] = rates["initial"]
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2 * (1 + math.cos(math.pi * part))

    def get_lr(self) -> List[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        begin = 0.0
        for i, end in enumerate(self._ends):
            if step <= end or i == len(self._ends) - 1:
                part = (step - begin) / (end - begin) if end > begin else 1.0
                if self.cycle_momentum:
                    momentum = self._between(*self._momenta[i], part)
                    for group in self.optimizer.param_groups:
                        _set_momentum(group, momentum)
                a, b = self._points[i]
                return [self._between(rates[a], rates[b], part) for rates in self._rates]
            begin = end
        raise AssertionError("there is a last phase")


class SequentialLR(LRScheduler):
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

    def state_dict(self) -> Dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


class ChainedScheduler(LRScheduler):
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

    def state_dict(self) -> Dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


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
        if self._better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                old = float(group["lr"])
                new = max(old * self.factor, least)
                if old - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._now()

    def _better(self, value: float) -> bool:
        if self.threshold_mode == "rel":
            margin = self.threshold if self.mode == "min" else -self.threshold
            wanted = self.best * (1.0 - margin) if math.isfinite(self.best) else self.best
        else:
            wanted = self.best - self.threshold if self.mode == "min" else self.best + self.threshold
        return value < wanted if self.mode == "min" else value > wanted


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
