#!/usr/bin/env python3
"""PyTorch's side of `strata lab bench --device cuda` for pooling and convolutions over three dimensions, embedding bags
and CTC: the shapes of the records' benchmark samples. Given the bench's --json file, prints both side by side."""
import argparse
import json

import torch
import torch.nn.functional as F

from device_time import device_ms


def main():
    p = argparse.ArgumentParser()
    p.add_argument("json", nargs="*")
    a = p.parse_args()
    ours = {}
    for file in a.json:
        for r in json.load(open(file))["results"]:
            if "seconds" in r:
                ours[r["op"], r["dtype"], r["pass"]] = 1000 * r["seconds"]

    def line(op, dtype, f, inputs, integer=()):
        name = str(dtype).replace("torch.", "").replace("float32", "f32").replace("bfloat16", "bf16")
        for t in inputs:
            t.requires_grad_()
        with torch.no_grad():
            times = [device_ms(4, lambda i: f())]
        y = f()
        g = torch.randn_like(y)
        times.append(device_ms(4, lambda i: torch.autograd.grad(y, inputs, g, retain_graph=True)))
        for direction, ms in zip(("forward", "backward"), times):
            mine = ours.get((op, name, direction))
            text = "" if mine is None else f"{1000 * mine:10.1f} {ms / mine:6.2f}"
            print(f"{op:22s} {name:5s} {direction:9s} {1000 * ms:10.1f} {text}", flush=True)

    torch.backends.cudnn.allow_tf32 = False  # f32 in full, as here

    def randn(*shape, dtype):
        return torch.randn(shape, device="cuda").to(dtype)

    print(f"{'':22s} {'':5s} {'us':9s} {'PyTorch':>10s} {'Strata':>10s} {'ratio':>6s}")
    for dtype in (torch.float32, torch.bfloat16):
        x = randn(8, 64, 16, 56, 56, dtype=dtype)
        line("max_pool", dtype, lambda: F.max_pool3d(x, 3, 2, 1), [x])
        line("avg_pool", dtype, lambda: F.avg_pool3d(x, 3, 2, 1), [x])
        v = randn(4, 32, 16, 32, 32, dtype=dtype)
        line("resize", dtype, lambda: F.interpolate(v, (32, 64, 64), mode="trilinear"), [v])
        c, w, b = randn(4, 64, 16, 28, 28, dtype=dtype), randn(64, 64, 3, 3, 3, dtype=dtype), randn(64, dtype=dtype)
        line("conv3d", dtype, lambda: F.conv3d(c, w, b, 1, 1), [c, w, b])
        d, u, o = randn(4, 128, 8, 14, 14, dtype=dtype), randn(128, 64, 2, 2, 2, dtype=dtype), randn(64, dtype=dtype)
        line("conv_transpose3d", dtype, lambda: F.conv_transpose3d(d, u, o, 2), [d, u, o])
        table = randn(100000, 128, dtype=dtype)
        index = torch.randint(0, 100000, (8192, 32), device="cuda")
        line("embedding_bag_sum", dtype, lambda: F.embedding_bag(index, table, mode="sum"), [table])
    steps, batch, labels, classes = 1000, 64, 200, 128  # the sample's, doubled as the bench doubles them on a card
    logs = (torch.rand(steps, batch, classes, device="cuda") * 4 - 6)
    target = 1 + torch.arange(batch * labels, device="cuda").reshape(batch, labels) * 7919 % (classes - 1)
    inputs = torch.full((batch,), steps, device="cuda")
    lengths = torch.full((batch,), labels, device="cuda")
    with torch.backends.cudnn.flags(enabled=False):
        line("ctc_loss", torch.float32, lambda: F.ctc_loss(logs, target, inputs, lengths), [logs])


if __name__ == "__main__":
    main()
