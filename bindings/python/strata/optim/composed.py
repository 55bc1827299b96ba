"""Optimizers written with tensor operations, parameter by parameter. Arguments, state and formulas are
torch.optim's."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .._core import Tensor, full_like, zeros_like
from .._ops import sign
from .optimizer import Optimizer, ParamGroup, Params, _unsupported

__all__ = ["ASGD", "Rprop"]


class Rprop(Optimizer):
    """Steps that grow while the gradient keeps its sign (Riedmiller and Braun 1993)."""

    def __init__(
        self, params: Params, lr: float = 1e-2, etas: Tuple[float, float] = (0.5, 1.2),
        step_sizes: Tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: Optional[bool] = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:
        _unsupported("Rprop", differentiable=differentiable)
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, prev=zeros_like(p), step_size=full_like(p, float(group["lr"])))
        state["step"] += 1
        turned = sign(grad * state["prev"])
        (less, more), (least, most) = group["etas"], group["step_sizes"]
        factor = (turned > 0).to(p.dtype) * (more - 1) + (turned < 0).to(p.dtype) * (less - 1) + 1
        size = state["step_size"]
        size.copy_((size * factor).clamp(least, most))
        grad = grad.masked_fill(turned < 0, 0)
        p.sub_(sign(grad) * size)
        state["prev"].copy_(grad)


class ASGD(Optimizer):
    """Gradient descent that also keeps the mean of the parameters (Polyak and Juditsky 1992), as state "ax"."""

    def __init__(
        self, params: Params, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: Optional[bool] = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        _unsupported("ASGD", differentiable=differentiable)
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        lr = float(group["lr"])
        if not state:
            state.update(step=0, eta=lr, mu=1.0, ax=zeros_like(p))
        state["step"] += 1
        if group["weight_decay"]:
            grad = grad + p * group["weight_decay"]
        p.mul_(1 - group["lambd"] * state["eta"]).add_(grad, alpha=-state["eta"])
        ax = state["ax"]
        if state["mu"] == 1:
            ax.copy_(p)
        else:
            ax.add_(p - ax, alpha=state["mu"])
        state["eta"] = lr / (1 + group["lambd"] * lr * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])
