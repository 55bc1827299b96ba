"""What every distribution has."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from .. import _core, _functions as F
from .._core import Tensor
from .._grad_mode import no_grad
from . import constraints
from .constraints import Constraint

Shape = Tuple[int, ...]


def broadcast(*values: Any) -> Tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape and dtype."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    kind, device = (tensors[0].dtype, tensors[0].device) if tensors else (_core.get_default_dtype(), None)
    made = [v if isinstance(v, Tensor) else F.tensor(float(v), dtype=kind, device=device) for v in values]
    return tuple(F.broadcast_tensors(*made))


def shape_of(sample_shape: Any) -> Shape:
    """(3,) of 3 or (3,)."""
    return (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a value, which is looked at first."""

    @functools.wraps(function)
    def of_value(self: "Distribution", value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, Tensor) and getattr(self, "_validate_args", False):
            self._validate_sample(value)
        return function(self, value, *args, **kwargs)

    return of_value


class Distribution:
    """A batch of distributions: ``batch_shape`` of them, each over values of ``event_shape``. ``validate_args`` (the default)
    refuses parameters and values outside their constraints."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: Dict[str, Constraint] = {}
    _validate_args = __debug__

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("log_prob", "cdf"):
            if name in cls.__dict__:
                setattr(cls, name, _checked(cls.__dict__[name]))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions look at their parameters and values from now on."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (),
                 validate_args: Optional[bool] = None) -> None:
        self.batch_shape: Shape = tuple(batch_shape)
        self.event_shape: Shape = tuple(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, constraint in self.arg_constraints.items():
            value = getattr(self, name, None)
            if value is None or constraints.is_dependent(constraint):
                continue
            if not isinstance(value, Tensor):
                value = F.tensor(value)
            if not bool(constraint.check(value.detach()).all()):
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                                 f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n"
                                 f"{value}")

    @property
    def support(self) -> Constraint:
        """The values that may be drawn."""
        raise NotImplementedError

    def _validate_sample(self, value: Tensor) -> None:
        """Refuses values of another shape, or outside the support."""
        events = len(self.event_shape)
        shape = tuple(value.shape)
        if events and shape[len(shape) - events:] != self.event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self.event_shape}.")
        for i, j in zip(reversed(shape), reversed(self.batch_shape + self.event_shape)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs "
                                 f"{self.batch_shape + self.event_shape}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        if not bool(support.check(value.detach()).all()):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {shape}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def _extended(self, sample_shape: Any = ()) -> Shape:
        return shape_of(sample_shape) + self.batch_shape + self.event_shape

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn, without a gradient."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn, through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample(): use sample() and log_prob()")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or probability) of each value."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob()."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most ``value``."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The number below which a share ``value`` lies."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def perplexity(self) -> Tensor:
        """exp(entropy())."""
        return self.entropy().exp()

    def _noise(self, like: Tensor, sample_shape: Any, uniform: bool = False) -> Tensor:
        make = _core.rand if uniform else _core.randn
        return make(self._extended(sample_shape), dtype=like.dtype, device=like.device)

    def _unit(self, like: Tensor, sample_shape: Any) -> Tensor:
        """Uniform in the open interval (0, 1)."""
        tiny = F.finfo(like.dtype).eps / 2
        return self._noise(like, sample_shape, uniform=True).clamp(tiny, 1 - tiny)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


class Independent(Distribution):
    """The last dimensions of the batch as dimensions of one event: log_prob() sums over them."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
                 validate_args: Optional[bool] = None) -> None:
        base = base_distribution
        if reinterpreted_batch_ndims > len(base.batch_shape):
            raise ValueError(f"Independent: {reinterpreted_batch_ndims} of {len(base.batch_shape)} batch dimensions")
        cut = len(base.batch_shape) - reinterpreted_batch_ndims
        self.base_dist, self.reinterpreted_batch_ndims = base, reinterpreted_batch_ndims
        super().__init__(base.batch_shape[:cut], base.batch_shape[cut:] + base.event_shape, validate_args)
        self.has_rsample = base.has_rsample

    @property
    def support(self) -> Constraint:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    def _summed(self, x: Tensor) -> Tensor:
        n = self.reinterpreted_batch_ndims
        return x.sum(list(range(-n, 0))) if n else x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
