"""Choices among classes."""

from __future__ import annotations

from typing import Any, Optional

from .. import _core, _functions as F, _ops
from .._core import Tensor
from .._grad_mode import no_grad
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, shape_of


class _Classes(Distribution):
    """Probabilities [.., classes] (they are divided by their sum), or unnormalised logarithms."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Optional[Tensor] = None, logits: Optional[Tensor] = None,
                 validate_args: Optional[bool] = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, True)
            tiny = F.finfo(probs.dtype).eps
            self.logits = self.probs.clamp(tiny, 1 - tiny).log()
        else:
            assert logits is not None
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - _ops.logsumexp(logits, [-1], True)
            self.probs = _ops.softmax(self.logits, -1)
        super().__init__(self.probs.shape[:-1], validate_args=validate_args)

    def _choices(self, sample_shape: Any) -> Tensor:
        with no_grad():
            classes = self.probs.shape[-1]
            rows = self.probs.detach().reshape(-1, classes)
            count = 1
            for size in shape_of(sample_shape):
                count *= size
            drawn = _ops.multinomial(rows, count, True).t()
            return drawn.reshape(list(shape_of(sample_shape)) + list(self.batch_shape))

    def entropy(self) -> Tensor:
        return -(self.logits.clamp(F.finfo(self.logits.dtype).min) * self.probs).sum(-1)


class Categorical(_Classes):
    """One of the classes, by number."""

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.probs.shape[-1] - 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._choices(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        shape = list(_core.broadcast_shapes(value.shape, self.batch_shape))
        logits = self.logits.expand(shape + [self.logits.shape[-1]])
        return logits.gather(-1, value.to(_core.int64).expand(shape).unsqueeze(-1)).squeeze(-1)

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.probs.argmax(-1)


class OneHotCategorical(_Classes):
    """One of the classes, as a vector of zeros and a one."""

    support: Constraint = constraints.one_hot

    def __init__(self, probs: Optional[Tensor] = None, logits: Optional[Tensor] = None,
                 validate_args: Optional[bool] = None) -> None:
        super().__init__(probs, logits, validate_args)
        self.event_shape = tuple(self.probs.shape[-1:])

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return _ops.one_hot(self._choices(sample_shape), self.probs.shape[-1]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return (value * self.logits).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.probs
