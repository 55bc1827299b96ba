#!/usr/bin/env python3
"""PyTorch's side of experts_bench: a layer of experts over the ranks of torchrun, forward and backward in bf16. Tokens are sorted by
expert, go to their experts' ranks by all_to_all_single with the counts that the host reads, through _grouped_mm, and back."""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

WARM, TIMED = 3, 20


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gets, gives):
        ctx.gets, ctx.gives = gets, gives
        y = x.new_empty(sum(gets), x.shape[1])
        dist.all_to_all_single(y, x.contiguous(), gets, gives)
        return y

    @staticmethod
    def backward(ctx, g):
        x = g.new_empty(sum(ctx.gives), g.shape[1])
        dist.all_to_all_single(x, g.contiguous(), ctx.gives, ctx.gets)
        return x, None, None


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--device", default="cuda")
    p.add_argument("--sizes", type=int, nargs=5, default=[8192, 2048, 1024, 32, 4], help="tokens of a rank, dim, width, experts, per token")
    a = p.parse_args()
    tokens, dim, width, experts, each = a.sizes
    cuda = a.device == "cuda"
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
    n, rank = dist.get_world_size(), dist.get_rank()
    own = experts // n
    torch.manual_seed(1 + rank)

    def drawn(*shape):
        return (torch.randn(*shape, device=device) * 0.02).bfloat16().requires_grad_()

    router, up, down = drawn(experts, dim), drawn(own, dim, 2 * width), drawn(own, width, dim)
    x = torch.randn(tokens, dim, device=device).bfloat16().requires_grad_()
    gradient = torch.randn(tokens, dim, device=device).bfloat16()

    def products(rows, counts):
        offsets = counts.cumsum(0).int()
        gate, value = torch._grouped_mm(rows, up, offs=offsets).chunk(2, -1)
        return torch._grouped_mm(F.silu(gate) * value, down, offs=offsets)

    def layer(x):
        scores = F.softmax((x @ router.t()).float(), -1)
        weights, chosen = scores.topk(each, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        gives, gets = counts.view(n, own).sum(1).tolist(), theirs.view(n, own).sum(1).tolist()  # the host waits
        come = Exchange.apply(x[order // each], gets, gives)
        # By rank, then by expert: as experts want them.
        of = torch.arange(own, device=device).repeat(n).repeat_interleave(theirs)
        sort = of.argsort(stable=True)
        done = torch.empty_like(come).index_copy(0, sort, products(come[sort], theirs.view(n, own).sum(0)))
        back = Exchange.apply(done, gives, gets)
        rows = torch.empty_like(back).index_copy(0, order, back)
        return (rows.view(tokens, each, dim) * weights.unsqueeze(-1)).sum(1)

    def time_of(call):
        def step():
            call(x).backward(gradient)
            for t in (x, router, up, down):
                t.grad = None

        for _ in range(WARM):
            step()
        if cuda:
            torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(TIMED):
            step()
        if cuda:
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / TIMED

    flop = 3 * 2 * 3 * tokens * each * dim * width
    for what, call in (("all that come", layer), ("all that come, compiled", torch.compile(layer))):
        if not cuda and "compiled" in what:
            continue
        try:
            ms = time_of(call)
        except Exception as e:  # what the compiler does not take
            print(f"{what}: {type(e).__name__}: {e}"[:500], flush=True)
            continue
        if rank == 0:
            print(json.dumps({"what": what, "ranks": n, "ms": ms, "tflops": flop / ms / 1e9}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
