#!/usr/bin/env python3
"""PyTorch's side of the training comparison on a CUDA card: one model, one mode, one JSON object as last line.

Parameters and AdamW's two moments are f32 (16 bytes a parameter with the gradient), the forward pass runs under bf16
autocast, attention is scaled_dot_product_attention, the loss F.cross_entropy, the optimizer the fused AdamW. Batches are
copied from pinned memory. Under torchrun it is DistributedDataParallel with --batch rows a rank, or with --shard FSDP2, whose blocks are
gathered in bf16 and compiled one by one (as TorchTitan does), and rank 0 tells the tokens of all. No loss is read while the steps are timed: the clock runs from a synchronised start to a
synchronised end.

What PyTorch has for less of the card's memory: --saved host is torch.autograd.graph.save_on_cpu, --saved again recomputes each
block (torch.utils.checkpoint), and --offload is FSDP2 over one rank with f32 parameters, gradients and AdamW on the host
(CPUOffloadPolicy), blocks gathered in bf16 one by one; both may be given."""
import argparse
import contextlib
import functools
import json
import os
import sys
import time
import tomllib

import torch
import torch.nn as nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

import models

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tokens import make_tokens  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config", help="the TOML that strata trains with: sections model and train are read")
    p.add_argument("--mode", default="eager", choices=["eager", "compiled"])
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--lr", type=float, default=3e-4, help="constant")
    p.add_argument("--clip", type=float, default=0, help="largest norm of the gradient; 0 for no clipping")
    p.add_argument("--batch", type=int, default=0, help="0: the configuration's")
    p.add_argument("--vocab", type=int, default=0, help="0: the configuration's")
    p.add_argument("--saved", default="keep", choices=["keep", "host", "again"], help="what becomes of saved tensors")
    p.add_argument("--offload", action="store_true", help="FSDP2 with parameters and optimizer on the host")
    p.add_argument("--shard", action="store_true", help="FSDP2 over all ranks of torchrun instead of DistributedDataParallel")
    p.add_argument("--context", type=int, default=0, help="0: the configuration's")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    with open(a.config, "rb") as f:
        config = tomllib.load(f)
    model_config = config["model"]
    if a.vocab:
        model_config["vocab"] = a.vocab
    if a.context:
        model_config["context"] = a.context
    batch, context = a.batch or config["train"]["batch"], model_config["context"]
    cuda = a.device.startswith("cuda")
    synchronize = torch.cuda.synchronize if cuda else lambda: None

    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if ranks > 1:
        a.device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(a.device)
        torch.distributed.init_process_group("nccl", device_id=torch.device(a.device))
    if a.offload:
        if ranks > 1:
            sys.exit("--offload is for one rank")
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=0, world_size=1,
                                             store=torch.distributed.HashStore())

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device(a.device):
        model = models.make(model_config)
    if a.saved == "again":
        for block in model.blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if a.offload:
        shard = functools.partial(fsdp.fully_shard, offload_policy=fsdp.CPUOffloadPolicy(pin_memory=cuda),
                                  mesh=init_device_mesh("cuda" if cuda else "cpu", (1,)),
                                  mp_policy=fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32))
        for block in model.blocks:
            shard(block)
        shard(model)
    if a.shard:
        mixed = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in model.blocks:
            if a.mode == "compiled":
                block.compile()
            fsdp.fully_shard(block, mp_policy=mixed)
        fsdp.fully_shard(model, mp_policy=mixed)
    optimizer = models.adamw(model, a.lr, 0.1)
    run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) if ranks > 1 and not a.shard else model
    run = run if a.mode == "eager" or a.shard else torch.compile(run)

    tokens = torch.frombuffer(make_tokens(model_config["vocab"], 8 * ranks * batch * context + 1), dtype=torch.int32).long()
    pairs = []
    for i in range(8):
        at = (i * ranks + rank) * batch * context
        x, y = (tokens[at + d:at + d + batch * context].view(batch, context) for d in (0, 1))
        pairs.append((x.pin_memory(), y.pin_memory()) if cuda else (x, y))

    def saved():
        return torch.autograd.graph.save_on_cpu(pin_memory=cuda) if a.saved == "host" else contextlib.nullcontext()

    def step(i):
        x, y = (t.to(a.device, non_blocking=True) for t in pairs[i % 8])
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16), saved():
            loss = run(x, y)
        loss.backward()
        if a.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    start = time.perf_counter()
    first = step(0).item()
    synchronize()
    compile_s = time.perf_counter() - start
    for i in range(1, a.warmup):
        last = step(i)
    synchronize()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for i in range(a.steps):
        last = step(a.warmup + i)
    synchronize()
    seconds = (time.perf_counter() - start) / a.steps
    result = {"engine": "pytorch", "version": torch.__version__, "mode": a.mode, "family": model_config["family"],
              "parameters": sum(p.numel() for p in model.parameters()), "batch": batch, "context": context,
              "tokens_per_s": ranks * batch * context / seconds, "step_ms": 1e3 * seconds, "first_step_s": compile_s,
              "first_loss": first, "last_loss": last.item(), "saved": a.saved, "offload": a.offload, "shard": a.shard}
    if cuda:
        result |= {"peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                   "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
                   "device": torch.cuda.get_device_name()}
    if rank == 0:
        print(json.dumps(result | {"ranks": ranks}), flush=True)
    if ranks > 1 or a.offload:
        torch.distributed.destroy_process_group()


main()
