"""Muon, whose arguments PyTorch words in its own way."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .optimizer import Optimizer, ParamGroup, Params

__all__ = ["Muon"]


class Muon(Optimizer):
    """Muon (Jordan et al. 2024): momentum, orthogonalised. What is not a matrix, and groups with ``use_adamw``, are updated
    by AdamW with ``betas`` and ``adamw_eps``. ``adjust_lr_fn`` "original" (as without one) or "match_rms_adamw" chooses the step's scale."""

    _kind = "muon"
    _takes = {**{name: name for name in ("lr", "weight_decay", "momentum", "nesterov", "eps", "ns_steps", "use_adamw", "adamw_eps")},
              "betas": ("beta1", "beta2")}
    _beside = {"ns_coefficients": (3.4445, -4.775, 2.0315)}

    def __init__(
        self, params: Params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: Optional[str] = None, use_adamw: bool = False,
        betas: Tuple[float, float] = (0.9, 0.95), adamw_eps: float = 1e-8, *,
        ns_coefficients: Tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        master_weights: bool = False, compensated_weights: bool = False, stochastic_rounding: bool = False,
        low_state: bool = False, state_8bit: bool = False, min_8bit_size: int = 4096, rounding_seed: int = 0,
    ) -> None:
        if tuple(ns_coefficients) != self._beside["ns_coefficients"]:
            raise ValueError(f"Muon: the iteration's coefficients are {self._beside['ns_coefficients']}, got {ns_coefficients}")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps,
                                      ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn, use_adamw=use_adamw, betas=betas,
                                      adamw_eps=adamw_eps, master_weights=master_weights,
                                      compensated_weights=compensated_weights,
                                      stochastic_rounding=stochastic_rounding, low_state=low_state,
                                      state_8bit=state_8bit, min_8bit_size=min_8bit_size,
                                      rounding_seed=rounding_seed))

    def _options(self, group: ParamGroup) -> Dict[str, Any]:
        options = super()._options(group)
        scale = group["adjust_lr_fn"]
        if scale not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {scale} is not supported")
        options["match_rms_adamw"] = scale == "match_rms_adamw"
        return options
