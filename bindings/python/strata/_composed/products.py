"""Products, and what linear algebra has under the names of the main namespace."""

from __future__ import annotations

import builtins
import math
from typing import Any, Optional, Tuple, Union

from .. import _core, _functions as F, _ops
from .._core import Tensor

__all__ = [
    "addmv", "addr", "baddbmm", "chain_matmul", "cholesky", "cross", "det", "dist", "ger", "inner", "inverse", "kron",
    "logdet", "matrix_power", "outer", "pinverse", "slogdet", "svd", "tensordot", 
]

Number = Union[builtins.int, builtins.float]


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Products of every element of one vector with every element of the other."""
    joint = _core.promote_types(input.dtype, vec2.dtype)  # the record wants one dtype
    return _ops.outer(input.to(joint), vec2.to(joint))


ger = outer


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    return F.reshape(input.reshape(-1, input.shape[-1]) @ other.reshape(-1, other.shape[-1]).t(),
                     list(input.shape[:-1]) + list(other.shape[:-1]))


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta input + alpha mat vec."""
    return input * beta + mat.mv(vec) * alpha


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta input + alpha vec1 vec2^T."""
    return input * beta + outer(vec1, vec2) * alpha


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta input + alpha batch1 batch2, matrix by matrix."""
    product = _ops.bmm(batch1, batch2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices."""
    result = matrices[0]
    for m in matrices[1:]:
        result = result @ m
    return result


def matrix_power(input: Tensor, n: builtins.int) -> Tensor:
    """The n-th power of square matrices."""
    if n < 0:
        from .. import linalg

        return matrix_power(linalg.inv(input), -n)
    result: Optional[Tensor] = None
    while n:
        if n & 1:
            result = input if result is None else result @ input
        n >>= 1
        input = input @ input if n else input
    if result is None:
        return _core.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape).clone()
    return result


def kron(input: Tensor, other: Tensor) -> Tensor:
    """Every element of the first times the whole second, as blocks."""
    n = builtins.max(input.dim(), other.dim())
    a = input.reshape([1] * (n - input.dim()) + list(input.shape))
    b = other.reshape([1] * (n - other.dim()) + list(other.shape))
    x = a.reshape([v for s in a.shape for v in (s, 1)]) * b.reshape([v for s in b.shape for v in (1, s)])
    return x.reshape([s * t for s, t in zip(a.shape, b.shape)])


def cross(input: Tensor, other: Tensor, dim: Optional[builtins.int] = None) -> Tensor:
    """The cross product of vectors of three along ``dim`` (without one: the first dimension of 3)."""
    if dim is None:
        found = [i for i, s in enumerate(input.shape) if s == 3]
        if not found:
            raise _core.ShapeError(f"cross: no dimension of 3 in {list(input.shape)}")
        dim = found[0]
    shape = _core.broadcast_shapes(input.shape, other.shape)
    a, b = input.expand(shape), other.expand(shape)
    if shape[dim] != 3:
        raise _core.ShapeError(f"cross: dimension {dim} must have size 3, got {shape[dim]}")
    a1, a2, a3 = _ops.unbind(a, dim)
    b1, b2, b3 = _ops.unbind(b, dim)
    return _ops.stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1], dim)


def dist(input: Tensor, other: Tensor, p: Number = 2) -> Tensor:
    """The p-norm of the difference."""
    return F.norm(input - other, p)




def tensordot(a: Tensor, b: Tensor, dims: Any = None, *, axes: Any = 2) -> Tensor:
    """Sums of products over the last dimensions of a and the first of b, or over two lists of dimensions."""
    from .._array_api import tensordot as of_standard

    chosen = axes if dims is None else dims
    return of_standard(a, b, axes=chosen if isinstance(chosen, builtins.int) else [
        [d] if isinstance(d, builtins.int) else list(d) for d in chosen])


def inverse(input: Tensor) -> Tensor:
    """Inverses of square matrices (linalg.inv)."""
    from .. import linalg

    return linalg.inv(input)


def det(input: Tensor) -> Tensor:
    """Determinants of square matrices (linalg.det)."""
    from .. import linalg

    return linalg.det(input)


def logdet(input: Tensor) -> Tensor:
    """Logarithms of the determinants, NaN where one is negative."""
    from .. import linalg

    sign, size = linalg.slogdet(input)
    found: Tensor = F.where(sign < 0, math.nan, size)
    return found


def slogdet(input: Tensor) -> Tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size (linalg.slogdet)."""
    from .. import linalg

    return linalg.slogdet(input)


def cholesky(input: Tensor, upper: builtins.bool = False) -> Tensor:
    """The triangle L with L L^T = input (linalg.cholesky)."""
    from .. import linalg

    return linalg.cholesky(input, upper=upper)


def svd(input: Tensor, some: builtins.bool = True) -> Tuple[Tensor, Tensor, Tensor]:
    """U, S, V with input = U diag(S) V^T (linalg.svd gives V^T)."""
    from .. import linalg

    u, s, vh = linalg.svd(input, full_matrices=not some)
    return u, s, vh.mT


def pinverse(input: Tensor) -> Tensor:
    """The pseudo-inverse (linalg.pinv)."""
    from .. import linalg

    return linalg.pinv(input)
