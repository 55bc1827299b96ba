"""Statistics, integrals, running sums."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple, Optional, Tuple, Union

from .. import _core, _functions as F, _ops
from .._array_api import searchsorted
from .._autocast import in_full
from .._core import Tensor

__all__ = [
    "bucketize", "corrcoef", "cov", "diff", "histc", "logcumsumexp", "median", "mode", "nanmean", "nansum", "quantile",
    "std_mean", "trapezoid", "trapz", "var_mean",
]

Number = Union[builtins.int, builtins.float]


class _ValuesIndices(NamedTuple):
    values: Tensor
    indices: Tensor


def var_mean(input: Tensor, dim: Any = None, unbiased: Optional[builtins.bool] = None, keepdim: builtins.bool = False, *,
             correction: Optional[Number] = None) -> Tuple[Tensor, Tensor]:
    """var() and mean()."""
    return F.var(input, dim, unbiased, keepdim, correction=correction), F.mean(input, dim, keepdim)


def std_mean(input: Tensor, dim: Any = None, unbiased: Optional[builtins.bool] = None, keepdim: builtins.bool = False, *,
             correction: Optional[Number] = None) -> Tuple[Tensor, Tensor]:
    """std() and mean()."""
    return F.std(input, dim, unbiased, keepdim, correction=correction), F.mean(input, dim, keepdim)


def nansum(input: Tensor, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
    """The sum of what is not NaN."""
    return F.sum(_ops.masked_fill(input, _ops.isnan(input), 0), dim, keepdim)


def nanmean(input: Tensor, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
    """The mean of what is not NaN."""
    count = F.sum(_ops.logical_not(_ops.isnan(input)), dim, keepdim)
    return nansum(input, dim, keepdim) / count.to(input.dtype)


def median(input: Tensor, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False) -> Any:
    """The lower median of all elements; along ``dim`` also where it is."""
    if dim is None:
        flat = input.reshape(-1)
        return _ops.kthvalue(flat, (flat.shape[0] + 1) // 2, 0, False)[0]
    return _ValuesIndices(*_ops.kthvalue(input, (input.shape[dim] + 1) // 2, dim, keepdim))


def mode(input: Tensor, dim: builtins.int = -1, keepdim: builtins.bool = False) -> _ValuesIndices:
    """The commonest value along ``dim`` (the smallest of several) and the last place where it is."""
    x = input.movedim(dim, -1)
    counts = (x.unsqueeze(-1) == x.unsqueeze(-2)).sum(-1)
    best = counts == F.max(counts, -1, True)[0]
    ordered, order = _ops.sort(x, -1)
    first = _ops.argmax(best.gather(-1, order).to(_core.int8), -1, True)
    values = ordered.gather(-1, first)
    places = _core.arange(x.shape[-1], device=x.device)
    indices = F.max(F.where(x == values, places, -1), -1, True)[0]
    if not keepdim:
        return _ValuesIndices(values.squeeze(-1), indices.squeeze(-1))
    return _ValuesIndices(values.movedim(-1, dim), indices.movedim(-1, dim))


def quantile(input: Tensor, q: Any, dim: Optional[builtins.int] = None, keepdim: builtins.bool = False, *,
             interpolation: str = "linear") -> Tensor:
    """The values below which the shares ``q`` of the elements lie."""
    (input,) = in_full(input)
    share = q.to(input.dtype) if isinstance(q, Tensor) else F.tensor(q, dtype=input.dtype, device=input.device)
    x = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    ordered = _ops.sort(x, -1)[0]
    place = share.reshape(-1) * (x.shape[-1] - 1)
    low, high = _ops.floor(place), _ops.ceil(place)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueError(f"quantile: interpolation must be linear, lower, higher, midpoint or nearest, got {interpolation!r}")
    weight = {"linear": place - low, "lower": place * 0, "higher": (place > low).to(x.dtype),
              "midpoint": (place > low).to(x.dtype) * 0.5, "nearest": (_ops.round(place) > low).to(x.dtype)}[interpolation]
    a = _ops.index_select(ordered, -1, low.to(_core.int64))
    b = _ops.index_select(ordered, -1, high.to(_core.int64))
    y = (a + (b - a) * weight).movedim(-1, 0)
    if keepdim:
        y = y.reshape([y.shape[0]] + [1] * input.dim()) if dim is None else y.unsqueeze(dim if dim < 0 else dim + 1)
    return y.squeeze(0) if share.dim() == 0 else y


def corrcoef(input: Tensor) -> Tensor:
    """Correlations of the rows."""
    c = cov(input)
    d = _ops.diagonal(c, 0, 0, 1).sqrt()
    return c / d.unsqueeze(1) / d


def histc(input: Tensor, bins: builtins.int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """How many elements lie in each of ``bins`` equal parts of [min, max] (both 0: the range of the elements)."""
    x = input.detach().reshape(-1)
    if min == 0 and max == 0 and x.numel():
        min, max = x.min().item(), x.max().item()
    if min == max:
        min, max = min - 1, max + 1
    x = x[(x >= min) & (x <= max)]
    place = _ops.clamp(((x - min) / ((max - min) / bins)).to(_core.int64), 0, bins - 1)
    return _ops.bincount(place, None, bins).to(input.dtype)


def bucketize(input: Any, boundaries: Tensor, *, right: builtins.bool = False) -> Tensor:
    """The part between ascending boundaries in which each element lies."""
    return searchsorted(boundaries, input, right=right)


def logcumsumexp(input: Tensor, dim: builtins.int) -> Tensor:
    """log of the sums of exp up to each element."""
    steps = list(_ops.unbind(input, dim))
    for i in range(1, len(steps)):
        steps[i] = _ops.logaddexp(steps[i - 1], steps[i])
    return _ops.stack(steps, dim) if steps else input.clone()


def diff(input: Tensor, n: builtins.int = 1, dim: builtins.int = -1, prepend: Optional[Tensor] = None,
         append: Optional[Tensor] = None) -> Tensor:
    """Differences of neighbours, ``n`` times."""
    parts = [t for t in (prepend, input, append) if t is not None]
    x = _ops.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = x.shape[dim]
        late, early = x.narrow(dim, 1, builtins.max(size - 1, 0)), x.narrow(dim, 0, builtins.max(size - 1, 0))
        x = _ops.logical_xor(late, early) if x.dtype == _core.bool else late - early
    return x


def trapezoid(y: Tensor, x: Optional[Tensor] = None, *, dx: Number = 1, dim: builtins.int = -1) -> Tensor:
    """The integral by trapezoids, over points ``x`` or steps of ``dx``."""
    n = y.shape[dim]
    means = (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) / 2
    if x is None:
        return means.sum(dim) * dx
    width = diff(x, dim=-1 if x.dim() == 1 else dim)
    return (means * (width if x.dim() > 1 or dim in (-1, y.dim() - 1) else width.reshape([-1] + [1] * (y.dim() - 1 - dim)))).sum(dim)


trapz = trapezoid


def cov(input: Tensor, *, correction: builtins.int = 1, fweights: Optional[Tensor] = None,
        aweights: Optional[Tensor] = None) -> Tensor:
    """Covariances of the rows (of one row, its variance). ``fweights`` says how often each column was seen, ``aweights`` how
    much it counts."""
    rows = input.reshape([1, -1]) if input.dim() < 2 else input
    if fweights is None and aweights is None:
        x = rows - rows.mean(1, True)
        y = x @ x.mT / (rows.shape[1] - correction)
    else:
        one = _core.ones([rows.shape[1]], dtype=rows.dtype, device=rows.device)
        importance = one if aweights is None else aweights.to(rows.dtype)
        w = importance if fweights is None else importance * fweights.to(rows.dtype)
        total = w.sum()
        x = rows - (rows * w).sum([1], True) / total
        y = (x * w) @ x.mT / (total - correction * (w * importance).sum() / total)
    return y.reshape([]) if input.dim() < 2 else y
