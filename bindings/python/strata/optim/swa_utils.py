"""Means of a model's weights over training: torch.optim.swa_utils."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

from .. import _core, _ops as ops
from .._core import Tensor
from .._grad_mode import no_grad
from ..nn.module import Module
from ..nn.norm import _RunningNorm
from .lr_scheduler import _Recorded
from .optimizer import Optimizer

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
           "update_bn"]

Average = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """decay times the mean so far plus 1 - decay times the new value."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def average(mean: Tensor, value: Tensor, _: Any) -> Tensor:
        return ops.lerp(mean, value, 1 - decay)

    return average


def get_swa_avg_fn() -> Average:
    """The plain mean of all values."""

    def average(mean: Tensor, value: Tensor, count: Any) -> Tensor:
        return ops.lerp(mean, value, 1 / (float(count) + 1))

    return average


def _of_each(average: Average) -> MultiAverage:
    def run(means: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        with no_grad():
            for mean, value in zip(means, values):
                mean.copy_(average(mean, value, count) if mean.is_floating_point() else value)

    return run


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """get_ema_avg_fn() for a list of tensors, in place."""
    get_ema_avg_fn(decay)  # refuses what is no decay
    return lambda means, values, count: _core.update_averages(list(means), list(values), int(count), decay)


def get_swa_multi_avg_fn() -> MultiAverage:
    """get_swa_avg_fn() for a list of tensors, in place."""
    return lambda means, values, count: _core.update_averages(list(means), list(values), int(count))


class AveragedModel(Module):
    """A copy of a model, ``module``, whose parameters are means of the model's: update_parameters() takes a value in."""

    n_averaged: Tensor

    def __init__(self, model: Module, device: Any = None, avg_fn: Optional[Average] = None,
                 multi_avg_fn: Optional[MultiAverage] = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _core.zeros([], dtype=_core.int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _kept(self, module: Module) -> List[Tensor]:
        return [*module.parameters(), *(module.buffers() if self.use_buffers else ())]

    def update_parameters(self, model: Module) -> None:
        """Takes the model's parameters into the means; its buffers are copied, or averaged with ``use_buffers``."""
        means, values = self._kept(self.module), [t.detach() for t in self._kept(model)]
        average = self.multi_avg_fn or (_of_each(self.avg_fn) if self.avg_fn else get_swa_multi_avg_fn())
        count = int(self.n_averaged.item())
        if count == 0:
            _core.update_averages(means, values, 0)
        else:
            average([m.detach() for m in means], [v.to(m.device) for m, v in zip(means, values)], count)
        with no_grad():
            if not self.use_buffers:
                for kept, new in zip(self.module.buffers(), model.buffers()):
                    kept.copy_(new.detach())
            self.n_averaged.add_(1)


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """The running statistics of the model's batch norms over the batches of a loader, from the start."""
    norms: List[Any] = [m for m in model.modules() if isinstance(m, _RunningNorm) and m.track_running_stats]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    training = model.training
    model.train()
    with no_grad():
        for m in norms:
            m.reset_running_stats()
            m.momentum = None  # the plain mean
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum
    model.train(training)


class SWALR(_Recorded):
    """From the rate there is to ``swa_lr`` in ``anneal_epochs`` steps, by a cosine ("cos") or a line ("linear")."""

    _record = "SWALR"

    def __init__(self, optimizer: Optimizer, swa_lr: Union[float, Sequence[float]], anneal_epochs: int = 10,
                 anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        count = len(optimizer.param_groups)
        rates = [float(swa_lr)] * count if isinstance(swa_lr, (int, float)) else [float(r) for r in swa_lr]
        if len(rates) != count:
            raise ValueError(f"swa_lr must have the same length as optimizer.param_groups: {len(rates)}, {count}")
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        for group, rate in zip(optimizer.param_groups, rates):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _of_group(self, group: int) -> Dict[str, Any]:
        return {"swa_lr": self.optimizer.param_groups[group]["swa_lr"]}
