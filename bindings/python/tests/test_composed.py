"""Functions that are composed of records, against NumPy; generators; in-place forms; names that are not there."""

import math
import pickle

import numpy as np
import pytest

import strata as st
from nn_checks import close, rand, t64
from strata import nn
from strata.nn import functional as F


def test_in_place_keeps_what_the_gradient_reads():
    for name, args in [("abs_", ()), ("sin_", ()), ("log_", ()), ("silu_", ()), ("square_", ()), ("pow_", (3.0,)), ("erf_", ()),
                       ("clamp_", (0.5, 0.9)), ("maximum_", (st.full([3], 0.7, dtype=st.float64),)), ("atan2_", (t64([1, 2, 3.0]),))]:
        x = t64([0.4, 0.8, 1.2], grad=True)
        y = x * 1
        kept = y
        getattr(y, name)(*args)
        assert y is kept
        y.sum().backward()
        plain = t64([0.4, 0.8, 1.2], grad=True)
        getattr(plain * 1, name[:-1])(*args).sum().backward()
        close(x.grad, plain.grad.numpy())
    x = t64([1.0, 2.0], grad=True)
    y = x * 1
    y /= y.sum()
    y *= x.exp()
    (y * t64([1.0, 3.0])).sum().backward()
    z = t64([1.0, 2.0], grad=True)
    ((z / z.sum()) * z.exp() * t64([1.0, 3.0])).sum().backward()
    close(x.grad, z.grad.numpy())
    for layer in (nn.SiLU(inplace=True), nn.ELU(inplace=True), nn.Hardswish(inplace=True), nn.LeakyReLU(inplace=True)):
        assert st.autograd.gradcheck(lambda v: layer(v * 1), (t64(rand(4), grad=True),))
    with pytest.raises(st.AutogradError, match="leaf"):
        x.sin_()


def test_statistics():
    x = rand(5, 7)
    close(st.median(t64(x)), np.sort(x.ravel())[17])
    values, indices = st.median(t64(x), dim=1)
    close(values, np.sort(x, 1)[:, 3])
    close(np.take_along_axis(x, indices.numpy()[:, None], 1)[:, 0], values.numpy())
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        close(st.quantile(t64(x), t64([0.1, 0.5, 0.77]), dim=0, interpolation=how), np.quantile(x, [0.1, 0.5, 0.77], 0, method=how))
    close(st.quantile(t64(x), 0.3), np.quantile(x, 0.3))
    close(st.quantile(t64(x), 0.3, dim=1, keepdim=True), np.quantile(x, 0.3, 1, keepdims=True))
    close(st.corrcoef(t64(x)), np.corrcoef(x))
    close(st.histc(t64(x), 6, -2, 2), np.histogram(x, 6, (-2, 2))[0])
    v, i = st.mode(st.tensor([[1, 3, 3, 2], [5, 4, 4, 5]]))
    assert v.tolist() == [3, 4] and i.tolist() == [2, 2]
    nans = np.array([[1, np.nan, 3], [np.nan, np.nan, 5.0]])
    close(st.nanmean(t64(nans), 1), np.nanmean(nans, 1))
    close(st.nansum(t64(nans)), 9)
    close(st.logcumsumexp(t64(x), 1), np.log(np.cumsum(np.exp(x), 1)))
    close(st.diff(t64(x), 2, 0), np.diff(x, 2, 0))
    close(st.diff(t64(x), prepend=t64(x[:, :1])), np.diff(x, prepend=x[:, :1]))
    close(st.trapezoid(t64(x), t64(np.arange(7.0) ** 2)), np.trapezoid(x, np.arange(7.0) ** 2))
    s, m = st.std_mean(t64(x), 0)
    close(s, x.std(0, ddof=1))
    close(m, x.mean(0))


def test_shapes_and_places():
    x = rand(3, 4)
    for k in range(-1, 5):
        close(st.rot90(t64(x), k), np.rot90(x, k))
    close(st.kron(t64(x), t64(rand(2, 2) * 0 + 2)), np.kron(x, np.full((2, 2), 2.0)))
    close(st.block_diag(t64(x), t64([[1.0]])).shape, (4, 5))
    for parts in (3, [1, 5]):
        for mine, theirs in zip(st.tensor_split(t64(rand(7, 2)), parts), np.array_split(np.zeros((7, 2)), parts)):
            assert mine.shape == theirs.shape
    close(st.vander(t64([1.0, 2, 3]), 3), np.vander([1.0, 2, 3], 3))
    close(st.cross(t64(rand(2, 3) * 0 + [1, 2, 3]), t64([[0.0, 1, 0]] * 2)), np.cross([1.0, 2, 3], [0.0, 1, 0])[None].repeat(2, 0))
    assert st.combinations(st.arange(4), 3).shape == (4, 3)
    assert st.isin(st.tensor([1, 5]), [5, 6], invert=True).tolist() == [True, False]
    u, inverse, counts = st.unique_consecutive(st.tensor([2, 2, 1, 1, 1, 2]), True, True)
    assert u.tolist() == [2, 1, 2] and inverse.tolist() == [0, 0, 1, 1, 1, 2] and counts.tolist() == [2, 3, 1]
    close(st.slice_scatter(t64(np.zeros((4, 2))), t64(np.ones((2, 2))), 0, 1, 4, 2), [[0, 0], [1, 1], [0, 0], [1, 1]])
    close(st.select_scatter(t64(np.zeros((2, 2))), t64([1.0, 2]), 1, -1), [[0, 1], [0, 2]])
    t = st.zeros(4, 2)
    assert t.fill_diagonal_(1, wrap=True).tolist() == np.array([[1, 0], [0, 1], [0, 0], [1, 0]]).tolist()
    assert st.zeros(2, 3).transpose_(0, 1).shape == (3, 2) and st.ones(2, 3).sum_to_size(1, 3).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    x, src = rand(3, 4), rand(3, 6)
    index = np.random.default_rng(0).integers(0, 4, (3, 6))
    wanted = x.copy()
    for r in range(3):
        for c in range(4):
            sent = list(src[r, index[r] == c])
            if sent:
                values = np.array(sent + ([x[r, c]] if include_self else []))
                wanted[r, c] = {"sum": values.sum, "prod": values.prod, "mean": values.mean, "amax": values.max, "amin": values.min}[reduce]()
    close(st.scatter_reduce(t64(x), 1, st.tensor(index), t64(src), reduce, include_self=include_self), wanted)
    close(st.scatter_reduce(t64(x.T), 0, st.tensor(index.T), t64(src.T), reduce, include_self=include_self), wanted.T)
    assert st.autograd.gradcheck(lambda a, b: st.scatter_reduce(a, 1, st.tensor(index), b, reduce, include_self=include_self),
                                 (t64(x, grad=True), t64(src, grad=True)))


def test_special_functions():
    x = np.array([-2.5, -0.3, 0.1, 0.5, 1.0, 2.0, 7.3, 40.0])
    close(st.lgamma(t64(x)), [math.lgamma(v) for v in x], 1e-11)
    assert st.autograd.gradcheck(st.lgamma, (t64(x, grad=True),))
    h = 1e-5
    close(st.digamma(t64(x)), [(math.lgamma(v + h) - math.lgamma(v - h)) / (2 * h) for v in x], 1e-5)
    p = np.array([-0.999, -0.5, 0.0, 0.3, 0.99])
    close(st.erf(st.erfinv(t64(p))), p, 1e-12)
    assert st.autograd.gradcheck(st.erfinv, (t64(p[1:4], grad=True),))
    assert st.erfinv(st.tensor([1.0, -1.0])).tolist() == [math.inf, -math.inf] and st.erfinv(st.tensor(2.0)).isnan()
    close(st.logit(t64([0.2, 0.9])), np.log([0.25, 9.0]))
    close(st.sinc(t64([0.0, 0.5])), np.sinc([0.0, 0.5]))


def test_generators():
    g = st.Generator().manual_seed(5)
    st.manual_seed(9)
    a = st.rand(4)
    st.manual_seed(9)
    first = st.randn(3, generator=g)
    assert st.equal(st.rand(4), a)  # the generator's numbers do not come from the default one
    assert st.equal(st.randn(3, generator=st.Generator().manual_seed(5)), first)
    assert not st.equal(st.randn(3, generator=g), first)
    state = g.get_state()
    one = st.empty(3).uniform_(generator=g)
    assert st.equal(one, st.empty(3).uniform_(generator=g.set_state(state)))
    with st.random.fork_rng():
        st.rand(10)
    st.manual_seed(9)
    assert st.equal(st.rand(4), a)
    parts = [st.utils.data.random_split(range(10), [7, 3], generator=st.Generator().manual_seed(1)) for _ in range(2)]
    assert list(parts[0][0]) == list(parts[1][0]) and sorted([*parts[0][0], *parts[0][1]]) == list(range(10))
    st.manual_seed(0)
    drawn = st.empty(50000).exponential_(2.0)
    assert drawn.mean().item() == pytest.approx(0.5, rel=0.03) and drawn.min().item() >= 0
    assert st.poisson(st.full([20000], 4.0)).mean().item() == pytest.approx(4, rel=0.03)
    assert st.empty(20000).geometric_(0.25).mean().item() == pytest.approx(4, rel=0.05)


def test_factories_take_pytorchs_arguments():
    assert st.zeros(size=(2, 3)).shape == (2, 3) and st.rand(2, generator=None, requires_grad=True).requires_grad
    assert st.Tensor(2, 3).shape == (2, 3) and st.FloatTensor([1, 2]).dtype == st.float32 and st.LongTensor(4).shape == (4,)
    assert st.ones_like(st.zeros(2), memory_format=st.preserve_format).tolist() == [1, 1]
    assert isinstance(st.ones(2, 3).shape, st.Size) and st.Size([2, 3]).numel() == 6
    assert st.ones(2).type() == "torch.FloatTensor"
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        st.zeros(2, sizes=3)
    with pytest.raises(TypeError, match="dtype has a value of the wrong type"):
        st.zeros(2, dtype="floaty")


def test_missing_names_say_what_to_use():
    for module, name, text in [(st, "onnx", "safetensors"), (st, "fft", "numpy.fft"), (nn, "CrossMapLRN2d", "LocalResponseNorm"),
                               (F, "max_pool2", "max_pool2d"), (st, "zeroes", "zeros"),
                               (st.linalg, "eig", "eigh")]:
        with pytest.raises(AttributeError, match=text):
            getattr(module, name)
    assert not hasattr(st, "definitely_not_there")


def test_printoptions():
    x = st.tensor([1.23456, 2.0])
    try:
        st.set_printoptions(precision=2)
        assert repr(x) == "tensor([1.23, 2.  ])"
        st.set_printoptions(sci_mode=True)
        assert "1.23e+00" in repr(x)
        assert "requires_grad=True" in repr(st.ones(1, requires_grad=True))
    finally:
        st.set_printoptions(profile="default")
    assert repr(x) == "tensor([1.2346, 2.0000])"


def test_bce_at_certainty_has_a_finite_gradient():
    p = st.tensor([0.0, 1.0, 0.5], requires_grad=True)
    F.binary_cross_entropy(p, st.tensor([0.0, 1.0, 1.0]), reduction="sum").backward()
    assert p.grad.isfinite().all() and p.grad[2].item() == pytest.approx(-2)
    q = st.tensor([0.0], requires_grad=True)
    loss = F.binary_cross_entropy(q, st.tensor([1.0]))
    assert loss.item() == 100
    loss.backward()
    assert q.grad.item() < -1e11


def test_weight_norm_along_each_dimension_and_none():
    for made in (nn.utils.parametrizations.weight_norm, nn.utils.weight_norm):
        for dim, shape in ((0, [3, 1, 1]), (1, [1, 4, 1]), (None, []), (-1, [])):
            layer = nn.Conv1d(4, 3, 2)
            before = layer.weight.detach().clone()
            made(layer, "weight", dim)
            lengths = layer.parametrizations.weight.original0 if hasattr(layer, "parametrizations") else layer.weight_g
            assert list(lengths.shape) == shape
            with st.no_grad():
                lengths.mul_(2)
            layer(st.ones(1, 4, 2))
            st.testing.assert_close(layer.weight.detach(), 2 * before)


def test_parametrized_modules_copy_pickle_and_end():
    from strata.nn.utils import parametrizations, parametrize

    layer = nn.Linear(4, 3)
    before = layer.weight.detach().clone()
    parametrizations.weight_norm(layer)
    st.testing.assert_close(layer.weight.detach(), before)
    assert isinstance(layer, nn.Linear) and parametrize.is_parametrized(layer, "weight")
    assert sorted(n for n, _ in layer.named_parameters()) == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    import copy

    other = copy.deepcopy(layer)
    with st.no_grad():
        other.parametrizations.weight.original0.mul_(2)
    st.testing.assert_close(other.weight.detach(), 2 * before)
    st.testing.assert_close(layer.weight.detach(), before)
    layer.weight = before * 3
    st.testing.assert_close(layer.weight.detach(), before * 3)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    pickle.loads(pickle.dumps(layer))
    for orthogonal_map in (None, "cayley", "matrix_exp", "householder"):
        o = parametrizations.orthogonal(nn.Linear(5, 3), orthogonal_map=orthogonal_map)
        begin = o.weight.detach().clone()
        opt = st.optim.SGD(o.parameters(), lr=0.5)
        for _ in range(3):
            opt.zero_grad()
            o(st.ones(2, 5)).square().sum().backward()
            opt.step()
            st.testing.assert_close((o.weight @ o.weight.T).detach(), st.eye(3), atol=1e-5, rtol=0)
        assert (o.weight - begin).abs().max().item() > 1e-2
    with pytest.raises(ValueError, match="the map is"):
        parametrizations.orthogonal(nn.Linear(5, 3), orthogonal_map="givens")
    s = parametrizations.spectral_norm(nn.Linear(6, 4), n_power_iterations=30)
    s(st.ones(1, 6))
    assert st.linalg.matrix_norm(s.weight.detach(), 2).item() == pytest.approx(1, abs=1e-3)


def test_lazy_layers_become_plain_ones():
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    with pytest.raises(ValueError, match="call the network once"):
        list(net.parameters())
    net.eval()
    assert net(st.ones(2, 3, 6, 6)).shape == (2, 2)
    assert type(net[0]) is nn.Conv2d and type(net[3]) is nn.Linear and net[3].in_features == 64 and not net[1].training
    assert len(list(net.parameters())) == 6


def test_derivatives_of_functions():
    x = t64(rand(3))
    A = t64(rand(3, 3))
    f = lambda v: A @ v.sin()
    close(st.autograd.functional.jacobian(f, x), A.numpy() * np.cos(x.numpy()))
    v = t64(rand(3))
    close(st.autograd.functional.jvp(f, x, v)[1], (A.numpy() * np.cos(x.numpy())) @ v.numpy())
    close(st.autograd.functional.vjp(f, x, v)[1], (A.numpy() * np.cos(x.numpy())).T @ v.numpy())
    g = lambda a, b: (a**2 * b).sum()
    h = st.autograd.functional.hessian(g, (x, v))
    close(h[0][0], np.diag(2 * v.numpy()))
    close(h[0][1], np.diag(2 * x.numpy()))
    close(st.autograd.functional.hvp(lambda a: (a**3).sum(), x, v)[1], 6 * x.numpy() * v.numpy())
    with pytest.raises(RuntimeError, match="does not depend on all"):
        st.autograd.functional.jacobian(lambda a, b: a * 2, (x, v), strict=True)
    with pytest.raises(RuntimeError, match="must return one number"):
        st.autograd.functional.hessian(f, x)
    with pytest.raises(ZeroDivisionError):
        st.autograd.functional.jvp(lambda a: a / (1 // 0), x)
    close(st.func.grad(lambda a: (a**3).sum())(x), 3 * x.numpy() ** 2)
    close(st.func.grad(lambda a: st.func.grad(lambda b: (b**3).sum())(a).sum())(x), 6 * x.numpy())


def test_packed_sequences_are_the_padded_ones():
    from strata.nn.utils.rnn import pack_sequence, pad_packed_sequence, unpack_sequence

    sequences = [t64(rand(n, 3)) for n in (2, 5, 3)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    for mine, given in zip(unpack_sequence(packed), sequences):
        close(mine, given.numpy())
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        m = kind(3, 4, num_layers=2, bidirectional=True).double()
        y, state = m(packed)
        padded, lengths = pad_packed_sequence(y)
        assert lengths.tolist() == [2, 5, 3]
        for i, s in enumerate(sequences):
            alone, alone_state = m(s)
            close(padded[: s.shape[0], i], alone.detach().numpy())
            both = (state, alone_state) if kind is not nn.LSTM else (state[1], alone_state[1])
            close(both[0][:, i], both[1].detach().numpy())
    with pytest.raises(RuntimeError, match="enforce_sorted"):
        pack_sequence(sequences)


def test_glu_takes_two_halves() -> None:
    x = st.arange(6.0).view(1, 3, 2)
    with pytest.raises(st.ShapeError, match="glu: dimension 1 of .* has no two halves"):
        F.glu(x, 1)
    st.testing.assert_close(F.glu(x, 2), x[..., :1] * x[..., 1:].sigmoid())
