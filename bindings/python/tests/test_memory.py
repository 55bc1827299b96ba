"""st.memory: loops within a budget have the bits of those without, in the memory that was given."""

import gc
import threading

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn import functional as F


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all: how fast its disk is is measured once."""
    return tmp_path_factory.mktemp("disk")


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(256, 1024), nn.Linear(1024, 16), nn.Dropout(0.1)
        self.hidden = nn.ModuleList([nn.Linear(1024, 1024) for _ in range(4)])

    def forward(self, x):
        x = self.drop(F.relu(self.first(x)))
        for layer in self.hidden:
            x = F.gelu(layer(x))
        return self.last(x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        for _ in range(8):
            layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(32 * 16 * 16, 64)

    def forward(self, x):
        return self.head(self.body(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.before, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.after, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.reshape(b, t, 4, d // 4).transpose(1, 2) for p in self.qkv(self.before(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    def __init__(self, dim=192, blocks=5, vocab=256):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(blocks)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T  # tied


def images():
    return st.randn(32, 3, 32, 32), st.randint(0, 64, (32,))


def rows():
    return st.randn(2048, 256), st.randint(0, 16, (2048,))


def tokens():
    return st.randint(0, 256, (8, 96)), st.randint(0, 256, (8, 96))


KINDS = {"perceptron": (Perceptron, rows), "convolutions": (Convolutions, images), "transformer": (Transformer, tokens)}


def loss_of(model, batch):
    x, y = batch
    out = model(x)
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def everything(model, optimizer):
    found = [t.detach().numpy().copy() for t in (*model.parameters(), *model.buffers())]
    for entries in optimizer.state_dict()["state"].values():
        found += [t.detach().numpy().copy() for t in entries.values() if isinstance(t, st.Tensor)]
    return found


def loop(kind, optimizer=lambda p: st.optim.AdamW(p, lr=1e-3), steps=4, passes=1, evaluates=False, **budget):
    """Losses, then weights and state; the peak; the budget's object."""
    st.manual_seed(1)
    make, batch = KINDS[kind]
    model = make()
    opt = optimizer(model.parameters())
    st._core.memory_reset_peak("cpu")
    seen = []

    def run():
        for _ in range(steps):
            for _ in range(passes):
                loss = loss_of(model, batch())
                loss.backward()
                seen.append(loss.detach().numpy().copy())
            opt.step()
            opt.zero_grad()
            if evaluates:
                with st.no_grad():
                    seen.append(loss_of(model, batch()).numpy().copy())

    plan = None
    if budget:
        with st.memory.budget(model=model, optimizer=opt, **budget) as plan:
            run()
        peak = plan.peak
    else:
        run()
        peak = st._core.memory_stats("cpu")["peak_total"]
    return seen + everything(model, opt), peak, plan


def expect_same(kind, share, folder, **options):
    gc.collect()
    before = st._core.memory_stats("cpu")["live_total"]  # a test that failed keeps what it had
    plain, peak, _ = loop(kind, **options)
    device = before + int(share * (peak - before))
    kept, used, plan = loop(kind, device=device, disk=str(folder), **options)
    assert used <= device < peak, plan.describe()
    assert len(kept) == len(plain)
    for a, b in zip(kept, plain):
        assert np.array_equal(a, b), plan.describe()
    return plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_any_network_trains_to_the_same_bits(kind, share, folder):
    plan = expect_same(kind, share, folder)
    assert plan.planned and plan.plan["fits"] and plan.plan["peak_device"] < plan.plan["peak_without"]
    assert f"of {device_text(plan)}" in plan.describe()


def device_text(plan):
    return next(line for line in plan.describe().splitlines() if line.startswith("device")).split(" of ")[1]


def test_accumulation_and_evaluation(folder):
    expect_same("transformer", 0.6, folder, passes=3)
    expect_same("transformer", 0.6, folder, evaluates=True)


class Own(st.optim.Optimizer):
    """Of a program's own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.05})

    def step(self, closure=None):
        with st.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.sub_(p.grad * group["lr"])


@pytest.mark.parametrize("optimizer", [
    lambda p: st.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: st.optim.Adam(p), lambda p: st.optim.Adagrad(p), Own,
    lambda p: st.optim.AdamW(p, state_8bit=True), lambda p: st.optim.RMSprop(p)])
def test_optimizers(optimizer, folder):
    expect_same("transformer", 0.7, folder, optimizer=optimizer)


def test_where_parts_are_can_be_said(folder):
    plain, _, _ = loop("transformer")
    for keys, wanted in [(dict(activations="disk"), "activations"), (dict(state="disk"), "state"),
                         (dict(state="disk", parameters="disk"), "weights"), (dict(recompute="blocks"), "recomputed")]:
        kept, _, plan = loop("transformer", disk=[str(folder)], **keys)
        assert all(np.array_equal(a, b) for a, b in zip(kept, plain)), plan.describe()
        assert plan.plan[wanted] in ("disk", 8), plan.plan
    assert not list(folder.iterdir())  # files without names


def test_clipping_and_schedules_go_on(folder):
    def train(budget):
        st.manual_seed(2)
        model = Transformer()
        opt = st.optim.AdamW(model.parameters(), lr=1e-3)
        schedule = st.optim.lr_scheduler.StepLR(opt, 2)
        norms = []

        def run():
            for _ in range(4):
                opt.zero_grad()
                loss_of(model, tokens()).backward()
                norms.append(opt.step_clipped(0.5))
                schedule.step()

        if budget:
            with st.memory.budget("40MiB", disk=str(folder), model=model, optimizer=opt) as plan:
                run()
            assert plan.planned and plan.peak <= 40 << 20
        else:
            run()
        return [*norms, *(t.detach().numpy() for t in model.parameters())]

    assert all(np.array_equal(a, b) for a, b in zip(train(True), train(False)))


def test_a_budget_that_cannot_be_kept_names_one(folder):
    model = Perceptron()
    opt = st.optim.AdamW(model.parameters())
    with pytest.raises(st.OutOfMemoryError, match="before the loop begins, more than the budget of 1.00 MiB; it needs"):
        with st.memory.budget("1MiB", model=model, optimizer=opt):
            pass
    with pytest.raises(st.OutOfMemoryError, match=r'the budget of 12.00 MiB was not enough: .* device = "\d+MiB" is the least to try'):
        with st.memory.budget("12MiB", disk=str(folder), model=model, optimizer=opt):
            loss_of(model, rows()).backward()
            opt.step()
    # Everything is as before.
    assert st._core.memory_set_limit(0) == 0
    loss_of(model, rows()).backward()
    opt.step()


def test_exceptions_leave_everything_usable(folder):
    st.manual_seed(0)
    model = Transformer()
    opt = st.optim.AdamW(model.parameters())
    with pytest.raises(KeyError):
        with st.memory.budget("40MiB", disk=str(folder), model=model, optimizer=opt):
            for i in range(4):
                loss = loss_of(model, tokens())
                if i == 3:
                    raise KeyError("between forward and backward")
                loss.backward()
                opt.step()
                opt.zero_grad()
    for p in model.parameters():
        assert p.tier == "host"
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with st.memory.budget("40MiB", disk=str(folder), model=model, optimizer=opt):  # a second loop
        pass
    for p, b in zip(model.parameters(), before):
        assert np.array_equal(p.detach().numpy(), b)


def test_what_makes_no_sense(folder):
    model = Perceptron()
    opt = st.optim.AdamW(model.parameters())
    for match, error, options in [("memory.device", ValueError, dict(device="much")),
                                  ("memory.disk", ValueError, dict(activations="disk")),
                                  ("beside a card", ValueError, dict(host="1GiB"))]:
        with pytest.raises(error, match=match):
            with st.memory.budget(model=model, optimizer=opt, **options):
                pass
    with pytest.raises(TypeError, match="model must be a Module"):
        st.memory.budget(model=3, optimizer=opt).__enter__()
    with pytest.raises(TypeError, match="optimizer must be an Optimizer"):
        st.memory.budget(model=model, optimizer=None)
    with pytest.raises(ValueError, match="LBFGS"):
        st.memory.budget(model=model, optimizer=st.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match="its state cannot live on disk"):
        with st.memory.budget(disk=str(folder), state="disk", model=model, optimizer=Own(model.parameters())):
            pass
    with st.memory.budget("200MiB", disk=str(folder), model=model, optimizer=opt):
        with pytest.raises(ValueError, match="already"):
            with st.memory.budget("200MiB", model=model, optimizer=st.optim.SGD(model.parameters())):
                pass
        with pytest.raises(ValueError, match="within st.memory.budget"):
            opt.load_state_dict(opt.state_dict())
    opt.load_state_dict(opt.state_dict())


def test_another_thread(folder):
    model = Perceptron()
    opt = st.optim.AdamW(model.parameters())
    found = []

    def elsewhere():
        try:
            opt.step()
        except ValueError as e:
            found.append(str(e))
        found.append(float(st.ones(1000).sum()))  # others compute beside it

    with st.memory.budget("200MiB", disk=str(folder), model=model, optimizer=opt):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert "another thread" in found[0] and found[1] == 1000.0


# ---- the parts one by one


def gradients(model, around):
    st.manual_seed(4)
    batch = tokens()
    for p in model.parameters():
        p.grad = None
    for _ in range(3):
        around(lambda: loss_of(model, batch))
    return [p.grad.numpy().copy() for p in model.parameters()]


def test_offload_recompute_and_streamed(folder):
    gc.collect()  # an exception's frames hold tensors that are there
    st.memory.use_disk(str(folder))
    st.manual_seed(3)
    model = Transformer()
    plain = gradients(model, lambda loss: loss().backward())
    saved = st.memory.offload("disk", min_bytes=1 << 16, keep_bytes=0, most_kept=1)

    def offloaded(loss):
        with saved:
            found = loss()
        found.backward()

    def again(loss):
        with st.memory.recompute() as stretches:
            stretches.begin()
            found = loss()
        found.backward()

    for around in (offloaded, again):
        assert all(np.array_equal(a, b) for a, b in zip(gradients(model, around), plain))
    did = saved.stats()
    assert did["passes"] >= 3 and did["sent"] > 1 << 20 and did["fetched"] > 0
    streamed = st.memory.Streamed(model, "disk")

    def stream(loss):
        with streamed:
            loss().backward()

    found = gradients(model, stream)
    assert all(np.array_equal(a, b) for a, b in zip(found, plain))
    assert all(p.tier == "disk" for p in model.parameters())
    first = next(model.parameters())
    assert np.array_equal(first.detach().numpy(), first.detach().to(tier="own").numpy())
    with pytest.raises(BufferError, match="at home on another tier"):
        memoryview(first.detach())
    with pytest.raises(BufferError, match="at home on another tier"):
        first.detach().__dlpack__()
    assert streamed.stats()["visits"] > 0 and len(streamed.parts()) == 7 and "blocks.4" in streamed.report()
    near = st.memory.near_stats("cpu", "disk")
    assert near["fetches"] > 0 and st.memory.set_near_limit(0, "cpu", "disk") == near["limit"]
    st.memory.move_parameters(model, "own")
    assert all(p.tier == "host" for p in model.parameters())
    with st.memory.tier("disk"):
        assert st.zeros(100_000).tier == "disk"
    with pytest.raises(ValueError, match="host or disk"):
        st.memory.offload("card")
    with pytest.raises(ValueError, match="within `with`"):
        st.memory.recompute().begin()


def test_the_states_home(folder):
    gc.collect()
    st.memory.use_disk(str(folder))

    def train(home):
        st.manual_seed(5)
        model = Perceptron()
        opt = st.optim.AdamW(model.parameters())
        if home:
            opt.set_home(home, group_bytes=1 << 20)
        for _ in range(3):
            opt.zero_grad()
            loss_of(model, rows()).backward()
            opt.step()
        opt.finish()
        return everything(model, opt), opt

    plain, _ = train(None)
    away, opt = train("disk")
    assert all(np.array_equal(a, b) for a, b in zip(away, plain))
    assert opt._engine.state_dict()["1.exp_avg"].tier in ("disk", "host")
    assert opt._engine.state_dict()["2.exp_avg"].tier == "disk"
    opt.set_home()
    assert opt._engine.state_dict()["2.exp_avg"].tier == "host"
    with pytest.raises(ValueError, match="device, cpu or split"):
        opt.set_home("disk", who="me")
    with pytest.raises(ValueError, match="written in Python"):
        Own(Perceptron().parameters()).set_home("disk")
