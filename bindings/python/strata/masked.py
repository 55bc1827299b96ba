"""torch.masked: reductions and normalisations over the elements that a mask of bool keeps: the records masked_reduce
and masked_along."""

from __future__ import annotations

from typing import Any, Optional

from . import _core, _ops
from ._core import Tensor, dtype as DType

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logsumexp", "mean", "norm",
           "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]


def _checked(input: Tensor, dtype: Optional[DType], mask: Optional[Tensor]) -> Tensor:
    if mask is not None and mask.dtype != _core.bool:
        raise TypeError(f"masked: the mask must be bool, got {mask.dtype}")
    return input if dtype is None else input.to(dtype)


def _reduced(name: str, input: Tensor, dim: Any, keepdim: bool, dtype: Optional[DType], mask: Optional[Tensor],
             correction: float = 1.0, ord: float = 2.0) -> Tensor:
    dims = [] if dim is None else dim
    return _ops.masked_reduce(_checked(input, dtype, mask), mask, name, dims, keepdim, correction, ord)


def _reduction(name: str, doc: str) -> Any:
    def function(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None,
                 mask: Optional[Tensor] = None) -> Tensor:
        return _reduced(name, input, dim, keepdim, dtype, mask)

    function.__name__, function.__qualname__, function.__doc__ = name, name, doc
    return function


def _along(name: str, doc: str) -> Any:
    def function(input: Tensor, dim: int, *, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
        return _ops.masked_along(_checked(input, dtype, mask), mask, name, dim)

    function.__name__, function.__qualname__, function.__doc__ = name, name, doc
    return function


sum, prod = _reduction("sum", "The sum; 0 of none."), _reduction("prod", "The product; 1 of none.")
amax = _reduction("amax", "The largest; the dtype's least of none.")
amin = _reduction("amin", "The smallest; the dtype's greatest of none.")
argmax, argmin = _reduction("argmax", "Where the largest is."), _reduction("argmin", "Where the smallest is.")
mean, logsumexp = _reduction("mean", "The mean."), _reduction("logsumexp", "log sum exp; -inf of none.")
cumsum = _along("cumsum", "Sums of all before and at each place.")
cumprod = _along("cumprod", "Products of all before and at each place.")
softmax = _along("softmax", "exp(x) over its sum, of those that are kept; 0 for the others.")
softmin = _along("softmin", "softmax() of -x.")
log_softmax = _along("log_softmax", "The logarithm of softmax().")


def _correction(unbiased: Optional[bool], correction: Optional[float]) -> float:
    if unbiased is not None and correction is not None:
        raise ValueError("masked: one of unbiased and correction may be given, got both")
    return float(correction) if correction is not None else float(unbiased is None or unbiased)


def var(input: Tensor, dim: Any = None, unbiased: Optional[bool] = None, *, correction: Optional[float] = None,
        keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The variance."""
    return _reduced("var", input, dim, keepdim, dtype, mask, _correction(unbiased, correction))


def std(input: Tensor, dim: Any = None, unbiased: Optional[bool] = None, *, correction: Optional[float] = None,
        keepdim: bool = False, dtype: Optional[DType] = None, mask: Optional[Tensor] = None) -> Tensor:
    """The standard deviation."""
    return _reduced("std", input, dim, keepdim, dtype, mask, _correction(unbiased, correction))


def norm(input: Tensor, ord: Any = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Optional[DType] = None,
         mask: Optional[Tensor] = None) -> Tensor:
    """(sum |x|^ord)^(1/ord)."""
    return _reduced("norm", input, dim, keepdim, dtype, mask, ord=2.0 if ord is None else float(ord))


def normalize(input: Tensor, ord: Any, dim: int, *, eps: float = 1e-12, dtype: Optional[DType] = None,
              mask: Optional[Tensor] = None) -> Tensor:
    """x over its norm(), which is at least ``eps``; 0 where it is not kept."""
    return _ops.masked_along(_checked(input, dtype, mask), mask, "normalize", dim, float(ord), eps)
