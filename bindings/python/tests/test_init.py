"""Initial values, clipping, vectors of parameters, and copies of modules."""

import copy
import math
import pickle

import numpy as np
import pytest

import strata as st
from nn_checks import close, rand, t64
from strata import nn
from strata.nn import functional as F


def test_init():
    st.manual_seed(11)
    w = st.empty(200, 300)
    nn.init.uniform_(w, -1, 3)
    assert -1 <= w.min().item() and w.max().item() < 3 and abs(w.mean().item() - 1) < 0.02
    nn.init.normal_(w, 2, 0.5)
    assert abs(w.mean().item() - 2) < 0.01 and abs(w.std().item() - 0.5) < 0.01
    nn.init.trunc_normal_(w, 0, 1, -0.5, 0.5)
    assert abs(w.numpy()).max() <= 0.5
    bounds = {
        nn.init.xavier_uniform_: math.sqrt(6 / 500), nn.init.kaiming_uniform_: math.sqrt(6 / 300),
    }
    for fn, bound in bounds.items():
        fn(w)
        assert 0.99 * bound < abs(w.numpy()).max() <= bound
    for fn, std in {nn.init.xavier_normal_: math.sqrt(2 / 500), nn.init.kaiming_normal_: math.sqrt(2 / 300)}.items():
        fn(w)
        assert abs(w.std().item() / std - 1) < 0.02
    nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu")
    assert abs(w.std().item() / math.sqrt(2 / 200) - 1) < 0.02
    q = nn.init.orthogonal_(st.empty(5, 8, dtype=st.float64))
    close(q @ q.T, np.eye(5))
    close(nn.init.eye_(st.empty(2, 3)), np.eye(2, 3))
    kernel = nn.init.dirac_(st.empty(3, 3, 3, dtype=st.float64))
    x = rand(1, 3, 6)
    close(F.conv1d(t64(x), kernel, padding=1), x)
    with pytest.raises(ValueError):
        nn.init.xavier_normal_(st.empty(3))


def test_clip_and_vectors():
    m = nn.Linear(3, 2).double()
    for p in m.parameters():
        p.grad = t64(rand(*p.shape) * 10)
    g = np.concatenate([p.grad.numpy().ravel() for p in m.parameters()])
    norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    assert norm.item() == pytest.approx(np.linalg.norm(g), rel=1e-5)
    after = np.concatenate([p.grad.numpy().ravel() for p in m.parameters()])
    np.testing.assert_allclose(after, g / np.linalg.norm(g), rtol=1e-5)
    nn.utils.clip_grad_norm_(m.parameters(), 0.1, norm_type=float("inf"))
    assert max(abs(p.grad.numpy()).max() for p in m.parameters()) <= 0.1
    nn.utils.clip_grad_value_(m.parameters(), 0.01)
    assert max(abs(p.grad.numpy()).max() for p in m.parameters()) <= 0.01
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v.detach() * 2, m.parameters())
    close(nn.utils.parameters_to_vector(m.parameters()), 2 * v.detach().numpy())


def test_modules_pickle_and_copy():
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    x = st.randn(2, 1, 4, 4)
    m(x)
    m.eval()
    for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
        assert repr(other) == repr(m) and not other.training
        np.testing.assert_array_equal(other(x).detach().numpy(), m(x).detach().numpy())
        with st.no_grad():
            other[4].weight.fill_(0)
        assert abs(m[4].weight.detach().numpy()).max() > 0
        assert isinstance(other[4].weight, nn.Parameter) and other[4].weight.requires_grad
