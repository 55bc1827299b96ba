"""Written by bindings/python/optimizers.py from the optimizers' records; do not edit."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .optimizer import Optimizer, Params

__all__ = ["Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "ASGD", "Lion", "NAdam", "RAdam", "RMSprop",
    "Rprop", "SGD", "SparseAdam", "AdamW"]


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012): steps whose size is that of the last ones over that of the gradients."""

    _kind = "adadelta"
    _takes: Dict[str, Any] = {
        "lr": "lr", "rho": "rho", "eps": "eps", "weight_decay": "weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None, "capturable": False, "differentiable": False}

    def __init__(
        self, params: Params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-06, weight_decay: float = 0.0,
        foreach: Optional[bool] = None, *, capturable: bool = False, maximize: bool = False,
        differentiable: bool = False, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, master_weights=master_weights,
            stochastic_rounding=stochastic_rounding, low_state=low_state, rounding_seed=rounding_seed,
        ))


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018) with the relative step: means over rows and columns in place of second
    moments."""

    _kind = "adafactor"
    _takes: Dict[str, Any] = {
        "lr": "lr", "beta2_decay": "-beta2_decay", "eps": ("eps1", "eps2"), "d": "clip_threshold",
        "weight_decay": "weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None}

    def __init__(
        self, params: Params, lr: float = 0.01, beta2_decay: float = -0.8,
        eps: Tuple[Optional[float], float] = (None, 0.001), d: float = 1.0, weight_decay: float = 0.0, *,
        foreach: Optional[bool] = None, maximize: bool = False, master_weights: bool = False,
        stochastic_rounding: bool = False, low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        Optimizer.__init__(self, params, dict(
            lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011): divides by the root of the sum of all squares."""

    _kind = "adagrad"
    _takes: Dict[str, Any] = {
        "lr": "lr", "lr_decay": "lr_decay", "weight_decay": "weight_decay",
        "initial_accumulator_value": "initial_accumulator_value", "eps": "eps",
    }
    _beside: Dict[str, Any] = {"foreach": None, "differentiable": False, "fused": None}

    def __init__(
        self, params: Params, lr: float = 0.01, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, foreach: Optional[bool] = None, *,
        maximize: bool = False, differentiable: bool = False, fused: Optional[bool] = None,
        master_weights: bool = False, stochastic_rounding: bool = False, low_state: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, eps=eps, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): steps by the mean of the gradients over the root of that of their squares."""

    _kind = "adam"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay", "amsgrad": "amsgrad",
    }
    _beside: Dict[str, Any] = {"foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": False}

    def __init__(
        self, params: Params, lr: float = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0.0, amsgrad: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None,
        decoupled_weight_decay: bool = False, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable, decoupled_weight_decay=decoupled_weight_decay)
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))


class Adamax(Optimizer):
    """Adamax (Kingma and Ba, 2015, section 7.1): Adam with the infinity norm."""

    _kind = "adamax"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None, "differentiable": False, "capturable": False}

    def __init__(
        self, params: Params, lr: float = 0.002, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0.0, foreach: Optional[bool] = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False, master_weights: bool = False,
        stochastic_rounding: bool = False, low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))


class ASGD(Optimizer):
    """Averaged gradient descent (Polyak and Juditsky, 1992): the mean of the parameters is kept as state."""

    _kind = "asgd"
    _takes: Dict[str, Any] = {
        "lr": "lr", "lambd": "lambd", "alpha": "alpha", "t0": "t0", "weight_decay": "weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None, "differentiable": False, "capturable": False}

    def __init__(
        self, params: Params, lr: float = 0.01, lambd: float = 0.0001, alpha: float = 0.75, t0: float = 1000000.0,
        weight_decay: float = 0.0, foreach: Optional[bool] = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False, *, master_weights: bool = False,
        stochastic_rounding: bool = False, low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))


class Lion(Optimizer):
    """Lion (Chen et al., 2023): steps by the sign of a mean of gradients; a learning rate 3 to 10 times less than
    that of AdamW."""

    _kind = "lion"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "weight_decay": "weight_decay",
    }
    _beside: Dict[str, Any] = {}

    def __init__(
        self, params: Params, lr: float = 0.0001, betas: Tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0, *, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, weight_decay=weight_decay, master_weights=master_weights,
            stochastic_rounding=stochastic_rounding, low_state=low_state, rounding_seed=rounding_seed,
        ))


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    _kind = "nadam"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay",
        "momentum_decay": "momentum_decay", "decoupled_weight_decay": "decoupled_weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None, "capturable": False, "differentiable": False}

    def __init__(
        self, params: Params, lr: float = 0.002, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0.0, momentum_decay: float = 0.004, decoupled_weight_decay: bool = False, *,
        foreach: Optional[bool] = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, master_weights=master_weights,
            stochastic_rounding=stochastic_rounding, low_state=low_state, rounding_seed=rounding_seed,
        ))


class RAdam(Optimizer):
    """Rectified Adam (Liu et al., 2020): the step is scaled by the variance that the second moment has after few
    updates."""

    _kind = "radam"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay",
        "decoupled_weight_decay": "decoupled_weight_decay",
    }
    _beside: Dict[str, Any] = {"foreach": None, "capturable": False, "differentiable": False}

    def __init__(
        self, params: Params, lr: float = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        master_weights: bool = False, stochastic_rounding: bool = False, low_state: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize, master_weights=master_weights, stochastic_rounding=stochastic_rounding,
            low_state=low_state, rounding_seed=rounding_seed,
        ))


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton, 2012; centered: Graves, 2013): divides by the root of the mean of squares."""

    _kind = "rmsprop"
    _takes: Dict[str, Any] = {
        "lr": "lr", "alpha": "alpha", "eps": "eps", "weight_decay": "weight_decay", "momentum": "momentum",
        "centered": "centered",
    }
    _beside: Dict[str, Any] = {"capturable": False, "foreach": None, "differentiable": False}

    def __init__(
        self, params: Params, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-08, weight_decay: float = 0.0,
        momentum: float = 0.0, centered: bool = False, capturable: bool = False, foreach: Optional[bool] = None,
        maximize: bool = False, differentiable: bool = False, *, master_weights: bool = False,
        stochastic_rounding: bool = False, low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered,
            maximize=maximize, master_weights=master_weights, stochastic_rounding=stochastic_rounding,
            low_state=low_state, rounding_seed=rounding_seed,
        ))


class Rprop(Optimizer):
    """Rprop (Riedmiller and Braun, 1993), for gradients of all the data: each element has a step of its own, which
    grows while its gradient keeps its sign."""

    _kind = "rprop"
    _takes: Dict[str, Any] = {
        "lr": "lr", "etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_size_min", "step_size_max"),
    }
    _beside: Dict[str, Any] = {"capturable": False, "foreach": None, "differentiable": False}

    def __init__(
        self, params: Params, lr: float = 0.01, etas: Tuple[float, float] = (0.5, 1.2),
        step_sizes: Tuple[float, float] = (1e-06, 50.0), *, capturable: bool = False,
        foreach: Optional[bool] = None, maximize: bool = False, differentiable: bool = False,
        master_weights: bool = False, stochastic_rounding: bool = False, low_state: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize, master_weights=master_weights,
            stochastic_rounding=stochastic_rounding, low_state=low_state, rounding_seed=rounding_seed,
        ))


class SGD(Optimizer):
    """Gradient descent, with momentum (Sutskever et al., 2013)."""

    _kind = "sgd"
    _takes: Dict[str, Any] = {
        "lr": "lr", "momentum": "momentum", "dampening": "dampening", "weight_decay": "weight_decay",
        "nesterov": "nesterov",
    }
    _beside: Dict[str, Any] = {"foreach": None, "differentiable": False, "fused": None}

    def __init__(
        self, params: Params, lr: float = 0.001, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
        foreach: Optional[bool] = None, differentiable: bool = False, fused: Optional[bool] = None,
        master_weights: bool = False, stochastic_rounding: bool = False, low_state: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize, master_weights=master_weights, stochastic_rounding=stochastic_rounding,
            low_state=low_state, rounding_seed=rounding_seed,
        ))


class SparseAdam(Optimizer):
    """Adam that leaves rows without a gradient as they are, moments too: for tables of which a step uses a few
    rows."""

    _kind = "sparse_adam"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps",
    }
    _beside: Dict[str, Any] = {}

    def __init__(
        self, params: Params, lr: float = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        maximize: bool = False, *, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, maximize=maximize, master_weights=master_weights,
            stochastic_rounding=stochastic_rounding, low_state=low_state, rounding_seed=rounding_seed,
        ))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    _kind = "adamw"
    _takes: Dict[str, Any] = {
        "lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay", "amsgrad": "amsgrad",
    }
    _beside: Dict[str, Any] = {"foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": True}

    def __init__(
        self, params: Params, lr: float = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0.01, amsgrad: bool = False, *, foreach: Optional[bool] = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: Optional[bool] = None, master_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, rounding_seed: int = 0,
    ) -> None:
        self._switch(differentiable=differentiable)
        Optimizer.__init__(self, params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            master_weights=master_weights, stochastic_rounding=stochastic_rounding, low_state=low_state,
            rounding_seed=rounding_seed,
        ))
