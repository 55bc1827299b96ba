#!/usr/bin/env python3
"""PyTorch's side of conv_bench: the same layers and columns, the least of repeated calls. Usage: conv_cpu.py [threads]
[f32|bf16]"""
import sys
import time

import torch

# of, n, in, out, size, kernel, stride, groups: conv_bench.cpp has the same.
LAYERS = [
    ("ResNet18, 224: first", 8, 3, 64, 224, 7, 2, 1), ("ResNet18, 224", 8, 64, 64, 56, 3, 1, 1),
    ("ResNet18, 224", 8, 64, 128, 56, 3, 2, 1), ("ResNet18, 224", 8, 128, 128, 28, 3, 1, 1),
    ("ResNet18, 224", 8, 256, 256, 14, 3, 1, 1), ("ResNet18, 224", 8, 512, 512, 7, 3, 1, 1),
    ("ResNet50, 224", 8, 256, 1024, 14, 1, 1, 1), ("ResNet50, 224", 8, 512, 1024, 14, 1, 2, 1),
    ("ResNet18, 32: first", 64, 3, 64, 32, 3, 1, 1), ("ResNet18, 32", 64, 64, 64, 32, 3, 1, 1),
    ("ResNet18, 32", 64, 128, 128, 16, 3, 1, 1), ("ResNet18, 32", 64, 256, 256, 8, 3, 1, 1),
    ("ResNet18, 32", 64, 512, 512, 4, 3, 1, 1), ("VGG11, 32", 64, 512, 512, 2, 3, 1, 1),
    ("MobileNet, 224: depthwise", 8, 192, 192, 28, 3, 1, 192), ("U-Net", 4, 96, 96, 24, 3, 1, 1),
]


def best(f, seconds=0.4):
    f()
    least, total, calls = 1e30, 0.0, 0
    while calls < 5 or (calls < 200 and total < seconds):
        start = time.perf_counter()
        f()
        took = time.perf_counter() - start
        least, total, calls = min(least, took), total + took, calls + 1
    return least


if len(sys.argv) > 1:
    torch.set_num_threads(int(sys.argv[1]))
dtype = torch.bfloat16 if sys.argv[2:] == ["bf16"] else torch.float32
print(f"{'layer':26} {'n, in, out, size, kernel, by':26} {'forward':>9} {'GF/s':>7}  {'of x':>9} {'GF/s':>7}  "
      f"{'of w':>9} {'GF/s':>7}")
for of, n, ic, oc, size, kernel, stride, groups in LAYERS:
    x = torch.randn(n, ic, size, size).to(dtype)
    w = torch.randn(oc, ic // groups, kernel, kernel).to(dtype)
    conv = lambda a, b: torch.nn.functional.conv2d(a, b, None, stride, kernel // 2, 1, groups)
    y = conv(x, w)
    flops = 2 * y.numel() * (ic // groups) * kernel * kernel
    seconds = [best(lambda: conv(x, w))]
    for a, b, leaf in ((x.detach().requires_grad_(), w, 0), (x, w.detach().requires_grad_(), 1)):
        out = conv(a, b)
        seconds.append(best(lambda: torch.autograd.grad(out, (a, b)[leaf], y, retain_graph=True)))
    print(f"{of:26} {f'{n}, {ic}, {oc}, {size}, {kernel}, {stride}':26} "
          + "  ".join(f"{s * 1e3:9.3f} {flops / s * 1e-9:7.0f}" for s in seconds), flush=True)
