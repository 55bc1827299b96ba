"""Optimizers and learning rates, as torch.optim."""

from . import _rules, lbfgs, lr_scheduler, muon, optimizer, swa_utils
from ._rules import *
from .lbfgs import *
from .muon import *
from .optimizer import *

__all__ = [*_rules.__all__, *lbfgs.__all__, *muon.__all__, *optimizer.__all__, "lr_scheduler", "swa_utils"]

from typing import TYPE_CHECKING as _TYPE_CHECKING

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
