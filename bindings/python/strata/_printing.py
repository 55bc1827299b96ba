"""set_printoptions(): the engine prints tensors as PyTorch's defaults do; with other options NumPy prints them."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import _core
from ._core import Tensor

__all__ = ["set_printoptions"]

_PROFILES: Dict[str, Dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}
_options: Dict[str, Any] = dict(_PROFILES["default"])
_by_engine = Tensor.__repr__


def _printed(self: Tensor) -> str:
    import numpy as np

    x = self.detach().cpu()
    host = (x.to(_core.float32) if x.dtype == _core.bfloat16 else x).numpy()
    style = None
    if _options.get("sci_mode") and x.dtype.is_floating_point:
        style = {"float_kind": lambda v: f"{v:.{_options['precision']}e}"}
    threshold = _options["threshold"]
    text = np.array2string(
        host, precision=_options["precision"], threshold=host.size + 1 if threshold == float("inf") else int(threshold),
        edgeitems=_options["edgeitems"], max_line_width=_options["linewidth"], suppress_small=_options.get("sci_mode") is False,
        separator=", ", prefix="tensor(", formatter=style,  # type: ignore[arg-type]
    )
    usual = (_core.get_default_dtype(), _core.int64, _core.bool)
    parts = [text]
    if x.dtype not in usual:
        parts.append(f"dtype={x.dtype!r}")
    if self.device.type != "cpu":
        parts.append(f"device='{self.device}'")
    if self.requires_grad:
        parts.append("requires_grad=True" if self.is_leaf else f"grad_fn={self.grad_fn}")
    return "tensor(" + ", ".join(parts) + ")"


def set_printoptions(precision: Optional[int] = None, threshold: Optional[float] = None, edgeitems: Optional[int] = None,
                     linewidth: Optional[int] = None, profile: Optional[str] = None, sci_mode: Optional[bool] = None) -> None:
    """How tensors are printed: digits, elements before a summary, elements at its edges, the line's width; ``profile``
    "default", "short" or "full"; ``sci_mode`` always or never in scientific notation."""
    global _options
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile must be default, short or full, got {profile!r}")
        _options = dict(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth, "sci_mode": sci_mode}
    _options.update({k: v for k, v in given.items() if v is not None})
    plain = _options == _PROFILES["default"]
    shown: Any = _by_engine if plain else _printed
    Tensor.__repr__ = Tensor.__str__ = shown  # type: ignore[method-assign]
