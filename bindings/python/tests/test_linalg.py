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
    with pytest.raises(st.linalg.LinAlgError, match="linalg_inv: the matrix is singular"):
        st.linalg.inv(st.zeros(2, 2))
    with pytest.raises(st.errors.LinAlgError, match=r"\(Batch element 1\)"):
        st.linalg.cholesky(st.stack([st.eye(2), -st.eye(2)]))
    with pytest.raises(RuntimeError, match="singular"):  # PyTorch's is a RuntimeError
        st.linalg.solve(st.zeros(2, 2), st.ones(2))
    with pytest.raises(st.ShapeError, match="square"):
        st.linalg.det(st.ones(2, 3))
    with pytest.raises(st.DTypeError, match="f32 or f64"):
        st.linalg.inv(st.eye(2).half())
    with pytest.raises(AttributeError, match="eigvalsh"):
        st.linalg.eigvals
    with pytest.raises(st.DTypeError, match="A is f32 and B is f64"):
        st.linalg.solve(st.eye(2), st.ones(2, dtype=st.float64))


def test_beta_zero_ignores_the_input():
    nan, one = st.full((2, 2), float("nan")), st.ones(2, 2)
    batch = one.expand(3, 2, 2)
    for y in (st.addmm(nan, one, one, beta=0), st.addmv(nan[0], one, one[0], beta=0), st.addr(nan, one[0], one[0], beta=0),
              st.addbmm(nan, batch, batch, beta=0), st.baddbmm(nan, batch, batch, beta=0)):
        assert not y.isnan().any().item()
    x = st.full((2,), float("nan")).addmv_(one, one[0], beta=0)
    assert x.tolist() == [2, 2]


def test_integers_refuse_floating_factors():
    i, v = st.ones(2, 2, dtype=st.int64), st.ones(2, dtype=st.int64)
    batch = i.expand(3, 2, 2)
    for call in (lambda **k: st.addmm(i, i, i, **k), lambda **k: st.addmv(v, i, v, **k), lambda **k: st.addr(i, v, v, **k),
                 lambda **k: st.addbmm(i, batch, batch, **k), lambda **k: st.baddbmm(batch, batch, batch, **k)):
        for name in ("beta", "alpha"):
            with pytest.raises(st.DTypeError, match=name):
                call(**{name: 0.5})
        call(beta=2, alpha=-1)


def test_rank_deficient_pinv_has_a_gradient():
    x = t64(np.outer([1.0, 2, 3], [1.0, -1]), grad=True)
    st.linalg.pinv(x).sum().backward()
    assert st.isfinite(x.grad).all().item()
    close(st.linalg.pinv(x), np.linalg.pinv(x.detach().numpy()))


def test_small_products():
    a, b = rand(2, 3), rand(4, 2)
    close(st.kron(t64(a), t64(b)), np.kron(a, b))
    close(st.kron(t64(a[0]), t64(b)), np.kron(a[0], b))
    close(st.tensordot(t64(a), t64(b), dims=([0], [1])), np.tensordot(a, b, ([0], [1])))
    close(st.tensordot(t64(a), t64(a), 2), np.tensordot(a, a, 2))
    close(st.chain_matmul(t64(b), t64(a), t64(a.T)), b @ a @ a.T)
    close(st.inner(t64(a), t64(a)), np.inner(a, a))
    close(st.outer(t64(a[0]), st.tensor([1, 2])), np.outer(a[0], [1, 2]))
    close(t64(a[0]).ger(t64(b[0])), np.outer(a[0], b[0]))
    for wrong in (lambda: st.dot(t64(a[0]), t64(b[0])), lambda: st.vdot(t64(a[0]), t64(b[0])), lambda: st.inner(t64(a), t64(b)),
                  lambda: st.tensordot(t64(a), t64(b), dims=1), lambda: st.outer(t64(a), t64(b[0]))):
        with pytest.raises(st.ShapeError):
            wrong()
    close(st.tensordot(t64(a), t64(a[:, :1]), ([1], [1])), a.sum(1, keepdims=True) @ a[:, :1].T)
    close(st.einsum(t64(b), [0, 1], t64(a), [1, 2], [2, 0]), (b @ a).T)
    close(st.einsum("ij,jk", [t64(b), t64(a)]), b @ a)
    close(st.einsum(t64(a), [..., 0]), a)
    for wrong in (lambda: st.einsum(t64(a), [0, 52]), lambda: st.einsum("ij->k", t64(a)), lambda: st.einsum("ij", t64(a), t64(a))):
        with pytest.raises(ValueError, match="einsum"):
            wrong()
    with pytest.raises(st.ShapeError, match="chain_matmul"):
        st.chain_matmul(t64(a), t64(a[0]))
    with pytest.raises(st.DTypeError, match="f32.*f64|f64.*f32"):
        st.dot(st.ones(2), st.ones(2, dtype=st.float64))


def test_tf32_is_the_engines_switch():
    from strata import _core

    try:
        assert st.get_float32_matmul_precision() == "highest" and not _core.cuda_allow_tf32()
        st.set_float32_matmul_precision("medium")
        assert _core.cuda_allow_tf32() and st.backends.cuda.matmul.allow_tf32 is True
        assert st.get_float32_matmul_precision() == "medium"
        st.backends.cuda.matmul.allow_tf32 = False
        assert not _core.cuda_allow_tf32() and st.get_float32_matmul_precision() == "highest"
        st.backends.cuda.matmul.allow_tf32 = True
        assert _core.cuda_allow_tf32() and st.get_float32_matmul_precision() == "medium"
        with pytest.raises(ValueError, match="highest, high or medium"):
            st.set_float32_matmul_precision("low")
    finally:
        st.set_float32_matmul_precision("highest")
    assert not _core.cuda_allow_tf32()


# ---- beside PyTorch, where it is installed: options, odd shapes, gradients

SQUARE = [(0, 0), (1, 1), (3, 3), (2, 2, 2), (2, 1, 4, 4), (0, 3, 3)]
ANY = [(0, 0), (1, 1), (3, 3), (5, 3), (3, 5), (1, 4), (4, 1), (0, 3), (3, 0), (2, 5, 3), (2, 3, 5), (0, 2, 3)]
UP, BOTH = [{}, {"upper": True}], (False, True)


def _spd(x):
    return x @ x.mT + 2 * (x @ x.mT + 1).new_ones(x.shape[-1]).diag()


# name: function of (library, x), shapes, options. Squares where a sign is free.
CASES = {
    "cholesky": (lambda m, x, **o: m.linalg.cholesky(_spd(x), **o), SQUARE, UP),
    "cholesky_ex": (lambda m, x, **o: m.linalg.cholesky_ex(_spd(x), **o), SQUARE, UP),
    "cholesky_inverse": (lambda m, x, **o: m.cholesky_inverse(m.linalg.cholesky(_spd(x), **o), **o), SQUARE, UP),
    "cholesky_solve": (lambda m, x, **o: m.cholesky_solve(x, m.linalg.cholesky(_spd(x), **o), **o), SQUARE, UP),
    "inv": (lambda m, x, **o: m.linalg.inv(_spd(x)), SQUARE, [{}]),
    "inv_ex": (lambda m, x, **o: m.linalg.inv_ex(_spd(x)), SQUARE, [{}]),
    "det": (lambda m, x, **o: m.linalg.det(x), SQUARE, [{}]),
    "slogdet": (lambda m, x, **o: m.linalg.slogdet(x), SQUARE, [{}]),
    "logdet": (lambda m, x, **o: m.logdet(_spd(x)), SQUARE, [{}]),
    "solve": (lambda m, x, **o: m.linalg.solve(_spd(x), x, **o), SQUARE, [{}, {"left": False}]),
    "solve_ex": (lambda m, x, **o: m.linalg.solve_ex(_spd(x), x, **o), SQUARE, [{}, {"left": False}]),
    "solve_triangular": (lambda m, x, **o: m.linalg.solve_triangular(_spd(x), x, **o), SQUARE,
                         [{"upper": u, "left": l, "unitriangular": t} for u in BOTH for l in BOTH for t in BOTH]),
    "lu": (lambda m, x, **o: m.linalg.lu(x), ANY, [{}]),
    "lu_factor": (lambda m, x, **o: m.linalg.lu_factor_ex(x), ANY, [{}]),
    "lu_solve": (lambda m, x, **o: m.linalg.lu_solve(*m.linalg.lu_factor(_spd(x)), x, **o), SQUARE,
                 [{}, {"left": False}, {"adjoint": True}, {"left": False, "adjoint": True}]),
    "qr": (lambda m, x, **o: m.linalg.qr(x, **o), ANY, [{}, {"mode": "complete"}, {"mode": "r"}]),
    "eigh": (lambda m, x, **o: [t.square() for t in m.linalg.eigh(_spd(x), **o)], SQUARE, [{}, {"UPLO": "U"}]),
    "eigvalsh": (lambda m, x, **o: m.linalg.eigvalsh(_spd(x), **o), SQUARE, [{}, {"UPLO": "U"}]),
    "svd": (lambda m, x, **o: [t.square() for t in m.linalg.svd(x, **o)], ANY, [{"full_matrices": False}]),
    "svdvals": (lambda m, x, **o: m.linalg.svdvals(x), ANY, [{}]),
    "pinv": (lambda m, x, **o: m.linalg.pinv(x, **o), ANY, [{}, {"rtol": 0.5}, {"atol": 0.8}, {"atol": 0.1, "rtol": 0.3}]),
    "pinv_hermitian": (lambda m, x, **o: m.linalg.pinv(_spd(x), hermitian=True, **o), SQUARE, [{}, {"rtol": 0.3}]),
    "matrix_rank": (lambda m, x, **o: m.linalg.matrix_rank(x, **o), ANY, [{}, {"rtol": 0.5}, {"atol": 0.8}]),
    "cond": (lambda m, x, **o: m.linalg.cond(_spd(x), **o), SQUARE[1:5], [{"p": p} for p in (None, 2, -2, 1, -1, "fro", "nuc", float("inf"))]),
    "lstsq": (lambda m, x, **o: m.linalg.lstsq(x, x, **o), ANY[1:7] + ANY[9:11], [{}, {"driver": "gels"}, {"driver": "gelsd"}, {"driver": "gelss"}]),
    "matrix_exp": (lambda m, x, **o: m.linalg.matrix_exp(x), SQUARE, [{}]),
    "matrix_power": (lambda m, x, **o: m.linalg.matrix_power(_spd(x), **o), SQUARE, [{"n": n} for n in (0, 1, 2, 5, -2)]),
    "matrix_norm": (lambda m, x, **o: m.linalg.matrix_norm(x, **o), ANY[1:7] + ANY[9:11],
                    [{"ord": p, "keepdim": k} for p in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")) for k in (False, True)]),
    "vector_norm": (lambda m, x, **o: m.linalg.vector_norm(x, **o), ANY[1:7], [{"ord": p, "dim": d} for p in (0, 1, 2, 3.5, float("inf"), -float("inf")) for d in (None, 0, (0, 1))]),
    "norm": (lambda m, x, **o: m.linalg.norm(x, **o), ANY[1:7], [{}, {"ord": 1}, {"ord": "nuc"}, {"ord": 3, "dim": 0}]),
    "vander": (lambda m, x, **o: m.linalg.vander(x, **o), [(3,), (2, 3), (4, 1)], [{"N": 2}, {"N": 4}]),
    "householder": (lambda m, x, **o: m.linalg.householder_product(*[t * 1.0 for t in m.geqrf(x.detach())]), [(3, 3), (5, 3), (2, 5, 3), (3, 0)], [{}]),
    "vecdot": (lambda m, x, **o: m.linalg.vecdot(x, x, **o), ANY, [{}, {"dim": 0}]),
    "multi_dot": (lambda m, x, **o: m.linalg.multi_dot([x, x.mT, x]), ANY[:9], [{}]),
    "cross": (lambda m, x, **o: m.linalg.cross(x, x + 1), [(4, 3), (2, 5, 3), (0, 3)], [{}]),
    "tensorinv": (lambda m, x, **o: m.linalg.tensorinv(_spd(x).reshape(2, 2, 4)), [(4, 4)], [{}]),
    "tensorsolve": (lambda m, x, **o: m.linalg.tensorsolve(_spd(x).reshape(2, 2, 4), x[0].reshape(2, 2)), [(4, 4)], [{}]),
    "kron": (lambda m, x, **o: m.kron(x, x + 1), ANY, [{}]),
    "inner": (lambda m, x, **o: m.inner(x, x), ANY, [{}]),
    "tensordot": (lambda m, x, **o: m.tensordot(x, x, **o), ANY, [{"dims": 0}, {"dims": ([0], [0])}, {"dims": ([0, 1], [0, 1])}]),
}


def _leaves(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


@pytest.mark.parametrize("name", sorted(CASES))
def test_beside_pytorch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
    function, shapes, options = CASES[name]
    rng = np.random.default_rng(3)
    for shape in shapes:
        for option in options:
            for kind in (np.float64, np.float32):
                a = (rng.standard_normal(shape) + 0.5).astype(kind)
                what, tol = f"{name} {shape} {option} {kind.__name__}", 1e-8 if kind == np.float64 else 2e-3
                ours, theirs = st.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
                want, error = None, None
                try:
                    want = _leaves(function(torch, theirs, **option))
                except Exception as e:  # noqa: BLE001
                    error = e
                try:
                    got = _leaves(function(st, ours, **option))
                except st.errors.StrataError as e:
                    assert isinstance(error, Exception), f"{what}: refused ({e}), PyTorch gives {want}"
                    continue
                assert want is not None, f"{what}: taken, PyTorch says {error}"
                assert len(got) == len(want), what
                for x, y in zip(got, want):
                    assert tuple(x.shape) == tuple(y.shape), f"{what}: {x.shape} and {y.shape}"
                    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tol, atol=tol, err_msg=what)
                floats = [(x, y) for x, y in zip(got, want) if y.requires_grad and y.numel()]
                if kind != np.float64 or not floats:
                    continue
                try:
                    torch.autograd.backward([y for _, y in floats], [torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape) for _, y in floats])
                except RuntimeError:
                    continue  # no gradient there either
                total = sum((x * st.cos(st.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)).sum() for x, _ in floats)
                if total.requires_grad:
                    total.backward()
                wanted, found = (np.zeros(shape) if t.grad is None else t.grad.numpy() for t in (theirs, ours))
                if np.isfinite(wanted).all():
                    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7, err_msg=what + ": gradient")
