"""L-BFGS: a quasi-Newton method over all parameters at once, for problems whose gradients are exact."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._core import Tensor, float64, zeros
from .._grad_mode import enable_grad, no_grad
from .._ops import cat
from .optimizer import Optimizer, Params

__all__ = ["LBFGS"]


class _Point(NamedTuple):
    """Where the search has been: a step along the direction, the loss there, the gradient, and its slope."""

    t: float
    loss: float
    grad: Tensor
    slope: float


def _cubic_minimum(a: _Point, b: _Point, low: float, high: float) -> float:
    """The minimum of the cubic through two points with their slopes (Nocedal and Wright, (3.59)), kept in an interval."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2
    d2 = math.copysign(math.sqrt(square), b.t - a.t)
    t = b.t - (b.t - a.t) * (b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2) if b.slope - a.slope + 2 * d2 else low
    return min(max(t, low), high)


def _strong_wolfe(
    at: Callable[[float], _Point], start: _Point, t: float, tolerance: float, c1: float = 1e-4, c2: float = 0.9,
    most: int = 25,
) -> Tuple[_Point, int]:
    """A step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6), and the calls of
    ``at``; the best one found where there is none in ``most`` calls."""

    def too_high(p: _Point) -> bool:
        return not p.loss <= start.loss + c1 * p.t * start.slope

    def flat(p: _Point) -> bool:
        return abs(p.slope) <= -c2 * start.slope

    last, now, calls = start, at(t), 1
    while True:
        if too_high(now) or (calls > 1 and now.loss >= last.loss):
            low, high = last, now
            break
        if flat(now) or calls >= most:
            return now, calls
        if now.slope >= 0:
            low, high = now, last
            break
        t = _cubic_minimum(last, now, now.t + 0.01 * (now.t - last.t), now.t * 10)
        last, now, calls = now, at(t), calls + 1
    # The minimum lies between `low`, the better end, and `high`.
    while calls < most and abs(high.t - low.t) * -start.slope > tolerance:
        left, right = min(low.t, high.t), max(low.t, high.t)
        margin = 0.1 * (right - left)
        finite = math.isfinite(high.loss) and math.isfinite(high.slope)
        t = _cubic_minimum(low, high, left + margin, right - margin) if finite else (left + right) / 2
        now, calls = at(t), calls + 1
        if too_high(now) or now.loss >= low.loss:
            high = now
        else:
            if flat(now):
                return now, calls
            if now.slope * (high.t - low.t) >= 0:
                high = low
            low = now
    return low, calls


# Ours and PyTorch's names of the history.
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
        self._history: Dict[str, Any] = {}
        super().__init__(params, dict(
            lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
            tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
            line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _build(self) -> None:
        params = self.param_groups[0]["params"]
        self._params: List[Tensor] = params
        self._dtype = "float64" if any(str(p.dtype).endswith("float64") for p in params) else "float32"

    # ---- all parameters as one vector

    def _gather_grad(self) -> Tensor:
        parts = []
        for p in self._params:
            g = p.grad
            parts.append((zeros(p.numel(), device=p.device) if g is None else g.detach().reshape(-1)).to(self._dtype))
        return cat(parts, 0)

    def _values(self) -> List[Tensor]:
        return [p.detach().clone() for p in self._params]

    def _move(self, start: List[Tensor], t: float, d: Tensor) -> None:
        offset = 0
        for p, x in zip(self._params, start):
            n = p.numel()
            moved = x.to(self._dtype) + t * d[offset:offset + n].reshape(list(p.shape))
            p.copy_(moved)
            offset += n

    # ---- steps

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Iterations until one of the limits; the loss of the first call of ``closure``."""
        if closure is None:
            raise TypeError("LBFGS.step() wants a closure that computes the loss")
        for hook in list(self._step_pre_hooks.values()):
            hook(self, (closure,), {})
        compute = closure

        def evaluate() -> Any:
            with enable_grad():
                return compute()

        with no_grad():
            first = self._iterate(evaluate)
        for hook in list(self._step_post_hooks.values()):
            hook(self, (closure,), {})
        return first

    def _iterate(self, evaluate: Callable[[], Any]) -> Any:
        group, h = self.param_groups[0], self._history
        first = evaluate()
        loss = float(first)
        h["func_evals"] = h.get("func_evals", 0) + 1
        calls, grad = 1, self._gather_grad()
        if float(grad.abs().max()) <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            h["n_iter"] = h.get("n_iter", 0) + 1
            d = self._direction(grad, group["history_size"])
            h["prev_grad"], before = grad, loss
            t = group["lr"] * (min(1.0, 1.0 / float(grad.abs().sum())) if h["n_iter"] == 1 else 1.0)
            slope = float((grad * d).sum())
            h["d"], h["t"] = d, t
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"] == "strong_wolfe":
                values = self._values()

                def at(step: float) -> _Point:
                    self._move(values, step, d)
                    value = float(evaluate())
                    g = self._gather_grad()
                    return _Point(step, value, g, float((g * d).sum()))

                found, evaluations = _strong_wolfe(at, _Point(0.0, loss, grad, slope), t, group["tolerance_change"])
                self._move(values, found.t, d)
                t, loss, grad = found.t, found.loss, found.grad
            else:
                self._move(self._values(), t, d)
                evaluations = 0
                if iteration != group["max_iter"]:
                    loss, evaluations = float(evaluate()), 1
                    grad = self._gather_grad()
            h["t"] = t
            calls += evaluations
            h["func_evals"] += evaluations
            if calls >= group["max_eval"] or float(grad.abs().max()) <= group["tolerance_grad"]:
                break
            if float((d * t).abs().max()) <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _direction(self, grad: Tensor, most: int) -> Tensor:
        """Minus the gradient times the approximation of the inverse Hessian: the two-loop recursion."""
        h = self._history
        if "prev_grad" not in h:
            h["steps"], h["changes"], h["scale"] = [], [], 1.0
            return -grad
        step, change = h["d"] * h["t"], grad - h["prev_grad"]
        curvature = float((change * step).sum())
        if curvature > 1e-10:
            h["steps"].append(step)
            h["changes"].append(change)
            del h["steps"][:-most], h["changes"][:-most]
            h["scale"] = curvature / float((change * change).sum())
        q: Tensor = -grad
        weights: List[float] = []
        pairs = [(s, y, 1.0 / float((s * y).sum())) for s, y in zip(h["steps"], h["changes"])]
        for s, y, inverse in reversed(pairs):
            weights.append(float((s * q).sum()) * inverse)
            q = q - weights[-1] * y
        q = q * h["scale"]
        for s, y, inverse in pairs:
            q = q + (weights.pop() - float((y * q).sum()) * inverse) * s
        return q

    # ---- state

    @property
    def state(self) -> Dict[Tensor, Dict[str, Any]]:
        """What is kept, under the first parameter."""
        return {self._params[0]: self._history} if self._history else {}

    def state_dict(self) -> Dict[str, Any]:
        """{"state": {0: history}, "param_groups": [options]}, under PyTorch's names."""
        packed: Dict[str, Any] = {}
        for key, value in self._history.items():
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
        history: Dict[str, Any] = {}
        for found in state_dict["state"].values():
            packed = {k: v for k, v in found.items() if k not in ("ro", "al", "prev_loss")}
            for torchs, ours in [(theirs, mine) for mine, theirs in _NAMES.items() if theirs in packed]:
                value = packed.pop(torchs)
                if isinstance(value, list):
                    packed.update({f"{ours}.{i}": t for i, t in enumerate(value)})
                elif value is not None:
                    packed[ours] = float(value) if ours == "scale" else value
            if "t" in packed:
                packed["t"] = float(packed["t"])
            for key in sorted(packed, key=lambda k: (k.partition(".")[0], int(k.partition(".")[2] or 0))):
                name, numbered, _ = key.partition(".")
                value = packed[key].clone() if isinstance(packed[key], Tensor) else packed[key]
                if numbered:
                    history.setdefault(name, []).append(value)
                else:
                    history[name] = value
            if "prev_grad" in history:
                history.setdefault("steps", [])
                history.setdefault("changes", [])
        self._history = history

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._history = {}
        super().__setstate__(state)
