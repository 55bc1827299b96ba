"""What users of PyTorch write that is easily forgotten: newer and older forms of the same things."""

import math

import numpy as np
import pytest

import strata as st
from strata import nn, optim
from strata.optim import lr_scheduler


class CubeInTwoParts(st.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return x**3 * scale, x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return g * 3 * x * x * ctx.scale, None


def test_a_function_with_setup_context():
    x = st.tensor([1.0, 2.0], dtype=st.float64, requires_grad=True)
    for _ in range(2):
        x.grad = None
        y, index = CubeInTwoParts.apply(x, 2.0)
        assert y.grad_fn.name() == "CubeInTwoParts" and y.tolist() == [2, 16]
        assert index.item() == 1 and not index.requires_grad
        y.sum().backward()
        assert x.grad.tolist() == [6, 24]
    assert st.autograd.gradgradcheck(lambda v: CubeInTwoParts.apply(v, 2.0)[0], [x])

    class Twice(CubeInTwoParts):
        @staticmethod
        def forward(x, scale):
            return 2 * x**3 * scale, x.argmax()

        @staticmethod
        def backward(ctx, g, _):
            return 2 * CubeInTwoParts.backward(ctx, g, _)[0], None

    y, _ = Twice.apply(x, 1.0)
    x.grad = None
    y.sum().backward()
    assert y.grad_fn.name() == "Twice" and y.tolist() == [2, 16] and x.grad.tolist() == [6, 24]
    with pytest.raises(NotImplementedError):
        st.autograd.Function.setup_context(None, (), None)


def test_an_ensemble_by_stack_module_state():
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval() for _ in range(3)]
    parameters, buffers = st.func.stack_module_state(models)
    assert parameters["0.weight"].shape == (3, 4, 3) and buffers["1.running_var"].shape == (3, 4)
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    assert not any(b.requires_grad for b in buffers.values())
    x = st.randn(5, 3)
    base = models[0]
    y = st.vmap(lambda p, b: st.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
    assert st.allclose(y, st.stack([m(x) for m in models]), atol=1e-6)
    with pytest.raises(RuntimeError, match="at least one model"):
        st.func.stack_module_state([])
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        st.func.stack_module_state([models[0], nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))])
    with pytest.raises(RuntimeError, match="same class"):
        st.func.stack_module_state([nn.Linear(2, 2), nn.ReLU()])


def test_backward_for_some_inputs_alone():
    a, b = st.tensor([2.0], requires_grad=True), st.tensor([3.0], requires_grad=True)
    h = a * b
    (h * h).sum().backward(inputs=[a], retain_graph=True)
    assert a.grad.tolist() == [36] and b.grad is None and h.grad is None
    st.autograd.backward([h.sum(), (2 * h).sum()], inputs=(a, h))
    assert a.grad.tolist() == [45] and h.grad.tolist() == [3] and b.grad is None
    (a * a).backward(st.tensor([1.0]), None, True, a)
    assert a.grad.tolist() == [49] and a.grad.requires_grad
    (a * 2).sum().backward(inputs=b)  # does not depend on it
    assert b.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (a * 2).sum().backward(inputs=[])


def test_the_state_of_a_parameter_without_one():
    p = nn.Parameter(st.ones(2))
    optimizer = optim.SGD([p], lr=0.1)
    assert optimizer.state[p] == {}
    optimizer = optim.Adam([p])
    assert len(optimizer.state[p]) == 0
    p.sum().backward()
    optimizer.step()
    assert "exp_avg" in optimizer.state[p]


def test_a_device_as_a_scope():
    with st.device("meta") as outer:
        assert nn.Linear(2, 3).weight.device.type == "meta" and outer == st.device("meta")
        with st.device("cpu"):
            assert st.zeros(2).device.type == "cpu"
        assert st.zeros(2).device.type == "meta"
    with pytest.raises(ZeroDivisionError), st.device("meta"):
        1 / 0
    assert st.zeros(2).device.type == "cpu"


@pytest.mark.parametrize("path", ["strata.nn.modules.linear", "strata.nn.modules.transformer", "strata.overrides"])
def test_a_name_that_a_path_lacks_is_an_import_error(path):
    with pytest.raises(ImportError, match="nothing_of_the_kind"):
        exec(f"from {path} import nothing_of_the_kind")


def test_hooks_after_loading_a_state_dict():
    net, seen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), []
    net[1].register_load_state_dict_post_hook(lambda module, keys: seen.append((module is net[1], list(keys.missing_keys))))
    handle = net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    state = net.state_dict()
    del state["0.bias"]
    state["1.bias"] = st.ones(2)
    assert net.load_state_dict(state).missing_keys == [] and seen == [(True, ["0.bias"])]
    assert net[1].bias.tolist() == [1, 1]
    handle.remove()
    with pytest.raises(RuntimeError, match='Missing key.*"0.bias"'):
        net.load_state_dict(state)
    handle = net.register_load_state_dict_post_hook(lambda module, keys: keys)
    with pytest.raises(AssertionError, match="inplace"):
        net.load_state_dict(net.state_dict())


def test_modules_made_without_memory():
    with st.device("meta"):
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight = net[0].weight
    assert net.to_empty(device="cpu") is net and net[0].weight is weight and weight.device.type == "cpu"
    assert net[1].running_mean.device.type == "cpu" and weight.shape == (3, 2) and weight.requires_grad
    net[0].reset_parameters()
    assert net.eval()(st.ones(1, 2)).shape == (1, 3)
    with st.device("meta"):
        net = nn.Sequential(nn.Linear(2, 3))
    net.to_empty(device="cpu", recurse=False)
    assert net[0].weight.device.type == "meta"


def test_powers_by_a_number_are_one_op_in_every_spelling():
    x = st.tensor([[1.0, -2.0], [3.0, 0.5]])
    with st.profiler.profile() as seen:
        got = [x.pow(2), x.pow(exponent=2), st.pow(x, 2), x**2, x.clone().pow_(2), x.clone().pow_(exponent=2)]
    assert {e.key for e in seen.key_averages()} <= {"pow_scalar", "clone"}
    assert all(st.equal(y, x * x) for y in got)
    for power in (2, 0.5, -1, 3.0, np.float32(2)):
        y = same = x.abs()
        y **= power
        assert y is same
        np.testing.assert_allclose(y.numpy(), np.abs(x.numpy()) ** power, rtol=1e-6)
    assert st.equal(x.abs().pow(x), x.abs().pow_(x)) and st.equal(x.abs().pow(x), x.abs() ** x)
    leaf = st.tensor([3.0], requires_grad=True)
    y = leaf * 1
    y **= 3
    y.backward()
    assert leaf.grad.tolist() == [27]
    whole = st.tensor([1, 2])
    for call in (lambda: whole.pow(-1), lambda: whole.pow_(-1), lambda: whole**-1):
        with pytest.raises(ValueError, match="negative integer power"):
            call()


def test_a_scheduler_of_ones_own_under_the_old_name():
    class Halving(lr_scheduler._LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = optim.SGD([st.zeros(1, requires_grad=True)], lr=0.8)
    schedule = Halving(optimizer)
    schedule.step()
    assert schedule.get_last_lr() == [0.4] and isinstance(lr_scheduler.StepLR(optimizer, 1), lr_scheduler._LRScheduler)


def test_warm_restarts_at_fractions_of_an_epoch():
    cosine = lambda at, period: 0.8 * (1 + math.cos(math.pi * at / period)) / 2
    optimizer = optim.SGD([st.zeros(1, requires_grad=True)], lr=0.8)
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, 2)
    places = [(0.25, 0.25, 2), (1.75, 1.75, 2), (2, 0, 4), (3.5, 1.5, 4), (13.125, 7.125, 8), (1 / 3, 1 / 3, 2)]
    for epoch, at, period in places:
        schedule.step(epoch)
        assert schedule.last_epoch == math.floor(epoch)
        np.testing.assert_allclose(schedule.get_last_lr(), [cosine(at, period)], rtol=1e-6)
    schedule.step(2.5)
    schedule.step()  # a whole step on from there
    assert schedule.last_epoch == 3
    np.testing.assert_allclose(optimizer.param_groups[0]["lr"], cosine(1.5, 4), rtol=1e-6)
    again = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, 2)
    again.load_state_dict(schedule.state_dict())
    again.step()
    np.testing.assert_allclose(again.get_last_lr(), [cosine(2.5, 4)], rtol=1e-6)
    with pytest.raises(ValueError, match="non-negative epoch"):
        schedule.step(-0.5)
