"""L-BFGS: a quasi-Newton method over all parameters at once, for problems whose gradients are exact."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _core as C
from .._core import Tensor, float64, zeros
from .._functions import tensor
from .._grad_mode import enable_grad
from .optimizer import Optimizer, Params

__all__ = ["LBFGS"]


# Ours and PyTorch's names of the history.
_COUNTS, _REALS = ("func_evals", "n_iter"), ("t", "scale")
_NAMES = {"changes": "old_dirs", "steps": "old_stps", "scale": "H_diag", "prev_grad": "prev_flat_grad"}


class LBFGS(Optimizer):
    """L-BFGS (Nocedal 1980; Liu and Nocedal 1989). ``step(closure)`` makes up to ``max_iter`` iterations, each of one or more
    calls of ``closure``, which drops the gradients, computes the loss and its gradients, and returns it.
    ``line_search_fn``: None for steps of ``lr``, or "strong_wolfe". One group of parameters; the state (the last
    ``history_size`` steps and gradients) is float32, or float64 where a parameter is."""

    _beside: Dict[str, Any] = {}

    def __init__(
        self, params: Params, lr: float = 1.0, max_iter: int = 20, max_eval: Optional[int] = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: Optional[str] = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, dict(
            lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
            tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
            line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _build(self) -> None:
        self._params: List[Tensor] = self.param_groups[0]["params"]
        self._rule = C.LBFGS([(str(i), p) for i, p in enumerate(self._params)])

    # ---- steps

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Iterations until one of the limits; the loss of the first call of ``closure``."""
        if closure is None:
            raise TypeError("LBFGS.step() wants a closure that computes the loss")
        for hook in list(self._step_pre_hooks.values()):
            hook(self, (closure,), {})
        compute, losses = closure, []

        def evaluate() -> float:
            with enable_grad():
                loss = compute()
            losses[1:] = []
            losses.append(loss)
            return float(loss)

        group = self.param_groups[0]
        self._rule.set_options(
            float(group["lr"]), group["max_iter"], -1 if group["max_eval"] is None else group["max_eval"],
            group["tolerance_grad"], group["tolerance_change"], group["history_size"], group["line_search_fn"] is not None)
        self._rule.step(evaluate)
        for hook in list(self._step_post_hooks.values()):
            hook(self, (closure,), {})
        return losses[0]

    # ---- state

    @property
    def state(self) -> Dict[Tensor, Dict[str, Any]]:
        """What is kept, under the first parameter."""
        history = self._history()
        return {self._params[0]: history} if history else {}

    def _history(self) -> Dict[str, Any]:
        """The engine's state with its lists as lists and its numbers as numbers."""
        history: Dict[str, Any] = {}
        state = self._rule.state_dict()
        for key in sorted(state, key=lambda k: (k.partition(".")[0], int(k.partition(".")[2] or 0))):
            name, numbered, _ = key.partition(".")
            if numbered:
                history.setdefault(name, []).append(state[key])
            elif name in _COUNTS or name in _REALS:
                history[name] = (int if name in _COUNTS else float)(state[key].item())
            else:
                history[name] = state[key]
        if "prev_grad" in history:
            history.setdefault("steps", [])
            history.setdefault("changes", [])
        return history

    def state_dict(self) -> Dict[str, Any]:
        """{"state": {0: history}, "param_groups": [options]}, under PyTorch's names."""
        packed: Dict[str, Any] = {}
        for key, value in self._history().items():
            name = _NAMES.get(key, key)
            packed[name] = [t.clone() for t in value] if isinstance(value, list) else (
                value.clone() if isinstance(value, Tensor) else value)
        if "old_dirs" in packed:
            pairs = zip(packed["old_dirs"], packed["old_stps"])
            packed["ro"] = [(1.0 / (y * s).sum()) for y, s in pairs]
            packed["H_diag"] = zeros([], dtype=float64).fill_(packed["H_diag"])
            packed["al"] = [None] * int(self.param_groups[0]["history_size"])
            packed["prev_loss"] = None
        group = {k: v for k, v in self.param_groups[0].items() if k != "params"}
        group["params"] = list(range(len(self._params)))
        return {"state": {0: packed} if packed else {}, "param_groups": [group]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a state_dict(), PyTorch's too."""
        saved = state_dict["param_groups"]
        if len(saved) != 1 or len(saved[0]["params"]) != len(self._params):
            raise ValueError("loaded state dict does not match the parameters of this optimizer")
        self.param_groups[0].update({k: v for k, v in saved[0].items() if k not in ("params", "param_names")})
        flat: List[Tuple[str, Tensor]] = []
        for found in state_dict["state"].values():
            for theirs, value in found.items():
                if theirs in ("ro", "al", "prev_loss") or value is None:
                    continue
                name, numbered, index = theirs.partition(".")
                ours = next((mine for mine, torchs in _NAMES.items() if torchs == name), name) + numbered + index
                if isinstance(value, list):
                    flat.extend((f"{ours}.{i}", t) for i, t in enumerate(value))
                elif ours in _COUNTS or ours in _REALS:
                    flat.append((ours, tensor(float(value), dtype=float64)))
                else:
                    flat.append((ours, value))
        self._rule.load_state_dict(flat)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
