import pytest

import strata as st

needs_card = pytest.mark.skipif(not st.cuda.is_available(), reason=f"no CUDA device: {st.cuda.unavailable_reason()}")


@pytest.mark.skipif(st.cuda.is_available(), reason="there is a card")
def test_without_a_card_everything_says_why():
    assert st.cuda.device_count() == 0 and st.cuda.unavailable_reason()
    assert st.cuda.memory_allocated() == 0 and st.cuda.max_memory_reserved() == 0
    for use in (lambda: st.ones(1).cuda(), lambda: st.ones(1, device="cuda"), st.cuda.get_device_name, st.cuda.Stream,
                st.cuda.synchronize, lambda: st.cuda.CUDAGraph().capture(lambda: None), lambda: st.cuda.Event().record()):
        with pytest.raises(st.DeviceError):
            use()


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
