"""Optimizers and learning rates, as torch.optim."""

from . import lr_scheduler
from .lbfgs import LBFGS
from .optimizer import *
from .optimizer import __all__ as _names

__all__ = [*_names, "LBFGS", "lr_scheduler"]
