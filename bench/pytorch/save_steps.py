#!/usr/bin/env python3
"""Steps of FSDP2 (blocks compiled) under torchrun while torch.distributed.checkpoint.async_save writes: one JSON object."""
import argparse
import json
import os
import sys
import time
import tomllib

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed import fsdp
from torch.distributed.checkpoint.state_dict import get_state_dict

import models

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tokens import make_tokens  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("config")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--context", type=int, default=0)
    p.add_argument("--vocab", type=int, default=0)
    p.add_argument("--out", required=True)
    p.add_argument("--at", type=int, default=30)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--eager", action="store_true")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    with open(a.config, "rb") as f:
        config = tomllib.load(f)["model"]
    config |= {"vocab": a.vocab or config["vocab"], "context": a.context or config["context"]}
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = a.device == "cuda"
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
    writers = torch.distributed.new_group(backend="gloo")
    torch.manual_seed(1)
    with torch.device(device):
        model = models.make(config)
    mixed = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model.blocks:
        if not a.eager:
            block.compile()
        fsdp.fully_shard(block, mp_policy=mixed)
    fsdp.fully_shard(model, mp_policy=mixed)
    decay, rest = [x for x in model.parameters() if x.dim() >= 2], [x for x in model.parameters() if x.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=3e-4, weight_decay=0.1, fused=cuda)
    tokens = torch.frombuffer(make_tokens(config["vocab"], a.batch * config["context"] + 1, seed=1 + rank), dtype=torch.int32).long()
    x, y = (tokens[d:d + a.batch * config["context"]].view(a.batch, -1).to(device) for d in (0, 1))

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()

    took, meanwhile, written, begun, future = [], [], 0.0, 0.0, None
    for i in range(1, a.steps + 1):
        start = time.perf_counter()
        if i == a.at + 1:
            # What copying costs is the step's in which it happens.
            begun = start
            weights, state = get_state_dict(model, optimizer)
            future = dcp.async_save({"model": weights, "optimizer": state}, checkpoint_id=a.out, process_group=writers)
        step()
        seconds = time.perf_counter() - start
        if i <= a.at:
            took.append(seconds)
        elif future is not None:
            meanwhile.append(seconds)
            # All ranks go on alike, whoever has done writing.
            if future.done() and written == 0.0:
                written = time.perf_counter() - begun
                future = None
    if future is not None:
        future.result()
        written = time.perf_counter() - begun
    if rank == 0:
        print(json.dumps({"before_s": sum(took[9:]) / len(took[9:]), "meanwhile_s": meanwhile, "written_s": written, "ranks": ranks}), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
