"""Optimizers written with tensor operations, parameter by parameter. Arguments, state and formulas are
torch.optim's."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

from .._core import Tensor, full_like, zeros_like
from .._ops import nonzero, sign
from .optimizer import Optimizer, ParamGroup, Params, _unsupported

__all__ = ["ASGD", "Rprop", "SparseAdam"]


class Rprop(Optimizer):
    """Steps that grow while the gradient keeps its sign (Riedmiller and Braun 1993)."""

    _beside = {"foreach": None, "capturable": False, "differentiable": False}

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

    _beside = {"foreach": None, "capturable": False, "differentiable": False}

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


class SparseAdam(Optimizer):
    """Adam that leaves rows without a gradient as they are, moments too: for tables of which a step uses a few rows.
    Gradients are dense here; a row of zeros is one without."""

    _beside = {}

    def __init__(self, params: Params, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False) -> None:
        if lr <= 0 or eps <= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"SparseAdam: lr and eps are positive, betas in [0, 1); got {lr}, {eps} and {betas}")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        rows = nonzero((grad.reshape([p.shape[0], -1]) != 0).any(1)).squeeze(1)
        if rows.numel() == 0:
            return
        (beta1, beta2), step = group["betas"], state["step"]
        g = grad.index_select(0, rows)
        mean = state["exp_avg"].index_select(0, rows) * beta1 + g * (1 - beta1)
        square = state["exp_avg_sq"].index_select(0, rows) * beta2 + g * g * (1 - beta2)
        state["exp_avg"].index_copy_(0, rows, mean)
        state["exp_avg_sq"].index_copy_(0, rows, square)
        size = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        p.index_add_(0, rows, mean / (square.sqrt() + group["eps"]), alpha=-size)
