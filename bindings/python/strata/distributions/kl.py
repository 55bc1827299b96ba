"""Kullback and Leibler's divergence between two distributions."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple, Type

from .. import _core
from .._core import Tensor
from .distribution import Distribution, Independent
from .families import _MADE, _RECORDS
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


def _recorded(p: Any, q: Any) -> Tensor:
    return _core._kl_divergence(p._d, q._d)


for _p, _q in _RECORDS["divergences"]:
    _RULES[_MADE[_p], _MADE[_q]] = _recorded


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("No KL(p || q) between differently transformed distributions")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("No KL(p || q) between different numbers of event dimensions")
    return _core._sum_right(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
