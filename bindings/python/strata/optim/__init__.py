"""Optimizers and learning rates, as torch.optim."""

from . import composed, lbfgs, lr_scheduler, optimizer, swa_utils
from .composed import *
from .lbfgs import *
from .optimizer import *

__all__ = [*composed.__all__, *lbfgs.__all__, *optimizer.__all__, "lr_scheduler", "swa_utils"]

from typing import TYPE_CHECKING as _TYPE_CHECKING

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
