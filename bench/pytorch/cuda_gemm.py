#!/usr/bin/env python3
"""PyTorch's side of cuda_gemm_bench: the same bf16 products of a training step (F.linear, and the products of its two
gradients), times between CUDA events, medians. Given the file that `cuda_gemm_bench --lines FILE` wrote, prints both side by
side.

    cuda_gemm.py FILE [--seconds 0.05]"""
import argparse

import torch
import torch.nn.functional as F


def median_ms(seconds, f):
    for _ in range(3):
        f()
    times = []
    while sum(times) * 4 < 1e3 * seconds and len(times) < 200:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(4):
            f()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 4)
    return sorted(times)[len(times) // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lines")
    p.add_argument("--seconds", type=float, default=0.05)
    a = p.parse_args()
    torch.set_grad_enabled(False)
    numbers = lambda scale, *shape: torch.empty(shape, device="cuda").uniform_(-scale, scale).bfloat16()
    directions = ("forward", "d input", "d weight")
    print("| product | " + " | ".join(f"{d} ms | TFLOP/s | PyTorch {torch.__version__} / Strata" for d in directions) + " |")
    print("|---" * (1 + 3 * len(directions)) + "|")
    for line in open(a.lines):
        name, rows, out, columns, bias, *ours = line.rstrip("\n").split("\t")
        rows, out, columns = int(rows), int(out), int(columns)
        # A name that ends so has its gradient in a wider tensor, whose rows begin at multiples of 16 bytes.
        room = 50304 if name.endswith("rows of 50304") else out
        x, w, g = numbers(1, rows, columns), numbers(0.05, out, columns), numbers(1, rows, room)[:, :out]
        b = numbers(1, out) if bias == "1" else None
        theirs = [median_ms(a.seconds, f) for f in (lambda: F.linear(x, w, b), lambda: g @ w, lambda: g.t() @ x)]
        flops = 2e-9 * rows * out * columns
        cells = [f"{float(o):.4f} | {flops / float(o):.0f} | {t / float(o):.2f}" for o, t in zip(ours, theirs)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        del x, w, g, b


main()
