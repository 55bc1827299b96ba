"""Which layout of several ranks trains a model soonest, by a forecast: ``strata plan``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Optional, Tuple, Union

from . import _core as C
from .models import Config, make_config

__all__ = ["LeftOut", "Plan", "PlannedLayout", "RankOrder", "plan"]


@dataclass(frozen=True)
class PlannedLayout:
    """A layout that can be trained, and what a step of it is forecast to take: seconds, and bytes of the rank that has
    most."""

    layout: str
    settings: Tuple[str, ...]
    """For TrainConfig's ``overrides`` and ``--set``: "parallel.dp=2" .."""
    seconds: float
    tokens_per_second: float
    computes: float
    """Seconds that a rank computes, the slowest stage's."""
    exposed: float
    """Seconds in which it only waits for what travels."""
    bubble: float
    """Of a pipeline: the part of its ranks' time in which they wait for each other."""
    sent: int
    exposed_bytes: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    """Most bytes at once."""
    on_front: bool
    """No other one is both faster and smaller."""


@dataclass(frozen=True)
class LeftOut:
    """Layouts that are left out for one reason."""

    reason: str
    layouts: int
    example: str
    least: int
    """Of those that do not fit: bytes of the smallest."""


@dataclass(frozen=True)
class RankOrder:
    """Which rank has which place of the mesh, and what that saves."""

    ranks: Tuple[int, ...]
    seconds: float
    as_they_come: float
    """Seconds of a step of ranks 0, 1, 2, .."""


@dataclass(frozen=True)
class Plan:
    """Layouts, the fastest first; ``str(plan)`` is the command's table."""

    ranks: int
    memory: int
    """Bytes that a rank may take; 0: any."""
    tokens: float
    """Of a step."""
    layouts: Tuple[PlannedLayout, ...]
    left_out: Tuple[LeftOut, ...]
    order: Optional[RankOrder]
    """For the first layout, where it was asked for."""
    text: str

    def __str__(self) -> str:
        return self.text


def plan(
    config: Config,
    ranks: int,
    *,
    links: Union[str, "os.PathLike[str]"] = "",
    card: str = "",
    hosts: int = 0,
    memory: Union[int, str] = "",
    rows: int = 10,
    order: bool = False,
) -> Plan:
    """All layouts of so many ranks that train ``config`` (settings by name, a TrainConfig, or the path of a TOML file), by a
    forecast: what ``strata plan`` says. Nothing is started and no memory of a model's size is taken.

    >>> p = st.plan({"model.layers": 4, "train.batch": 16}, 8, card="h200")
    >>> print(p.layouts[0].layout, p.layouts[0].settings)

    What ranks compute and send stands in ``links``, a file of ``strata info --links --out``, or is known of a ``card``; one
    rank alone is measured here. ``hosts`` that the ranks are shared out to; ``memory`` that a rank may take, bytes or
    "141GiB"; the memory of the first ``rows`` layouts is estimated one by one, and the table has those; with ``order`` which
    rank should have which place, where links differ. Settings of [parallel] that are set stay.

    ValueError for settings that cannot be recorded and where it is not known what goes between ranks; IoError for a file of
    links that is none."""
    found, text = C.plan(make_config(config), ranks, os.fspath(links), card, hosts, str(memory), rows, order)
    made = json.loads(found)
    best = made.get("order")
    return Plan(
        made["ranks"],
        made["memory"],
        made["tokens"],
        tuple(PlannedLayout(**{**p, "settings": tuple(p["settings"])}) for p in made["layouts"]),
        tuple(LeftOut(**r) for r in made["left_out"]),
        RankOrder(**{**best, "ranks": tuple(best["ranks"])}) if best else None,
        text,
    )
