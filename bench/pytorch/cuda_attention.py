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

from device_time import ROTATE, device_ms

KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)


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


def measure_varlen(d, heads):
    """The same for 16384 rows in sequences of cuda_attention_bench's lengths, through flash."""
    ends = [0]
    while ends[-1] < 16384:
        ends.append(ends[-1] + min(64 + len(ends) * 397 % 1500, 16384 - ends[-1]))
    most = max(b - a for a, b in zip(ends, ends[1:]))
    ends = torch.tensor(ends, device="cuda", dtype=torch.int32)
    several = lambda: [torch.randn(16384, heads, d, device="cuda").bfloat16().requires_grad_() for _ in range(4)]
    q, k, v, g = several(), several(), several(), several()
    flash = torch.ops.aten._flash_attention_forward
    run = lambda i: flash(q[i], k[i], v[i], ends, ends, most, most, 0.0, True, False)[0]
    with torch.no_grad():
        forward = device_ms(4, run)
    y = [run(i) for i in range(4)]
    backward = device_ms(4, lambda i: torch.autograd.grad(y[i], (q[i], k[i], v[i]), g[i], retain_graph=True))
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

    print(f"| TFLOP/s | Strata | ms | flash of PyTorch {torch.__version__} | cuDNN | Strata / best |")
    print("|---|---|---|---|---|---|")

    def show(name, times):
        if name not in ours:
            return
        flop, ms = ours[name]
        rate = lambda t: f"{flop / t * 1e-9:.0f}" if t else ""
        best = min((t for t in times if t), default=None)
        ratio = f"{best / ms:.2f}" if best else ""
        print(f"| {name} | {rate(ms)} | {ms:.4f} | {' | '.join(map(rate, times))} | {ratio} |", flush=True)

    def attempt(name, f, *args):
        try:
            return f(*args)
        except Exception as e:
            print(f"{name}: {args[-1]}: {str(e)[:200]}")
            return None, None

    for name in ours:
        if a.filter not in name:
            continue
        if found := re.fullmatch(r"attention D(\d+) S(\d+) B(\d+) H(\d+)/(\d+)( causal)?", name):
            shape = (*map(int, found.groups()[:5]), found.group(6) is not None)
            theirs = [attempt(name, measure, shape, kernel) for kernel in KERNELS]
            show(name, [t[0] for t in theirs])
            show(name.replace("attention", "attention_backward"), [t[1] for t in theirs])
        elif found := re.fullmatch(r"varlen D(\d+) T16384 N\d+ H(\d+) causal", name):
            flash = attempt(name, measure_varlen, int(found.group(1)), int(found.group(2)))
            show(name, [flash[0], None])
            show(name.replace("varlen", "varlen_backward"), [flash[1], None])
            show(name.replace("varlen", "one by one"), [flash[0], None])


main()
