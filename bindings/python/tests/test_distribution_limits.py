"""Distributions refuse nonsense, and none hangs; transforms and constraints against PyTorch's values."""

import math

import numpy as np
import pytest

import strata as st
from strata import distributions as D

N = 40000


def t(*values):
    return st.tensor(values, dtype=st.float64)


NONSENSE = {
    "Gamma(-1)": lambda: D.Gamma(-1.0, 1.0), "Gamma(nan)": lambda: D.Gamma(math.nan, 1.0),
    "Gamma(rate=0)": lambda: D.Gamma(1.0, 0.0), "Beta(-1)": lambda: D.Beta(-1.0, 1.0), "Beta(nan)": lambda: D.Beta(1.0, math.nan),
    "Dirichlet": lambda: D.Dirichlet(st.tensor([-1.0, 2.0])), "StudentT(-1)": lambda: D.StudentT(-1.0),
    "Poisson(-1)": lambda: D.Poisson(-1.0), "Poisson(nan)": lambda: D.Poisson(math.nan), "Normal": lambda: D.Normal(0.0, -1.0),
    "Chi2": lambda: D.Chi2(-2.0), "Binomial": lambda: D.Binomial(-3, 0.5), "Binomial(1.5)": lambda: D.Binomial(3, 1.5),
    "Bernoulli": lambda: D.Bernoulli(-0.1), "Exponential": lambda: D.Exponential(-1.0), "Laplace": lambda: D.Laplace(0.0, 0.0),
    "Categorical": lambda: D.Categorical(st.tensor([-1.0, 2.0])), "HalfNormal": lambda: D.HalfNormal(-1.0),
    "LogNormal": lambda: D.LogNormal(0.0, -1.0), "Geometric": lambda: D.Geometric(1.5), "Uniform": lambda: D.Uniform(1.0, 0.0),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_parameters_are_validated(name):
    with pytest.raises(ValueError, match="Expected parameter|not defined"):
        NONSENSE[name]()


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_no_parameter_hangs(bad):
    off = {"validate_args": False}
    made = [D.Gamma(bad, 1.0, **off), D.Dirichlet(st.tensor([bad, 1.0]), **off), D.StudentT(bad, **off), D.Chi2(bad, **off),
            D.Poisson(bad, **off), D.Binomial(10, bad, **off), D.NegativeBinomial(bad, 0.5, **off), D.Beta(bad, 1.0, **off)]
    drawn = [d.sample((3,)) for d in made]
    if bad != math.inf:
        assert [bool(st.isfinite(x).any()) for x in drawn] == [False] * len(drawn)


def test_values_are_validated():
    with pytest.raises(ValueError, match="within the support"):
        D.Gamma(1.0, 1.0).log_prob(st.tensor(-1.0))
    with pytest.raises(ValueError, match="not broadcastable"):
        D.Normal(st.zeros(3), 1.0).log_prob(st.zeros(2))
    assert math.isnan(D.Normal(0.0, 1.0, validate_args=False).log_prob(st.tensor(math.nan)).item())


# PyTorch's values.
@pytest.mark.parametrize("make,value,wanted", [
    (lambda: D.TransformedDistribution(D.Normal(t(0.0, 1.0), t(1.0, 2.0)), [D.AffineTransform(1.0, 2.0), D.ExpTransform()]),
     t(3.0, 0.5), [-2.711913550367273, -2.0383149668045517]),
    (lambda: D.TransformedDistribution(D.Independent(D.Normal(t(0.0, 1.0), t(1.0, 2.0)), 1), D.StickBreakingTransform()),
     t(0.3, 0.5, 0.2), [0.9627765291088175]),
    (lambda: D.TransformedDistribution(D.Uniform(t(0.0, 0.0), t(1.0, 1.0)), [D.SigmoidTransform().inv, D.TanhTransform()]),
     t(0.3, 0.5), [-1.315839279025803, -1.1731168606989262]),
    (lambda: D.Binomial(10, probs=t(0.3, 0.6)), t(3.0, 10.0), [-1.321151277766889, -5.108256237659907]),
    (lambda: D.NegativeBinomial(t(3.0, 4.0), probs=t(0.3, 0.6)), t(3.0, 0.0), [-2.3793581517999605, -3.66516292749662]),
    (lambda: D.FisherSnedecor(t(3.0, 4.0), t(5.0, 6.0)), t(3.0, 0.5), [-2.707551123649183, -0.4575811092471782]),
    (lambda: D.HalfCauchy(t(3.0, 4.0)), t(3.0, 0.5), [-2.24334217451751, -1.8533812529453106]),
])
def test_log_probabilities(make, value, wanted):
    assert np.ravel(make().log_prob(value).numpy()).tolist() == pytest.approx(wanted, rel=1e-9)


def test_transforms_invert_and_have_their_jacobian():
    x = t(0.3, -0.7, 1.2)
    for transform in (D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(), D.SoftplusTransform(),
                      D.AffineTransform(1.0, -2.0), D.ComposeTransform([D.AffineTransform(0.5, 2.0), D.TanhTransform()])):
        y = transform(x)
        np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-9)
        h = 1e-6
        slope = (transform(x + h) - transform(x - h)) / (2 * h)
        np.testing.assert_allclose(transform.log_abs_det_jacobian(x, y).numpy(), slope.abs().log().numpy(), atol=1e-7)
        np.testing.assert_allclose(transform.inv.log_abs_det_jacobian(y, x).numpy(), -slope.abs().log().numpy(), atol=1e-7)
    sticks = D.StickBreakingTransform()
    assert sticks(x).sum().item() == pytest.approx(1)
    np.testing.assert_allclose(sticks.inv(sticks(x)).numpy(), x.numpy(), rtol=1e-9)
    p = D.TransformedDistribution(D.Normal(t(0.0), t(1.0)), [D.ExpTransform()])
    q = D.TransformedDistribution(D.Normal(t(1.0), t(1.0)), [D.ExpTransform()])
    assert D.kl_divergence(p, q).item() == pytest.approx(0.5)
    assert p.cdf(t(1.0)).item() == pytest.approx(0.5) and p.icdf(t(0.5)).item() == pytest.approx(1)
    assert D.TransformedDistribution(D.Normal(st.zeros(4, 2), 1.0), sticks).event_shape == (3,)


def test_gamma_samples_have_gradients():
    st.manual_seed(5)
    a = t(0.5, 3.0).requires_grad_()
    D.Gamma(a, 2.0).rsample((N,)).mean(0).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [0.5, 0.5], rtol=0.05)  # the mean is a / rate
    b = t(2.0).requires_grad_()
    D.Beta(b, t(2.0)).rsample((N,)).mean().backward()
    assert b.grad.item() == pytest.approx(2 / 16, rel=0.1)  # d/da of a / (a + b)


def test_modules_and_constraints():
    from strata.distributions import constraints
    from strata.distributions.multivariate_normal import MultivariateNormal
    from strata.distributions.normal import Normal
    from strata.distributions.transforms import ExpTransform

    assert Normal is D.Normal and MultivariateNormal is D.MultivariateNormal and ExpTransform is D.ExpTransform
    assert constraints.positive.check(t(-1.0, 1.0, math.nan)).tolist() == [False, True, False]
    assert constraints.simplex.check(t(0.5, 0.5)).item() and not constraints.simplex.check(t(0.5, 0.6)).item()
    assert constraints.nonnegative_integer.check(t(0.0, 1.5, -1.0)).tolist() == [True, False, False]
    assert constraints.positive_definite.check(st.eye(2)).item() and not constraints.positive_definite.check(-st.eye(2)).item()
    assert repr(D.Gamma(1.0, 1.0).support) == "GreaterThanEq(lower_bound=0.0)"
