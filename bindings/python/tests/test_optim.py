"""Optimizers and learning rates: surface, state, and the formulas in double precision."""

import copy
import math
import pickle

import numpy as np
import pytest

import strata as st
from strata import nn, optim
from strata.optim import lr_scheduler


def start():
    rng = np.random.default_rng(3)
    return rng.standard_normal((4, 3)), [rng.standard_normal((4, 3)) for _ in range(5)]


def run(optimizer, p, grads):
    for g in grads:
        p.grad = st.tensor(g)
        optimizer.step()
    return p.detach().numpy()


def test_sgd_is_the_formula():
    w, grads = start()
    p = nn.Parameter(st.tensor(w))
    got = run(optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True), p, grads)
    x, b = w.copy(), None
    for g in grads:
        g = g + 0.01 * x
        b = g if b is None else 0.9 * b + g
        x = x - 0.1 * (g + 0.9 * b)
    np.testing.assert_allclose(got, x, rtol=1e-12)


@pytest.mark.parametrize("cls", [optim.Adam, optim.AdamW])
def test_adam_is_the_formula(cls):
    w, grads = start()
    p = nn.Parameter(st.tensor(w))
    got = run(cls([p], lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), p, grads)
    x, m, v = w.copy(), 0, 0
    for t, g in enumerate(grads, 1):
        if cls is optim.Adam:
            g = g + 0.1 * x
        else:
            x = x * (1 - 0.05 * 0.1)
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        x = x - 0.05 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6)
    np.testing.assert_allclose(got, x, rtol=1e-10)


def test_lion_is_the_formula():
    w, grads = start()
    p = nn.Parameter(st.tensor(w))
    got = run(optim.Lion([p], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1), p, grads)
    x, m = w.copy(), np.zeros_like(w)
    for g in grads:
        x = x - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * x)
        m = 0.99 * m + 0.01 * g
    np.testing.assert_allclose(got, x, rtol=1e-10)


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.05, momentum=0.9), lambda p: optim.Adam(p, lr=0.05), lambda p: optim.AdamW(p, lr=0.05),
    lambda p: optim.Lion(p, lr=0.02), lambda p: optim.Adafactor(p, lr=0.2), lambda p: optim.Muon(p, lr=0.05),
    lambda p: optim.RMSprop(p, lr=0.02, momentum=0.5, centered=True), lambda p: optim.Adagrad(p, lr=0.3),
    lambda p: optim.Adadelta(p, lr=10), lambda p: optim.Adamax(p, lr=0.05), lambda p: optim.NAdam(p, lr=0.05),
    lambda p: optim.RAdam(p, lr=0.1), lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
], ids=["sgd", "adam", "adamw", "lion", "adafactor", "muon", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "radam",
        "amsgrad"])
def test_every_optimizer_learns_saves_and_goes_on(make, tmp_path):
    def build():
        st.manual_seed(2)
        return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    x = st.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    y = st.tensor([[0.0], [1], [1], [0]])

    def steps(net, opt, n):
        for _ in range(n):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            opt.step()
        return loss.item()

    net = build()
    opt = make(net.parameters())
    first = steps(net, opt, 1)
    steps(net, opt, 19)
    st.save({"net": dict(net.state_dict()), "opt": opt.state_dict()}, tmp_path / "c.safetensors")
    saved = st.load(tmp_path / "c.safetensors")
    other = build()
    other.load_state_dict(saved["net"])
    other_opt = make(other.parameters())
    other_opt.load_state_dict(saved["opt"])
    last = steps(net, opt, 80)
    assert steps(other, other_opt, 80) == last
    assert last < first / 2
    for a, b in zip(net.parameters(), other.parameters()):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_groups_options_and_hooks():
    a, b, c = (nn.Parameter(st.ones(2)) for _ in range(3))
    opt = optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1)
    for p in (a, b):
        p.grad = st.ones(2)
    opt.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == pytest.approx([0.9, 0.9])
    opt.param_groups[0]["lr"] = 0.0
    opt.step()
    assert a.tolist() == [0.5, 0.5]
    opt.add_param_group({"params": [c], "lr": 1.0})
    c.grad = st.ones(2)
    opt.step()
    assert c.tolist() == [0, 0]
    opt.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0, 0]
    opt.zero_grad()
    assert a.grad is None
    calls = []
    opt.register_step_pre_hook(lambda o, args, kwargs: calls.append("pre"))
    opt.register_step_post_hook(lambda o, args, kwargs: calls.append("post"))

    def closure():
        opt.zero_grad()
        loss = (c * c).sum()
        loss.backward()
        return loss

    assert opt.step(closure).item() == 0 and calls == ["pre", "post"]
    assert "lr: 1.0" in repr(opt)


def test_adding_a_group_keeps_what_was_learned():
    def with_momentum(late):
        p, q = nn.Parameter(st.ones(2)), nn.Parameter(st.ones(2))
        opt = optim.Adam([p] if late else [p, q], lr=0.1)
        for i in range(3):
            p.grad = st.full([2], float(i + 1))
            opt.step()
            if late and i == 1:
                opt.add_param_group({"params": [q]})
        return p.tolist()

    assert with_momentum(True) == with_momentum(False)


def test_copies_of_an_optimizer():
    net = nn.Linear(2, 2)
    opt = optim.Adam(net.parameters())
    net(st.ones(1, 2)).sum().backward()
    opt.step()
    pair = copy.deepcopy((net, opt))
    again = pickle.loads(pickle.dumps((net, opt)))
    for other_net, other in (pair, again):
        assert other.state_dict()["state"][0]["step"].item() == 1
        other_net(st.ones(1, 2)).sum().backward()
        other.step()
        assert other.param_groups[0]["params"][0] is other_net.weight


def test_bad_arguments():
    p = nn.Parameter(st.ones(1))
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([])
    with pytest.raises(TypeError, match="iterable"):
        optim.SGD(p)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([3])
    with pytest.raises(ValueError, match="more than one"):
        optim.SGD([p, p])
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="differentiable"):
        optim.Adam([p], differentiable=True)
    with pytest.raises(ValueError):
        optim.SGD([p], lr=-1.0)
    with pytest.raises(ValueError):
        optim.SGD([p], nesterov=True)
    with pytest.raises(NotImplementedError, match="step"):
        p.grad = st.ones(1)
        optim.Optimizer([p], {}).step()
    a, b = optim.SGD([p]), optim.SGD([nn.Parameter(st.ones(1)), nn.Parameter(st.ones(1))])
    with pytest.raises(ValueError, match="match the size"):
        a.load_state_dict(b.state_dict())
    half = nn.Parameter(st.ones(1, dtype=st.float16))
    with pytest.raises(Exception, match="bf16"):
        optim.SGD([half], stochastic_rounding=True)
    with pytest.raises(ValueError, match="do not go"):
        optim.AdamW([half], master_weights=True, low_state=True)


def test_rmsprop_and_adagrad_are_their_formulas():
    w, grads = start()
    p, q = nn.Parameter(st.tensor(w)), nn.Parameter(st.tensor(w))
    got = run(optim.RMSprop([p], lr=0.02, alpha=0.9, momentum=0.5, centered=True), p, grads)
    also = run(optim.Adagrad([q], lr=0.1, lr_decay=0.2, initial_accumulator_value=0.5), q, grads)
    x, v, m, b = w.copy(), 0, 0, 0
    y, s = w.copy(), 0.5
    for t, g in enumerate(grads):
        v, m = 0.9 * v + 0.1 * g * g, 0.9 * m + 0.1 * g
        b = 0.5 * b + g / (np.sqrt(v - m * m) + 1e-8)
        x = x - 0.02 * b
        s = s + g * g
        y = y - 0.1 / (1 + 0.2 * t) * g / (np.sqrt(s) + 1e-10)
    np.testing.assert_allclose(got, x, rtol=1e-10)
    np.testing.assert_allclose(also, y, rtol=1e-10)


# ---- parameters of 16 bits


def test_bfloat16_weights_learn(tmp_path):
    x = st.tensor(np.random.default_rng(1).standard_normal((64, 8)).astype(np.float32))
    y = (x * st.arange(8.0)).sum([1], True)

    def train(steps, net=None, saved=None, **how):
        st.manual_seed(4)
        net = net or nn.Linear(8, 1)
        net.to(st.bfloat16)
        opt = optim.AdamW([{"params": [net.weight]}, {"params": [net.bias], "weight_decay": 0.0}], lr=2e-3, **how)
        if saved:
            opt.load_state_dict(saved["opt"])
            net.load_state_dict(saved["net"])
        for _ in range(steps):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(x.bfloat16()).float(), y)
            loss.backward()
            opt.step_clipped(100.0)
        return loss.item(), net, opt

    nearest = train(1500)[0]
    for how in ({"master_weights": True}, {"stochastic_rounding": True, "rounding_seed": 3},
                {"stochastic_rounding": True, "low_state": True}, {"compensated_weights": True},
                {"compensated_weights": True, "state_8bit": True, "min_8bit_size": 1}):
        whole, net, opt = train(1500, **how)
        assert whole < 0.7 * nearest
        state = opt.state[net.weight]
        assert ("master" in state) == ("master_weights" in how)
        assert ("compensation" in state) == ("compensated_weights" in how)
        assert state["exp_avg"].dtype == (
            st.bfloat16 if "low_state" in how else st.uint8 if "state_8bit" in how else st.float32)
        # The same again, saved and loaded in the middle.
        _, net, opt = train(700, **how)
        st.save({"net": dict(net.state_dict()), "opt": opt.state_dict()}, tmp_path / "c.safetensors")
        again = train(800, net=nn.Linear(8, 1), saved=st.load(tmp_path / "c.safetensors"), **how)[0]
        assert again == whole


def test_moments_in_8_bits():
    # 64 x 96 weights keep them so, 64 biases do not; files of either kind are read by the other.
    net = nn.Linear(96, 64)
    opt = optim.AdamW(net.parameters(), lr=1e-2, state_8bit=True)
    x = st.randn(32, 96)

    def step(o):
        o.zero_grad()
        net(x).square().mean().backward()
        o.step()

    step(opt)
    state = opt.state[net.weight]
    assert state["exp_avg"].dtype == st.uint8 and state["exp_avg"].shape == net.weight.shape
    assert state["exp_avg_absmax"].shape == (24,) and state["exp_avg_sq_absmax"].dtype == st.float32
    assert opt.state[net.bias]["exp_avg"].dtype == st.float32
    plain = optim.AdamW(net.parameters(), lr=1e-2)
    plain.load_state_dict({**opt.state_dict(), "param_groups": plain.state_dict()["param_groups"]})
    wide = plain.state[net.weight]
    assert "exp_avg_absmax" not in wide and wide["exp_avg"].dtype == st.float32
    assert wide["exp_avg"].abs().max().item() > 0
    again = optim.AdamW(net.parameters(), lr=1e-2, state_8bit=True)
    again.load_state_dict({**plain.state_dict(), "param_groups": again.state_dict()["param_groups"]})
    assert again.state[net.weight]["exp_avg_sq"].tolist() == state["exp_avg_sq"].tolist()
    step(again)
    with pytest.raises(ValueError, match="do not go together"):
        optim.SGD(net.parameters(), state_8bit=True, low_state=True)
    with pytest.raises(ValueError, match="min_8bit_size"):
        optim.SGD(net.parameters(), min_8bit_size=-1)
    assert optim.Muon(net.parameters(), state_8bit=True).param_groups[0]["min_8bit_size"] == 4096


def test_float16_weights_with_a_scaler():
    p = nn.Parameter(st.ones(4, dtype=st.float16))
    opt = optim.SGD([p], lr=0.25, master_weights=True)
    scaler = st.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(2):
        opt.zero_grad()
        scaler.scale((p.float() * 1e-4).sum()).backward()
        scaler.step(opt)
        scaler.update()
    assert opt.state[p]["master"].tolist() == pytest.approx([1 - 2 * 0.25e-4] * 4, abs=1e-6)
    norm = nn.utils.clip_grad_norm_([p], 0.01)
    assert norm.item() > 0.01


# ---- L-BFGS


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_solves_a_quadratic(search):
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, 6))
    matrix, want = st.tensor(a @ a.T + np.eye(6)), rng.standard_normal(6)
    b = st.tensor((a @ a.T + np.eye(6)) @ want)
    p, q = nn.Parameter(st.zeros(2, dtype=st.float64)), nn.Parameter(st.zeros(4, dtype=st.float64))
    opt = optim.LBFGS([p, q], lr=1.0 if search else 0.5, max_iter=80, history_size=10, line_search_fn=search)

    def closure():
        opt.zero_grad()
        x = st.cat([p, q])
        loss = 0.5 * (x @ (matrix @ x)) - b @ x
        loss.backward()
        return loss

    first = opt.step(closure)
    opt.step(closure)
    assert first.item() == 0
    np.testing.assert_allclose(np.concatenate([p.tolist(), q.tolist()]), want, rtol=1e-4, atol=1e-5)


def test_lbfgs_goes_down_a_valley_and_goes_on(tmp_path):
    def make():
        p = nn.Parameter(st.tensor([-1.5, 2.0], dtype=st.float64))
        return p, optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=5)

    def steps(p, opt, n):
        def closure():
            opt.zero_grad()
            loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
            loss.backward()
            return loss

        for _ in range(n):
            opt.step(closure)
        return closure().item()

    p, opt = make()
    assert steps(p, opt, 3) > 1e-3
    st.save({"p": p.detach(), "opt": opt.state_dict()}, tmp_path / "c.safetensors")
    saved = st.load(tmp_path / "c.safetensors")
    q, other = make()
    with st.no_grad():
        q.copy_(saved["p"])
    other.load_state_dict(saved["opt"])
    last = steps(p, opt, 8)
    assert last < 1e-8 and steps(q, other, 8) == last
    assert opt.state[p]["n_iter"] == other.state[q]["n_iter"]
    copy.deepcopy(opt)
    with pytest.raises(TypeError, match="closure"):
        opt.step()
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optim.LBFGS([p], line_search_fn="golden")
    with pytest.raises(ValueError, match="per-parameter"):
        optim.LBFGS([{"params": [p]}, {"params": [q]}])


# ---- mixed precision


def test_grad_scaler():
    p = nn.Parameter(st.ones(2))
    opt = optim.SGD([p], lr=0.5)
    scaler = st.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    for _ in range(2):
        opt.zero_grad()
        scaler.scale((p * p).sum()).backward()
        scaler.step(opt)
        scaler.update()
    assert p.tolist() == [0, 0] and scaler.get_scale() == 8.0
    p.grad = st.tensor([math.inf, 1.0])
    scaler.step(opt)
    scaler.update()
    assert p.tolist() == [0, 0] and scaler.get_scale() == 4.0
    opt.zero_grad()
    scaler.scale((p + 3).sum()).backward()
    scaler.unscale_(opt)
    assert p.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="already"):
        scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert p.tolist() == [-0.5, -0.5]
    other = st.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4.0 and other.state_dict()["growth_tracker"] == 1
    with pytest.raises(RuntimeError, match="No inf checks"):
        other.update()
    off = st.amp.GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert off.scale(loss) is loss


def test_autocast_trains_in_bfloat16():
    st.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    opt = optim.AdamW(net.parameters(), lr=1e-2)
    x = st.randn(64, 8)
    y = x.sum([1], True)
    losses = []
    for _ in range(60):
        opt.zero_grad()
        with st.autocast("cpu", dtype=st.bfloat16):
            out = net(x)
            assert out.dtype == st.bfloat16
        loss = nn.functional.mse_loss(out.float(), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert net[0].weight.dtype == st.float32 and losses[-1] < losses[0] / 10


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam",
                                  "Adafactor", "ASGD", "Rprop"])
def test_maximize_is_the_other_direction(name):
    w, grads = start()
    p, q = nn.Parameter(st.tensor(w)), nn.Parameter(st.tensor(w))
    up = run(getattr(optim, name)([p], maximize=True), p, grads)
    down = run(getattr(optim, name)([q]), q, [-g for g in grads])
    np.testing.assert_array_equal(up, down)
    assert not np.array_equal(up, w)
    other = getattr(optim, name)([nn.Parameter(st.tensor(w))], maximize=True)
    a, b = getattr(optim, name)([p], maximize=True), getattr(optim, name)([q], maximize=True)
    run(a, p, grads[:2])
    run(b, q, grads[:2])
    with st.no_grad():
        q.copy_(p)
    b.load_state_dict(pickle.loads(pickle.dumps(a.state_dict())))
    np.testing.assert_array_equal(run(a, p, grads[2:]), run(b, q, grads[2:]))
    with pytest.raises(ValueError, match="size"):
        other.load_state_dict(getattr(optim, name)([p, q]).state_dict())
    if name != "Adafactor":
        with pytest.raises(ValueError, match="differentiable"):
            getattr(optim, name)([p], differentiable=True)


def test_a_factor_of_zero_ends():
    p = nn.Parameter(st.ones(1))
    optimizer = optim.SGD([p], lr=0.5)
    schedule = lr_scheduler.ConstantLR(optimizer, factor=0.0, total_iters=2)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        p.grad = st.zeros(1)
        optimizer.step()
        schedule.step()
    assert rates == [0, 0, 0.5, 0.5]


def test_asgd_hears_of_a_rate_one_step_later_and_keeps_it_in_its_state():
    # PyTorch's ASGD: eta and mu are made at the end of a step, of that step's lr.
    w, grads = start()
    lambd, alpha, t0 = 0.2, 0.6, 2.0
    rates = [0.1, 0.3, 0.05, 0.2, 0.4]
    for resume in (None, "ours", "torch", "pickle"):
        near = 1e-6 if resume == "torch" else 1e-12  # whose eta is float32
        p = nn.Parameter(st.tensor(w))
        opt = optim.ASGD([p], lr=rates[0], lambd=lambd, alpha=alpha, t0=t0)
        x, ax, eta, mu = w.copy(), np.zeros_like(w), rates[0], 1.0
        for t, (g, lr) in enumerate(zip(grads, rates), 1):
            opt.param_groups[0]["lr"] = lr
            p.grad = st.tensor(g)
            opt.step()
            x = x * (1 - lambd * eta) - eta * g
            ax = x.copy() if mu == 1 else ax + mu * (x - ax)
            eta, mu = lr / (1 + lambd * lr * t) ** alpha, 1 / max(1, t - t0)
            opt.param_groups[0]["lr"] = 9.0  # as a scheduler may have, before the state is written
            saved = opt.state_dict()
            opt.param_groups[0]["lr"] = lr
            state = saved["state"][0]
            assert list(state)[0] == "step" and set(state) == {"step", "eta", "mu", "ax"}
            assert [state[k].item() for k in ("step", "eta", "mu")] == pytest.approx([t, eta, mu], rel=1e-15)
            np.testing.assert_allclose(state["ax"].numpy(), ax, rtol=near)
            if resume == "pickle":
                opt = pickle.loads(pickle.dumps(opt))
                p = opt.param_groups[0]["params"][0]
            elif resume is not None:
                if resume == "torch":
                    state["eta"], state["mu"] = st.tensor(eta, dtype=st.float32), st.tensor(mu, dtype=st.float32)
                opt = optim.ASGD([p], lr=3.0)
                opt.load_state_dict(saved)
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=near)
