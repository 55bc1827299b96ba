import numpy as np
import pytest

import strata as st


def test_backward_and_grad():
    x = st.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    assert y.grad_fn.name() == "sum" and y.requires_grad and not y.is_leaf
    assert y.grad_fn.next_functions[0][0].name() == "mul"
    y.backward()
    assert x.grad.tolist() == [2, 4]
    (x * 3).backward(st.ones(2))
    assert x.grad.tolist() == [5, 7]
    (g,) = st.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = st.autograd.grad(g.sum(), [x])
    assert h.tolist() == [6, 12]
    with pytest.raises(st.AutogradError):
        (x * x).backward()
    z = (x * x).sum()
    z.backward()
    with pytest.raises(st.AutogradError, match="retain_graph"):
        z.backward()
    with pytest.raises(st.AutogradError):
        st.ones(1).backward()
    with pytest.raises(st.AutogradError):
        st.autograd.grad(x.sum(), st.ones(1, requires_grad=True))
    assert st.autograd.grad(x.sum(), st.ones(1, requires_grad=True), allow_unused=True) == (None,)


def test_modes():
    x = st.ones(2, requires_grad=True)
    with st.no_grad():
        assert not (x * 2).requires_grad and not st.is_grad_enabled()
        with st.enable_grad():
            assert (x * 2).requires_grad
    assert st.is_grad_enabled()

    @st.no_grad()
    def f(v):
        return v * 2

    @st.no_grad
    def g(v):
        return v * 2

    assert not f(x).requires_grad and not g(x).requires_grad and f.__name__ == "f"
    with pytest.raises(ZeroDivisionError):
        with st.no_grad():
            raise ZeroDivisionError
    assert st.is_grad_enabled()
    with st.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert st.is_grad_enabled()
    with st.inference_mode():
        assert not (x * 2).requires_grad
    with st.inference_mode(False):
        assert (x * 2).requires_grad
    assert not st.inference_mode(lambda v: v * 2)(x).requires_grad


def test_hooks():
    x = st.ones(2, requires_grad=True)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    handle = x.register_hook(lambda g: g * 10)
    after = []
    x.register_post_accumulate_grad_hook(lambda t: after.append(t.grad.tolist()))
    y.retain_grad()
    y.sum().backward()
    assert seen == [[1, 1]] and x.grad.tolist() == [20, 20] and y.grad.tolist() == [1, 1] and after == [[20, 20]]
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(st.AutogradError):
        st.ones(1).register_hook(lambda g: g)
    with pytest.raises(TypeError):
        x.register_hook(3)


def test_hooks_that_raise_come_out_as_they_were():
    class Own(Exception):
        pass

    def hook(g):
        raise Own("from the hook")

    x = st.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    with pytest.raises(Own, match="from the hook") as caught:
        y.sum().backward()
    assert any(f.name == "hook" for f in caught.traceback)
    y2 = x * 3
    y2.register_hook(lambda g: "no tensor")
    with pytest.raises(TypeError, match="hook"):
        y2.sum().backward()
    y3 = x * 3
    y3.register_hook(lambda g: st.ones(7))
    with pytest.raises(st.StrataError):
        y3.sum().backward()


class Cube(st.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return g * 3 * x * x * ctx.scale, None


def test_function():
    x = st.tensor([1.0, 2.0], dtype=st.float64, requires_grad=True)
    y = Cube.apply(x, 2.0)
    assert y.grad_fn.name() == "Cube" and y.tolist() == [2, 16]
    y.sum().backward()
    assert x.grad.tolist() == [6, 24]
    assert st.autograd.gradcheck(lambda v: Cube.apply(v, 2.0), x) and st.autograd.gradgradcheck(lambda v: Cube.apply(v, 2.0), [x])
    assert not Cube.apply(x.detach(), 1.0).requires_grad


def test_function_with_several_results_and_errors():
    class Split(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            index = x.argmax()
            ctx.mark_non_differentiable(index)
            return x * 2, x * 3, index

        @staticmethod
        def backward(ctx, a, b, index):
            return (a * 2 if a is not None else 0) + (b * 3 if b is not None else 0) if a is not None else b * 3

    x = st.ones(2, requires_grad=True)
    a, b, i = Split.apply(x)
    assert not i.requires_grad
    b.sum().backward()
    assert x.grad.tolist() == [3, 3]

    class Wrong(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, g, g

    with pytest.raises(st.AutogradError, match="Wrong"):
        Wrong.apply(x).sum().backward()

    class Raises(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Raises.apply(x).sum().backward()

    class Shape(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return st.ones(5)

    with pytest.raises(st.ShapeError, match="Shape"):
        Shape.apply(x).sum().backward()


def test_once_differentiable():
    class Once(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @st.autograd.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = st.ones(2, requires_grad=True)
    (g,) = st.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [2, 2] and not g.requires_grad


def test_saved_tensors_are_watched():
    x = st.ones(2, requires_grad=True)
    y = x.exp()
    z = y * y
    with st.no_grad():
        y.add_(1)
    with pytest.raises(st.AutogradError):
        z.sum().backward()
    with pytest.raises(st.AutogradError):
        x.add_(1)


def test_saved_tensors_hooks():
    packed = []

    def pack(t):
        packed.append(t.shape)
        return np.asarray(t.detach()).copy()

    x = st.tensor([2.0, 3.0], requires_grad=True)
    with st.autograd.saved_tensors_hooks(pack, lambda a: st.tensor(a)):
        y = x * x
    y.sum().backward()
    assert packed and x.grad.tolist() == [4, 6]

    def bad(a):
        raise RuntimeError("unpack failed")

    with st.autograd.saved_tensors_hooks(lambda t: t, bad):
        y = x * x
    with pytest.raises(RuntimeError, match="unpack failed"):
        y.sum().backward()


def test_checkpoint():
    calls = []

    def f(v, scale, text=None):
        calls.append(text)
        return (v * scale).exp()

    x = st.tensor([0.5, 1.0], requires_grad=True)
    y = st.checkpoint(f, x, 2.0, text="t", use_reentrant=False)
    assert calls == ["t"]
    y.sum().backward()
    assert calls == ["t", "t"]
    expected = 2 * np.exp(2 * np.array([0.5, 1.0]))
    np.testing.assert_allclose(x.grad, expected, rtol=1e-6)

    def raises(v):
        if len(calls) > 2:
            raise LookupError("second time")
        calls.append(0)
        return v.exp()

    z = st.checkpoint(raises, x, use_reentrant=False)
    with pytest.raises(LookupError, match="second time"):
        z.sum().backward()


def test_autocast():
    a, b = st.randn(8, 8, requires_grad=True), st.randn(8, 8)
    with st.autocast("cpu", dtype=st.bfloat16):
        y = a @ b
        assert y.dtype is st.bfloat16 and st.is_autocast_enabled()
        with st.autocast("cpu", enabled=False):
            assert (a @ b).dtype is st.float32
    assert (a @ b).dtype is st.float32 and not st.is_autocast_enabled()
    y.float().sum().backward()
    assert a.grad.dtype is st.float32

    @st.autocast("cpu")
    def f():
        return a @ b

    assert f().dtype is st.bfloat16
    with pytest.raises(st.DTypeError):
        with st.autocast("cpu", dtype=st.int8):
            pass


def test_autocast_in_fp8():
    body, head, x = st.nn.Linear(32, 32), st.nn.Linear(32, 16), st.randn(8, 32)
    with st.no_grad():
        low = x.to(st.bfloat16)
        want = {how: st.ops.linear_fp8(low, body.weight, body.bias.to(st.bfloat16), how) for how in ("tensor", "row")}
        for how in want:
            with st.autocast("cpu", fp8=how):
                assert st.get_autocast_dtype() is st.bfloat16
                assert st.equal(body(x), want[how])
                assert st.equal(st.nn.functional.linear(x, body.weight, body.bias), want[how])
        with st.autocast("cpu"):
            plain = body(x)
        assert not st.equal(plain, want["tensor"])
        for left_out in (body, body.weight):
            with st.autocast("cpu", fp8="tensor", fp8_exclude=[head, left_out]):
                assert st.equal(body(x), plain)
    with st.autocast("cpu", fp8="tensor", fp8_exclude=[head]):
        loss = head(body(x)).float().square().mean()
    loss.backward()
    assert body.weight.grad.dtype is st.float32 and bool(body.weight.grad.abs().sum() > 0)
    with pytest.raises(ValueError, match="scaling"):
        with st.autocast("cpu", fp8="block"):
            pass
    with pytest.raises(ValueError, match="bfloat16"):
        st.autocast("cpu", dtype=st.float16, fp8="tensor")


def test_anomaly_and_gradcheck():
    x = st.tensor([0.0], requires_grad=True)
    with st.autograd.detect_anomaly():
        with pytest.raises(st.AutogradError, match="log|NaN|nan"):
            (x - 1).log()

    class Lies(st.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    v = st.tensor([1.0], dtype=st.float64, requires_grad=True)
    assert not st.autograd.gradcheck(Lies.apply, v, raise_exception=False)
    with pytest.raises(st.AutogradError, match="gradcheck"):
        st.autograd.gradcheck(Lies.apply, v)
    with pytest.raises(st.DTypeError):
        st.autograd.gradcheck(lambda t: t * 2, st.ones(1, requires_grad=True))


def test_views_and_in_place_history():
    x = st.zeros(3, requires_grad=True)
    y = x * 1
    y[0] = 5.0
    y[1:] *= 2
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 2]
    w = st.ones(2, requires_grad=True)
    with st.no_grad():
        w -= 0.5
    assert w.tolist() == [0.5, 0.5] and w.requires_grad
    d = (w * 2).detach_()
    assert not d.requires_grad and d.is_leaf


def test_new_data_is_cast_anew():
    """What autocast keeps of a tensor in low precision is of the elements that it has."""
    for wanted in (False, True):
        x, w = st.ones(2, 4), st.ones(4, 4, requires_grad=wanted)

        def product():
            with st.autocast("cpu", dtype=st.bfloat16):
                return (x @ w).detach().float().tolist()

        for _ in range(3):
            assert product() == [[4.0] * 4] * 2
        w.data = st.full((4, 4), 3.0)
        assert product() == [[12.0] * 4] * 2
