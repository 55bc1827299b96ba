"""What hooks return in a gradient's place: its own kind, or an error; converted where PyTorch converts."""

import threading

import pytest

import strata as st


@pytest.mark.parametrize("where", ["leaf", "result"])
@pytest.mark.parametrize(
    "change, error, text",
    [
        (lambda g: g.to(st.int64), TypeError, r"the hook returned \[2\] i64 for a gradient \[2\] f32"),
        (lambda g: g.to(st.float64), TypeError, r"the hook returned \[2\] f64 for a gradient \[2\] f32"),
        (lambda g: g.to("meta"), st.errors.DeviceError, r"on meta for a gradient \[2\] f32"),
        (lambda g: g.sum(), ValueError, r"the hook returned \[\] f32 for a gradient \[2\] f32"),
        (lambda g: 3, TypeError, "a gradient hook returns a Tensor or None"),
    ],
)
def test_tensor_hooks(where, change, error, text):
    x = st.ones(2, requires_grad=True)
    y = x * 2
    (x if where == "leaf" else y).register_hook(change)
    with pytest.raises(error, match=text):
        y.sum().backward()
    assert x.grad is None


def test_gradients_are_converted_where_pytorch_converts():
    class Cast(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return (g * 3).to(st.int64)

    x = st.ones(2, requires_grad=True)
    Cast.apply(x).sum().backward()
    assert x.grad.dtype == st.float32 and x.grad.tolist() == [3, 3]
    x.grad = None
    x.mul(2).backward(st.ones(2, dtype=st.int64))
    assert x.grad.dtype == st.float32 and x.grad.tolist() == [2, 2]
    with pytest.raises(TypeError, match="a gradient is floating"):
        x.grad = st.ones(2, dtype=st.int64)


def test_module_backward_hooks():
    net = st.nn.Linear(2, 2)
    x = st.ones(1, 2, requires_grad=True)
    handle = net.register_full_backward_hook(lambda m, gi, go: (gi[0].to(st.int64),))
    net(x).sum().backward()
    assert x.grad.dtype == st.float32
    handle.remove()
    handle = net.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="returned 2 gradients, expected 1"):
        net(x).sum().backward()
    handle.remove()
    net.register_full_backward_hook(lambda m, gi, go: (gi[0].to("meta"),))
    with pytest.raises(st.errors.DeviceError, match="is on cpu"):
        net(x).sum().backward()


def test_saved_tensor_hooks():
    x = st.ones(2, requires_grad=True)
    for unpack in (lambda t: t.to(st.int64), lambda t: t.to("meta"), lambda t: t.sum()):
        with st.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            y = x.exp()
        with pytest.raises(st.errors.AutogradError, match="unpack of a saved tensor returned"):
            y.sum().backward()
    assert x.grad is None


def test_threads_share_a_parameter():
    w = st.ones(8, 8, requires_grad=True)
    x = st.ones(2, 8)
    failures = []

    def work(backward):
        try:
            for _ in range(100):
                y = (x @ w).sum()
                if backward:
                    y.backward()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert (w.grad == 600).all().item()


def test_errors_have_text():
    with pytest.raises(TypeError, match="dl_device must be a pair of ints"):
        st.ones(2).__dlpack__(dl_device="cpu")
    with pytest.raises(TypeError, match="copy must be a bool"):
        st.ones(2).to(st.float64, copy="yes")
    with pytest.raises((ValueError, MemoryError)) as e:
        st.empty(2**60)
    assert "cannot get" in str(e.value)
    with pytest.raises(ValueError, match="tensor_split: sections"):
        st.tensor_split(st.ones(4), 2**60)
    with pytest.raises(ValueError, match="set_num_threads"):
        st.set_num_threads(10**9)
