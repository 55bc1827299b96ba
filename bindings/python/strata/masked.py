"""torch.masked: reductions and normalisations over the elements that a mask of bool keeps. A row that keeps none gives the
reduction's neutral element; a mean, a median or a softmax of none is NaN."""

from __future__ import annotations

from typing import Any, Optional

from . import _core, _ops
from . import _functions as F
from ._core import Tensor, dtype as DType

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logsumexp", "mean", "norm", "normalize", "prod",
           "softmax", "softmin", "std", "sum", "var"]


def _dims(input: Tensor, dim: Any) -> Any:
    return list(range(input.dim())) if dim is None or dim == () else dim


def _in(input: Tensor, dtype: Optional[DType]) -> Tensor:
    return input if dtype is None else input.to(dtype)


def _kept(input: Tensor, mask: Optional[Tensor], value: Any) -> Tensor:
    if mask is None:
        return input
    if mask.dtype != _core.bool:
        raise TypeError(f"masked: the mask must be bool, got {mask.dtype}")
    kept: Tensor = F.where(mask, input, F.tensor(value, dtype=input.dtype, device=input.device))
    return kept


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Optional[Tensor]) -> Tensor:
    ones = _core.ones_like(input, dtype=input.dtype)
    return F.sum(_kept(ones, mask, 0), _dims(input, dim), keepdim)


def _edge(dtype: DType, low: bool) -> Any:
    if dtype.is_floating_point:
        return float("-inf") if low else float("inf")
    return F.iinfo(dtype).min if low else F.iinfo(dtype).max


def sum(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The sum; 0 of none."""
    return F.sum(_kept(_in(input, dtype), mask, 0), _dims(input, dim), keepdim)


def prod(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The product; 1 of none."""
    kept = _kept(_in(input, dtype), mask, 1)
    dims = _dims(input, dim)
    for d in sorted((i % input.dim() for i in (dims if isinstance(dims, (list, tuple)) else [dims])), reverse=True):
        kept = kept.prod(d, keepdim)
    return kept


def amax(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The largest; the dtype's least of none."""
    x = _in(input, dtype)
    return _ops.amax(_kept(x, mask, _edge(x.dtype, True)), _dims(input, dim), keepdim)


def amin(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The smallest; the dtype's greatest of none."""
    x = _in(input, dtype)
    return _ops.amin(_kept(x, mask, _edge(x.dtype, False)), _dims(input, dim), keepdim)


def argmax(input: Tensor, dim: Optional[int] = None, *, keepdim: bool = False, dtype: Optional[DType] = None,
           mask: Optional[Tensor] = None) -> Tensor:
    """Where the largest is."""
    x = _in(input, dtype)
    found: Tensor = _kept(x, mask, _edge(x.dtype, True)).argmax(dim, keepdim)
    return found


def argmin(input: Tensor, dim: Optional[int] = None, *, keepdim: bool = False, dtype: Optional[DType] = None,
           mask: Optional[Tensor] = None) -> Tensor:
    """Where the smallest is."""
    x = _in(input, dtype)
    found: Tensor = _kept(x, mask, _edge(x.dtype, False)).argmin(dim, keepdim)
    return found


def cumsum(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """Sums of all before and at each place."""
    return _ops.cumsum(_kept(_in(input, dtype), mask, 0), dim)


def cumprod(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """Products of all before and at each place."""
    return _ops.cumprod(_kept(_in(input, dtype), mask, 1), dim)


def mean(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The mean."""
    x = _in(input, dtype)
    return F.div(sum(x, dim, keepdim=keepdim, mask=mask), _count(x, dim, keepdim, mask))


def var(input: Tensor, dim: Any = None, unbiased: bool = True, *, keepdim: bool = False, dtype: Optional[DType] = None,
        mask: Optional[Tensor] = None) -> Tensor:
    """The variance."""
    x = _in(input, dtype)
    away = x - mean(x, dim, keepdim=True, mask=mask)
    count = _count(x, dim, keepdim, mask) - (1 if unbiased else 0)
    return F.div(sum(away * away, dim, keepdim=keepdim, mask=mask), count.clamp(min=0))


def std(input: Tensor, dim: Any = None, unbiased: bool = True, *, keepdim: bool = False, dtype: Optional[DType] = None,
        mask: Optional[Tensor] = None) -> Tensor:
    """The standard deviation."""
    return _ops.sqrt(var(input, dim, unbiased, keepdim=keepdim, dtype=dtype, mask=mask))


def norm(input: Tensor, ord: Any = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None,
         mask: Optional[Tensor] = None) -> Tensor:
    """(sum |x|^ord)^(1/ord)."""
    order = 2.0 if ord is None else float(ord)
    filled = _kept(_in(input, dtype), mask, float("inf") if order == float("-inf") else 0)
    return F.norm(filled, order, _dims(input, dim), keepdim)


def logsumexp(input: Tensor, dim: Any, *, keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """log sum exp; -inf of none."""
    return _ops.logsumexp(_kept(_in(input, dtype), mask, float("-inf")), dim, keepdim)


def softmax(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """exp(x) over its sum, of those that are kept; 0 for the others."""
    return F.softmax(_kept(_in(input, dtype), mask, float("-inf")), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The logarithm of softmax()."""
    return F.log_softmax(_kept(_in(input, dtype), mask, float("-inf")), dim)


def softmin(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """softmax() of -x."""
    return softmax(-_in(input, dtype), dim, mask=mask)


def normalize(input: Tensor, ord: Any, dim: int, *, eps: float = 1e-12, dtype: Optional[DType] = None,
              mask: Optional[Tensor] = None) -> Tensor:
    """x over its norm(), which is at least ``eps``; 0 where it is not kept."""
    x = _in(input, dtype)
    return F.div(_kept(x, mask, 0), norm(x, ord, dim, keepdim=True, mask=mask).clamp(min=eps))
