"""Distributions: densities against their formulas and integrals, samples against moments."""

import math

import numpy as np
import pytest

import strata as st
from strata import distributions as D

N = 40000


def t(*values):
    return st.tensor(values, dtype=st.float64)


CONTINUOUS = {
    "Normal": (lambda: D.Normal(t(0.5), t(1.3)), (-12, 12)), "LogNormal": (lambda: D.LogNormal(t(0.1), t(0.4)), (1e-6, 20)),
    "HalfNormal": (lambda: D.HalfNormal(t(1.2)), (0, 15)), "Laplace": (lambda: D.Laplace(t(0.3), t(0.7)), (-20, 20)),
    "Gumbel": (lambda: D.Gumbel(t(0.3), t(0.7)), (-5, 30)), "Uniform": (lambda: D.Uniform(t(-1.0), t(2.0)), (-1, 1.999999)),
    "Exponential": (lambda: D.Exponential(t(1.7)), (0, 30)), "Gamma": (lambda: D.Gamma(t(2.5), t(1.7)), (1e-9, 30)),
    "Beta": (lambda: D.Beta(t(2.0), t(3.0)), (1e-9, 1 - 1e-9)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    make, (low, high) = CONTINUOUS[name]
    d = make()
    x = st.linspace(low, high, 200001, dtype=st.float64)
    density = d.log_prob(x).exp()
    assert st.trapezoid(density, x).item() == pytest.approx(1, abs=1e-4)
    mean = st.trapezoid(density * x, x).item()
    variance = st.trapezoid(density * (x - mean) ** 2, x).item()
    assert d.mean.item() == pytest.approx(mean, abs=1e-3) and d.variance.item() == pytest.approx(variance, rel=2e-3)
    entropy = -st.trapezoid(st.xlogy(density, density), x).item()
    assert d.entropy().item() == pytest.approx(entropy, abs=1e-3)
    st.manual_seed(1)
    drawn = d.sample((N,))
    assert drawn.shape == (N, 1) and not drawn.requires_grad
    assert abs(drawn.mean().item() - mean) < 5 * math.sqrt(variance / N)
    assert drawn.var().item() == pytest.approx(variance, rel=0.08)
    assert repr(d) == f"{name}(batch_shape=(1,), event_shape=())"


def test_discrete():
    st.manual_seed(2)
    b = D.Bernoulli(st.tensor([0.2, 0.9]))
    np.testing.assert_allclose(b.sample((N,)).mean(0).numpy(), [0.2, 0.9], atol=0.01)
    np.testing.assert_allclose(b.log_prob(st.tensor([1.0, 0.0])).numpy(), np.log([0.2, 0.1]), rtol=1e-5)
    g = D.Geometric(st.tensor(0.3))
    assert g.sample((N,)).mean().item() == pytest.approx(0.7 / 0.3, rel=0.03)
    p = D.Poisson(st.tensor(3.5, dtype=st.float64))
    drawn = p.sample((N,))
    assert drawn.mean().item() == pytest.approx(3.5, rel=0.02) and drawn.var().item() == pytest.approx(3.5, rel=0.05)
    total = sum(p.log_prob(st.tensor(float(k), dtype=st.float64)).exp().item() for k in range(40))
    assert total == pytest.approx(1, abs=1e-6)
    c = D.Categorical(st.tensor([[1.0, 3.0], [2.0, 2.0]]))
    np.testing.assert_allclose(c.sample((N,)).float().mean(0).numpy(), [0.75, 0.5], atol=0.01)
    np.testing.assert_allclose(c.entropy().numpy(), [-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), math.log(2)], rtol=1e-5)
    assert c.log_prob(st.tensor([1, 0])).exp().tolist() == pytest.approx([0.75, 0.5])
    one = D.OneHotCategorical(st.tensor([0.1, 0.9])).sample((5,))
    assert one.shape == (5, 2) and (one.sum(1) == 1).all()
    with pytest.raises(ValueError, match="not both"):
        D.Categorical(st.ones(2), st.ones(2))
    with pytest.raises(NotImplementedError, match="log_prob"):
        D.Poisson(1.0).rsample()


@pytest.mark.parametrize("p,q", [
    (D.Normal(t(0.0), t(1.0)), D.Normal(t(0.5), t(2.0))), (D.Gamma(t(2.0), t(1.0)), D.Gamma(t(3.0), t(1.5))),
    (D.Beta(t(2.0), t(3.0)), D.Beta(t(1.0), t(2.0))), (D.Exponential(t(2.0)), D.Exponential(t(0.5))),
    (D.Laplace(t(0.0), t(1.0)), D.Laplace(t(1.0), t(2.0))), (D.Uniform(t(0.0), t(1.0)), D.Uniform(t(-1.0), t(3.0))),
    (D.Bernoulli(t(0.3)), D.Bernoulli(t(0.6))), (D.Poisson(t(3.0)), D.Poisson(t(2.0))),
    (D.Categorical(st.tensor([0.2, 0.8])), D.Categorical(st.tensor([0.5, 0.5]))),
    (D.Independent(D.Normal(t(0.0, 1.0), t(1.0, 1.0)), 1), D.Independent(D.Normal(t(1.0, 1.0), t(1.0, 2.0)), 1)),
    (D.MultivariateNormal(t(0.0, 1.0), st.eye(2, dtype=st.float64)),
     D.MultivariateNormal(t(1.0, 0.0), st.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=st.float64))),
])
def test_divergence_is_the_mean_of_the_difference(p, q):
    st.manual_seed(3)
    x = p.sample((N,))
    difference = p.log_prob(x) - q.log_prob(x)
    error = difference.double().std().item() / math.sqrt(N)
    assert D.kl_divergence(p, q).item() == pytest.approx(difference.double().mean().item(), abs=5 * error + 1e-6)


def test_gradients_and_shapes():
    loc = st.zeros(3, requires_grad=True)
    d = D.Normal(loc, st.ones(3))
    d.rsample((4,)).sum().backward()
    assert loc.grad.tolist() == [4, 4, 4]
    m = D.MultivariateNormal(st.zeros(2), scale_tril=st.tensor([[1.0, 0.0], [0.5, 1.0]]))
    assert m.sample((7,)).shape == (7, 2) and m.log_prob(st.zeros(5, 2)).shape == (5,)
    st.manual_seed(4)
    np.testing.assert_allclose(st.cov(m.sample((N,)).T).numpy(), m.covariance_matrix.numpy(), atol=0.05)
    with pytest.raises(NotImplementedError, match="register_kl"):
        D.kl_divergence(d, m)
    assert D.Dirichlet(st.ones(3)).sample((5,)).sum(-1).tolist() == pytest.approx([1.0] * 5)
    student = math.lgamma(3) - math.lgamma(2.5) - 0.5 * math.log(5 * math.pi) - 3 * math.log(1 + 0.09 / 5)
    assert D.StudentT(5.0).log_prob(st.tensor(0.3)).item() == pytest.approx(student, abs=1e-5)
    assert D.Cauchy(0.0, 1.0).log_prob(st.tensor(1.0)).item() == pytest.approx(-math.log(2 * math.pi))
