#!/usr/bin/env python3
"""PyTorch's side of cuda_attention_bench: scaled_dot_product_attention with the kernels of flash and of cuDNN on the same
shapes and rotating inputs, forward and backward; times between CUDA events, the median of rounds. Given the file that
`cuda_attention_bench --lines FILE` wrote, prints all side by side in TFLOP/s.

    cuda_attention.py FILE [--filter TEXT]"""
import argparse
import re

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROTATE = 200 << 20
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def device_ms(sets, f, rounds=11):
    calls = max(sets, 4)
    for i in range(calls):
        f(i % sets)
    at = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    at[0].record()
    for r in range(rounds):
        for i in range(calls):
            f(i % sets)
        at[r + 1].record()
    torch.cuda.synchronize()
    ms = sorted(at[r].elapsed_time(at[r + 1]) / calls for r in range(rounds))
    return ms[rounds // 2]


def measure(shape, kernel):
    """Milliseconds of forward and backward."""
    d, time, batch, heads, kv_heads, causal = shape
    nbytes = 2 * batch * time * d * (heads + 2 * kv_heads)
    sets = min(16, max(2, ROTATE // nbytes))

    def several(h):
        make = lambda: torch.randn(batch, time, h, d, device="cuda").bfloat16().transpose(1, 2)
        return [make().requires_grad_() for _ in range(sets)]

    q, k, v, g = several(heads), several(kv_heads), several(kv_heads), several(heads)
    run = lambda i: F.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=causal, enable_gqa=heads != kv_heads)
    with sdpa_kernel(kernel):
        with torch.no_grad():
            forward = device_ms(sets, run)
        y = [run(i) for i in range(sets)]
        backward = device_ms(sets, lambda i: torch.autograd.grad(y[i], (q[i], k[i], v[i]), g[i], retain_graph=True))
    return forward, backward


def main():
    p = argparse.ArgumentParser()
    p.add_argument("lines")
    p.add_argument("--filter", default="")
    a = p.parse_args()
    ours = {}
    for line in open(a.lines):
        name, flop, ms = line.rstrip("\n").split("\t")
        ours[name] = (float(flop), float(ms))
    theirs = {}
    for name in ours:
        found = re.fullmatch(r"attention D(\d+) S(\d+) B(\d+) H(\d+)/(\d+)( causal)?", name)
        if not found or a.filter not in name:
            continue
        shape = (*map(int, found.groups()[:5]), found.group(6) is not None)
        for label, kernel in KERNELS.items():
            try:
                both = measure(shape, kernel)
            except Exception as e:
                print(f"{name}: {label}: {str(e)[:200]}")
                continue
            theirs[label, name] = both[0]
            theirs[label, name.replace("attention", "attention_backward")] = both[1]

    print(f"| TFLOP/s | Strata | ms | flash of PyTorch {torch.__version__} | cuDNN | Strata / best |")
    print("|---|---|---|---|---|---|")
    for name, (flop, ms) in ours.items():
        times = [theirs.get((label, name)) for label in KERNELS]
        rate = lambda t: f"{flop / t * 1e-9:.0f}" if t else ""
        best = min((t for t in times if t), default=None)
        ratio = f"{best / ms:.2f}" if best else ""
        print(f"| {name} | {rate(ms)} | {ms:.4f} | {' | '.join(map(rate, times))} | {ratio} |")


main()
