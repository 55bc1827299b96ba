"""torch.linalg, and the array API's extension of this name: names and defaults around the records linalg_*."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from . import _array_api, _core, _functions as F, _ops
from ._core import Tensor
from ._linear import tensordot
from .errors import LinAlgError

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "householder_product",
    "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve",
    "solve_ex", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vander", "vecdot",
    "vector_norm",
]

matmul, matrix_transpose, outer = _array_api.matmul, _array_api.matrix_transpose, _ops.outer
cholesky, cholesky_ex, det, slogdet = _ops.linalg_cholesky, _ops.linalg_cholesky_ex, _ops.linalg_det, _ops.linalg_slogdet
eigh, eigvalsh, inv, inv_ex = _ops.linalg_eigh, _ops.linalg_eigvalsh, _ops.linalg_inv, _ops.linalg_inv_ex
householder_product, qr, svd, svdvals = _ops.linalg_householder_product, _ops.linalg_qr, _ops.linalg_svd, _ops.linalg_svdvals
lu, lu_factor, lu_factor_ex, lu_solve = _ops.linalg_lu, _ops.linalg_lu_factor, _ops.linalg_lu_factor_ex, _ops.linalg_lu_solve
lstsq, matrix_exp, matrix_power, multi_dot = _ops.linalg_lstsq, _ops.linalg_matrix_exp, _ops.linalg_matrix_power, _ops.linalg_multi_dot
tensorinv, vander, solve_ex = _ops.linalg_tensorinv, _ops.linalg_vander, _ops.linalg_solve_ex

Dims = Union[None, int, Sequence[int]]
Bound = Union[None, float, Tensor]


def _dims(dim: Dims) -> Optional[Sequence[int]]:
    return [dim] if isinstance(dim, int) else dim if dim is None else list(dim)


def _alike(a: Tensor, b: Tensor) -> Tuple[Tensor, Tensor]:
    joint = _core.promote_types(a.dtype, b.dtype)
    return a.to(joint), b.to(joint)


def _bound(A: Tensor, value: Bound) -> Optional[Tensor]:
    return value if value is None or isinstance(value, Tensor) else _core.wrap_number(value, A.device)


def vector_norm(x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, axis: Dims = None, keepdims: bool = False,
                dtype: Any = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) over ``dim`` (all without one); inf, -inf: the largest, the smallest; 0: how many are not 0."""
    return _ops.linalg_vector_norm(x, float(ord), _dims(dim if axis is None else axis), keepdim or keepdims, dtype)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, keepdims: bool = False,
                dtype: Any = None) -> Tensor:
    """Norms of matrices: "fro", "nuc", inf and -inf (sums of rows), 1 and -1 (sums of columns), 2 and -2 (singular values)."""
    return _ops.linalg_matrix_norm(A, str(ord), list(dim), keepdim or keepdims, dtype)


def norm(A: Tensor, ord: Any = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """vector_norm() of all elements or along one dimension; matrix_norm() where ``ord`` is given and there are two."""
    return _ops.linalg_norm(A, "" if ord is None else str(ord), _dims(dim), keepdim, dtype)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The norm of the matrix times that of its inverse; without ``p`` the ratio of the extreme singular values."""
    return _ops.linalg_cond(A, "" if p is None else str(p))


def cross(input: Tensor, other: Tensor, *, axis: int = -1, dim: Optional[int] = None) -> Tensor:
    """The cross product of vectors of three along ``dim``."""
    return _ops.linalg_cross(*_alike(input, other), axis if dim is None else dim)


def vecdot(x: Tensor, y: Tensor, *, axis: int = -1, dim: Optional[int] = None) -> Tensor:
    """Sums of the products along ``dim``."""
    return _ops.linalg_vecdot(*_alike(x, y), axis if dim is None else dim)


def diagonal(A: Tensor, /, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices."""
    return _ops.diagonal(A, offset, dim1, dim2)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of the matrices."""
    return F.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B without ``left``); B [.., n, k], or vectors [.., n] where it has one dimension less."""
    return _ops.linalg_solve(A, B, left)


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """As solve(), of a triangle of A."""
    return _ops.linalg_solve_triangular(A, B, upper, left, unitriangular)


def pinv(A: Tensor, rcond: Bound = None, hermitian: bool = False, *, atol: Bound = None, rtol: Bound = None) -> Tensor:
    """The pseudo-inverse (Moore and Penrose), singular values up to max(atol, rtol times the largest) taken as 0."""
    return _ops.linalg_pinv(A, _bound(A, atol), _bound(A, rcond if rtol is None else rtol), hermitian)


def matrix_rank(A: Tensor, tol: Bound = None, hermitian: bool = False, *, atol: Bound = None, rtol: Bound = None) -> Tensor:
    """How many singular values are above max(atol, rtol times the largest); ``tol`` is an ``atol`` alone."""
    if tol is not None:
        atol, rtol = tol, 0.0
    return _ops.linalg_matrix_rank(A, _bound(A, atol), _bound(A, rtol), hermitian)


def tensorsolve(A: Tensor, B: Tensor, dims: Optional[Sequence[int]] = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    return _ops.linalg_tensorsolve(A, B, None if dims is None else list(dims))


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ._compat import missing

        missing(__name__, name, __all__)
