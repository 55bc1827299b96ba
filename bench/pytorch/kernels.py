#!/usr/bin/env python3
"""PyTorch's side of the kernel comparison: the shapes of bench/fused_bench.cpp. One JSON object a line with the median
time in microseconds; forward and backward are timed apart.

Strata's kernels write into memory that was touched before. So do PyTorch's here wherever it has such a form ("results":
"given"): softmax, layer_norm, gelu and cross_entropy, forward and backward, the latter by the very operators that
autograd calls (so cross_entropy is log_softmax and nll_loss, and layer_norm's backward includes weight and bias). rms_norm
and attention have none on the CPU: their rows allocate ("results": "allocated"). "best_us" is the fastest call, as
Strata's benchmarks report, "us" the median."""
import argparse
import json
import time

import torch
import torch.nn.functional as F


def times_us(fn, seconds=0.4):
    for _ in range(3):
        fn()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        t = time.perf_counter()
        fn()
        times.append(time.perf_counter() - t)
    times.sort()
    return times[len(times) // 2] * 1e6, times[0] * 1e6


def given_forms(x, g, w, b):
    """name -> (forward, backward) that write into results allocated once."""
    aten, cols = torch.ops.aten, [x.shape[-1]]
    y, gx, gw, gb = (torch.zeros_like(t) for t in (x, x, w, b))
    y_softmax = torch.softmax(x, -1)
    _, m, r = torch.native_layer_norm(x, cols, w, b, 1e-5)
    mean, rstd = torch.zeros_like(m), torch.zeros_like(r)
    return {
        "softmax": (
            lambda: torch.softmax(x, -1, out=y),
            lambda: aten._softmax_backward_data.out(g, y_softmax, -1, x.dtype, grad_input=gx),
        ),
        "layer_norm": (
            lambda: aten.native_layer_norm.out(x, cols, w, b, 1e-5, out0=y, out1=mean, out2=rstd),
            lambda: aten.native_layer_norm_backward.out(
                g, x, cols, m, r, w, b, [True, True, True], out0=gx, out1=gw, out2=gb
            ),
        ),
        "gelu": (
            lambda: aten.gelu.out(x, approximate="tanh", out=y),
            lambda: aten.gelu_backward.grad_input(g, x, approximate="tanh", grad_input=gx),
        ),
    }


def given_cross_entropy(logits, target):
    aten = torch.ops.aten
    logp, g1, g2 = (torch.zeros_like(logits) for _ in range(3))
    loss, weight, one = (torch.ones((), dtype=logits.dtype) for _ in range(3))

    def forward():
        aten._log_softmax.out(logits, -1, False, out=logp)
        aten.nll_loss_forward.output(logp, target, None, 1, -100, output=loss, total_weight=weight)

    def backward():
        aten.nll_loss_backward.grad_input(one, logp, target, None, 1, -100, weight, grad_input=g1)
        aten._log_softmax_backward_data.out(g1, logp, -1, logits.dtype, out=g2)

    forward()
    return forward, backward


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)

    def report(name, dtype, shape, us, results, calls=1):
        row = {"kernel": name, "dtype": dtype, "shape": shape, "threads": a.threads, "engine": "pytorch"}
        row.update({"us": round(us[0] / calls, 4), "best_us": round(us[1] / calls, 4), "results": results})
        print(json.dumps(row), flush=True)

    for name, dt in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        rows, cols = 4096, 4096
        x = torch.randn(rows, cols, dtype=dt)
        g = torch.randn(rows, cols, dtype=dt)
        w, b = torch.ones(cols, dtype=dt), torch.zeros(cols, dtype=dt)
        for op, (forward, backward) in given_forms(x, g, w, b).items():
            report(op, name, [rows, cols], times_us(forward), "given")
            report(op + "_backward", name, [rows, cols], times_us(backward), "given")
        report("rms_norm", name, [rows, cols], times_us(lambda: F.rms_norm(x, (cols,), w)), "allocated")
        xr, wr = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = F.rms_norm(xr, (cols,), wr)
        backward = lambda: torch.autograd.grad(y, (xr, wr), g, retain_graph=True)
        report("rms_norm_backward", name, [rows, cols], times_us(backward), "allocated")
        logits = torch.randn(4096, 8192, dtype=dt)
        target = torch.randint(0, 8192, (4096,))
        forward, backward = given_cross_entropy(logits, target)
        report("cross_entropy", name, [4096, 8192], times_us(forward), "given")
        report("cross_entropy_backward", name, [4096, 8192], times_us(backward), "given")
        for shape in ((8, 8, 256, 32), (16, 8, 256, 64), (2, 8, 2048, 64)):
            q, k, v = (torch.randn(*shape, dtype=dt, requires_grad=True) for _ in range(3))
            fn = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
            with torch.no_grad():
                report("attention", name, list(shape), times_us(fn), "allocated")
            y = fn()
            gy = torch.randn_like(y)
            backward = lambda: torch.autograd.grad(y, (q, k, v), gy, retain_graph=True)
            report("attention_backward", name, list(shape), times_us(backward), "allocated")
    n = 32 << 20
    param = torch.randn(n, requires_grad=True)
    param.grad = torch.randn(n)
    opt = torch.optim.AdamW([param], lr=1e-3, fused=True)
    report("adamw", "f32", [n], times_us(opt.step), "given")
    x4 = torch.ones(4)
    y4 = torch.ones(4)
    xg = torch.ones(4, requires_grad=True)

    def many(f):
        for _ in range(1000):
            f()

    report("add4_from_python", "f32", [4], times_us(lambda: many(lambda: x4 + y4)), "allocated", 1000)
    report("add4_grad_from_python", "f32", [4], times_us(lambda: many(lambda: xg + y4)), "allocated", 1000)


main()
