"""Times and memory behind bindings/python/tests/test_rows.py, on the CPU or a card:

    python bench/rows.py [cpu|cuda [frozen|recurrence|sort|select|attention|weighted ...]]

Layers frozen by name (PockEngine), a recurrence and its steps one by one (FlashRNN), a sort of 32-bit keys (Onesweep),
k-selection beside a sort (Faiss), attention with and without matrix units beside separate ops (FastAttention), a convolution whose taps
have weights of their own beside conv2d (weighted convolution). Least of repeated calls, in milliseconds."""

import re
import sys
import time

import numpy as np

import strata as st
import strata.nn.functional as F
from strata import _core, nn

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
card = device == "cuda"


def least(call, seconds=2.0):
    """Milliseconds of the fastest of the calls that fit, after two to warm up."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        if card:
            st.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times[2:])


def frozen():
    dim, layers, rows = (2048, 12, 8192) if card else (512, 6, 512)
    parts = [nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(layers)]
    model = nn.Sequential(*parts, nn.Linear(dim, 10)).to(device)
    x, y = st.randn(rows, dim, device=device), st.randint(0, 10, (rows,), device=device)

    def step():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()

    ways = ("none", None), ("the lower half", rf"[0-{layers // 2 - 1}]\."), ("all but the biases", ".*weight$")
    for text, pattern in ways:
        for name, p in model.named_parameters():
            p.requires_grad_(pattern is None or not re.match(pattern, name))
        ms = least(step)
        model.zero_grad()
        place = st.device(device)
        _core.memory_reset_peak(place)
        before = _core.memory_stats(place)["live_total"]
        step()
        peak = _core.memory_stats(place)["peak_total"] - before
        print(f"frozen layers: {text:24} {ms:9.2f} ms {peak / 1e6:9.1f} MB")


def recurrence():
    for kind in ("LSTM", "GRU"):
        layer, cell = getattr(nn, kind)(256, 256).to(device), getattr(nn, f"{kind}Cell")(256, 256).to(device)
        x = st.randn(1024, 16, 256, device=device)

        def by_steps():
            state, outputs = None, []
            for step in x.unbind(0):
                state = cell(step, state)
                outputs.append(state[0] if kind == "LSTM" else state)
            st.stack(outputs).sum().backward()

        print(f"1024 steps of {kind:4}, both ways: {least(lambda: layer(x)[0].sum().backward()):9.2f} ms, "
              f"one by one {least(by_steps):9.2f} ms")
    layer = nn.SLSTM(256, 256).to(device)
    x = st.randn(1024, 16, 256, device=device)
    print(f"1024 steps of sLSTM, both ways: {least(lambda: layer(x)[0].sum().backward()):8.2f} ms")


def sort():
    n = 1 << (28 if card else 22)
    keys = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, n, dtype=np.int64).astype(np.int32)
    x = st.from_numpy(keys).to(device)
    ms = least(lambda: st.sort(x))
    print(f"sort of {n >> 20}M keys of 32 bits, with their places: {ms:9.2f} ms, {n / ms / 1e6:.3f} G keys/s")


def select():
    x = st.randn(16 if card else 1, 1_000_000, device=device)
    by_sort = least(lambda: st.sort(x, 1, descending=True))
    for k in (1, 32, 256, 1024):
        print(f"top {k:4} of rows of a million: {least(lambda: st.topk(x, k, 1)):9.2f} ms, by a sort {by_sort:9.2f} ms")


def attention():
    """Heads of 100, which are padded for the kernels with matrix units; a negative scale, of negated queries, keeps a call
    from those."""
    time_ = 4096 if card else 512
    for dtype in (st.float32, st.float16):
        q, k, v = (st.randn(1, 8, time_, 100, device=device).to(dtype) for _ in range(3))
        negated = -q
        with st.no_grad():
            apart = least(lambda: F.softmax(q @ k.transpose(-2, -1) * 0.1, -1) @ v)
            padded = least(lambda: F.scaled_dot_product_attention(q, k, v))
            ordinary = least(lambda: F.scaled_dot_product_attention(negated, k, v, scale=-0.1))
            print(f"attention of {time_} rows, heads of 100, {str(dtype):14}: {padded:9.2f} ms, without matrix units {ordinary:9.2f} ms, "
                  f"by separate ops {apart:9.2f} ms")


def weighted():
    """Forward and both gradients."""
    x = st.randn(64 if card else 4, 64, 56, 56, device=device, requires_grad=True)
    w, taps = st.randn(64, 64, 3, 3, device=device, requires_grad=True), st.rand(3, 3, device=device)
    g = st.randn(*x.shape, device=device)
    grad = st.autograd.grad
    plain = least(lambda: grad(F.conv2d(x, w, padding=1), (x, w), g))
    print(f"convolution with weighted taps: {least(lambda: grad(F.conv2d(x, w * taps, padding=1), (x, w), g)):9.3f} ms, conv2d {plain:9.3f} ms")


rows = {f.__name__: f for f in (frozen, recurrence, sort, select, attention, weighted)}
for name in sys.argv[2:] or rows:
    rows[name]()
