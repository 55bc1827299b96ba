"""What every distribution has."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional, Sequence, Set, Tuple

from .. import _core, _functions as F
from .._core import Tensor
from .._grad_mode import no_grad
from . import constraints
from .constraints import Constraint

Shape = Tuple[int, ...]


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

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support()")

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Distribution":
        """The same over a larger batch."""
        raise NotImplementedError(f"{type(self).__name__} has no expand()")

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            names = f"Subclass {type(self).__name__} of {cls.__name__}"
            raise NotImplementedError(f"{names} that defines a custom __init__ method must also define a custom .expand() "
                                      "method.")
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


class ExponentialFamily(Distribution):
    """Families of density exp(<t(x), natural parameters> - normaliser + carrier measure): entropy() of a subclass that
    gives ``_natural_params``, ``_log_normalizer`` and ``_mean_carrier_measure`` is that of its Bregman divergence."""

    @property
    def _natural_params(self) -> Tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        from ..autograd import grad

        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        total = normalizer - self._mean_carrier_measure
        for param, slope in zip(params, grad([normalizer.sum()], params, create_graph=True)):
            total = total - _core._sum_right(param * slope, param.dim() - len(self.batch_shape))
        return total


class Shell(Distribution):
    """A distribution of the engine's, ``_d``, which ``_build`` makes of what the class was given."""

    _d: _core.Distribution

    def _build(self) -> _core.Distribution:
        raise NotImplementedError

    def __getstate__(self) -> Dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_d"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._d = self._build()

    def _take(self, d: _core.Distribution, validate_args: Optional[bool] = None) -> None:
        self._d, self.batch_shape, self.event_shape = d, d.batch_shape, d.event_shape
        if validate_args is not None:
            self._validate_args = validate_args

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._d.sample(shape_of(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._d.rsample(shape_of(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._d.log_prob(value)

    def cdf(self, value: Tensor) -> Tensor:
        return self._d.cdf(value)

    def icdf(self, value: Tensor) -> Tensor:
        return self._d.icdf(value)

    def entropy(self) -> Tensor:
        return self._d.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._d.enumerate_support(expand)

    @property
    def mean(self) -> Tensor:
        return self._d.mean()

    @property
    def mode(self) -> Tensor:
        return self._d.mode()

    @property
    def variance(self) -> Tensor:
        return self._d.variance()


_OWN: Set[type] = set()  # classes whose methods are the engine's


def engine(d: Distribution) -> _core.Distribution:
    """``d`` as the engine sees it: its own, or one whose methods are Python's."""
    return d._d if type(d) in _OWN and isinstance(d, Shell) else _core.Distribution.of(d)


class Independent(Shell):
    """The last dimensions of the batch as dimensions of one event: log_prob() sums over them."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
                 validate_args: Optional[bool] = None) -> None:
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        self._take(self._build(), validate_args)
        self.has_rsample = base_distribution.has_rsample
        self.has_enumerate_support = base_distribution.has_enumerate_support and reinterpreted_batch_ndims == 0

    def _build(self) -> _core.Distribution:
        return _core.Distribution.independent(engine(self.base_dist), self.reinterpreted_batch_ndims)

    @property
    def support(self) -> Constraint:
        n = self.reinterpreted_batch_ndims
        return constraints.independent(self.base_dist.support, n) if n else self.base_dist.support

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Independent":
        new = self._get_checked_instance(Independent, _instance)
        inner = shape_of(batch_shape) + self.base_dist.batch_shape[len(self.batch_shape):]
        Independent.__init__(new, self.base_dist.expand(inner), self.reinterpreted_batch_ndims, False)
        new._validate_args = self._validate_args
        return new  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Shell):
    """One of several distributions of a family, chosen by a Categorical: the last dimension of their batch."""

    def __init__(self, mixture_distribution: Distribution, component_distribution: Distribution,
                 validate_args: Optional[bool] = None) -> None:
        if not isinstance(getattr(mixture_distribution, "logits", None), Tensor) or mixture_distribution.event_shape:
            raise ValueError(" The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        self._take(self._build(), validate_args)

    def _build(self) -> _core.Distribution:
        return _core.Distribution.mixture(engine(self.mixture_distribution), engine(self.component_distribution))

    @property
    def support(self) -> Constraint:
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "MixtureSameFamily":
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        shape = shape_of(batch_shape)
        components = self.component_distribution.expand(shape + self.component_distribution.batch_shape[-1:])
        MixtureSameFamily.__init__(new, self.mixture_distribution.expand(shape), components, False)
        new._validate_args = self._validate_args
        return new  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution}, {self.component_distribution})"


_OWN.update((Independent, MixtureSameFamily))
