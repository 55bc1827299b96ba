"""Kullback and Leibler's divergence between two distributions."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple, Type

from .. import _ops, linalg
from .._core import Tensor
from .categorical import OneHotCategorical, _Classes
from .continuous import Beta, Exponential, Gamma, Laplace, MultivariateNormal, Normal, Uniform
from .discrete import Bernoulli, Poisson
from .distribution import Distribution, Independent
from .transformed import TransformedDistribution

Rule = Callable[[Any, Any], Tensor]
_RULES: Dict[Tuple[Type[Distribution], Type[Distribution]], Rule] = {}


def register_kl(type_p: Type[Distribution], type_q: Type[Distribution]) -> Callable[[Rule], Rule]:
    """Decorates the function that gives kl_divergence() of two kinds of distributions."""

    def decorate(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean over p of log p - log q."""
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            rule = _RULES.get((kind_p, kind_q))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}: "
                              f"register_kl() adds one")


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(_Classes, _Classes)
def _classes(p: _Classes, q: _Classes) -> Tensor:
    if isinstance(p, OneHotCategorical) != isinstance(q, OneHotCategorical):
        raise NotImplementedError(f"No KL(p || q) between {type(p).__name__} and {type(q).__name__}")
    return (p.probs * (p.logits - q.logits)).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return p.probs * (p.logits - q.logits) - _ops.softplus(p.logits) + _ops.softplus(q.logits)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, far = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + far / q.scale + ratio * (-far / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return ((q.high - q.low) / (p.high - p.low)).log().masked_fill(~inside, math.inf)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + _ops.lgamma(b) - _ops.lgamma(a) + (a - b) * _ops.digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    total = p.concentration1 + p.concentration0
    return (q._log_beta() - p._log_beta() + (p.concentration1 - q.concentration1) * _ops.digamma(p.concentration1)
            + (p.concentration0 - q.concentration0) * _ops.digamma(p.concentration0)
            + (q.concentration1 + q.concentration0 - total) * _ops.digamma(total))


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    n = p.loc.shape[-1]
    spread = linalg.solve(q.scale_tril, p.scale_tril)
    apart = linalg.solve(q.scale_tril, (q.loc - p.loc).unsqueeze(-1)).squeeze(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * ((spread**2).sum((-2, -1)) + (apart**2).sum(-1) - n)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("No KL(p || q) between differently transformed distributions")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("No KL(p || q) between different numbers of event dimensions")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))
