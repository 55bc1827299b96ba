"""Probability distributions, as torch.distributions: samples, logarithms of densities, entropies, divergences."""

import sys as _sys
import types as _types

from . import constraints, transforms
from .categorical import Categorical, OneHotCategorical
from .continuous import (
    Beta, Cauchy, Chi2, Dirichlet, Exponential, FisherSnedecor, Gamma, Gumbel, HalfCauchy, HalfNormal, Laplace, LogNormal,
    MultivariateNormal, Normal, StudentT, Uniform,
)
from .discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from .distribution import Distribution, Independent
from .kl import kl_divergence, register_kl
from .transformed import TransformedDistribution
from .transforms import (
    AbsTransform, AffineTransform, CatTransform, ComposeTransform, ExpTransform, IndependentTransform, LowerCholeskyTransform,
    PositiveDefiniteTransform, PowerTransform, ReshapeTransform, SigmoidTransform, SoftmaxTransform, SoftplusTransform,
    StackTransform, StickBreakingTransform, TanhTransform, Transform, identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "FisherSnedecor", "Gamma", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "Laplace", "LogNormal",
    "LowerCholeskyTransform", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "Poisson",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "constraints", "identity_transform", "kl_divergence", "register_kl", "transforms",
]


def _module(name: str, kind: type) -> None:
    """PyTorch has a module for each distribution: ``from torch.distributions.normal import Normal``."""
    made = _types.ModuleType(f"{__name__}.{name}", kind.__doc__)
    setattr(made, kind.__name__, kind)
    _sys.modules[made.__name__] = made
    globals()[name] = made


for _name, _kind in {
    "bernoulli": Bernoulli, "beta": Beta, "binomial": Binomial, "cauchy": Cauchy, "chi2": Chi2, "dirichlet": Dirichlet,
    "exponential": Exponential, "fishersnedecor": FisherSnedecor, "gamma": Gamma, "geometric": Geometric, "gumbel": Gumbel,
    "half_cauchy": HalfCauchy, "half_normal": HalfNormal, "independent": Independent, "laplace": Laplace,
    "log_normal": LogNormal, "multivariate_normal": MultivariateNormal, "negative_binomial": NegativeBinomial,
    "normal": Normal, "one_hot_categorical": OneHotCategorical, "poisson": Poisson, "studentT": StudentT,
    "transformed_distribution": TransformedDistribution, "uniform": Uniform,
}.items():
    _module(_name, _kind)

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
