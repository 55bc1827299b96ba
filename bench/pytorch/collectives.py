#!/usr/bin/env python3
"""PyTorch's side of dist_bench: the same collectives by torch.distributed over NCCL, a JSON object a line from rank 0.

    python3 -m torch.distributed.run --nproc-per-node 4 bench/pytorch/collectives.py [--mib 1024]"""
import argparse
import json
import os

import torch
import torch.distributed as dist

WARM, TIMED, IN_GRAPH = 3, 10, 20


def milliseconds(count, f):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        f()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mib", type=int, default=1024)
    a = p.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    n, rank = dist.get_world_size(), dist.get_rank()
    count = (a.mib << 20) // 4 // n * n
    x, y = torch.zeros(count, device="cuda"), torch.zeros(count, device="cuda")
    part, out = x[:count // n], y[:count // n]
    moved = count * 4 * (n - 1) / n
    cases = {"all_reduce": (2 * moved, lambda: dist.all_reduce(x)),
             "all_gather": (moved, lambda: dist.all_gather_into_tensor(y, part)),
             "reduce_scatter": (moved, lambda: dist.reduce_scatter_tensor(out, x)),
             "all_to_all": (moved, lambda: dist.all_to_all_single(y, x))}
    for name, (bus_bytes, call) in cases.items():
        milliseconds(WARM, call)
        ms = milliseconds(TIMED, call)
        if rank == 0:
            print(json.dumps({"what": name, "ranks": n, "mib": a.mib, "ms": ms, "bus_gb_s": bus_bytes / ms / 1e6}), flush=True)
    small = torch.zeros((64 << 10) // 4, device="cuda")
    dist.all_reduce(small)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            dist.all_reduce(small)
    milliseconds(WARM, graph.replay)
    us = 1e3 * milliseconds(TIMED, graph.replay) / IN_GRAPH
    if rank == 0:
        print(json.dumps({"what": "64 KiB all_reduce in a graph", "ranks": n, "us": us}), flush=True)
    torch.cuda.synchronize()
    del graph
    # What a gather of 64 MiB adds to two products beside it.
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    whole = torch.zeros((64 << 20) // 4, device="cuda")
    own = whole[:whole.numel() // n].clone()

    def products():
        for _ in range(2):
            torch.mm(a, b)

    def both():
        work = dist.all_gather_into_tensor(whole, own, async_op=True)
        products()
        work.wait()

    times = {products: [], both: []}
    for _ in range(5):
        for call in (products, both):
            dist.barrier()
            milliseconds(WARM, call)
            times[call].append(milliseconds(TIMED, call))
    alone, together = min(times[products]), min(times[both])
    if rank == 0:
        print(json.dumps({"what": "64 MiB gather beside products", "ranks": n, "us": 1e3 * (together - alone), "products_ms": alone}), flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
