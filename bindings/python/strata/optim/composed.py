"""Optimizers written with tensor operations, parameter by parameter. Arguments, state and formulas are torch.optim's."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

from .._core import Tensor, full_like, zeros_like
from .._ops import abs, maximum, sign
from .optimizer import Optimizer, ParamGroup, Params

__all__ = ["ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"]

Betas = Tuple[float, float]


def _decayed(p: Tensor, grad: Tensor, group: ParamGroup) -> Tensor:
    """The gradient with the group's weight decay; decoupled decay goes to the parameter itself."""
    if not group["weight_decay"]:
        return grad
    if group.get("decoupled_weight_decay"):
        p.mul_(1 - float(group["lr"]) * group["weight_decay"])
        return grad
    found: Tensor = grad + p * group["weight_decay"]
    return found


def _moments(grad: Tensor, state: Dict[str, Any], betas: Betas) -> Tuple[Tensor, Tensor]:
    """The running means of the gradient and of its square."""
    mean: Tensor = state["exp_avg"].mul_(betas[0]).add_(grad, alpha=1 - betas[0])
    square: Tensor = state["exp_avg_sq"].mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    return mean, square


class RMSprop(Optimizer):
    """The gradient over the root of the running mean of its square (Tieleman and Hinton 2012)."""

    def __init__(
        self, params: Params, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: Optional[bool] = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                                      centered=centered, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, square_avg=zeros_like(p))
            if group["momentum"] > 0:
                state["momentum_buffer"] = zeros_like(p)
            if group["centered"]:
                state["grad_avg"] = zeros_like(p)
        state["step"] += 1
        grad, alpha = _decayed(p, grad, group), group["alpha"]
        square: Tensor = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"].mul_(alpha).add_(grad, alpha=1 - alpha)
            square = square - mean * mean
        root = square.sqrt().add_(group["eps"])
        lr = float(group["lr"])
        if group["momentum"] > 0:
            p.add_(state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(grad, root), alpha=-lr)
        else:
            p.addcdiv_(grad, root, value=-lr)


class Adagrad(Optimizer):
    """The gradient over the root of the sum of its squares (Duchi, Hazan and Singer 2011)."""

    def __init__(
        self, params: Params, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: Optional[bool] = None, *, maximize: bool = False,
        differentiable: bool = False, fused: Optional[bool] = None,
    ) -> None:
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, sum=full_like(p, group["initial_accumulator_value"]))
        state["step"] += 1
        grad = _decayed(p, grad, group)
        lr = float(group["lr"]) / (1 + (state["step"] - 1) * group["lr_decay"])
        p.addcdiv_(grad, state["sum"].addcmul_(grad, grad).sqrt().add_(group["eps"]), value=-lr)


class Adadelta(Optimizer):
    """Steps of the size of earlier steps (Zeiler, arXiv:1212.5701)."""

    def __init__(
        self, params: Params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: Optional[bool] = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, square_avg=zeros_like(p), acc_delta=zeros_like(p))
        state["step"] += 1
        grad, rho, eps = _decayed(p, grad, group), group["rho"], group["eps"]
        square = state["square_avg"].mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = (state["acc_delta"] + eps).sqrt_() / (square + eps).sqrt_() * grad
        state["acc_delta"].mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-float(group["lr"]))


class Adamax(Optimizer):
    """Adam by the largest gradient instead of the mean square (Kingma and Ba 2015)."""

    def __init__(
        self, params: Params, lr: float = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        foreach: Optional[bool] = None, *, maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_inf=zeros_like(p))
        state["step"] += 1
        grad, (beta1, beta2) = _decayed(p, grad, group), group["betas"]
        mean = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        most = state["exp_inf"]
        most.copy_(maximum(most * beta2, abs(grad) + group["eps"]))
        p.addcdiv_(mean, most, value=-float(group["lr"]) / (1 - beta1 ** state["step"]))


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    def __init__(
        self, params: Params, lr: float = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, mu_product=1.0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        step, beta1, psi = state["step"], group["betas"][0], group["momentum_decay"]
        grad = _decayed(p, grad, group)
        now = beta1 * (1 - 0.5 * 0.96 ** (step * psi))
        after = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * psi))
        state["mu_product"] *= now
        mean, square = _moments(grad, state, group["betas"])
        root = (square / (1 - group["betas"][1] ** step)).sqrt_().add_(group["eps"])
        lr = float(group["lr"])
        p.addcdiv_(grad, root, value=-lr * (1 - now) / (1 - state["mu_product"]))
        p.addcdiv_(mean, root, value=-lr * after / (1 - state["mu_product"] * after))


class RAdam(Optimizer):
    """Adam that steps by momentum alone until its second moment can be trusted (Liu et al., arXiv:1908.03265)."""

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        step, (beta1, beta2) = state["step"], group["betas"]
        grad = _decayed(p, grad, group)
        mean, square = _moments(grad, state, group["betas"])
        lr, correction = float(group["lr"]) / (1 - beta1**step), 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        if length > 5:
            lr *= math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
            p.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-lr * math.sqrt(correction))
        else:
            p.add_(mean, alpha=-lr)


class Rprop(Optimizer):
    """Steps that grow while the gradient keeps its sign (Riedmiller and Braun 1993)."""

    def __init__(
        self, params: Params, lr: float = 1e-2, etas: Tuple[float, float] = (0.5, 1.2),
        step_sizes: Tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: Optional[bool] = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:
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
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize))

    def _rule(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: ParamGroup) -> None:
        lr = float(group["lr"])
        if not state:
            state.update(step=0, eta=lr, mu=1.0, ax=zeros_like(p))
        state["step"] += 1
        grad = _decayed(p, grad, group)
        p.mul_(1 - group["lambd"] * state["eta"]).add_(grad, alpha=-state["eta"])
        ax = state["ax"]
        if state["mu"] == 1:
            ax.copy_(p)
        else:
            ax.add_(p - ax, alpha=state["mu"])
        state["eta"] = lr / (1 + group["lambd"] * lr * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])
