#!/usr/bin/env python3
"""PyTorch's side of cuda_rows_bench and cuda_sort_bench: the same ops, shapes and rotating inputs, eager and (with
--compile) through torch.compile; times between CUDA events, the median of rounds. Given the file that either wrote with
`--lines FILE`, prints both side by side, as fractions of the copy bandwidth that Strata's program measured in the same
run.

    cuda_rows.py FILE [--filter TEXT] [--compile NAME,NAME...]"""
import argparse

import torch
import torch.nn.functional as F

from device_time import ROTATE, device_ms


def several(sets, shape, dtype=torch.bfloat16):
    return [torch.randn(shape, device="cuda").to(dtype) for _ in range(sets)]


def sets_for(nbytes):
    return min(16, max(1, ROTATE // nbytes))


def counts_and_sorts(add, wanted):
    """cuda_sort_bench's own lines."""
    aten, many = torch.ops.aten, 1 << 24
    x = [torch.randint(0, 1000, (many,), device="cuda") for _ in range(2)]
    wide = [torch.randint(0, 1000000, (many,), device="cuda") for _ in range(2)]
    w = torch.rand(many, device="cuda")
    add("bincount 16M of 1000 i64", 2, torch.bincount, x)
    add("bincount 16M of 1000000 i64", 2, torch.bincount, wide)
    add("bincount weights 16M of 1000 i64", 2, lambda x: torch.bincount(x, w), x)
    add("unique 16M of 1000 i64", 2, torch.unique, x)
    add("unique 16M of 1000000 i64", 2, torch.unique, wide)
    both = lambda x: torch.unique(x, return_inverse=True, return_counts=True)
    add("unique inverse 16M of 1000000 i64", 2, both, wide)
    del x, wide
    rows = several(2, (256, 128256), torch.float32)
    size = " 256x128256 f32"
    add("cumsum" + size, 2, lambda x: x.cumsum(1), rows)
    add("cummax" + size, 2, lambda x: x.cummax(1), rows)
    add("topk50" + size, 2, lambda x: x.topk(50), rows)
    add("topk1000" + size, 2, lambda x: x.topk(1000), rows)
    add("kthvalue" + size, 2, lambda x: x.kthvalue(128256 // 2), rows)
    add("sort" + size, 2, lambda x: x.sort(stable=True), rows)
    del rows
    if wanted("sort 268M i32") or wanted("msort 268M i32"):
        long = [torch.randint(-1000000000, 1000000000, (1 << 28,), device="cuda", dtype=torch.int32)]
        add("sort 268M i32", 1, lambda x: x.sort(stable=True), long)
        add("msort 268M i32", 1, lambda x: x.msort(), long)
        del long
    one = several(4, (many,), torch.float32)
    add("cumsum 16M f32", 4, lambda x: x.cumsum(0), one)
    add("topk100 16M f32", 4, lambda x: x.topk(100), one)
    add("sort 2048x2048 f32", 8, lambda x: x.sort(stable=True), several(8, (2048, 2048), torch.float32))
    x = several(2, (2048, 32768), torch.float32)
    add("softmax 2048x32768 f32", 2, lambda x: torch.softmax(x, -1), x)
    add("log_softmax 2048x32768 f32", 2, lambda x: torch.log_softmax(x, -1), x)
    add("var_rows 16384x4096 f32", 2, lambda x: x.var(1), [t.view(16384, 4096) for t in x])
    n = 16384
    x, g = several(3, (2048, n), torch.float32), several(3, (2048, n), torch.float32)
    w, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    mean, rstd = torch.zeros(2048, 1, device="cuda"), torch.ones(2048, 1, device="cuda")
    grads = lambda g, x: aten.native_layer_norm_backward(g, x, [n], mean, rstd, w, b, [True, True, True])
    add("layer_norm_backward 2048x16384 f32", 3, grads, g, x)
    if hasattr(aten, "_fused_rms_norm_backward"):
        grads = lambda g, x: aten._fused_rms_norm_backward(g, x, [n], rstd, w, [True, True])
        add("rms_norm_backward 2048x16384 f32", 3, grads, g, x)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("lines")
    p.add_argument("--filter", default="")
    p.add_argument("--compile", default="", help="ops whose largest shape torch.compile is tried on")
    a = p.parse_args()
    ours, copy = {}, None
    for line in open(a.lines):
        name, nbytes, ms = line.rstrip("\n").split("\t")
        ours[name] = (float(nbytes), float(ms))
    if "copy" in ours:
        copy = ours["copy"][0] / ours["copy"][1]
    compiled = set(filter(None, a.compile.split(",")))
    aten = torch.ops.aten
    eager, fast = {}, {}

    def wanted(name):
        return name in ours and a.filter in name

    def add(name, sets, fn, *lists):
        if not wanted(name):
            return
        get = lambda f: (lambda i: f(*(l[i % len(l)] for l in lists)))
        try:
            eager[name] = device_ms(sets, get(fn))
        except Exception as e:
            print(f"{name}: {str(e)[:200]}")
        if name.split(" ")[0] in compiled and ("16384x4096" in name or "50304" in name):
            torch._dynamo.reset()
            try:
                fast[name] = device_ms(sets, get(torch.compile(fn, dynamic=False)))
            except Exception as e:
                print(f"{name}: compiled: {str(e)[:200]}")

    torch.set_grad_enabled(False)
    for rows, n in ((16384, 4096), (32768, 768), (8192, 2048), (2048, 16384)):
        sets = sets_for(2 * rows * n)
        x, g = several(sets, (rows, n)), several(sets, (rows, n))
        w, b = (torch.randn(n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        mean, rstd = torch.zeros(rows, 1, device="cuda"), torch.ones(rows, 1, device="cuda")
        size = f" {rows}x{n} bf16"
        add("rms_norm" + size, sets, lambda x: F.rms_norm(x, (n,), w), x)
        add("layer_norm" + size, sets, lambda x: F.layer_norm(x, (n,), w, b), x)

        def add_rms(x, g):
            s = x + g
            return s, F.rms_norm(s, (n,), w)

        def add_ln(x, g):
            s = x + g
            return s, F.layer_norm(s, (n,), w, b)

        add("add_rms_norm" + size, sets, add_rms, x, g)
        add("add_layer_norm" + size, sets, add_ln, x, g)
        add(
            "layer_norm_backward" + size,
            sets,
            lambda g, x: aten.native_layer_norm_backward(g, x, [n], mean, rstd, w, b, [True, True, True]),
            g,
            x,
        )
        if hasattr(aten, "_fused_rms_norm_backward"):
            add(
                "rms_norm_backward" + size,
                sets,
                lambda g, x: aten._fused_rms_norm_backward(g, x, [n], rstd, w, [True, True]),
                g,
                x,
            )
        del x, g
    for rows, n in ((16384, 4096), (65536, 1024), (2048, 32768)):
        sets = sets_for(2 * rows * n)
        x, g = several(sets, (rows, n)), several(sets, (rows, n))
        size = f" {rows}x{n} bf16"
        add("softmax" + size, sets, lambda x: torch.softmax(x, -1), x)
        add("log_softmax" + size, sets, lambda x: torch.log_softmax(x, -1), x)
        add("softmax_backward" + size, sets, lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype), g, x)
        add("log_softmax_backward" + size, sets, lambda g, y: aten._log_softmax_backward_data(g, y, -1, y.dtype), g, x)
        del x, g
    rows, n = 16384, 4096
    size = f" {rows}x{n} bf16"
    x, g = several(2, (rows, n)), several(2, (rows, n))
    bias = torch.randn(n, device="cuda").bfloat16()
    add("gelu" + size, 2, F.gelu, x)
    add("gelu_tanh" + size, 2, lambda x: F.gelu(x, approximate="tanh"), x)
    add("gelu_backward" + size, 2, lambda g, x: aten.gelu_backward(g, x), g, x)
    add("gelu_tanh_backward" + size, 2, lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), g, x)
    add("relu" + size, 2, F.relu, x)
    add("add" + size, 2, lambda x, g: x + g, x, g)
    add("mul" + size, 2, lambda x, g: x * g, x, g)
    add("add_bias" + size, 2, lambda x: x + bias, x)
    add("mul_number" + size, 2, lambda x: x * 1.5, x)
    add("to_f32" + size, 2, lambda x: x.float(), x)
    add("transpose" + size, 2, lambda x: x.t().contiguous(), x)
    add("narrow_copy" + size, 2, lambda x: x.narrow(1, 1024, 2048).contiguous(), x)
    add("heads_copy" + size, 2, lambda x: x.view(16, 1024, 64, 64).permute(0, 2, 1, 3).contiguous(), x)
    add("dropout" + size, 2, lambda x: F.dropout(x, 0.1), x)
    add("swiglu" + size, 2, lambda x: F.silu(x[:, : n // 2]) * x[:, n // 2 :], x)
    f = [t.float() for t in x]
    add("to_bf16" + size, 2, lambda x: x.bfloat16(), f)
    add("sum_all" + size, 2, lambda x: x.sum(), x)
    add("sum_rows" + size, 2, lambda x: x.sum(1), x)
    add("sum_columns" + size, 2, lambda x: x.sum(0), x)
    add("mean_rows" + size, 2, lambda x: x.mean(1), x)
    add("amax_rows" + size, 2, lambda x: x.amax(1), x)
    add("amax_columns" + size, 2, lambda x: x.amax(0), x)
    add("argmax_rows" + size, 2, lambda x: x.argmax(1), x)
    add("var_rows" + size, 2, lambda x: x.var(1), x)
    del x, g, f
    for rows, n in ((8192, 50304), (8192, 50257)):
        x = several(1, (rows, n))
        t = torch.randint(0, n, (rows,), device="cuda")
        size = f" {rows}x{n} bf16"
        add("cross_entropy" + size, 1, lambda x: F.cross_entropy(x, t), x)
        if f"cross_entropy_backward{size}" in ours and a.filter in f"cross_entropy_backward{size}":
            with torch.enable_grad():
                xr = x[0].detach().requires_grad_()
                loss = F.cross_entropy(xr, t)
                f = lambda i: torch.autograd.grad(loss, xr, retain_graph=True)
                eager[f"cross_entropy_backward{size}"] = device_ms(1, f)
                del xr, loss
        del x
    rows, n, vocab = 32768, 768, 50304
    ids = (torch.rand(rows, device="cuda").square() * vocab).long()
    half = torch.randn(vocab, n, device="cuda").bfloat16()
    add("embedding 32768 of 50304x768 bf16", 1, lambda w: F.embedding(ids, w), [half])
    for kind, sets, dtype in (("bf16", 4, torch.bfloat16), ("f32", 2, torch.float32)):
        g = several(sets, (rows, n), dtype)
        add(
            f"embedding_backward 32768 of 50304x768 {kind}",
            sets,
            lambda g: aten.embedding_dense_backward(g, ids, vocab, -1, False),
            g,
        )
        text = (torch.rand(rows, device="cuda").square() * 256).long()
        add(
            f"embedding_backward 32768 of 256x768 {kind}",
            sets,
            lambda g: aten.embedding_dense_backward(g, text, 256, -1, False),
            g,
        )
    if any(name.startswith(("bincount", "unique", "cumsum", "topk", "sort", "msort")) for name in ours):
        counts_and_sorts(add, wanted)
    shapes = [(50304, 768), (1024, 768)]
    block = [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,), (3072, 768), (3072,), (768, 3072)]
    shapes += 12 * (block + [(768,)])
    if "adamw GPT-2 124M f32" in ours and a.filter in "adamw GPT-2 124M f32":
        params = [torch.randn(s, device="cuda").requires_grad_() for s in shapes]
        for q in params:
            q.grad = torch.randn_like(q)
        opt = torch.optim.AdamW(params, fused=True)
        eager["adamw GPT-2 124M f32"] = device_ms(1, lambda i: opt.step())

        def clipped(i):
            torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
            opt.step()

        eager["adamw clipped GPT-2 124M f32"] = device_ms(1, clipped)

    print(f"| op | Strata ms | GB/s | of copy | PyTorch {torch.__version__} ms | compiled ms | PyTorch's best / Strata |")
    print("|---|---|---|---|---|---|---|")
    for name, (nbytes, ms) in ours.items():
        times = [t for t in (eager.get(name), fast.get(name)) if t]
        rate = nbytes / ms
        show = lambda t: f"{t:.4f}" if t else ""
        share = f"{100 * rate / copy:.0f}%" if copy else ""
        ratio = f"{min(times) / ms:.2f}" if times else ""
        print(
            f"| {name} | {ms:.4f} | {rate * 1e-6:.0f} | {share} | {show(eager.get(name))} | {show(fast.get(name))} | {ratio} |"
        )


main()
