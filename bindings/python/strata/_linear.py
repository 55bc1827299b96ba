"""PyTorch's names in the main namespace for linear algebra; the records do the work."""

from __future__ import annotations

import builtins
from typing import Any, Tuple, Union

from . import _core, _ops
from ._core import Tensor

__all__ = [
    "chain_matmul", "cholesky", "det", "einsum", "ger", "inverse", "lu_solve", "matrix_exp", "matrix_power", "orgqr", "pinverse", "qr",
    "slogdet", "svd", "tensordot",
]

Number = Union[builtins.int, builtins.float]


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """outer()."""
    return _ops.outer(input, vec2)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """linalg.multi_dot() of the arguments, all matrices; one is its own product."""
    for m in matrices:
        if m.dim() != 2:
            raise _core.ShapeError(f"chain_matmul: matrices are wanted, got {list(m.shape)}")
    return matrices[0] if len(matrices) == 1 else _ops.linalg_multi_dot(list(matrices))


def einsum(*args: Any) -> Tensor:
    """Sums of products by Einstein's convention: einsum("ij,jk->ik", a, b), the tensors also as one list, or with lists of
    numbers (and ...) that name the dimensions: einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    if isinstance(args[0], str):
        listed = len(args) == 2 and isinstance(args[1], (builtins.list, builtins.tuple))
        return _ops.einsum(args[0], builtins.list(args[1] if listed else args[1:]))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    def term(labels: Any) -> str:
        for label in labels:
            if label is not Ellipsis and not (isinstance(label, builtins.int) and 0 <= label < 52):
                raise ValueError(f"einsum: a dimension is named {label!r}, 0 to 51 or ... is wanted")
        return "".join("..." if label is Ellipsis else letters[label] for label in labels)

    pairs = builtins.len(args) // 2
    equation = ",".join(term(args[2 * i + 1]) for i in builtins.range(pairs))
    if builtins.len(args) % 2:
        equation += "->" + term(args[-1])
    return _ops.einsum(equation, [args[2 * i] for i in builtins.range(pairs)])


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, *, axes: Any = None) -> Tensor:
    """Sums of products over the last ``dims`` dimensions of a and the first of b, or over two lists of dimensions."""
    dims = dims if axes is None else axes
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, builtins.int):
        if not 0 <= dims <= builtins.min(a.dim(), b.dim()):
            raise ValueError(f"tensordot: dims is {dims} for tensors of {a.dim()} and {b.dim()} dimensions")
        dims = (builtins.range(a.dim() - dims, a.dim()), builtins.range(dims))
    left, right = ([d] if isinstance(d, builtins.int) else builtins.list(d) for d in dims)
    return _ops.tensordot(a, b, left, right)


def matrix_power(input: Tensor, n: builtins.int) -> Tensor:
    """linalg.matrix_power()."""
    return _ops.linalg_matrix_power(input, n)


def matrix_exp(input: Tensor) -> Tensor:
    """linalg.matrix_exp()."""
    return _ops.linalg_matrix_exp(input)


def inverse(input: Tensor) -> Tensor:
    """linalg.inv()."""
    return _ops.linalg_inv(input)


def pinverse(input: Tensor, rcond: Number = 1e-15) -> Tensor:
    """linalg.pinv() with singular values up to ``rcond`` times the largest as 0."""
    return _ops.linalg_pinv(input, None, _core.wrap_number(rcond, input.device))


def det(input: Tensor) -> Tensor:
    """linalg.det()."""
    return _ops.linalg_det(input)


def slogdet(input: Tensor) -> Any:
    """linalg.slogdet()."""
    return _ops.linalg_slogdet(input)


def cholesky(input: Tensor, upper: builtins.bool = False) -> Tensor:
    """linalg.cholesky()."""
    return _ops.linalg_cholesky(input, upper)


def qr(input: Tensor, some: builtins.bool = True) -> Any:
    """linalg.qr(), reduced or complete."""
    return _ops.linalg_qr(input, "reduced" if some else "complete")


def svd(input: Tensor, some: builtins.bool = True) -> Tuple[Tensor, Tensor, Tensor]:
    """U, S, V with input = U diag(S) V^T (linalg.svd() gives V^T)."""
    u, s, vh = _ops.linalg_svd(input, not some)
    return u, s, vh.mT


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """linalg.lu_solve(), the right-hand side first."""
    return _ops.linalg_lu_solve(LU_data, LU_pivots, b)


def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """linalg.householder_product()."""
    return _ops.linalg_householder_product(input, tau)
