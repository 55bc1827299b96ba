#!/usr/bin/env python3
"""PyTorch's side of the kernel comparison: the shapes of bench/fused_bench.cpp. One JSON object a line with the median
time in microseconds; forward and backward are timed apart."""
import argparse
import json
import time

import torch
import torch.nn.functional as F


def median_us(fn, seconds=0.4):
    for _ in range(3):
        fn()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        t = time.perf_counter()
        fn()
        times.append(time.perf_counter() - t)
    times.sort()
    return round(times[len(times) // 2] * 1e6, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)

    def report(name, dtype, shape, us):
        print(json.dumps({"kernel": name, "dtype": dtype, "shape": shape, "threads": a.threads, "engine": "pytorch", "us": us}), flush=True)

    for name, dt in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        rows, cols = 4096, 4096
        x = torch.randn(rows, cols, dtype=dt)
        g = torch.randn(rows, cols, dtype=dt)
        w, b = torch.ones(cols, dtype=dt), torch.zeros(cols, dtype=dt)
        forward = {
            "softmax": lambda x: torch.softmax(x, -1),
            "layer_norm": lambda x: F.layer_norm(x, (cols,), w, b),
            "rms_norm": lambda x: F.rms_norm(x, (cols,), w),
            "gelu": lambda x: F.gelu(x, approximate="tanh"),
        }
        for op, f in forward.items():
            report(op, name, [rows, cols], median_us(lambda: f(x)))
            xr = x.clone().requires_grad_()
            y = f(xr)
            report(op + "_backward", name, [rows, cols], median_us(lambda: torch.autograd.grad(y, xr, g, retain_graph=True)))
        logits = torch.randn(4096, 8192, dtype=dt)
        target = torch.randint(0, 8192, (4096,))
        report("cross_entropy", name, [4096, 8192], median_us(lambda: F.cross_entropy(logits, target)))
        lr = logits.clone().requires_grad_()
        loss = F.cross_entropy(lr, target)
        report("cross_entropy_backward", name, [4096, 8192], median_us(lambda: torch.autograd.grad(loss, lr, retain_graph=True)))
        for shape in ((8, 8, 256, 32), (16, 8, 256, 64), (2, 8, 2048, 64)):
            q, k, v = (torch.randn(*shape, dtype=dt, requires_grad=True) for _ in range(3))
            fn = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
            with torch.no_grad():
                report("attention", name, list(shape), median_us(fn))
            y = fn()
            gy = torch.randn_like(y)
            report("attention_backward", name, list(shape), median_us(lambda: torch.autograd.grad(y, (q, k, v), gy, retain_graph=True)))
    n = 32 << 20
    param = torch.randn(n, requires_grad=True)
    param.grad = torch.randn(n)
    opt = torch.optim.AdamW([param], lr=1e-3, fused=True)
    report("adamw", "f32", [n], median_us(opt.step))
    x4 = torch.ones(4)
    y4 = torch.ones(4)
    xg = torch.ones(4, requires_grad=True)

    def many(f):
        for _ in range(1000):
            f()

    report("add4_from_python", "f32", [4], round(median_us(lambda: many(lambda: x4 + y4)) / 1000, 4))
    report("add4_grad_from_python", "f32", [4], round(median_us(lambda: many(lambda: xg + y4)) / 1000, 4))


main()
