"""What an optimizer's state is called and shaped in a state_dict(): as PyTorch has it, so that its files are read and ours are
read by it. The engine counts steps in int64 and keeps rows and columns flat; files of before are read as well."""

from __future__ import annotations

import json
from typing import Any, Dict, Optional

from .. import _core as C
from .._core import Tensor
from .._functions import tensor

__all__ = ["of_file", "of_state"]

# What PyTorch has beside the engine's states: numbers that follow from the count of the updates, and a count of their own.
_RECORDS: Dict[str, Any] = {record["name"]: record for record in json.loads(C._optimizer_records())}


def of_state(engine: Optional[C.Optimizer], group: int, entries: Dict[str, Any], taken: int, param: Tensor) -> Dict[str, Any]:
    """One parameter's state as PyTorch lays it out."""
    found: Dict[str, Any] = {}
    if "step" not in entries and {"square_avg", "acc_delta"} & set(entries):
        entries = {"step": taken, **entries}
    for key, value in entries.items():
        if key == "step":
            count = int(value)
            value = tensor(count, dtype=C.float32 if count < 2**24 else C.int64, device="cpu")
        elif key == "row_var" and value.dim() == param.dim() - 1:
            value = value.unsqueeze(-1)
        elif key == "col_var" and value.dim() == param.dim() - 1:
            value = value.unsqueeze(-2)
        found[key] = value
    if engine is not None and "step" in found:
        for key, number in engine.derived_state(group, int(found["step"])).items():
            found[key] = tensor(number, dtype=C.float32 if key == "mu_product" else C.float64, device="cpu")
    return {"step": found.pop("step"), **found} if "step" in found else found


def of_file(kind: str, entries: Dict[str, Any], param: Tensor) -> Dict[str, Any]:
    """One parameter's state from a file, as the engine keeps it; as the optimizers written in Python do without a kind."""
    found: Dict[str, Any] = {}
    record = _RECORDS.get(kind, {"states": ["step"], "rates": [], "derived": []})
    for key, value in entries.items():
        if key in record["derived"] or (key == "step" and "step" not in record["states"]):
            continue
        if value is None or isinstance(value, (list, tuple, str)):
            continue
        if key == "step":
            value = tensor(int(value), dtype=C.int64) if kind else int(value)
        elif key in record["rates"]:
            value = tensor(float(value), dtype=C.float64)
        elif key == "row_var" and value.dim() == param.dim():
            value = value.squeeze(-1)
        elif key == "col_var" and value.dim() == param.dim():
            value = value.squeeze(-2)
        found[key] = value
    return found
