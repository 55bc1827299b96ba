"""What there are no complex numbers for, matrices' functions."""

from __future__ import annotations

import builtins

from .._core import Tensor

__all__ = [
    "adjoint", "conj_physical", "is_complex", "is_same_size", "is_signed", "resolve_conj", "resolve_neg",
]


def conj_physical(input: Tensor) -> Tensor:
    """The tensor itself: there are no complex ones."""
    return input


resolve_conj = resolve_neg = conj_physical


def is_complex(input: Tensor) -> builtins.bool:
    """False: there are no complex tensors."""
    return False


def is_signed(input: Tensor) -> builtins.bool:
    """Whether its dtype has negative numbers."""
    return input.dtype.is_signed


def is_same_size(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether both have one shape."""
    return input.shape == other.shape


# ---- matrices


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return input.mT
