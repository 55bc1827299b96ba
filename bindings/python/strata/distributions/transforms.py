"""Invertible maps between values, with the logarithms of their derivatives."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence

from .. import _core, _functions as F, _ops
from .._core import Tensor
from . import constraints
from .constraints import Constraint

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform",
    "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]


_sum_right = _core._sum_right


class Transform:
    """y = transform(x) and x = transform.inv(y). ``sign`` is 1 where it rises, -1 where it falls."""

    bijective = False
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached: Any = (None, None)

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> "Transform":
        """The inverse transform."""
        return _Inverse(self)

    @property
    def sign(self) -> Any:
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> "Transform":
        """The same transform, remembering its last value or not."""
        self._cache_size = cache_size
        return self

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        before, after = self._cached
        if x is before:
            found: Tensor = after
            return found
        y = self._call(x)
        self._cached = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        before, after = self._cached
        if self._cache_size and y is after:
            found: Tensor = before
            return found
        return self._inverse(y)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy / dx|."""
        raise NotImplementedError

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of y for x of ``shape``."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of x for y of ``shape``."""
        return shape

    def __repr__(self) -> str:
        return type(self).__name__ + "()"


class _Inverse(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._inv = transform
        self.bijective = transform.bijective

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return self._inv.codomain

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return self._inv.domain

    @property
    def inv(self) -> Transform:
        return self._inv

    @property
    def sign(self) -> Any:
        return self._inv.sign

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inverse) and self._inv == other._inv

    __hash__ = Transform.__hash__


class ComposeTransform(Transform):
    """One after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        if not self.parts:
            return constraints.real
        wanted = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            wanted = max(wanted + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        first = self.parts[0].domain
        return first if wanted == first.event_dim else constraints.independent(first, wanted - first.event_dim)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        if not self.parts:
            return constraints.real
        wanted = self.parts[0].domain.event_dim
        for part in self.parts:
            wanted = max(wanted + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        last = self.parts[-1].codomain
        return last if wanted == last.event_dim else constraints.independent(last, wanted - last.event_dim)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        return ComposeTransform([p.inv for p in reversed(self.parts)])

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return _core.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        event = self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            total = total + _sum_right(part.log_abs_det_jacobian(before, after), event - part.domain.event_dim)
            event += part.codomain.event_dim - part.domain.event_dim
        found: Tensor = total
        return found

    def forward_shape(self, shape: Sequence[int]) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return "ComposeTransform(" + ", ".join(map(repr, self.parts)) + ")"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last ``reinterpreted_batch_ndims`` dimensions make one event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return _sum_right(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Events of another shape."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(list(x.shape)[: x.dim() - len(self.in_shape)] + list(self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(list(y.shape)[: y.dim() - len(self.out_shape)] + list(self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return _core.zeros(list(x.shape)[: x.dim() - len(self.in_shape)], dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return tuple(shape)[: len(shape) - len(self.in_shape)] + self.out_shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return tuple(shape)[: len(shape) - len(self.out_shape)] + self.in_shape


class ExpTransform(Transform):
    """y = exp(x)."""

    bijective = True
    sign = 1
    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x^exponent for positive x."""

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else F.tensor(float(exponent))

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))."""

    bijective = True
    sign = 1
    codomain = constraints.unit_interval

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigmoidTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        info = F.finfo(x.dtype)
        return _ops.sigmoid(x).clamp(info.tiny, 1 - info.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        info = F.finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return y.log() - _ops.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -_ops.softplus(-x) - _ops.softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))."""

    bijective = True
    sign = 1
    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftplusTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return _ops.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-_ops.expm1(-y)).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -_ops.softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)."""

    bijective = True
    sign = 1
    codomain = constraints.interval(-1.0, 1.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TanhTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return _ops.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - _ops.softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|: the inverse gives the positive one."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x: Tensor) -> Tensor:
        y: Tensor = self.loc + self.scale * x
        return y

    def _inverse(self, y: Tensor) -> Tensor:
        x: Tensor = (y - self.loc) / self.scale
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale.abs().log() if isinstance(self.scale, Tensor) else math.log(abs(self.scale))
        return _sum_right(_core.zeros_like(x) + scale, self._event_dim)


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dimension; the inverse gives log y."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return _ops.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """n numbers to n + 1 shares: each takes a part of what is left."""

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        offset = x.shape[-1] + 1 - _core.ones([x.shape[-1]], dtype=x.dtype, device=x.device).cumsum(-1)
        z = _ops.sigmoid(x - offset.log())
        left = (1 - z).cumprod(-1)
        one = _core.ones_like(z.narrow(-1, 0, 1))
        return F.cat([z, one], -1) * F.cat([one, left], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        n = y.shape[-1] - 1
        taken = y.narrow(-1, 0, n)
        offset = y.shape[-1] - _core.ones([n], dtype=y.dtype, device=y.device).cumsum(-1)
        rest = (1 - taken.cumsum(-1)).clamp(F.finfo(y.dtype).tiny)
        return taken.log() - rest.log() + offset.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[-1]
        offset = n + 1 - _core.ones([n], dtype=x.dtype, device=x.device).cumsum(-1)
        x = x - offset.log()
        return (-x + _ops.logsigmoid(x) + y.narrow(-1, 0, n).log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return tuple(shape)[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return tuple(shape)[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangles with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + _ops.diag_embed(x.diagonal(0, -2, -1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + _ops.diag_embed(y.diagonal(0, -2, -1).log())


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        y = LowerCholeskyTransform()(x)
        return y @ y.mT

    def _inverse(self, y: Tensor) -> Tensor:
        from .. import linalg

        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class _Pieces(Transform):
    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.bijective = all(t.bijective for t in self.transforms)

    def _pieces(self, x: Tensor) -> List[Tensor]:
        raise NotImplementedError

    def _join(self, parts: List[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(v) for t, v in zip(self.transforms, self._pieces(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t.inv(v) for t, v in zip(self.transforms, self._pieces(y))])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pieces = zip(self.transforms, self._pieces(x), self._pieces(y))
        return self._join([t.log_abs_det_jacobian(a, b) for t, a, b in pieces])


class CatTransform(_Pieces):
    """A transform for each piece along ``dim``."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Optional[Sequence[int]] = None,
                 cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    def _pieces(self, x: Tensor) -> List[Tensor]:
        return list(F.split(x, self.lengths, self.dim))

    def _join(self, parts: List[Tensor]) -> Tensor:
        return F.cat(parts, self.dim)


class StackTransform(_Pieces):
    """A transform for each slice along ``dim``."""

    def _pieces(self, x: Tensor) -> List[Tensor]:
        return list(x.unbind(self.dim))

    def _join(self, parts: List[Tensor]) -> Tensor:
        return F.stack(parts, self.dim)
