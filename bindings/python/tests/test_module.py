"""Module: what it lists, loads, moves; hooks, exceptions, lifetimes, threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

import strata as st
from strata import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(3, 4)
        self.register_buffer("scale", st.ones(4))
        self.register_buffer("scratch", st.zeros(2), persistent=False)
        self.out = nn.Linear(4, 2, bias=False)
        self.shift = nn.Parameter(st.zeros(2))

    def forward(self, x):
        return self.out(st.relu(self.hidden(x)) * self.scale) + self.shift


# ---- registration


def test_what_a_module_lists():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["shift", "hidden.weight", "hidden.bias", "out.weight"]
    assert [n for n, _ in net.named_buffers()] == ["scale", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "hidden", "out"]
    assert list(net.state_dict()) == ["shift", "scale", "hidden.weight", "hidden.bias", "out.weight"]
    assert net.get_submodule("hidden") is net.hidden and net.get_parameter("out.weight") is net.out.weight
    assert net.get_buffer("scale") is net.scale
    with pytest.raises(AttributeError):
        net.get_parameter("hidden.scale")
    with pytest.raises(AttributeError, match="no attribute 'width'"):
        net.width


def test_assignment():
    net = Net()
    tied = net.hidden.weight
    net.tied = tied
    assert sum(p is tied for p in net.parameters()) == 1
    assert "tied" in net.state_dict() and "hidden.weight" in net.state_dict()
    net.hidden = nn.Linear(3, 4)
    assert net.hidden.weight is not tied
    with pytest.raises(TypeError, match="as parameter 'shift'"):
        net.shift = st.ones(2)
    net.shift = None
    assert net.shift is None and "shift" not in net.state_dict()
    net.scale = st.zeros(4)
    assert "scale" in dict(net.named_buffers())
    with pytest.raises(TypeError):
        net.scale = 3
    net.plain = 3
    net.plain = nn.Linear(1, 1)
    assert "plain" in dict(net.named_children()) and "plain" not in net.__dict__
    del net.plain
    assert not hasattr(net, "plain")
    net.b = nn.Buffer(st.ones(1))
    assert "b" in net.state_dict()


def test_bad_registrations():
    class NoInit(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="before Module.__init__"):
        NoInit()
    net = Net()
    with pytest.raises(KeyError, match="name can"):
        net.register_parameter("a.b", nn.Parameter(st.ones(1)))
    with pytest.raises(KeyError, match="empty"):
        net.add_module("", nn.Linear(1, 1))
    with pytest.raises(KeyError, match="already exists"):
        net.register_buffer("forward", st.ones(1))
    with pytest.raises(TypeError, match="Module subclass"):
        net.add_module("x", 3)
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_parameters_are_leaves_that_share():
    x = st.ones(3)
    p = nn.Parameter(x)
    assert p.requires_grad and p.is_leaf and isinstance(p, st.Tensor)
    with st.no_grad():
        p.mul_(2)
    assert x.tolist() == [2, 2, 2]
    assert repr(p).startswith("Parameter containing:\ntensor([2., 2., 2.]")
    assert not nn.Parameter(x, requires_grad=False).requires_grad
    assert type(p * 2) is st.Tensor


def test_containers():
    s = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(s) == 3 and isinstance(s[-1], nn.Linear) and isinstance(s[:2], nn.Sequential) and len(s[:2]) == 2
    s.append(nn.Tanh())
    s.insert(1, nn.Identity())
    assert [type(m).__name__ for m in s] == ["Linear", "Identity", "ReLU", "Linear", "Tanh"]
    del s[1]
    assert list(s.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    with pytest.raises(IndexError):
        s[9]
    layers = nn.ModuleList([nn.Linear(1, 1)]) + [nn.Linear(1, 2)]
    layers.insert(0, nn.ReLU())
    assert len(layers) == 3 and isinstance(layers.pop(0), nn.ReLU) and layers[-1].out_features == 2
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    assert "a" in named and list(named.keys()) == ["a", "b"] and list(named.state_dict()) == ["b.weight", "b.bias"]
    params = nn.ParameterList([st.ones(1), nn.Parameter(st.ones(2))])
    assert len(list(params.parameters())) == 2 and params[1].shape == (2,)
    table = nn.ParameterDict({"w": st.ones(2)})
    assert "w" in table and isinstance(table["w"], nn.Parameter)
    assert repr(nn.ModuleList([nn.ReLU()])) == "ModuleList(\n  (0): ReLU()\n)"


# ---- state


def test_state_dict_round_trip_through_a_file(tmp_path):
    st.manual_seed(1)
    a, b = Net(), Net()
    st.save(a.state_dict(), tmp_path / "net.safetensors")
    result = b.load_state_dict(st.load(tmp_path / "net.safetensors"))
    assert repr(result) == "<All keys matched successfully>"
    x = st.randn(5, 3)
    np.testing.assert_array_equal(a(x).detach().numpy(), b(x).detach().numpy())
    safetensors = pytest.importorskip("safetensors.numpy")
    other = safetensors.load_file(str(tmp_path / "net.safetensors"))
    np.testing.assert_array_equal(other["hidden.weight"], a.hidden.weight.detach().numpy())


def test_load_state_dict_is_strict_and_whole():
    net = Net()
    before = net.shift.detach().clone()
    state = dict(net.state_dict())
    del state["scale"]
    state["extra"] = st.ones(1)
    state["shift"] = st.ones(2)
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert 'Missing key(s) in state_dict: "scale"' in str(error.value)
    assert 'Unexpected key(s) in state_dict: "extra"' in str(error.value)
    assert net.shift.tolist() == before.tolist()
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["scale"] and result.unexpected_keys == ["extra"]
    assert net.shift.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"size mismatch for shift: copying a param with shape \[3\]"):
        net.load_state_dict({**net.state_dict(), "shift": st.ones(3)})
    with pytest.raises(TypeError):
        net.load_state_dict(3)


def test_load_state_dict_converts_and_assigns():
    net = Net().double()
    state = {k: v.float() for k, v in net.state_dict().items()}
    net.load_state_dict(state)
    assert net.shift.dtype == st.float64
    net.load_state_dict(state, assign=True)
    assert net.shift.dtype == st.float32 and isinstance(net.shift, nn.Parameter) and net.shift.requires_grad


def test_extra_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return st.tensor([self.count])

        def set_extra_state(self, state):
            self.count = int(state.item())

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 7
    b.load_state_dict(a.state_dict())
    assert b[0].count == 7
    with pytest.raises(RuntimeError, match="_extra_state"):
        b.load_state_dict({})


# ---- modes and conversions


def test_conversions_keep_the_parameters_identity():
    net = Net()
    w, view = net.hidden.weight, net.state_dict()["hidden.weight"]
    w.grad = st.ones_like(w)
    net.double()
    assert net.hidden.weight is w and w.dtype == st.float64 and w.grad.dtype == st.float64
    assert view.dtype == st.float32
    assert net.scale.dtype == st.float64
    assert net.bfloat16().shift.dtype == st.bfloat16
    net.to("cpu", st.float32)
    x = st.randn(2, 3)
    net(x).sum().backward()
    assert w.grad.dtype == st.float32
    with pytest.raises(TypeError, match="floating"):
        net.to(st.int64)
    bn = nn.BatchNorm1d(2).half()
    assert bn.num_batches_tracked.dtype == st.int64 and bn.running_mean.dtype == st.float16
    meta = nn.Linear(10**6, 10**6, device="meta")
    assert meta.weight.device.type == "meta"


def test_modes():
    net = nn.Sequential(Net(), nn.Dropout())
    assert all(not m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "Net", "Dropout", "Sequential"]
    net.requires_grad_()
    net(st.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert (net[0].shift.grad.numpy() == 0).all()
    net.zero_grad()
    assert net[0].shift.grad is None


def test_repr_is_pytorchs():
    assert repr(Net()) == (
        "Net(\n"
        "  (hidden): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (out): Linear(in_features=4, out_features=2, bias=False)\n"
        ")"
    )
    nested = nn.Sequential(nn.Sequential(nn.ReLU()))
    assert repr(nested) == "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n  )\n)"


# ---- hooks


def test_forward_hooks():
    m = nn.Linear(2, 2)
    calls = []
    pre = m.register_forward_pre_hook(lambda mod, args: (calls.append("pre"), (args[0] * 2,))[1])
    post = m.register_forward_hook(lambda mod, args, y: (calls.append("post"), y + 1)[1])
    x = st.ones(1, 2)
    doubled = m(x).detach().numpy()
    pre.remove()
    post.remove()
    np.testing.assert_allclose(doubled, m(x * 2).detach().numpy() + 1, rtol=1e-6)
    assert calls == ["pre", "post"]
    with m.register_forward_hook(lambda mod, args, kwargs, y: calls.append(sorted(kwargs)), with_kwargs=True):
        m(input=x)
    m(x)
    assert calls == ["pre", "post", ["input"]]
    order = []
    m.register_forward_hook(lambda *a: order.append(1))
    m.register_forward_hook(lambda *a: order.append(0), prepend=True)
    m(x)
    assert order == [0, 1]


def test_full_backward_hooks():
    m = nn.Linear(3, 2).double()
    seen = []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go)))
    x = st.ones(4, 3, dtype=st.float64, requires_grad=True)
    y = m(x * 1)
    (y * 3).sum().backward()
    (grad_input,), (grad_output,) = seen[0]
    np.testing.assert_allclose(grad_output.numpy(), np.full((4, 2), 3.0))
    np.testing.assert_allclose(grad_input.numpy(), np.full((4, 2), 3.0) @ m.weight.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), grad_input.numpy())
    replace = m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 0,))
    x.grad = None
    m(x).sum().backward()
    assert (x.grad.numpy() == 0).all()
    replace.remove()
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    x.grad = None
    m(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.ones((4, 2)) @ m.weight.detach().numpy())
    seen.clear()
    m(st.ones(4, 3, dtype=st.float64)).sum().backward()
    assert seen[0][0] == (None,)


class Boom(Exception):
    pass


def raising(*_):
    raise Boom("in a hook")


def test_exceptions_come_out_of_hooks_as_they_were():
    x = st.ones(1, 2)
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        m = nn.Linear(2, 2)
        getattr(m, register)(raising)
        with pytest.raises(Boom, match="in a hook"):
            m(x)
    for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
        m = nn.Linear(2, 2)
        handle = getattr(m, register)(raising)
        y = m(x).sum()
        with pytest.raises(Boom, match="in a hook"):
            y.backward()
        handle.remove()
        m(x).sum().backward()
        assert m.weight.grad is not None
    m = nn.Linear(2, 2)
    called = []
    m.register_forward_hook(raising)
    m.register_forward_hook(lambda *a: called.append(1), always_call=True)
    with pytest.raises(Boom):
        m(x)
    assert called == [1]


def test_modules_do_not_leak():
    def once():
        m = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1))
        m.register_full_backward_hook(lambda mod, gi, go: None)
        m[0].register_forward_hook(lambda mod, a, y: y * 1)
        opt = st.optim.AdamW(m.parameters())
        m(st.randn(4, 8)).sum().backward()
        opt.step()
        bad = nn.Linear(8, 8)
        bad.register_full_backward_hook(raising)
        with pytest.raises(Boom):
            bad(st.randn(2, 8, requires_grad=True)).sum().backward()
        return weakref.ref(m), weakref.ref(m[0].weight), weakref.ref(bad.weight)

    refs = [r for _ in range(20) for r in once()]
    gc.collect()
    assert sum(r() is not None for r in refs) == 0


def test_modules_in_threads():
    st.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    inputs = [st.randn(32, 64) for _ in range(4)]
    wanted = [m(x).detach().numpy() for x in inputs]
    failures = []

    def work(i):
        try:
            for turn in range(30):
                y = m(inputs[i])
                np.testing.assert_array_equal(y.detach().numpy(), wanted[i])
                grads = st.autograd.grad(y.sum(), list(m.parameters()))
                assert len(grads) == 4
                if turn % 10 == i:
                    own = nn.Linear(4, 4)
                    own.register_full_backward_hook(raising)
                    with pytest.raises(Boom):
                        own(st.ones(1, 4)).sum().backward()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_checkpoint():
    st.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 4))
    x = st.randn(3, 4, requires_grad=True)
    calls = []
    m[1].register_forward_hook(lambda *a: calls.append(1))
    st.manual_seed(5)
    y = m(x).square().sum()
    y.backward()
    wanted, x.grad = x.grad.numpy().copy(), None
    calls.clear()
    st.manual_seed(5)
    z = st.utils.checkpoint.checkpoint(m, x, use_reentrant=False).square().sum()
    z.backward()
    assert z.item() == y.item() and len(calls) == 2
    np.testing.assert_array_equal(x.grad.numpy(), wanted)
    st.manual_seed(5)
    x.grad = None
    st.utils.checkpoint.checkpoint_sequential(m, 2, x).square().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), wanted)


def test_parameters_print_as_pytorchs():
    p = nn.Parameter(st.ones(2))
    assert str(p) == repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


def test_pytorchs_paths():
    import strata.nn.modules.utils
    from strata.nn.modules.batchnorm import _BatchNorm
    from strata.nn.modules.conv import _ConvNd
    from strata.nn.modules.dropout import _DropoutNd

    assert isinstance(nn.BatchNorm3d(2), _BatchNorm) and not isinstance(nn.InstanceNorm2d(2), _BatchNorm)
    assert isinstance(nn.ConvTranspose1d(2, 2, 1), _ConvNd) and isinstance(nn.Dropout2d(), _DropoutNd)
    assert nn.modules.Linear is nn.Linear and nn.modules.rnn.LSTM is nn.LSTM and nn.modules.loss._Loss in nn.MSELoss.__mro__
    pair = strata.nn.modules.utils._pair
    assert pair(3) == (3, 3) and pair([1, 2]) == (1, 2) and strata.nn.modules.utils._triple("ab") == ("a", "b")
    state = {"module.a": 1, "b": 2}
    strata.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"a": 1, "b": 2}
