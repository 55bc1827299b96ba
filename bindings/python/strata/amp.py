"""Mixed precision: autocast, and the loss scale that float16 needs."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, Dict, Optional, Set

from . import _core as C
from ._autocast import autocast
from ._core import Tensor
from ._functions import tensor
from ._grad_mode import no_grad
from .optim import Optimizer

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows the kind of device."""
    return device_type in ("cpu", "cuda")


def custom_fwd(fwd: Any = None, *, device_type: str = "cpu", cast_inputs: Any = None) -> Any:
    """Decorates the forward() of an autograd.Function: with ``cast_inputs``, floating arguments in that dtype, and autocast
    off inside."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._autocast = C.is_autocast_enabled()
        if cast_inputs is None or not ctx._autocast:
            return fwd(ctx, *args, **kwargs)
        ctx._autocast = False
        cast = [a.to(cast_inputs) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        with autocast(device_type, enabled=False):
            return fwd(ctx, *cast, **kwargs)

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str = "cpu") -> Any:
    """Decorates the backward() that belongs to a custom_fwd()."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._autocast):
            return bwd(ctx, *args, **kwargs)

    return backward


class GradScaler:
    """torch.amp.GradScaler over the engine's loss scale, which lives on the device.

    >>> scaler = st.amp.GradScaler("cuda")
    >>> scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    """

    def __init__(
        self, device: Any = "cpu", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:
        if enabled and C.device(device).type == "cuda" and C.cuda_device_count() == 0:
            warnings.warn("GradScaler: there is no CUDA device; it does nothing", stacklevel=2)
            enabled = False
        self._enabled = enabled
        self._options = (growth_factor, backoff_factor, growth_interval)
        if enabled:
            self._scaler = C.LossScaler(device, init_scale, growth_factor, backoff_factor, growth_interval)
        self._unscaled: Set[int] = set()
        self._found_inf: Optional[bool] = None

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; waits for the device."""
        return self._scaler.value() if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """outputs times the scale: a tensor, or a list or tuple of such."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return self._scaler.scale(outputs)
        return type(outputs)(self.scale(o) for o in outputs)

    def _look(self, optimizer: Optimizer) -> bool:
        params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        finite = math.isfinite(C.grad_norm(params))
        self._found_inf = bool(self._found_inf) or not finite
        return finite

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients by the scale, in place, so that they can be clipped before step()."""
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        self._look(optimizer)
        inverse = 1.0 / self._scaler.value()
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(inverse)
        self._unscaled.add(id(optimizer))

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step() with unscaled gradients; left out where one is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        finite = self._look(optimizer)
        if not finite:
            return None
        if id(optimizer) in self._unscaled:
            return optimizer.step(*args, **kwargs)
        if type(optimizer).step is not Optimizer.step:  # its own step() reads the gradients themselves
            self.unscale_(optimizer)
            return optimizer.step(*args, **kwargs)
        optimizer._update(1.0 / self._scaler.value())
        return None

    def update(self, new_scale: Optional[float] = None) -> None:
        """Moves the scale by what was found since the last call."""
        if not self._enabled:
            return
        growth, backoff, interval = self._options
        scale, count = self._scaler.state().tolist()
        if new_scale is not None:
            scale, count = float(new_scale), 0.0
        elif self._found_inf is None:
            raise RuntimeError("No inf checks were recorded prior to update.")
        elif self._found_inf:
            scale, count = scale * backoff, 0.0
        elif count + 1 >= interval:
            scale, count = scale * growth, 0.0
        else:
            count += 1
        self._scaler.load_state(tensor([scale, count], dtype=C.float64))
        self._unscaled.clear()
        self._found_inf = None

    def state_dict(self) -> Dict[str, float]:
        """The scale, and the finite steps since it last changed."""
        if not self._enabled:
            return {}
        scale, count = self._scaler.state().tolist()
        return {"scale": scale, "growth_tracker": count}

    def load_state_dict(self, state_dict: Dict[str, float]) -> None:
        """Goes on from a state_dict()."""
        if self._enabled:
            state = [float(state_dict["scale"]), float(state_dict["growth_tracker"])]
            self._scaler.load_state(tensor(state, dtype=C.float64))
