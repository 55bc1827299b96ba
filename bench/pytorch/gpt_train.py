#!/usr/bin/env python3
"""PyTorch's side of the training comparison: the GPT of `strata train`, same shapes, same optimizer, same batch.

Prints one JSON object a line: {"model", "threads", "dtype", "mode", "tokens_per_s", "step_ms"}.
With --data it trains on a text and prints the validation loss instead (see --help)."""
import argparse
import json
import math
import time

import torch
import torch.nn as nn

from models import GPT, adamw


MODELS = {
    "small": dict(layers=4, dim=256, heads=8, context=256, vocab=256, batch=8),
    "medium": dict(layers=6, dim=512, heads=8, context=256, vocab=8192, batch=16),
}


def step_fn(model, opt, dtype):
    def step(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    return step


def throughput(name, threads, dtype, mode, seconds, lr):
    c = MODELS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT(c["vocab"], c["layers"], c["dim"], c["heads"], c["context"])
    opt = adamw(model, lr, 0.1)
    run = model if mode == "eager" else torch.compile(model)
    step = step_fn(run, opt, dtype)
    x = torch.randint(0, c["vocab"], (c["batch"], c["context"]))
    y = torch.randint(0, c["vocab"], (c["batch"], c["context"]))
    for _ in range(5):
        step(x, y)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        t = time.perf_counter()
        step(x, y).item()
        times.append(time.perf_counter() - t)
    times.sort()
    median = times[len(times) // 2]
    print(json.dumps({"model": name, "threads": threads, "dtype": dtype, "mode": mode, "engine": "pytorch",
                      "tokens_per_s": round(c["batch"] * c["context"] / median), "step_ms": round(median * 1e3, 2)}), flush=True)


def train_text(path, steps, seed, lr):
    """The small model on a text: last tenth for validation, AdamW, warm-up and cosine as `strata train` has them."""
    c = MODELS["small"]
    torch.manual_seed(seed)
    data = torch.tensor(list(open(path, "rb").read()), dtype=torch.long)
    cut = int(len(data) * 0.9)
    train, val = data[:cut], data[cut:]
    model = GPT(c["vocab"], c["layers"], c["dim"], c["heads"], c["context"])
    opt = adamw(model, lr, 0.1)
    step = step_fn(torch.compile(model), opt, "bf16")
    warmup = 100

    def batch(source, n):
        at = torch.randint(0, len(source) - c["context"] - 1, (n,))
        return (torch.stack([source[i:i + c["context"]] for i in at]), torch.stack([source[i + 1:i + 1 + c["context"]] for i in at]))

    for i in range(steps):
        scale = (i + 1) / warmup if i < warmup else 0.1 + 0.45 * (1 + math.cos(math.pi * (i - warmup) / (steps - warmup)))
        for g in opt.param_groups:
            g["lr"] = lr * scale
        step(*batch(train, c["batch"]))
    # The whole validation part in consecutive windows, under autocast as `strata train` evaluates.
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        losses = []
        for begin in range(0, len(val) - c["context"] - 1, c["context"] * 16):
            starts = [s for s in range(begin, begin + c["context"] * 16, c["context"]) if s + c["context"] + 1 <= len(val)]
            x = torch.stack([val[s:s + c["context"]] for s in starts])
            y = torch.stack([val[s + 1:s + 1 + c["context"]] for s in starts])
            losses.append((model(x, y).item(), len(starts)))
    total = sum(n for _, n in losses)
    print(json.dumps({"model": "small", "engine": "pytorch", "seed": seed, "steps": steps,
                      "val_loss": round(sum(l * n for l, n in losses) / total, 4)}), flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="small", choices=MODELS)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", default="bf16", choices=["f32", "bf16"])
    p.add_argument("--mode", default="eager", choices=["eager", "compiled"])
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--data", help="train on this text and print the validation loss")
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    a = p.parse_args()
    if a.data:
        torch.set_num_threads(a.threads)
        train_text(a.data, a.steps, a.seed, a.lr)
    else:
        throughput(a.model, a.threads, a.dtype, a.mode, a.seconds, a.lr)
