"""What an optimizer's state is called and shaped in a state_dict(): as PyTorch has it, so that its files are read and ours are
read by it. The engine counts steps in int64 and keeps rows and columns flat; files of before are read as well."""

from __future__ import annotations

from typing import Any, Dict

from .. import _core as C
from .._core import Tensor
from .._functions import tensor

__all__ = ["of_file", "of_state"]

# Optimizers whose state the engine keeps without a step of their own, or with numbers that follow from it.
_WITHOUT_STEP = ("rmsprop", "adadelta")
_NUMBERS = ("step", "eta", "mu")


def of_state(kind: str, entries: Dict[str, Any], taken: int, group: Dict[str, Any], param: Tensor) -> Dict[str, Any]:
    """One parameter's state as PyTorch lays it out."""
    found: Dict[str, Any] = {}
    if kind in _WITHOUT_STEP and entries:
        entries = {"step": taken, **entries}
    for key, value in entries.items():
        if key == "step":
            count = int(value)
            value = tensor(count, dtype=C.float32 if count < 2**24 else C.int64, device="cpu")
        elif key in _NUMBERS and not isinstance(value, Tensor):
            value = tensor(value, dtype=C.float64, device="cpu")
        elif key == "row_var" and value.dim() == param.dim() - 1:
            value = value.unsqueeze(-1)
        elif key == "col_var" and value.dim() == param.dim() - 1:
            value = value.unsqueeze(-2)
        found[key] = value
    if kind == "nadam" and "step" in found:
        beta1, decay, product = float(group["betas"][0]), float(group["momentum_decay"]), 1.0
        for i in range(1, int(found["step"]) + 1):
            product *= beta1 * (1 - 0.5 * 0.96 ** (i * decay))
        found["mu_product"] = tensor(product, dtype=C.float32, device="cpu")
    return {"step": found.pop("step"), **found} if "step" in found else found


def of_file(kind: str, entries: Dict[str, Any], param: Tensor) -> Dict[str, Any]:
    """One parameter's state from a file, as the engine keeps it; as the optimizers written in Python do without a kind."""
    found: Dict[str, Any] = {}
    for key, value in entries.items():
        if kind in _WITHOUT_STEP and key == "step" or key == "mu_product":
            continue
        if value is None or isinstance(value, (list, tuple, str)):
            continue
        if key == "step":
            value = tensor(int(value), dtype=C.int64) if kind else int(value)
        elif not kind and key in _NUMBERS:
            value = float(value)
        elif key == "row_var" and value.dim() == param.dim():
            value = value.squeeze(-1)
        elif key == "col_var" and value.dim() == param.dim():
            value = value.squeeze(-2)
        found[key] = value
    return found
