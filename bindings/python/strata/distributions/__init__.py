"""Probability distributions, as torch.distributions: samples, logarithms of densities, entropies, divergences."""

from .categorical import Categorical, OneHotCategorical
from .continuous import (
    Beta, Cauchy, Dirichlet, Exponential, Gamma, Gumbel, HalfNormal, Laplace, LogNormal, MultivariateNormal, Normal, StudentT,
    Uniform,
)
from .discrete import Bernoulli, Geometric, Poisson
from .distribution import Distribution, Independent
from .kl import kl_divergence, register_kl

__all__ = [
    "Bernoulli", "Beta", "Categorical", "Cauchy", "Dirichlet", "Distribution", "Exponential", "Gamma", "Geometric", "Gumbel",
    "HalfNormal", "Independent", "Laplace", "LogNormal", "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson",
    "StudentT", "Uniform", "kl_divergence", "register_kl",
]

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
