"""Named tuples for ops with several results."""

from collections import namedtuple
from typing import Any


def make(op: str, fields: list[str]) -> Any:
    result = namedtuple(op, fields, module="strata._results")  # type: ignore[misc]
    globals()[op] = result  # where pickle finds it
    return result
