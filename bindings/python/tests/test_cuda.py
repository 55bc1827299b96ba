import copy
import gc
import os
import pickle
import threading

import pytest

import strata as st
from strata import nn

needs_card = pytest.mark.skipif(not st.cuda.is_available(), reason=f"no CUDA device: {st.cuda.unavailable_reason()}")


@pytest.mark.skipif(st.cuda.is_available(), reason="there is a card")
def test_without_a_card_everything_says_why():
    assert st.cuda.device_count() == 0 and st.cuda.unavailable_reason()
    assert st.cuda.memory_allocated() == 0 and st.cuda.max_memory_reserved() == 0
    for use in (lambda: st.ones(1).cuda(), lambda: st.ones(1, device="cuda"), st.cuda.get_device_name, st.cuda.Stream,
                st.cuda.synchronize, lambda: st.cuda.CUDAGraph().capture(lambda: None), lambda: st.cuda.Event().record()):
        with pytest.raises(st.DeviceError):
            use()


def test_what_scripts_ask_for_is_there():
    st.cuda.init()
    assert st.cuda.is_initialized() == st.cuda.is_available()
    st.cuda.set_device(0)
    st.cuda.set_device("cuda:0")
    with st.cuda.device(0), st.cuda.device_of(st.ones(1)):
        pass
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        st.cuda.set_device(1)
    st.cuda.ipc_collect()
    assert issubclass(st.cuda.OutOfMemoryError, MemoryError) and st.OutOfMemoryError is st.cuda.OutOfMemoryError
    assert not st.cuda.is_bf16_supported() or st.cuda.get_device_capability()[0] >= 8
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert st.cuda.memory_cached() == st.cuda.memory_reserved()
    assert "live_total" in st.cuda.memory_summary() or not st.cuda.is_available()


@needs_card
def test_tensors_travel():
    x = st.randn(33, 7)
    y = x.cuda()
    assert y.is_cuda and str(y.device) == "cuda:0" and "device='cuda:0'" in repr(y) and y.cpu().equal(x)
    assert (y @ y.T).cpu().allclose(x @ x.T, atol=1e-3) and y.sum().item() == pytest.approx(x.sum().item(), abs=1e-3)
    with pytest.raises(st.DeviceError):
        x + y
    with pytest.raises(st.DeviceError):
        y.numpy()
    with pytest.raises(BufferError):
        memoryview(y)
    w = st.ones(3, device="cuda", requires_grad=True)
    (w * 2).sum().backward()
    assert w.grad.is_cuda and w.grad.tolist() == [2, 2, 2]


@needs_card
def test_streams_events_graphs_memory():
    before = st.cuda.memory_allocated()
    x = st.zeros(1 << 20, device="cuda")
    assert st.cuda.memory_allocated() >= before + (4 << 20) and st.cuda.memory_snapshot()
    s = st.cuda.Stream()
    start, end = st.cuda.Event(enable_timing=True), st.cuda.Event(enable_timing=True)
    with st.cuda.stream(s):
        assert st.cuda.current_stream() == s
        start.record()
        y = x + 1
        end.record()
    s.synchronize()
    assert start.elapsed_time(end) >= 0 and y.sum().item() == 1 << 20
    g = st.cuda.CUDAGraph()
    static = st.ones(4, device="cuda")
    static * 2
    with st.cuda.graph(g):
        z = static * 2
    static.fill_(5)
    g.replay()
    assert z.tolist() == [10] * 4 and g.nodes >= 1
    with pytest.raises(ZeroDivisionError):
        with st.cuda.graph(st.cuda.CUDAGraph()):
            raise ZeroDivisionError
    del x, y
    st.cuda.empty_cache()
    st.cuda.reset_peak_memory_stats()


@needs_card
def test_dlpack_on_the_card():
    torch = pytest.importorskip("torch")
    t = torch.arange(6.0, device="cuda").reshape(2, 3)
    x = st.from_dlpack(t)
    assert x.is_cuda and x.data_ptr() == t.data_ptr() and x.tolist() == t.tolist()
    back = torch.from_dlpack(x * 2)
    assert back.is_cuda and back.tolist() == (t * 2).tolist()


@needs_card
def test_dlpack_keeps_strides_types_and_streams():
    torch = pytest.importorskip("torch")
    for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"):
        t = (torch.arange(24, device="cuda").reshape(2, 3, 4) % 3).to(getattr(torch, dtype))[:, ::2].transpose(0, 2)
        x = st.from_dlpack(t)
        assert x.stride() == t.stride() and x.dtype is getattr(st, dtype) and x.tolist() == t.tolist()
        again = torch.from_dlpack(x)
        assert again.data_ptr() == t.data_ptr() and again.stride() == t.stride() and torch.equal(again, t)
    # What another stream is still writing is waited for, in both directions.
    ours, theirs = st.cuda.Stream(), torch.cuda.Stream()
    for round in range(20):
        with torch.cuda.stream(theirs):
            t = torch.full((1 << 24,), 0.0, device="cuda")
            for _ in range(10):
                t += 1
            x = st.from_dlpack(t)
        with st.cuda.stream(ours):
            y = st.from_dlpack(t) + 1
        assert (x.sum() / (1 << 24)).item() == 10 and (y[:: 1 << 12] == 11).all().item(), round
        with st.cuda.stream(ours):
            z = st.zeros(1 << 24, device="cuda")
            for _ in range(10):
                z += 1
            with torch.cuda.stream(theirs):
                u = torch.from_dlpack(z) * 2
        assert (u == 20).all().item(), round


@needs_card
def test_memory_lent_through_dlpack_lives_on():
    torch = pytest.importorskip("torch")
    views = [torch.from_dlpack(st.full((1 << 18,), i, device="cuda")) for i in range(64)]
    fillers = [st.full((1 << 18,), -1.0, device="cuda") for _ in range(64)]
    assert all((v == i).all().item() for i, v in enumerate(views)) and len(fillers) == 64
    tensors = [st.from_dlpack(torch.full((1 << 18,), float(i), device="cuda")) for i in range(64)]
    fillers = [torch.full((1 << 18,), -1.0, device="cuda") for _ in range(64)]
    assert all((t == i).all().item() for i, t in enumerate(tensors)) and len(fillers) == 64
    before = st.cuda.memory_allocated()
    for _ in range(2000):
        torch.from_dlpack(st.from_dlpack(torch.empty(1000, device="cuda")) + 1)
    assert st.cuda.memory_allocated() <= before


@needs_card
def test_dlpack_with_jax_on_the_card():
    jax = pytest.importorskip("jax")
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("JAX sees no card")
    a = jax.numpy.arange(12.0).reshape(3, 4)
    x = st.from_dlpack(a)
    assert x.is_cuda and x.data_ptr() == a.unsafe_buffer_pointer() and x.tolist() == a.tolist()
    b = jax.numpy.from_dlpack(x * 2)
    assert next(iter(b.devices())).platform == "gpu" and b.tolist() == (a * 2).tolist()


@needs_card
def test_dlpack_with_cupy():
    cupy = pytest.importorskip("cupy")
    a = cupy.arange(12, dtype="float32").reshape(3, 4)
    x = st.from_dlpack(a)
    assert x.data_ptr() == a.data.ptr and x.tolist() == a.tolist()
    assert cupy.from_dlpack(x * 2).tolist() == (a * 2).tolist()


def network():
    st.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(128),
                         nn.Linear(128, 10))


@needs_card
def test_a_network_learns_as_on_the_cpu():
    x, y = st.randn(32, 1, 8, 8), st.arange(32) % 10
    losses = {}
    for device in ("cpu", "cuda"):
        net = network().to(device)
        optimizer = st.optim.AdamW(net.parameters(), lr=3e-3)
        losses[device] = []
        for _ in range(30):
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=2e-2, abs=2e-3) and losses["cuda"][-1] < 0.5


@needs_card
def test_a_captured_step_equals_the_eager_one():
    def run(captured):
        net = network().cuda()
        optimizer = st.optim.AdamW(net.parameters(), lr=3e-3)
        x = st.randn(32, 1, 8, 8).cuda()
        y = (st.arange(32) % 10).cuda()

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        for _ in range(3):
            loss = step()
        if captured:
            g = st.cuda.CUDAGraph()
            with st.cuda.graph(g):
                loss = step()
            for _ in range(5):
                g.replay()
        else:
            for _ in range(5):
                loss = step()
        return loss.item(), [p.tolist() for p in net.parameters()]

    assert run(True) == run(False)


@needs_card
def test_autocast_checkpoint_functions_and_hooks():
    net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).cuda()
    x = st.randn(16, 64, device="cuda", requires_grad=True)
    with st.autocast("cuda", dtype=st.bfloat16):
        y = net(x)
        assert y.dtype is st.bfloat16
    y.float().sum().backward()
    plain = x.grad.clone()
    x.grad = None
    with st.autocast("cuda", dtype=st.bfloat16):
        y = st.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    y.float().sum().backward()
    assert x.grad.is_cuda and x.grad.equal(plain)

    seen = []

    class Double(st.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx, g):
            assert g.is_cuda and ctx.saved_tensors[0].is_cuda
            return g * 2

    w = st.ones(5, device="cuda", requires_grad=True)
    w.register_hook(lambda g: seen.append(str(g.device)))
    Double.apply(w).sum().backward()
    assert w.grad.tolist() == [2] * 5 and seen == ["cuda:0"]
    assert st.autograd.gradcheck(lambda a: (a @ a).tanh(), st.randn(3, 3, device="cuda", dtype=st.float64, requires_grad=True))


@needs_card
def test_copies_files_and_pickles(tmp_path):
    x = st.randn(7, 5).cuda()
    assert copy.deepcopy(x).is_cuda and copy.deepcopy(x).equal(x) and pickle.loads(pickle.dumps(x)).cpu().equal(x.cpu())
    net = network().cuda()
    st.save(net.state_dict(), tmp_path / "net.safetensors")
    other = network()
    for p in other.parameters():
        p.data.zero_()
    other.load_state_dict(st.load(tmp_path / "net.safetensors"))
    assert all(a.equal(b.cpu()) for a, b in zip(other.parameters(), net.parameters()))
    assert x.to("cpu").numpy().shape == (7, 5) and x[1:3, ::2].tolist() == x.cpu()[1:3, ::2].tolist()
    mask = x > 0
    assert x[mask].tolist() == x.cpu()[mask.cpu()].tolist()


@needs_card
def test_errors_are_pythons_and_lose_nothing():
    before = st.cuda.memory_allocated()
    with pytest.raises(MemoryError, match="cannot get 1024.0 TiB"):
        st.empty(1 << 50, dtype=st.uint8, device="cuda")
    assert st.cuda.memory_allocated() == before and st.ones(4, device="cuda").sum().item() == 4
    with pytest.raises(st.DeviceError):
        st.ones(1, device="cuda:99")
    with pytest.raises((st.ShapeError, ValueError), match="matmul"):
        st.ones(2, 3, device="cuda") @ st.ones(2, 3, device="cuda")
    weight = st.ones(5, 2, device="cuda")
    with pytest.raises(IndexError, match="embedding: index 7 is out of range for size 5"):
        nn.functional.embedding(st.tensor([1, 7], device="cuda"), weight).sum().item()
    with pytest.raises(IndexError, match="cross_entropy"):
        nn.functional.cross_entropy(weight, st.tensor([0, 1, 2, 0, 1], device="cuda")).item()
    assert weight.sum().item() == 10


@needs_card
def test_threads_each_with_a_stream():
    a = st.randn(256, 256, device="cuda")
    wanted = (a @ a).tolist()
    wrong = []

    def work():
        with st.cuda.stream(st.cuda.Stream()):
            for _ in range(20):
                if (a @ a).tolist() != wanted:
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@needs_card
def test_no_leak_over_100_000_tensors_on_the_card():
    x = st.ones(16, device="cuda", requires_grad=True)
    (x * 2).sum().backward()
    before = st.cuda.memory_allocated()
    for _ in range(25_000):
        y = (x * 2).relu()
        y.sum().backward()
        x.grad = None
    del y
    gc.collect()
    st.cuda.synchronize()
    assert st.cuda.memory_allocated() <= before


@needs_card
def test_a_trainer_on_the_card(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog and the cat sat on the mat\n" * 40)
    settings = {"model.layers": 2, "model.dim": 64, "model.heads": 4, "model.context": 32, "train.steps": 30, "train.batch": 8,
                "train.warmup": 2, "data.valid_fraction": 0.2, "train.device": "cuda", "data.path": text}
    first = st.Trainer(settings, out=tmp_path / "a").train()
    assert first.step == 30 and first.last["loss"] < 4.5
    assert st.Trainer(settings, out=tmp_path / "b").train().last["loss"] == first.last["loss"]


@needs_card
def test_a_plugins_kernel():
    path = os.environ.get("STRATA_CUDA_PLUGIN", "")
    if not os.path.exists(path):
        pytest.skip("STRATA_CUDA_PLUGIN names no library: examples/plugin/soft_cap is one")
    assert st.load_plugin(path).ops == ("soft_cap",)
    x = st.randn(1000, device="cuda", requires_grad=True)
    y = st.soft_cap(x, limit=2.0)
    assert y.is_cuda and y.allclose(2 * (x / 2).tanh(), atol=1e-5)
    y.sum().backward()
    assert x.grad.is_cuda and x.grad.allclose(1 - (x.detach() / 2).tanh() ** 2, atol=1e-5)
