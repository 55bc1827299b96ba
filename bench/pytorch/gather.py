#!/usr/bin/env python3
"""PyTorch's side of gather_bench: rows of a page-locked table, indexed on the processor and copied (what PyTorch offers), for the
same tables, counts and random rows. Given the file that gather_bench wrote with `--lines FILE`, prints both side by side.

    gather.py FILE"""
import sys
import time

import torch

TABLE = 2 << 30
# name: width, dtype, length of the rows that these are part of, rows gathered
CASES = {
    "256 f32": (256, torch.float32, 256, 262144),
    "64 f32": (64, torch.float32, 64, 262144),
    "100 f32": (100, torch.float32, 100, 262144),
    "128 f32": (128, torch.float32, 128, 262144),
    "1024 f32": (1024, torch.float32, 1024, 262144),
    "602 f32": (602, torch.float32, 602, 262144),
    "32 f32": (32, torch.float32, 32, 262144),
    "301 bf16": (301, torch.bfloat16, 301, 262144),
    "1001 u8": (1001, torch.uint8, 1001, 262144),
    "256 f32 of rows of 259": (256, torch.float32, 259, 262144),
    "256 f32, a million": (256, torch.float32, 256, 1000000),
    "100 f32, a million": (100, torch.float32, 100, 1000000),
}


def seconds(f):
    f()
    best, total = 1e9, 0.0
    while total < 0.5:
        torch.cuda.synchronize()
        t = time.perf_counter()
        f()
        torch.cuda.synchronize()
        t = time.perf_counter() - t
        best, total = min(best, t), total + t
    return best


def main():
    print(f"| rows | Strata GB/s | PyTorch {torch.__version__} GB/s | times |\n|---|---|---|---|")
    store = torch.ones(TABLE, dtype=torch.uint8).pin_memory()
    for line in open(sys.argv[1]):
        name, nbytes, ms = line.rstrip("\n").split("\t")
        if name not in CASES:
            continue
        width, dtype, longer, n = CASES[name]
        size = torch.empty(0, dtype=dtype).element_size()
        rows = TABLE // (longer * size)
        table = store[: rows * longer * size].view(dtype).view(rows, longer)[:, :width]
        index = torch.randint(0, rows, (n,))
        out = torch.empty(n, width, dtype=dtype).pin_memory()

        def gather():
            torch.index_select(table, 0, index, out=out)
            return out.to("cuda", non_blocking=True)

        theirs = float(nbytes) / seconds(gather) * 1e-9
        ours = float(nbytes) / float(ms) * 1e-6
        print(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.1f} |", flush=True)


main()
