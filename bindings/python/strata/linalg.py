"""Linear algebra: norms and products by the engine; decompositions, solutions and determinants by NumPy (LAPACK) on the
host, with gradients. Also the array API's extension of this name."""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

from . import _array_api, _composed, _core, _functions as F, _ops
from ._autocast import exact
from ._core import Tensor
from .autograd import Function

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "inv_ex", "lstsq",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv",
    "tensorsolve", "trace", "vander", "vecdot", "vector_norm",
]

matmul, matrix_transpose, vecdot = _array_api.matmul, _array_api.matrix_transpose, _array_api.vecdot
matrix_power, outer, tensordot = _composed.matrix_power, _composed.outer, _array_api.tensordot
matrix_exp = exact(_composed.matrix_exp)

Dims = Union[None, int, Tuple[int, ...], List[int]]


class LinAlgError(RuntimeError):
    """A matrix that has no such decomposition, or no inverse."""


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class EighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class LstsqResult(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# ---- norms and products


def _vector_norm(x: Tensor, order: float, dims: List[int], keepdim: bool) -> Tensor:
    if order == 0:
        return F.sum((x != 0).to(x.dtype), dims, keepdim)
    if math.isinf(order):
        a = _ops.abs(x)
        return _ops.amax(a, dims, keepdim) if order > 0 else _ops.amin(a, dims, keepdim)
    return _ops.norm(x, float(order), dims, keepdim)


def vector_norm(x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, axis: Dims = None, keepdims: bool = False,
                dtype: Any = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) over ``dim`` (all without one); inf, -inf: the largest, the smallest; 0: how many are not 0."""
    x = x if dtype is None else x.to(dtype)
    where = dim if axis is None else axis
    dims = list(range(x.ndim)) if where is None else [where] if isinstance(where, int) else list(where)
    if not dims:
        return _ops.abs(x) if ord != 0 else (x != 0).to(x.dtype)
    return _vector_norm(x, float(ord), dims, keepdim or keepdims)


def matrix_norm(x: Tensor, ord: Any = "fro", dim: Tuple[int, int] = (-2, -1), keepdim: bool = False, *, keepdims: bool = False,
                dtype: Any = None) -> Tensor:
    """Norms of matrices: "fro", "nuc", inf and -inf (sums of rows), 1 and -1 (sums of columns), 2 and -2 (singular values)."""
    x = x if dtype is None else x.to(dtype)
    keep = keepdim or keepdims
    rows, columns = dim[0] % x.ndim, dim[1] % x.ndim
    if ord == "fro":
        return _ops.norm(x, 2.0, [rows, columns], keep)
    if ord in (1, -1, math.inf, -math.inf):
        summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = F.sum(_ops.abs(x), summed, True)
        y = _ops.amax(sums, [other], True) if ord > 0 else _ops.amin(sums, [other], True)
        return y if keep else y.squeeze((rows, columns))
    if ord not in ("nuc", 2, -2):
        raise ValueError(f"matrix_norm: ord must be fro, nuc, inf, -inf, 1, -1, 2 or -2, got {ord!r}")
    s = svdvals(x.movedim((rows, columns), (-2, -1)))
    y = F.sum(s, -1) if ord == "nuc" else _ops.amax(s, [-1], False) if ord == 2 else _ops.amin(s, [-1], False)
    return y.unsqueeze(min(rows, columns)).unsqueeze(max(rows, columns)) if keep else y


def norm(x: Tensor, ord: Any = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """vector_norm() of all elements or along one dimension; matrix_norm() where ``ord`` is given and there are two."""
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    dims = (tuple(range(x.ndim)) if dim is None else dim)
    if isinstance(dims, int) or len(dims) == 1:
        return vector_norm(x, ord, dims, keepdim, dtype=dtype)
    return matrix_norm(x, ord, (dims[0], dims[1]), keepdim, dtype=dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1, dim: Optional[int] = None) -> Tensor:
    """The cross product of vectors of three along ``axis``."""
    t = _core.promote_types(x1.dtype, x2.dtype)
    return _composed.cross(x1.to(t), x2.to(t), axis if dim is None else dim)


def diagonal(x: Tensor, /, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices."""
    return _ops.diagonal(x, offset, dim1, dim2)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of the matrices."""
    return F.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices; the first and the last may be vectors."""
    return _composed.chain_matmul(*tensors)


# ---- by NumPy


def _lapack(op: str, run: Callable[..., Any], *tensors: Tensor) -> Tuple[Tensor, ...]:
    """The results of a NumPy function of the tensors' elements, on the tensors' device."""
    import numpy as np

    first = tensors[0]
    for t in tensors:
        if t.dtype not in (_core.float32, _core.float64):
            raise _core.DTypeError(f"{op}: float32 or float64 is wanted, got {t.dtype.name}")
    try:
        found = run(np, *(t.detach().cpu().numpy() for t in tensors))
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{op}: {error}") from None
    arrays = found if isinstance(found, tuple) else (found,)
    return tuple(F.tensor(np.array(a, order="C"), device=first.device) for a in arrays)


def _square(op: str, x: Tensor) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise _core.ShapeError(f"{op}: square matrices are wanted, got {list(x.shape)}")


class _Inv(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        (y,) = _lapack("inv", lambda np, m: np.linalg.inv(m), a)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        found: Tensor = -(y.mT @ grad @ y.mT)
        return found


@exact
def inv(x: Tensor, /) -> Tensor:
    """Inverses of the matrices; LinAlgError for one that has none."""
    _square("inv", x)
    y: Tensor = _Inv.apply(x)
    return y


class _Solve(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        (x,) = _lapack("solve", lambda np, m, v: np.linalg.solve(m, v), a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, Tensor]:
        a, x = ctx.saved_tensors
        to_b = solve(a.mT, grad)
        return -(to_b @ x.mT), to_b


@exact
def solve(A: Tensor, B: Tensor, /, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B without ``left``); B [.., n, k], or vectors [.., n] where it has one dimension less."""
    _square("solve", A)
    t = _core.promote_types(A.dtype, B.dtype)
    A, B = A.to(t), B.to(t)
    if not left:
        return solve(A.mT, B.mT).mT
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    b = B.unsqueeze(-1) if vector else B
    lead = list(_core.broadcast_shapes(A.shape[:-2], b.shape[:-2]))
    x: Tensor = _Solve.apply(A.expand(lead + list(A.shape[-2:])), b.expand(lead + list(b.shape[-2:])))
    return x.squeeze(-1) if vector else x


@exact
def solve_triangular(A: Tensor, B: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """As solve(), of a triangle of A."""
    a = _ops.triu(A, 1 if unitriangular else 0) if upper else _ops.tril(A, -1 if unitriangular else 0)
    if unitriangular:
        a = a + _core.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return solve(a, B, left=left)


class _Slogdet(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        sign, size = _lapack("slogdet", lambda np, m: tuple(np.linalg.slogdet(m)), a)
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(sign)
        return sign, size

    @staticmethod
    def backward(ctx: Any, _: Any, grad: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return inv(a).mT * grad.unsqueeze(-1).unsqueeze(-1)


@exact
def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its size."""
    _square("slogdet", x)
    return SlogdetResult(*_Slogdet.apply(x))


@exact
def det(x: Tensor, /) -> Tensor:
    """Determinants of the matrices."""
    sign, size = slogdet(x)
    return sign * size.exp()


class _Cholesky(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        (lower,) = _lapack("cholesky", lambda np, m: np.linalg.cholesky(m), a)
        ctx.save_for_backward(lower)
        return lower

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        # Murray, "Differentiation of the Cholesky decomposition" (arXiv:1602.07527), equation 10
        (lower,) = ctx.saved_tensors
        inner = _ops.tril(lower.mT @ grad)
        inner = inner - _ops.diag_embed(_ops.diagonal(inner, 0, -2, -1)) * 0.5
        inverse = inv(lower)
        g = inverse.mT @ inner @ inverse
        return (g + g.mT) * 0.5


@exact
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangle L with x = L L^T of positive-definite matrices (its transpose with ``upper``)."""
    _square("cholesky", x)
    lower: Tensor = _Cholesky.apply(x)
    return lower.mT if upper else lower


def _gaps(values: Tensor) -> Tensor:
    """1 / (value_j - value_i), 0 on the diagonal."""
    n = values.shape[-1]
    gap = values.unsqueeze(-2) - values.unsqueeze(-1) + _core.eye(n, dtype=values.dtype, device=values.device)
    return (1 / gap) * (1 - _core.eye(n, dtype=values.dtype, device=values.device))


class _Eigh(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        values, vectors = _lapack("eigh", lambda np, m: tuple(np.linalg.eigh(m)), a)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, to_values: Tensor, to_vectors: Tensor) -> Tensor:
        values, v = ctx.saved_tensors
        inner = _ops.diag_embed(to_values) + _gaps(values) * (v.mT @ to_vectors)
        g = v @ inner @ v.mT
        found: Tensor = (g + g.mT) * 0.5
        return found


@exact
def eigh(x: Tensor, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which the lower triangle is read."""
    _square("eigh", x)
    if UPLO == "U":
        x = _ops.triu(x) + _ops.triu(x, 1).mT
    elif x.requires_grad:
        x = _ops.tril(x) + _ops.tril(x, -1).mT
    return EighResult(*_Eigh.apply(x))


@exact
def eigvalsh(x: Tensor, /, UPLO: str = "L") -> Tensor:
    """The eigenvalues of eigh()."""
    return eigh(x, UPLO)[0]


class _Svd(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        u, s, vh = _lapack("svd", lambda np, m: tuple(np.linalg.svd(m, full_matrices=False)), a)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, to_u: Tensor, to_s: Tensor, to_vh: Tensor) -> Tensor:
        # Townsend, "Differentiating the singular value decomposition" (2016)
        u, s, vh = ctx.saved_tensors
        v, to_v = vh.mT, to_vh.mT
        f = _gaps(s * s)
        wide = s.unsqueeze(-2)
        inner_u, inner_v = f * (u.mT @ to_u), f * (v.mT @ to_v)
        middle = (inner_u + inner_u.mT) * wide + s.unsqueeze(-1) * (inner_v + inner_v.mT) + _ops.diag_embed(to_s)
        g = u @ middle @ vh
        m, n, k = u.shape[-2], v.shape[-2], s.shape[-1]
        if m > k:
            g = g + ((to_u - u @ (u.mT @ to_u)) / wide) @ vh
        if n > k:
            g = g + u @ ((to_v - v @ (v.mT @ to_v)) / wide).mT
        found: Tensor = g
        return found


@exact
def svd(x: Tensor, /, full_matrices: bool = True) -> SVDResult:
    """x = U diag(S) Vh, S descending. A gradient wants ``full_matrices=False`` and singular values that differ."""
    if full_matrices and x.shape[-1] != x.shape[-2]:
        if x.requires_grad:
            raise _core.AutogradError("svd: with full_matrices there is no gradient; use full_matrices=False")
        return SVDResult(*_lapack("svd", lambda np, m: tuple(np.linalg.svd(m, full_matrices=True)), x))
    return SVDResult(*_Svd.apply(x))


@exact
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, descending."""
    if x.requires_grad:
        return svd(x, full_matrices=False)[1]
    return _lapack("svdvals", lambda np, m: np.linalg.svd(m, compute_uv=False), x)[0]


def _constant(op: str, x: Tensor) -> None:
    if x.requires_grad and _core.is_grad_enabled():
        raise _core.AutogradError(f"{op}: there is no gradient; detach() the argument, or write it with svd(), solve() or inv()")


@exact
def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """x = Q R with orthonormal columns of Q and an upper triangle R; mode "reduced" or "complete". No gradient."""
    _constant("qr", x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode must be reduced or complete, got {mode!r}")
    return QRResult(*_lapack("qr", lambda np, m: tuple(np.linalg.qr(m, mode=mode)), x))


@exact
def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse (Moore and Penrose), singular values below rtol times the largest taken as 0."""
    u, s, vh = svd(x, full_matrices=False)
    share = max(x.shape[-2:]) * F.finfo(x.dtype).eps if rtol is None else rtol
    if isinstance(share, Tensor):
        share = share.unsqueeze(-1)
    cut = s.detach() > share * (_ops.amax(s.detach(), [-1], True) if s.shape[-1] else s.detach())
    inverse = F.where(cut, 1 / F.where(cut, s, 1.0), 0.0)
    found: Tensor = vh.mT @ (inverse.unsqueeze(-1) * u.mT)
    return found


@exact
def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol times the largest."""
    s = svdvals(x.detach())
    share = max(x.shape[-2:]) * F.finfo(x.dtype).eps if rtol is None else rtol
    if isinstance(share, Tensor):
        share = share.unsqueeze(-1)
    return (s > share * _ops.amax(s, [-1], True)).sum(-1)


@exact
def cond(x: Tensor, p: Any = None) -> Tensor:
    """The norm of the matrix times that of its inverse; without ``p`` the ratio of the extreme singular values."""
    if p is None or p == 2:
        s = svdvals(x)
        return _ops.amax(s, [-1], False) / _ops.amin(s, [-1], False)
    return matrix_norm(x, p) * matrix_norm(inv(x), p)


@exact
def lstsq(A: Tensor, B: Tensor, rcond: Optional[float] = None, *, driver: Optional[str] = None) -> LstsqResult:
    """X of least |A X - B|, for one matrix. No gradient."""
    _constant("lstsq", A)
    _constant("lstsq", B)
    return LstsqResult(*_lapack("lstsq", lambda np, a, b: tuple(np.asarray(v) for v in np.linalg.lstsq(a, b, rcond=rcond)), A, B))


class InvResult(NamedTuple):
    inverse: Tensor
    info: Tensor


class CholeskyResult(NamedTuple):
    L: Tensor
    info: Tensor


class SolveResult(NamedTuple):
    result: Tensor
    info: Tensor


def _tried(of: Tensor, run: Callable[[], Tensor], check_errors: bool) -> Tuple[Tensor, Tensor]:
    """The result and, for each matrix, 0; 1 for all, and NaNs, where one of them has no result."""
    info = _core.zeros(list(of.shape)[:-2], dtype=_core.int32, device=of.device)
    try:
        return run(), info
    except LinAlgError:
        if check_errors:
            raise
        return _core.full(list(of.shape), math.nan, dtype=of.dtype, device=of.device), info + 1


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvResult:
    """inv(), with an info of 1 in place of an error."""
    return InvResult(*_tried(A, lambda: inv(A), check_errors))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyResult:
    """cholesky(), with an info of 1 in place of an error."""
    return CholeskyResult(*_tried(A, lambda: cholesky(A, upper=upper), check_errors))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveResult:
    """solve(), with an info of 1 in place of an error."""
    result, info = _tried(A, lambda: solve(A, B, left=left), check_errors)
    broken = bool(info.numel()) and int(info.max().item()) > 0
    return SolveResult(_core.full(list(B.shape), math.nan, dtype=B.dtype, device=B.device) if broken else result, info)


def vander(x: Tensor, N: Optional[int] = None) -> Tensor:
    """Rows of powers: x^0, x^1 .. x^(N - 1)."""
    n = x.shape[-1] if N is None else N
    if n < 2:
        raise ValueError(f"vander: N must be greater than 1, got {n}")
    found: Tensor = x.unsqueeze(-1) ** _core.arange(n, device=x.device)
    return found


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a matrix of its first ``ind`` dimensions by the others."""
    first, rest = list(A.shape)[:ind], list(A.shape)[ind:]
    if ind < 1 or math.prod(first) != math.prod(rest):
        raise _core.ShapeError(f"tensorinv: {first} and {rest} do not make a square matrix")
    return inv(A.reshape([math.prod(first), math.prod(rest)])).reshape([*rest, *first])


def tensorsolve(A: Tensor, B: Tensor, dims: Optional[Tuple[int, ...]] = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim([d % A.ndim for d in dims], list(range(A.ndim - len(dims), A.ndim)))
    rest = list(A.shape)[B.ndim:]
    if math.prod(rest) != B.numel() or A.numel() != B.numel() ** 2:
        raise _core.ShapeError(f"tensorsolve: {list(A.shape)} does not fit {list(B.shape)}")
    return solve(A.reshape([B.numel(), B.numel()]), B.reshape([-1])).reshape(rest)


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ._compat import missing

        missing(__name__, name, __all__)
