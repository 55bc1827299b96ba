"""L-BFGS, as torch.optim.LBFGS: step() wants a closure that computes the loss and its gradients."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _ops as ops
from .._core import Tensor, zeros
from .._grad_mode import enable_grad, no_grad
from .optimizer import Optimizer, Params

__all__ = ["LBFGS"]


def _minimum(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, low: float, high: float) -> float:
    """Where the cubic through two points with slopes is least, within [low, high] (Nocedal and Wright, equation 3.59)."""
    if x1 == x2:
        return (low + high) / 2
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    if x1 <= x2:
        bottom, at = g2 - g1 + 2 * d2, x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2 or 1e-300))
    else:
        bottom, at = g1 - g2 + 2 * d2, x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2 or 1e-300))
    return min(max(at, low), high) if bottom else (low + high) / 2


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` changes of parameters and gradients; ``line_search_fn`` None or
    "strong_wolfe". One group of parameters."""

    def __init__(
        self, params: Params, lr: float = 1, max_iter: int = 20, max_eval: Optional[int] = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: Optional[str] = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                                      tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: List[Tensor] = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        parts = [zeros(p.numel(), dtype=p.dtype, device=p.device) if p.grad is None else p.grad.detach().reshape([-1])
                 for p in self._params]
        return ops.cat(parts, 0)

    def _move(self, direction: Tensor, t: float) -> None:
        at = 0
        for p in self._params:
            p.add_(direction.narrow(0, at, p.numel()).reshape(list(p.shape)), alpha=t)
            at += p.numel()

    def _at(self, closure: Callable[[], Any], start: List[Tensor], direction: Tensor, t: float) -> Tuple[float, Tensor]:
        self._move(direction, t)
        with enable_grad():
            loss = float(closure())
        gradient = self._gradient()
        for p, value in zip(self._params, start):
            p.copy_(value)
        return loss, gradient

    def _search(self, closure: Callable[[], Any], direction: Tensor, t: float, f: float, g: Tensor, slope: float,
                tolerance: float, c1: float = 1e-4, c2: float = 0.9, most: int = 25) -> Tuple[float, float, Tensor, int]:
        """A step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6): t, the loss and
        gradient there, evaluations."""
        start = [p.detach().clone() for p in self._params]
        reach = float(ops.amax(ops.abs(direction), [], False).item())
        evals = 1
        f_new, g_new = self._at(closure, start, direction, t)
        slope_new = float(g_new.dot(direction).item())
        t_prev, f_prev, g_prev, slope_prev = 0.0, f, g, slope
        bracket: List[Tuple[float, float, Tensor, float]] = []
        turns = 0
        while turns < most:
            here, before = (t, f_new, g_new, slope_new), (t_prev, f_prev, g_prev, slope_prev)
            if f_new > f + c1 * t * slope or (turns > 1 and f_new >= f_prev) or not math.isfinite(f_new):
                bracket = [before, here]
                break
            if abs(slope_new) <= -c2 * slope:
                return t, f_new, g_new, evals
            if slope_new >= 0:
                bracket = [before, here]
                break
            low, high = t + 0.01 * (t - t_prev), t * 10
            t_next = _minimum(t_prev, f_prev, slope_prev, t, f_new, slope_new, low, high)
            t_prev, f_prev, g_prev, slope_prev = here
            t = t_next
            f_new, g_new = self._at(closure, start, direction, t)
            evals += 1
            slope_new = float(g_new.dot(direction).item())
            turns += 1
        if not bracket:
            bracket = [(0.0, f, g, slope), (t, f_new, g_new, slope_new)]
        stuck = False
        best, worst = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        while turns < most:
            (t0, f0, _, s0), (t1, f1, _, s1) = bracket
            if abs(t1 - t0) * reach < tolerance:
                break
            low, high = min(t0, t1), max(t0, t1)
            t = _minimum(t0, f0, s0, t1, f1, s1, low, high) if math.isfinite(f0) and math.isfinite(f1) else (low + high) / 2
            edge = 0.1 * (high - low)
            if min(high - t, t - low) < edge:  # too near an end twice, or at it: move inside
                if stuck or t >= high or t <= low:
                    t = high - edge if abs(t - high) < abs(t - low) else low + edge
                    stuck = False
                else:
                    stuck = True
            else:
                stuck = False
            f_new, g_new = self._at(closure, start, direction, t)
            evals += 1
            slope_new = float(g_new.dot(direction).item())
            turns += 1
            made = (t, f_new, g_new, slope_new)
            if f_new > f + c1 * t * slope or f_new >= bracket[best][1] or not math.isfinite(f_new):
                bracket[worst] = made
                best, worst = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
            else:
                if abs(slope_new) <= -c2 * slope:
                    return t, f_new, g_new, evals
                if slope_new * (bracket[worst][0] - bracket[best][0]) >= 0:
                    bracket[worst] = bracket[best]
                bracket[best] = made
        t, f_new, g_new, _ = bracket[best]
        return t, f_new, g_new, evals

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Up to ``max_iter`` iterations; ``closure`` clears the gradients, computes the loss, calls backward and returns the
        loss. Returns the loss before."""
        if closure is None:
            raise TypeError("LBFGS.step() wants a closure")
        group = self.param_groups[0]
        lr, limit = float(group["lr"]), group["tolerance_change"]
        state: Dict[str, Any] = self._own_state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first = closure()
        loss, evals = float(first), 1
        state["func_evals"] += 1
        with no_grad():
            gradient = self._gradient()
            if self._size(gradient) <= group["tolerance_grad"]:
                return first
            changes: List[Tuple[Tensor, Tensor, float]] = state.get("changes", [])
            direction, t = state.get("d"), state.get("t", lr)
            before, loss_before, scale = state.get("prev_flat_grad"), state.get("prev_loss", loss), state.get("H_diag", 1.0)
            for _ in range(group["max_iter"]):
                state["n_iter"] += 1
                if direction is None or before is None:
                    direction = -gradient
                else:
                    change, moved = gradient - before, direction * t
                    agree = float(change.dot(moved).item())
                    if agree > 1e-10:
                        changes = [*changes, (change, moved, 1.0 / agree)][-group["history_size"] :]
                        scale = agree / float(change.dot(change).item())
                    direction = self._direction(gradient, changes, scale)
                before, loss_before = gradient.clone(), loss
                t = min(1.0, 1.0 / float(ops.abs(gradient).sum().item())) * lr if state["n_iter"] == 1 else lr
                slope = float(gradient.dot(direction).item())
                if slope > -limit:
                    break
                if group["line_search_fn"] is None:
                    self._move(direction, t)
                    used = 0
                    if _ + 1 != group["max_iter"]:
                        with enable_grad():
                            loss = float(closure())
                        gradient, used = self._gradient(), 1
                else:
                    t, loss, gradient, used = self._search(closure, direction, t, loss, gradient, slope, limit)
                    self._move(direction, t)
                evals += used
                state["func_evals"] += used
                if evals >= group["max_eval"] or self._size(gradient) <= group["tolerance_grad"]:
                    break
                if self._size(direction) * t <= limit or abs(loss - loss_before) < limit:
                    break
            state.update(d=direction, t=t, changes=changes, H_diag=scale, prev_flat_grad=before, prev_loss=loss_before)
        return first

    @staticmethod
    def _size(x: Tensor) -> float:
        return float(ops.amax(ops.abs(x), [], False).item())

    @staticmethod
    def _direction(gradient: Tensor, changes: List[Tuple[Tensor, Tensor, float]], scale: float) -> Tensor:
        """The two loops of Nocedal and Wright's algorithm 7.4."""
        q = -gradient
        shares: List[float] = []
        for change, moved, rho in reversed(changes):
            share = float(moved.dot(q).item()) * rho
            shares.append(share)
            q = q - change * share
        q = q * scale
        for (change, moved, rho), share in zip(changes, reversed(shares)):
            q = q + moved * (share - float(change.dot(q).item()) * rho)
        return q
