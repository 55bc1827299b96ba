"""Every family against PyTorch where it is installed, and what Python adds: subclasses, expand, pickles, registries."""

import copy
import inspect
import json
import math
import pickle

import numpy as np
import pytest

import strata as st
from strata import distributions as D

COVARIANCE = [[1.5, 0.4], [0.4, 0.8]]
# Family: parameters, and values of its support.
FAMILIES = {
    "Bernoulli": ({"probs": [0.2, 0.7]}, [1.0, 0.0]),
    "Beta": ({"concentration1": [2.0, 0.7], "concentration0": [3.0, 0.8]}, [0.3, 0.6]),
    "Binomial": ({"total_count": [5.0, 5.0], "probs": [0.3, 0.8]}, [2.0, 5.0]),
    "Categorical": ({"probs": [[0.2, 0.8, 1.0], [2.0, 1.0, 1.0]]}, [2.0, 0.0]),
    "Cauchy": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.3, -2.0]),
    "Chi2": ({"df": [2.0, 5.0]}, [0.4, 3.0]),
    "ContinuousBernoulli": ({"probs": [0.3, 0.5]}, [0.2, 0.9]),
    "Dirichlet": ({"concentration": [[2.0, 1.0, 0.5], [3.0, 2.0, 2.0]]}, [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]),
    "Exponential": ({"rate": [0.5, 2.0]}, [0.3, 1.5]),
    "FisherSnedecor": ({"df1": [3.0, 6.0], "df2": [5.0, 9.0]}, [0.4, 2.0]),
    "Gamma": ({"concentration": [2.0, 0.6], "rate": [1.5, 0.7]}, [0.4, 2.0]),
    "GeneralizedPareto": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0], "concentration": [0.2, -0.3]}, [0.4, 2.0]),
    "Geometric": ({"probs": [0.3, 0.9]}, [4.0, 0.0]),
    "Gumbel": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -2.0]),
    "HalfCauchy": ({"scale": [0.5, 2.0]}, [0.4, 2.0]),
    "HalfNormal": ({"scale": [0.5, 2.0]}, [0.4, 2.0]),
    "InverseGamma": ({"concentration": [3.0, 0.6], "rate": [1.5, 0.7]}, [0.4, 2.0]),
    "Kumaraswamy": ({"concentration1": [2.0, 1.5], "concentration0": [3.0, 1.8]}, [0.3, 0.6]),
    "LKJCholesky": ({"dim": 2, "concentration": [1.5, 0.7]}, [[[1.0, 0.0], [0.6, 0.8]]] * 2),
    "Laplace": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -2.0]),
    "LogNormal": ({"loc": [0.0, 1.0], "scale": [1.0, 0.5]}, [0.4, 2.0]),
    "LogisticNormal": ({"loc": [[0.1, 0.2]], "scale": [[0.5, 0.7]]}, [[0.2, 0.5, 0.3]]),
    "LowRankMultivariateNormal": (
        {"loc": [0.1, 0.2], "cov_factor": [[0.5], [1.0]], "cov_diag": [0.7, 0.9]},
        [0.4, -0.3],
    ),
    "Multinomial": ({"total_count": 4, "probs": [[0.2, 0.8], [1.0, 1.0]]}, [[1.0, 3.0], [0.0, 4.0]]),
    "MultivariateNormal": ({"loc": [0.1, 0.2], "covariance_matrix": COVARIANCE}, [0.4, -0.3]),
    "NegativeBinomial": ({"total_count": [3.0, 1.5], "probs": [0.3, 0.6]}, [2.0, 0.0]),
    "Normal": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -2.0]),
    "OneHotCategorical": ({"probs": [[0.2, 0.8], [1.0, 1.0]]}, [[1.0, 0.0], [0.0, 1.0]]),
    "OneHotCategoricalStraightThrough": ({"probs": [[0.2, 0.8], [1.0, 1.0]]}, [[1.0, 0.0], [0.0, 1.0]]),
    "Pareto": ({"scale": [0.5, 1.0], "alpha": [3.0, 1.5]}, [0.7, 2.0]),
    "Poisson": ({"rate": [0.5, 3.0]}, [0.0, 4.0]),
    "RelaxedBernoulli": ({"temperature": 0.7, "probs": [0.2, 0.7]}, [0.3, 0.6]),
    "RelaxedOneHotCategorical": ({"temperature": 0.7, "probs": [[0.2, 0.8], [1.0, 1.0]]}, [[0.3, 0.7], [0.6, 0.4]]),
    "StudentT": ({"df": [3.0, 1.5], "loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -2.0]),
    "Uniform": ({"low": [0.0, -1.0], "high": [1.0, 2.0]}, [0.4, 1.0]),
    "VonMises": ({"loc": [0.0, 1.0], "concentration": [0.5, 4.0]}, [0.4, -2.0]),
    "Weibull": ({"scale": [0.5, 2.0], "concentration": [1.5, 0.8]}, [0.4, 2.0]),
    "Wishart": ({"df": 4.0, "covariance_matrix": COVARIANCE}, [[2.0, 0.3], [0.3, 1.0]]),
}
# As logits, precisions and triangles.
OTHERS = {
    "Bernoulli": {"logits": [0.2, -1.7]},
    "Binomial": {"total_count": 5, "logits": [0.2, -1.7]},
    "Categorical": {"logits": [[0.2, 0.8, 1.0], [2.0, 1.0, 1.0]]},
    "ContinuousBernoulli": {"logits": [0.2, -1.7]},
    "Geometric": {"logits": [0.2, -1.7]},
    "Multinomial": {"total_count": 4, "logits": [[0.2, 0.8], [1.0, 1.0]]},
    "MultivariateNormal": {"loc": [0.1, 0.2], "precision_matrix": COVARIANCE},
    "NegativeBinomial": {"total_count": [3.0, 1.5], "logits": [-0.2, -1.7]},
    "OneHotCategorical": {"logits": [[0.2, 0.8], [1.0, 1.0]]},
    "RelaxedBernoulli": {"temperature": 0.7, "logits": [0.2, -1.7]},
    "Wishart": {"df": 4.0, "scale_tril": [[1.0, 0.0], [0.5, 2.0]]},
}


def dtype_for(module, name):
    return module.float32 if name == "GeneralizedPareto" else module.float64  # PyTorch's takes f32 alone


def made(module, kind, name, parameters):
    """A distribution of strata's or PyTorch's: tensors of f64; counts and single numbers as they are."""
    values = {}
    kinds = dtype_for(module, name)
    for key, value in parameters.items():
        tensor = isinstance(value, list) or key in ("temperature", "df")
        values[key] = module.tensor(value, dtype=kinds) if tensor else value
    return getattr(kind, name)(**values)


def numbers(x):
    return np.asarray(x.detach().numpy(), dtype=np.float64)


CASES = [(name, parameters, value) for name, (parameters, value) in FAMILIES.items()]
CASES += [(name, parameters, FAMILIES[name][1]) for name, parameters in OTHERS.items()]


@pytest.mark.parametrize("name,parameters,value", CASES, ids=[f"{n}-{'-'.join(p)}" for n, p, _ in CASES])
def test_against_torch(name, parameters, value):
    torch = pytest.importorskip("torch")
    if not hasattr(torch.distributions, name):
        pytest.skip(f"this PyTorch has no {name}")
    ours, theirs = made(st, D, name, parameters), made(torch, torch.distributions, name, parameters)
    assert tuple(theirs.batch_shape) == ours.batch_shape and tuple(theirs.event_shape) == ours.event_shape
    x, y = (module.tensor(value, dtype=dtype_for(module, name)) for module in (st, torch))
    share, other = (module.tensor(0.3, dtype=dtype_for(module, name)) for module in (st, torch))
    np.testing.assert_allclose(numbers(ours.log_prob(x)), numbers(theirs.log_prob(y)), rtol=1e-6, atol=1e-9)
    for what in ("mean", "mode", "variance", "stddev"):
        # PyTorch's are NaN, for Weibull's shapes below 1 and wherever Kumaraswamy's density has its peak.
        if what == "mode" and name in ("Weibull", "Kumaraswamy"):
            continue
        try:
            wanted = getattr(theirs, what)
        except NotImplementedError:
            continue
        np.testing.assert_allclose(numbers(getattr(ours, what)), numbers(wanted), rtol=1e-6, atol=1e-9, err_msg=what)
    for what, argument in (("entropy", ()), ("cdf", (x, y)), ("icdf", (share, other))):
        try:
            wanted = getattr(theirs, what)(*argument[1:])
        except NotImplementedError:
            continue
        np.testing.assert_allclose(
            numbers(getattr(ours, what)(*argument[:1])), numbers(wanted), rtol=1e-6, atol=1e-9, err_msg=what
        )
    if theirs.has_enumerate_support:
        for expand in (True, False):
            np.testing.assert_allclose(
                numbers(ours.enumerate_support(expand)), numbers(theirs.enumerate_support(expand))
            )
    for key in theirs.arg_constraints:
        assert key in ours.arg_constraints or name in ("Wishart",), key
        if name != "LKJCholesky" or key != "dim":
            np.testing.assert_allclose(
                numbers(getattr(ours, key)), numbers(getattr(theirs, key)), rtol=1e-6, atol=1e-7, err_msg=key
            )
    assert (ours.has_rsample, ours.has_enumerate_support) == (theirs.has_rsample, theirs.has_enumerate_support)
    assert tuple(ours.expand((3, 2)).log_prob(x).shape) == tuple(theirs.expand((3, 2)).log_prob(y).shape)


def test_every_family_is_here():
    assert set(FAMILIES) == {r["name"] for r in json.loads(st._core._distribution_records())["distributions"]}
    torch = pytest.importorskip("torch")
    assert set(torch.distributions.__all__) <= set(D.__all__)
    for name in FAMILIES:
        if hasattr(torch.distributions, name):
            wanted = list(inspect.signature(getattr(torch.distributions, name).__init__).parameters)
            assert list(inspect.signature(getattr(D, name).__init__).parameters) == wanted, name


def test_a_pair_of_numbers():
    torch = pytest.importorskip("torch")
    for lims in ((0.4, 0.6), [0.2, 0.31]):
        ours, theirs = (m.distributions.ContinuousBernoulli(m.tensor([0.45, 0.3]), lims=lims) for m in (st, torch))
        x, y = st.tensor(0.2), torch.tensor(0.2)
        for found, wanted in ((ours.log_prob(x), theirs.log_prob(y)), (ours.mean, theirs.mean), (ours.cdf(x), theirs.cdf(y))):
            assert found.tolist() == pytest.approx(wanted.tolist(), rel=1e-5)
        again = pickle.loads(pickle.dumps(ours.expand([3, 2])))
        assert again.log_prob(x).tolist()[1] == ours.log_prob(x).tolist()
    with pytest.raises(ValueError):
        D.ContinuousBernoulli(0.3, lims=(0.4,))


def test_divergences_against_torch():
    torch = pytest.importorskip("torch")
    compared = 0
    for p_name, (p, _) in FAMILIES.items():
        for q_name, (q, _) in FAMILIES.items():
            try:
                wanted = torch.distributions.kl_divergence(
                    made(torch, torch.distributions, p_name, p), made(torch, torch.distributions, q_name, q)
                )
            except (NotImplementedError, AttributeError):
                continue
            # Different numbers of outcomes, or a mean that is infinite in PyTorch's intermediate results.
            try:
                found = D.kl_divergence(made(st, D, p_name, p), made(st, D, q_name, q))
            except NotImplementedError:
                assert (p_name, q_name) in {
                    ("Kumaraswamy", "Kumaraswamy"),
                    ("Weibull", "Weibull"),
                    ("LogisticNormal", "LogisticNormal"),
                    ("HalfCauchy", "HalfCauchy"),
                }, (p_name, q_name)
                continue
            # PyTorch's are infinite for the unit interval itself.
            if {p_name, q_name} == {"ContinuousBernoulli", "Uniform"}:
                wanted = wanted.where(torch.isfinite(wanted), torch.as_tensor(numbers(found)))
            np.testing.assert_allclose(
                numbers(found), numbers(wanted), rtol=1e-5, atol=1e-8, err_msg=f"{p_name} {q_name}"
            )
            compared += 1
    assert compared > 70


@pytest.mark.parametrize("name", FAMILIES)
def test_what_every_class_has(name):
    parameters, value = FAMILIES[name]
    d = made(st, D, name, parameters)
    kind = type(d)
    assert kind.__doc__ and kind is getattr(D, name) and isinstance(d, D.Distribution) and kind.__name__ == name
    st.manual_seed(3)
    drawn = d.sample((4,))
    assert drawn.shape == (4, *d.batch_shape, *d.event_shape) and not drawn.requires_grad
    assert d.support.check(drawn).all()
    st.manual_seed(3)
    assert (d.sample([4]) == drawn).all()
    x = st.tensor(value, dtype=st.float64)
    for other in (pickle.loads(pickle.dumps(d)), copy.deepcopy(d)):
        assert (other.log_prob(x) == d.log_prob(x)).all() and other.batch_shape == d.batch_shape
    larger = d.expand((3, *d.batch_shape))
    assert type(larger) is kind and larger.sample().shape == (3, *d.batch_shape, *d.event_shape)
    if not d.has_rsample:
        with pytest.raises(NotImplementedError, match="rsample"):
            d.rsample()
    if not d.has_enumerate_support:
        with pytest.raises(NotImplementedError, match="enumerate_support"):
            d.enumerate_support()


def test_gradients_reach_the_parameters():
    for name, (parameters, value) in FAMILIES.items():
        leaves = {
            k: st.tensor(v, dtype=st.float64, requires_grad=True) for k, v in parameters.items() if isinstance(v, list)
        }
        d = getattr(D, name)(
            **{
                k: leaves.get(k, v if not isinstance(v, float) else st.tensor(v, dtype=st.float64))
                for k, v in parameters.items()
            }
        )
        d.log_prob(st.tensor(value, dtype=st.float64)).sum().backward(retain_graph=True)
        wanting = [k for k in leaves if k != "total_count"]
        assert all(leaves[k].grad is not None and bool(st.isfinite(leaves[k].grad).all()) for k in wanting), name
        if d.has_rsample:
            for k in wanting:
                leaves[k].grad = None
            d.rsample((3,)).sum().backward()
            assert all(leaves[k].grad is not None for k in wanting), name


def test_subclasses():
    class Shifted(D.Normal):
        def log_prob(self, value):
            return super().log_prob(value - 1)

        @property
        def mean(self):
            return self.loc + 1

    d = Shifted(st.zeros(2), 1.0)
    plain = D.Normal(st.zeros(2), 1.0)
    assert (d.log_prob(st.ones(2)) == plain.log_prob(st.zeros(2))).all()
    # What is made of it calls its own methods.
    both = D.Independent(d, 1)
    assert both.log_prob(st.ones(2)).item() == pytest.approx(plain.log_prob(st.zeros(2)).sum().item())
    assert (both.mean == 1).all() and both.rsample((3,)).shape == (3, 2)
    assert isinstance(d.expand((3, 2)), Shifted)
    assert D.kl_divergence(d, plain).tolist() == [0, 0]

    class Own(D.Distribution):
        has_rsample = True
        arg_constraints = {}

        def __init__(self):
            super().__init__((2,), (), validate_args=False)

        def rsample(self, sample_shape=()):
            return st.ones([*sample_shape, 2])

        def log_prob(self, value):
            return -value

    own = D.Independent(Own(), 1)
    assert own.rsample((4,)).shape == (4, 2) and own.log_prob(st.ones(2)).item() == -2
    mixture = D.MixtureSameFamily(D.Categorical(st.ones(2)), Own())
    assert mixture.log_prob(st.tensor(3.0)).item() == pytest.approx(-3)
    with pytest.raises(NotImplementedError):
        own.entropy()

    class Narrow(D.Normal):
        arg_constraints = {"scale": D.constraints.interval(0.0, 1.0)}

    with pytest.raises(ValueError, match="Interval"):
        Narrow(0.0, 2.0)

    class Custom(D.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match="custom .expand"):
        Custom().expand((2,))

    @D.register_kl(Custom, D.Normal)
    def rule(p, q):
        return st.tensor(7.0)

    assert D.kl_divergence(Custom(), D.Normal(0.0, 1.0)).item() == 7


def test_mixtures():
    torch = pytest.importorskip("torch")
    found = []
    for module, kind in ((st, D), (torch, torch.distributions)):

        def t(*v, module=module):
            return module.tensor(v, dtype=module.float64)

        d = kind.MixtureSameFamily(kind.Categorical(t(0.3, 0.7)), kind.Normal(t(-1.0, 2.0), t(0.5, 1.0)))
        vectors = kind.MixtureSameFamily(
            kind.Categorical(t(0.3, 0.7)), kind.Independent(kind.Normal(t(-1.0, 2.0)[:, None] * t(1.0, 3.0), 1.0), 1)
        )
        found.append(
            [
                d.log_prob(t(0.3, 1.0)),
                d.mean,
                d.variance,
                d.cdf(t(0.3)),
                vectors.log_prob(t(0.2, 0.4)),
                vectors.mean,
                vectors.variance,
            ]
        )
        assert not d.has_rsample and tuple(d.expand((3,)).sample((2,)).shape) == (2, 3)
        with pytest.raises(ValueError, match="not equal"):
            kind.MixtureSameFamily(kind.Categorical(t(0.3, 0.3, 0.4)), kind.Normal(t(-1.0, 2.0), t(0.5, 1.0)))
        with pytest.raises(ValueError, match="Categorical"):
            kind.MixtureSameFamily(kind.Normal(t(0.3), 1.0), kind.Normal(t(-1.0, 2.0), t(0.5, 1.0)))
    for a, b in zip(*found):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-9)


X, TRIPLE = [[0.3, -0.7, 1.2], [1.5, 0.1, -2.0]], [[0.3, -0.5], [0.9, 1.1]]
TRANSFORMS = {
    "abs": (lambda d, t: d.AbsTransform(), X),
    "affine": (lambda d, t: d.AffineTransform(1.0, -2.0), X),
    "affine event": (lambda d, t: d.AffineTransform(t([1.0, 2.0, 3.0]), t([1.0, -1.0, 2.0]), event_dim=1), X),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=1, lengths=[1, 2]), X),
    "compose": (lambda d, t: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.StickBreakingTransform()]), X),
    "compose inverse": (
        lambda d, t: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.SigmoidTransform(), d.ExpTransform().inv]),
        X,
    ),
    "corr": (lambda d, t: d.CorrCholeskyTransform(), X),
    "exp": (lambda d, t: d.ExpTransform(), X),
    "cumulative": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.0), t(2.0))), X),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), X),
    "inverse": (lambda d, t: d.TanhTransform().inv, [0.3, -0.5]),
    "lower": (lambda d, t: d.LowerCholeskyTransform(), TRIPLE),
    "positive": (lambda d, t: d.PositiveDefiniteTransform(), TRIPLE),
    "power": (lambda d, t: d.PowerTransform(t(1.5)), [0.3, 2.0]),
    "reshape": (lambda d, t: d.ReshapeTransform((3,), (3, 1)), X),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), X),
    "softmax": (lambda d, t: d.SoftmaxTransform(), X),
    "softplus": (lambda d, t: d.SoftplusTransform(), X),
    "stick": (lambda d, t: d.StickBreakingTransform(), X),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform(), d.SigmoidTransform()], dim=1), X),
    "tanh": (lambda d, t: d.TanhTransform(), X),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_against_torch(name):
    torch = pytest.importorskip("torch")
    make, value = TRANSFORMS[name]
    pairs = []
    for module in (st, torch):

        def t(v, module=module):
            return module.tensor(v, dtype=module.float64)

        pairs.append((make(module.distributions, t), t(value)))
    (ours, x), (theirs, y) = pairs
    np.testing.assert_allclose(numbers(ours(x)), numbers(theirs(y)), rtol=1e-9)
    np.testing.assert_allclose(numbers(ours.inv(ours(x))), numbers(theirs.inv(theirs(y))), rtol=1e-7)
    assert (ours.bijective, ours.domain.event_dim, ours.codomain.event_dim) == (
        theirs.bijective,
        theirs.domain.event_dim,
        theirs.codomain.event_dim,
    )
    try:
        wanted = theirs.log_abs_det_jacobian(y, theirs(y))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            ours.log_abs_det_jacobian(x, ours(x))
    else:
        np.testing.assert_allclose(
            numbers(ours.log_abs_det_jacobian(x, ours(x))), numbers(wanted), rtol=1e-7, atol=1e-9
        )
    shape = tuple(y.shape)
    assert tuple(ours.forward_shape(shape)) == tuple(theirs.forward_shape(shape))
    assert tuple(ours.inverse_shape(tuple(theirs(y).shape))) == shape
    try:
        sign = theirs.sign
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            assert ours.sign is None
    else:
        assert np.asarray(ours.sign).tolist() == np.asarray(sign).tolist()


def test_transforms_of_users_and_memory():
    class Double(D.Transform):
        domain = codomain = D.constraints.real
        bijective = True
        sign = 1
        calls = 0

        def _call(self, x):
            Double.calls += 1
            return 2 * x

        def _inverse(self, y):
            Double.calls += 1
            return y / 2

        def log_abs_det_jacobian(self, x, y):
            return st.full_like(x, math.log(2))

    base = D.Normal(st.zeros(3), 1.0)
    d = D.TransformedDistribution(base, [Double(), D.ExpTransform()])
    plain = D.TransformedDistribution(base, [D.AffineTransform(0.0, 2.0), D.ExpTransform()])
    x = st.tensor([0.5, 1.0, 2.0])
    np.testing.assert_allclose(d.log_prob(x).numpy(), plain.log_prob(x).numpy(), rtol=1e-6)
    np.testing.assert_allclose(d.cdf(x).numpy(), plain.cdf(x).numpy(), rtol=1e-6)
    assert d.expand((2, 3)).sample().shape == (2, 3)
    # A transform that remembers its last value does not invert it again.
    remembering = D.TransformedDistribution(base, [Double(cache_size=1)])
    Double.calls = 0
    drawn = remembering.rsample()
    remembering.log_prob(drawn)
    assert Double.calls == 1
    exp = D.ExpTransform(cache_size=1)
    drawn = D.TransformedDistribution(base, [exp]).rsample()
    assert (exp.inv(drawn).exp() == drawn).all() and exp != D.TanhTransform() and D.ExpTransform() == D.ExpTransform()
    assert D.AffineTransform(1.0, 2.0) == D.AffineTransform(1.0, 2.0) != D.AffineTransform(1.0, 3.0)

    chain = D.TransformedDistribution(
        D.Independent(base, 1),
        [D.AffineTransform(0.5, 2.0), D.TanhTransform().inv.inv, D.ReshapeTransform((3,), (3, 1))],
    )
    mixture = D.MixtureSameFamily(D.Categorical(st.ones(3)), base)
    for each, value in ((chain, chain.sample()), (mixture, st.tensor(0.3))):
        assert (pickle.loads(pickle.dumps(each)).log_prob(value) == each.log_prob(value)).all()
        assert (copy.deepcopy(each).log_prob(value) == each.log_prob(value)).all()

    class Own(D.TransformedDistribution):
        def __init__(self, loc):
            super().__init__(D.Normal(loc, 1.0), [D.ExpTransform()])

    assert D.Independent(Own(st.zeros(3)), 1).log_prob(x).shape == ()
    with pytest.raises(ValueError, match="must be a Transform"):
        D.TransformedDistribution(base, [math.exp])
    with pytest.raises(ValueError, match="size at least 1"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform())


def test_registries_cover_constraints():
    c = D.constraints
    for constraint in (
        c.real,
        c.real_vector,
        c.positive,
        c.nonnegative,
        c.greater_than(2.0),
        c.less_than(-1.0),
        c.unit_interval,
        c.interval(-2.0, 3.0),
        c.half_open_interval(0.0, 4.0),
        c.simplex,
        c.corr_cholesky,
        c.lower_cholesky,
        c.positive_definite,
        c.independent(c.positive, 1),
        c.stack([c.positive, c.real, c.unit_interval], -1),
        c.cat([c.positive, c.real], -1, [1, 2]),
    ):
        for registry in (D.biject_to, D.transform_to):
            if registry is D.biject_to and constraint in (c.lower_cholesky, c.positive_definite):
                with pytest.raises(NotImplementedError, match="Cannot transform"):
                    registry(constraint)
                continue
            transform = registry(constraint)
            x = st.tensor([[0.3, -1.0], [2.0, 0.4]] if transform.domain.event_dim == 2 else [[0.3, -1.0, 2.0]] * 2)
            y = transform(x)
            assert constraint.check(y).all(), constraint
            if registry is D.biject_to:
                np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), atol=1e-4)
    with pytest.raises(NotImplementedError):
        D.biject_to(c.boolean)


def test_refusals():
    for make, text in (
        (lambda: D.Normal(0.0, -1.0), r"Expected parameter scale .* GreaterThan\(lower_bound=0.0\)"),
        (
            lambda: D.MultivariateNormal(st.zeros(2)),
            "Exactly one of covariance_matrix or precision_matrix or scale_tril",
        ),
        (lambda: D.MultivariateNormal(st.zeros(2), -st.eye(2)), "PositiveDefinite"),
        (lambda: D.Wishart(0.5, st.eye(2)), "greater than ndim - 1"),
        (lambda: D.LKJCholesky(1), "dim"),
        (lambda: D.Multinomial(st.ones(2), st.ones(2)), "total_count"),
        (lambda: D.Dirichlet(st.tensor(1.0)), "at least one-dimensional"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "reinterpreted_batch_ndims"),
    ):
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(TypeError):
        D.Normal(0.0)
    with pytest.raises(TypeError):
        D.Normal("a", 1.0)
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    assert math.isnan(D.Cauchy(0.0, 1.0).mean.item())
    assert D.Categorical(logits=st.ones(2, 3)).param_shape == (2, 3)
    assert D.Multinomial(5, st.ones(2)).total_count == 5 and D.LKJCholesky(3).dim == 3
    assert (
        isinstance(D.Chi2(2.0), D.Gamma)
        and D.Chi2(2.0).rate.item() == 0.5
        and isinstance(D.Normal(0.0, 1.0), D.ExponentialFamily)
    )
