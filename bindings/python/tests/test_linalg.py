"""Linear algebra against NumPy, gradients against central differences."""

import numpy as np
import pytest

import strata as st
from nn_checks import close, rand, t64


def positive(*shape):
    a = rand(*shape)
    return a @ np.swapaxes(a, -1, -2) + 3 * np.eye(shape[-1])


def test_values():
    a, b = positive(2, 3, 3), rand(2, 3, 2)
    close(st.linalg.inv(t64(a)), np.linalg.inv(a))
    close(st.linalg.det(t64(a)), np.linalg.det(a))
    close(st.linalg.solve(t64(a), t64(b)), np.linalg.solve(a, b))
    close(st.linalg.solve(t64(a[0]), t64(b[0, :, 0])), np.linalg.solve(a[0], b[0, :, 0]))
    close(st.linalg.cholesky(t64(a)), np.linalg.cholesky(a))
    sign, size = st.linalg.slogdet(t64(-a[0]))
    assert sign.item() == -1 and size.item() == pytest.approx(np.log(np.linalg.det(a[0])))
    values, vectors = st.linalg.eigh(t64(a))
    close(vectors @ st.diag_embed(values) @ vectors.mT, a)
    m = rand(4, 3)
    u, s, vh = st.linalg.svd(t64(m), full_matrices=False)
    close(u @ st.diag(s) @ vh, m)
    close(s, np.linalg.svd(m)[1])
    assert st.linalg.svd(t64(m))[0].shape == (4, 4)
    q, r = st.linalg.qr(t64(m))
    close(q @ r, m)
    close(st.linalg.pinv(t64(m)), np.linalg.pinv(m))
    assert st.linalg.matrix_rank(t64(np.outer(m[:, 0], m[:, 1]))).item() == 1
    close(st.linalg.matrix_power(t64(a), -2), np.linalg.matrix_power(a, -2), 1e-8)
    close(st.linalg.lstsq(t64(m), t64(rand(4, 2)))[0].shape, (3, 2))
    for kind in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        close(st.linalg.matrix_norm(t64(m), kind), np.linalg.norm(m, kind))
        close(st.linalg.cond(t64(a[0]), 1), np.linalg.cond(a[0], 1))
    for order in (0, 1, 2, 3.5, np.inf, -np.inf):
        close(st.linalg.vector_norm(t64(m), order, dim=0), np.linalg.norm(m, order, 0))
    close(st.linalg.norm(t64(m)), np.linalg.norm(m))
    upper = np.triu(a[0])
    close(st.linalg.solve_triangular(t64(a[0]), t64(b[0]), upper=True), np.linalg.solve(upper, b[0]))


@pytest.mark.parametrize("name,function", [
    ("inv", st.linalg.inv), ("det", st.linalg.det), ("slogdet", lambda x: st.linalg.slogdet(x)[1]),
    ("cholesky", lambda x: st.linalg.cholesky((x + x.mT) / 2)), ("eigvalsh", lambda x: st.linalg.eigvalsh((x + x.mT) / 2)),
    ("eigh", lambda x: st.linalg.eigh((x + x.mT) / 2)[1].square()), ("pinv", st.linalg.pinv),
    ("svd", lambda x: st.linalg.svd(x[:, :2], full_matrices=False)[0].square()),
    ("svdvals", st.linalg.svdvals), ("solve", lambda x: st.linalg.solve(x, st.arange(3.0, dtype=st.float64))),
])
def test_gradients(name, function):
    assert st.autograd.gradcheck(function, (t64(positive(3, 3) + 0.2 * rand(3, 3), grad=True),))


def test_refusals():
    with pytest.raises(st.linalg.LinAlgError, match="inv"):
        st.linalg.inv(st.zeros(2, 2))
    with pytest.raises(st.ShapeError, match="square"):
        st.linalg.det(st.ones(2, 3))
    with pytest.raises(st.DTypeError, match="float32 or float64"):
        st.linalg.inv(st.eye(2).half())
    with pytest.raises(st.AutogradError, match="qr"):
        st.linalg.qr(st.eye(2, requires_grad=True))
    with pytest.raises(AttributeError, match="eigvalsh"):
        st.linalg.eigvals
