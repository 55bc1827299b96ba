"""PyTorch's pipelining (torch.distributed.pipelining), the stages of pipeline_bench --products on a card each:
    torchrun --nproc-per-node 4 bench/pytorch/pipeline.py [--micro-batches 8] [--products 4096] [--rows 4096] [--dtype bf16]
Rank 0 writes a JSON object a line: a schedule's step time, the slowest rank's, median of the steps."""
import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.distributed import pipelining

WARM, STEPS = 3, 10


def schedules():
    """Name here, its class, stages a rank, the stages of rank r of p."""
    def loop(r, p, v):
        return [r + p * i for i in range(v)]

    def vee(r, p, _):
        return [r, 2 * p - 1 - r]

    return [("gpipe", "ScheduleGPipe", 1, loop), ("1f1b", "Schedule1F1B", 1, loop), ("interleaved", "ScheduleInterleaved1F1B", 2, loop),
            ("zb interleaved", "ScheduleInterleavedZeroBubble", 2, loop), ("zb-v", "ScheduleZBVZeroBubble", 2, vee)]


def run(a, name, cls, v, place, device):
    rank, p = dist.get_rank(), dist.get_world_size()
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[a.dtype]
    mine, count = place(rank, p, v), p * v
    stages = []
    for s in mine:
        layers = [torch.nn.Linear(a.products, a.products, bias=False, device=device, dtype=dtype) for _ in range(8 // v)]
        stages.append(pipelining.PipelineStage(torch.nn.Sequential(*layers), s, count, device))
    make = getattr(pipelining, cls, None) or getattr(pipelining.schedules, cls)
    schedule = make(stages[0] if v == 1 else stages, a.micro_batches, loss_fn=lambda y, _: y.float().mean())
    x = torch.ones(a.micro_batches * a.rows, a.products, device=device, dtype=dtype)
    given = (x,) if 0 in mine else ()
    more = {"target": x, "losses": []} if count - 1 in mine else {}
    times = []
    for _ in range(WARM + STEPS):
        for stage in stages:
            stage.submod.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        schedule.step(*given, **more)
        end.record()
        torch.cuda.synchronize()
        slowest = torch.tensor([begin.elapsed_time(end)], device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.append(slowest.item())
    if rank == 0:
        print(json.dumps({"schedule": name, "ranks": p, "micro_batches": a.micro_batches, "measured_ms": round(sorted(times[WARM:])[STEPS // 2], 3),
                          "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--micro-batches", type=int, default=8)
    p.add_argument("--products", type=int, default=4096, help="width of the layers")
    p.add_argument("--rows", type=int, default=4096, help="of a micro-batch")
    p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    a = p.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    for name, cls, v, place in schedules():
        try:
            run(a, name, cls, v, place, device)
        except Exception as e:  # the others go on: which schedules there are depends on the version
            if dist.get_rank() == 0:
                print(json.dumps({"schedule": name, "error": f"{type(e).__name__}: {e}"[:300]}), flush=True)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    dist.destroy_process_group()


main()
