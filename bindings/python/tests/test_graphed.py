"""st.graphed: what it takes and gives, on whatever device there is; on a card steps as graphs beside the same steps op by op."""

import collections
import gc
import warnings
import weakref

import pytest

import strata as st
from strata import nn

F = nn.functional
needs_card = pytest.mark.skipif(not st.cuda.is_available(), reason=f"no card: {st.cuda.unavailable_reason()}")
DEVICE = "cuda" if st.cuda.is_available() else "cpu"


def make_net():
    st.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 4)).to(DEVICE)


def train(as_graph, kind=st.optim.AdamW, turns=False, steps=20, low=None, zero="last", **options):
    net = make_net()
    opt = kind(net.parameters(), lr=0.01, **options)
    schedule = st.optim.lr_scheduler.CosineAnnealingLR(opt, 20)

    def step(batch, *, smooth):
        if zero in ("first", "filled"):
            opt.zero_grad(set_to_none=zero == "first")
        with st.autocast(DEVICE, dtype=st.bfloat16, enabled=low is not None):
            out = net(batch["x"])
        loss = F.cross_entropy(out.float(), batch["y"][0], label_smoothing=smooth)
        loss.backward()
        opt.step()
        if zero == "last":
            opt.zero_grad()
        return {"loss": loss, "parts": (out, 3, None)}

    run = st.graphed(step) if as_graph else step
    st.manual_seed(3)
    seen = []
    for i in range(steps):
        generator = st.Generator().manual_seed(100 + i)
        n = 24 if turns and i % 2 else 64
        x = st.randn(n, 12, generator=generator).to(DEVICE)
        y = st.randint(0, 4, (n,), generator=generator).to(DEVICE)
        made = run({"x": x, "y": [y]}, smooth=0.1)
        assert made["parts"][1:] == (3, None)
        seen.append((made["loss"].tolist(), made["parts"][0].detach().float().sum().tolist()))
        schedule.step()
    if as_graph and DEVICE == "cuda":
        assert (run.captures, run.replays) == ((2, steps - 4) if turns else (1, steps - 2))
    return seen, [p.tolist() for p in net.parameters()], st.get_rng_state().tolist()


@pytest.mark.parametrize("options", [
    {}, {"turns": True}, {"low": "bf16"}, {"zero": "first"}, {"zero": "filled"},
    {"kind": st.optim.SGD, "momentum": 0.9}, {"kind": st.optim.Adam}, {"kind": st.optim.RMSprop},
], ids=str)
def test_a_training_step_has_the_bits_of_eager(options):
    assert train(True, **options) == train(False, **options)


def test_arguments_and_results_keep_their_shape():
    Point = collections.namedtuple("Point", "a b")

    @st.graphed
    def step(p, *rest, scale=1.0, **more):
        """What it does."""
        return Point(p.a * scale, [p.b, {"n": more["n"]}]), rest

    assert step.__name__ == "step" and step.__doc__ == "What it does." and "step" in repr(step)
    for i in range(4):
        x = st.full((3,), float(i), device=DEVICE)
        (a, b), rest = step(Point(x, x + 1), "text", (None, 2), scale=2.0, n=x - 1)
        assert a.tolist() == [2.0 * i] * 3 and b[0].tolist() == [i + 1.0] * 3 and b[1]["n"].tolist() == [i - 1.0] * 3
        assert rest == ("text", (None, 2)) and not a.requires_grad
    with pytest.raises(TypeError, match="an argument of type object"):
        step(Point(x, x), object(), n=x)
    with pytest.raises(st.AutogradError, match="requires a gradient"):
        step(Point(st.ones(3, device=DEVICE, requires_grad=True), x), n=x)
    with pytest.raises(ZeroDivisionError):
        st.graphed(lambda t: 1 / 0)(x)
    with pytest.raises(TypeError, match="function"):
        st.graphed(3)
    with pytest.raises(ValueError, match="warmup"):
        st.graphed(lambda t: t, warmup=0)
    with st.autocast(DEVICE), pytest.raises(ValueError, match="inside the step"):
        step(Point(x, x), n=x)


def test_methods_and_options():
    class Trainer:
        def __init__(self, factor):
            self.factor = factor

        @st.graphed(most=2)
        def step(self, x):
            return x * self.factor

    a, b = Trainer(2), Trainer(3)
    x = st.ones(4, device=DEVICE)
    for _ in range(3):
        assert a.step(x).tolist() == [2] * 4 and b.step(x).tolist() == [3] * 4
    assert a.step is a.step and a.step is not b.step
    a.step.clear()
    assert a.step.graphs == 0
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None


def test_on_the_cpu_each_call_runs_the_function():
    calls = []
    step = st.graphed(lambda x: calls.append(x.sum().item()))
    for i in range(4):
        assert step(st.full((2,), float(i))) is None
    assert calls == [0, 2, 4, 6] and (step.graphs, step.captures, step.replays, step.note) == (0, 0, 0, "")


def test_a_step_may_not_call_itself():
    step = st.graphed(lambda x: step(x))
    with pytest.raises(ValueError, match="is running already"):
        step(st.ones(2))


def test_zero_grad_fills_in_place():
    net = nn.Linear(2, 2)
    opt = st.optim.SGD(net.parameters(), lr=0.1)
    for zero in (opt.zero_grad, net.zero_grad):
        net(st.ones(1, 2)).sum().backward()
        before = net.weight.grad
        zero(set_to_none=False)
        assert net.weight.grad.tolist() == [[0, 0], [0, 0]] and before.tolist() == [[0, 0], [0, 0]]


@needs_card
def test_what_cannot_be_captured_is_refused():
    net = make_net()
    opt = st.optim.AdamW(net.parameters(), lr=0.01)
    x, y = st.randn(8, 12, device="cuda"), st.randint(0, 4, (8,), device="cuda")

    def reads(x, y):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.item()

    step = st.graphed(reads)
    step(x, y)
    weights, state = [p.tolist() for p in net.parameters()], st.get_rng_state().tolist()
    with pytest.raises(st.DeviceError, match=r"graphed: the step cannot be captured as one graph: .*item.*Nothing of this"):
        step(x, y)
    assert weights == [p.tolist() for p in net.parameters()] and state == st.get_rng_state().tolist()
    assert all(p.grad is None for p in net.parameters())
    with pytest.warns(UserWarning, match="runs op by op") as seen:
        anyway = st.graphed(reads, fallback=True)
        values = [anyway(x, y) for _ in range(5)]
    assert len(seen) == 1 and len(set(values)) == 5 and anyway.graphs == 0
    scaler = st.amp.GradScaler("cuda")

    @st.graphed
    def scaled(x, y):
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        scaler.step(opt)
        scaler.update()

    scaled(x, y)
    with pytest.raises(st.DeviceError, match="cannot"):
        scaled(x, y)
    failing = st.graphed(lambda t: t * 2 if not st.cuda.is_current_stream_capturing() else 1 / 0)
    failing(x)
    with pytest.raises(ZeroDivisionError):
        failing(x)
    assert not st.cuda.is_current_stream_capturing() and failing(x.cpu()).tolist() == (x.cpu() * 2).tolist()


@needs_card
def test_memory_is_stable_and_optimizers_may_die():
    net = make_net()
    opt = st.optim.AdamW(net.parameters(), lr=0.01)
    x = st.randn(64, 12, device="cuda")

    @st.graphed
    def step(x):
        net(x).pow(2).sum().backward()
        opt.step()
        opt.zero_grad()

    for _ in range(5):
        step(x)
    before = st.cuda.memory_allocated()
    for _ in range(100):
        step(x)
    assert st.cuda.memory_allocated() == before and step.replays == 103
    step.clear()
    assert st.cuda.memory_allocated() < before


@needs_card
def test_a_graph_of_one_s_own_takes_the_options_of_its_time():
    def run(captured):
        net = make_net().eval()
        opt = st.optim.SGD(net.parameters(), lr=0.1)
        x = st.ones(4, 12, device="cuda")

        def step():
            opt.zero_grad()
            net(x).pow(2).sum().backward()
            opt.step()

        step()
        g = st.cuda.CUDAGraph()
        if captured:
            with st.cuda.graph(g):
                step()
        for lr in (0.05, 0.01):
            opt.param_groups[0]["lr"] = lr
            g.replay() if captured else step()
        return [p.tolist() for p in net.parameters()]

    assert run(True) == run(False)


def test_compile_says_what_there_is():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert st.compile(len) is len
