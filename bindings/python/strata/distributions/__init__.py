"""Probability distributions, as torch.distributions: samples, logarithms of densities, entropies, divergences."""

import sys as _sys
import types as _types

from . import constraint_registry, constraints, transforms
from .constraint_registry import biject_to, transform_to
from .distribution import Distribution, ExponentialFamily, Independent, MixtureSameFamily
from .families import (
    Bernoulli, Beta, Binomial, Categorical, Cauchy, Chi2, ContinuousBernoulli, Dirichlet, Exponential,
    FisherSnedecor, Gamma, GeneralizedPareto, Geometric, Gumbel, HalfCauchy, HalfNormal, InverseGamma, Kumaraswamy,
    LKJCholesky, Laplace, LogNormal, LogisticNormal, LowRankMultivariateNormal, Multinomial, MultivariateNormal,
    NegativeBinomial, Normal, OneHotCategorical, OneHotCategoricalStraightThrough, Pareto, Poisson,
    RelaxedBernoulli, RelaxedOneHotCategorical, StudentT, Uniform, VonMises, Weibull, Wishart,
)
from .families import _MADE, _RECORDS
from .kl import kl_divergence, register_kl
from .transformed import TransformedDistribution
from .transforms import (
    AbsTransform, AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform,
    CumulativeDistributionTransform, ExpTransform, IndependentTransform, LowerCholeskyTransform,
    PositiveDefiniteTransform, PowerTransform, ReshapeTransform, SigmoidTransform, SoftmaxTransform,
    SoftplusTransform, StackTransform, StickBreakingTransform, TanhTransform, Transform, identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "Dirichlet", "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson",
    "PositiveDefiniteTransform", "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform",
    "VonMises", "Weibull", "Wishart", "biject_to", "constraints", "identity_transform", "kl_divergence",
    "register_kl", "transform_to", "transforms",
]


def _module(name: str, kind: type) -> None:
    """PyTorch has a module for each distribution: ``from torch.distributions.normal import Normal``."""
    path = f"{__name__}.{name}"
    made = _sys.modules.setdefault(path, _types.ModuleType(path, kind.__doc__))
    setattr(made, kind.__name__, kind)
    globals()[name] = made


for _record in _RECORDS["distributions"]:
    _module(_record["module"], _MADE[_record["name"]])
for _name, _kind in {
    "exp_family": ExponentialFamily, "independent": Independent, "mixture_same_family": MixtureSameFamily,
    "transformed_distribution": TransformedDistribution,
}.items():
    _module(_name, _kind)

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
