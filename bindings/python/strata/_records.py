"""The op records as callers see them: without the results that are for gradient rules alone, under all of their names."""

from . import _core

__all__ = sorted(_core.shown_ops)
globals().update(_core.shown_ops)
