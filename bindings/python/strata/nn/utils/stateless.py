"""functional_call() under its older path."""

from ...func import functional_call

__all__ = ["functional_call"]
