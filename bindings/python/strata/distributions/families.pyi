"""Written by bindings/python/stubs.py from the op records; do not edit."""

from typing import Any, Dict, Optional, Union

from .._core import Tensor
from .distribution import ExponentialFamily, Shell
from .constraints import Constraint

Value = Union[Tensor, float]
_RECORDS: Dict[str, Any]
_MADE: Dict[str, type]

def _constraint(said: Dict[str, Any]) -> Constraint: ...

class Recorded(Shell):
    support: Constraint
    param_shape: Any
    def expand(self, batch_shape: Any, _instance: Any = ...) -> Any: ...

class RecordedExponential(Recorded, ExponentialFamily): ...

class Bernoulli(RecordedExponential):
    """1 with a probability, else 0."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Beta(RecordedExponential):
    """Shares in (0, 1): density x^(a - 1) (1 - x)^(b - 1) / B(a, b) with a = concentration1, b = concentration0
    (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 2, ch. 25)."""
    concentration1: Tensor
    concentration0: Tensor
    def __init__(self, concentration1: Value, concentration0: Value,
                 validate_args: Optional[bool] = ...) -> None: ...

class Binomial(Recorded):
    """Successes of `total_count` trials (Johnson, Kemp, Kotz, Univariate Discrete Distributions, ch. 3)."""
    total_count: Tensor
    probs: Tensor
    logits: Tensor
    def __init__(self, total_count: Value = ..., probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Categorical(Recorded):
    """One of the classes, by number."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Cauchy(Recorded):
    """Density 1 / (pi scale (1 + z^2)) with z = (x - loc) / scale: the tails are so heavy that there is no mean
    (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 16)."""
    loc: Tensor
    scale: Tensor
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class ContinuousBernoulli(RecordedExponential):
    """Bernoulli's probability as a density over [0, 1]: C(p) p^x (1 - p)^(1 - x) (Loaiza-Ganem, Cunningham,
    arXiv:1907.06845)."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Dirichlet(RecordedExponential):
    """Shares that sum to 1 over the last dimension: density prod x_i^(a_i - 1) Gamma(sum a) / prod Gamma(a_i) (Kotz,
    Balakrishnan, Johnson, Continuous Multivariate Distributions 1, ch. 49)."""
    concentration: Tensor
    def __init__(self, concentration: Value, validate_args: Optional[bool] = ...) -> None: ...

class Exponential(RecordedExponential):
    """Waiting times at a rate: density rate exp(-rate x)."""
    rate: Tensor
    def __init__(self, rate: Value, validate_args: Optional[bool] = ...) -> None: ...

class FisherSnedecor(Recorded):
    """Ratios of two chi-squared numbers, each over its degrees of freedom (Johnson, Kotz, Balakrishnan, Continuous
    Univariate Distributions 2, ch. 27)."""
    df1: Tensor
    df2: Tensor
    def __init__(self, df1: Value, df2: Value, validate_args: Optional[bool] = ...) -> None: ...

class Gamma(RecordedExponential):
    """Density rate^a x^(a - 1) exp(-rate x) / Gamma(a) with a = concentration. Gradients through samples are implicit
    (Figurnov et al., arXiv:1805.08498)."""
    concentration: Tensor
    rate: Tensor
    def __init__(self, concentration: Value, rate: Value, validate_args: Optional[bool] = ...) -> None: ...

class GeneralizedPareto(Recorded):
    """What lies beyond a high threshold `loc`: P(X > x) = (1 + k z)^(-1 / k) with z = (x - loc) / scale and k =
    concentration, exp(-z) for k = 0 (Pickands, "Statistical inference using extreme order statistics", 1975)."""
    loc: Tensor
    scale: Tensor
    concentration: Tensor
    def __init__(self, loc: Value, scale: Value, concentration: Value,
                 validate_args: Optional[bool] = ...) -> None: ...

class Geometric(Recorded):
    """Failures before the first success (Johnson, Kemp, Kotz, Univariate Discrete Distributions, ch. 5)."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Gumbel(Recorded):
    """The largest of many: density exp(-z - exp(-z)) / scale with z = (x - loc) / scale (Gumbel, Statistics of
    Extremes, 1958)."""
    loc: Tensor
    scale: Tensor
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class HalfCauchy(Recorded):
    """Sizes of Cauchy's numbers around 0."""
    scale: Tensor
    base_dist: Cauchy
    def __init__(self, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class HalfNormal(Recorded):
    """Sizes of normal numbers of mean 0 and standard deviation `scale`."""
    scale: Tensor
    base_dist: Normal
    def __init__(self, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class InverseGamma(Recorded):
    """Inverses of gamma numbers: density rate^a x^(-a - 1) exp(-rate / x) / Gamma(a) with a = concentration."""
    concentration: Tensor
    rate: Tensor
    def __init__(self, concentration: Value, rate: Value, validate_args: Optional[bool] = ...) -> None: ...

class Kumaraswamy(Recorded):
    """Shares like Beta's with closed forms: density a b x^(a - 1) (1 - x^a)^(b - 1) with a = concentration1, b =
    concentration0 (Kumaraswamy, "A generalized probability density function for double-bounded random processes",
    1980)."""
    concentration1: Tensor
    concentration0: Tensor
    def __init__(self, concentration1: Value, concentration0: Value,
                 validate_args: Optional[bool] = ...) -> None: ...

class LKJCholesky(Recorded):
    """Cholesky triangles of correlation matrices, whose density is det^(concentration - 1). Drawn by the onion method
    (Lewandowski, Kurowicka, Joe, "Generating random correlation matrices based on vines and extended onion method",
    2009)."""
    dim: int
    concentration: Tensor
    def __init__(self, dim: int, concentration: Value = ..., validate_args: Optional[bool] = ...) -> None: ...

class Laplace(Recorded):
    """Density exp(-|x - loc| / scale) / (2 scale) (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 2,
    ch. 24)."""
    loc: Tensor
    scale: Tensor
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class LogNormal(Recorded):
    """exp of normal numbers (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 14)."""
    loc: Tensor
    scale: Tensor
    base_dist: Normal
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class LogisticNormal(Recorded):
    """Normal numbers made into shares that sum to 1 by stick breaking: n numbers give n + 1 shares (Aitchison, Shen,
    "Logistic-normal distributions", Biometrika 67, 1980)."""
    loc: Tensor
    scale: Tensor
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class LowRankMultivariateNormal(Recorded):
    """Normal vectors whose covariance is W W^T + D, W of few columns and D diagonal: only matrices as large as the
    rank are decomposed, by Woodbury's identity (Golub, Van Loan, Matrix Computations, section 2.1.4)."""
    loc: Tensor
    cov_factor: Tensor
    cov_diag: Tensor
    _capacitance_tril: Tensor
    covariance_matrix: Tensor
    precision_matrix: Tensor
    scale_tril: Tensor
    def __init__(self, loc: Value, cov_factor: Value, cov_diag: Value,
                 validate_args: Optional[bool] = ...) -> None: ...

class Multinomial(Recorded):
    """How often each class comes in `total_count` choices (Johnson, Kotz, Balakrishnan, Discrete Multivariate
    Distributions, ch. 35)."""
    total_count: int
    probs: Tensor
    logits: Tensor
    def __init__(self, total_count: int = ..., probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class MultivariateNormal(Recorded):
    """Normal vectors: a mean and a covariance, a precision or the covariance's Cholesky triangle (Kotz, Balakrishnan,
    Johnson, Continuous Multivariate Distributions 1, ch. 45)."""
    loc: Tensor
    covariance_matrix: Tensor
    precision_matrix: Tensor
    scale_tril: Tensor
    def __init__(self, loc: Value, covariance_matrix: Optional[Value] = ...,
                 precision_matrix: Optional[Value] = ..., scale_tril: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class NegativeBinomial(Recorded):
    """Successes before `total_count` failures: Poisson's numbers at a gamma-distributed rate (Johnson, Kemp, Kotz,
    Univariate Discrete Distributions, ch. 5)."""
    total_count: Tensor
    probs: Tensor
    logits: Tensor
    def __init__(self, total_count: Value, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Normal(RecordedExponential):
    """Normal numbers of mean `loc` and standard deviation `scale`: density exp(-z^2 / 2) / (scale sqrt(2 pi)) with z =
    (x - loc) / scale (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 13)."""
    loc: Tensor
    scale: Tensor
    def __init__(self, loc: Value, scale: Value, validate_args: Optional[bool] = ...) -> None: ...

class OneHotCategorical(Recorded):
    """One of the classes, as a vector of zeros and a one."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Pareto(Recorded):
    """Density alpha scale^alpha / x^(alpha + 1) above `scale` (Johnson, Kotz, Balakrishnan, Continuous Univariate
    Distributions 1, ch. 20)."""
    scale: Tensor
    alpha: Tensor
    def __init__(self, scale: Value, alpha: Value, validate_args: Optional[bool] = ...) -> None: ...

class Poisson(RecordedExponential):
    """Numbers of events at a rate: probability rate^x exp(-rate) / x! (Johnson, Kemp, Kotz, Univariate Discrete
    Distributions, ch. 4)."""
    rate: Tensor
    def __init__(self, rate: Value, validate_args: Optional[bool] = ...) -> None: ...

class RelaxedBernoulli(Recorded):
    """Bernoulli's 0 and 1 made smooth: sigmoid((logits + logistic noise) / temperature) (Maddison, Mnih, Teh,
    arXiv:1611.00712; Jang, Gu, Poole, arXiv:1611.01144)."""
    temperature: Tensor
    probs: Tensor
    logits: Tensor
    def __init__(self, temperature: Value, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class RelaxedOneHotCategorical(Recorded):
    """A vector of zeros and a one made smooth: softmax((logits + Gumbel noise) / temperature) (Maddison, Mnih, Teh,
    arXiv:1611.00712; Jang, Gu, Poole, arXiv:1611.01144)."""
    temperature: Tensor
    probs: Tensor
    logits: Tensor
    def __init__(self, temperature: Value, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class StudentT(Recorded):
    """Student's t: a standard normal number over the root of a chi-squared one by its `df` degrees of freedom, times
    `scale`, plus `loc` (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 2, ch. 28)."""
    df: Tensor
    loc: Tensor
    scale: Tensor
    def __init__(self, df: Value, loc: Value = ..., scale: Value = ...,
                 validate_args: Optional[bool] = ...) -> None: ...

class Uniform(Recorded):
    """Equally likely numbers in [low, high)."""
    low: Tensor
    high: Tensor
    def __init__(self, low: Value, high: Value, validate_args: Optional[bool] = ...) -> None: ...

class VonMises(Recorded):
    """Angles around `loc`: density exp(concentration cos(x - loc)) / (2 pi I0(concentration)). Drawn by Best and
    Fisher, "Efficient simulation of the von Mises distribution", Applied Statistics 28, 1979. The variance is the
    circular one, 1 - I1 / I0."""
    loc: Tensor
    concentration: Tensor
    def __init__(self, loc: Value, concentration: Value, validate_args: Optional[bool] = ...) -> None: ...

class Weibull(Recorded):
    """Life times: density k / scale (x / scale)^(k - 1) exp(-(x / scale)^k) with k = concentration (Weibull, "A
    statistical distribution function of wide applicability", 1951)."""
    scale: Tensor
    concentration: Tensor
    def __init__(self, scale: Value, concentration: Value, validate_args: Optional[bool] = ...) -> None: ...

class Wishart(RecordedExponential):
    """Sums of `df` outer products of normal vectors of one covariance. Drawn by Bartlett's decomposition, "On the
    theory of statistical regression", 1933 (Kotz, Balakrishnan, Johnson; Gupta, Nagar, Matrix Variate
    Distributions, ch. 3)."""
    df: Tensor
    covariance_matrix: Tensor
    precision_matrix: Tensor
    scale_tril: Tensor
    def __init__(self, df: Value, covariance_matrix: Optional[Value] = ..., precision_matrix: Optional[Value] = ...,
                 scale_tril: Optional[Value] = ..., validate_args: Optional[bool] = ...) -> None: ...

class Chi2(Gamma):
    """Sums of `df` squares of standard normal numbers: gamma numbers of concentration df / 2 and rate 1/2."""
    concentration: Tensor
    rate: Tensor
    df: Tensor
    def __init__(self, df: Value, validate_args: Optional[bool] = ...) -> None: ...

class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One of the classes, as a vector of zeros and a one whose gradient is that of the probabilities (Bengio, Leonard,
    Courville, arXiv:1308.3432)."""
    probs: Tensor
    logits: Tensor
    def __init__(self, probs: Optional[Value] = ..., logits: Optional[Value] = ...,
                 validate_args: Optional[bool] = ...) -> None: ...
