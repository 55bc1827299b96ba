"""PyTorch's side of bench/conv_cuda_bench.cpp: the same rows, name|dtype|direction|microseconds|TFLOP/s, and the same
once more with channels_last tensors (dtype bf16-nhwc).  Usage: conv.py [images]

With a table of the other program as second argument both are joined: conv.py 64 TABLE. "layouts" in place of the number
of images: dense layers in both layouts, as conv_cuda_bench layouts prints them:

  conv_cuda_bench layouts > TABLE; python3 conv.py layouts TABLE

"depthwise": layers with a filter for each channel, as conv_cuda_bench depthwise prints them, in both layouts."""
import statistics
import sys

import torch

LAYERS = [
    ("7x7/2 3-64 224", 3, 224, 64, 7, 2, 3, 1), ("1x1 64-64 56", 64, 56, 64, 1, 1, 0, 1),
    ("3x3 64-64 56", 64, 56, 64, 3, 1, 1, 1), ("1x1 64-256 56", 64, 56, 256, 1, 1, 0, 1),
    ("1x1 256-64 56", 256, 56, 64, 1, 1, 0, 1), ("3x3/2 128-128 56", 128, 56, 128, 3, 2, 1, 1),
    ("3x3 128-128 28", 128, 28, 128, 3, 1, 1, 1), ("1x1 128-512 28", 128, 28, 512, 1, 1, 0, 1),
    ("1x1/2 256-512 56", 256, 56, 512, 1, 2, 0, 1), ("3x3 256-256 14", 256, 14, 256, 3, 1, 1, 1),
    ("1x1 1024-256 14", 1024, 14, 256, 1, 1, 0, 1), ("3x3 512-512 7", 512, 7, 512, 3, 1, 1, 1),
    ("1x1 512-2048 7", 512, 7, 2048, 1, 1, 0, 1), ("3x3 depthwise 256 28", 256, 28, 256, 3, 1, 1, 256),
    ("3x3 32 groups 256 28", 256, 28, 256, 3, 1, 1, 32),
]
LAYOUTS = [
    (("3x3 64-64 56", 64, 56, 64, 3, 1, 1, 1), 64), (("3x3 512-512 7", 512, 7, 512, 3, 1, 1, 1), 64),
    (("3x3 128-128 64", 128, 64, 128, 3, 1, 1, 1), 16), (("3x3 192-192 14", 192, 14, 192, 3, 1, 1, 1), 128),
    (("3x3 256-256 14", 256, 14, 256, 3, 1, 1, 1), 64), (("3x3/2 128-128 56", 128, 56, 128, 3, 2, 1, 1), 64),
    (("3x3/2 256-256 28", 256, 28, 256, 3, 2, 1, 1), 64), (("3x3/2 512-512 14", 512, 14, 512, 3, 2, 1, 1), 64),
    (("2x2/2 96-192 56", 96, 56, 192, 2, 2, 0, 1), 64),
]
DEPTHWISE = [
    (("7x7 depthwise 96 56", 96, 56, 96, 7, 1, 3, 96), 256),
    (("7x7 depthwise 192 28", 192, 28, 192, 7, 1, 3, 192), 256),
    (("7x7 depthwise 384 14", 384, 14, 384, 7, 1, 3, 384), 256),
    (("7x7 depthwise 768 7", 768, 7, 768, 7, 1, 3, 768), 256),
    (("3x3 depthwise 256 28", 256, 28, 256, 3, 1, 1, 256), 64),
    (("5x5 depthwise 480 14", 480, 14, 480, 5, 1, 2, 480), 128),
    (("3x3 depthwise 32 112", 32, 112, 32, 3, 1, 1, 32), 64),
]
SETS, WARMUP, ROUNDS = 3, 3, 12
F = torch.nn.functional
results = {}


def row(name, dtype, direction, flops, f):
    for i in range(WARMUP):
        f(i % SETS)
    times = []
    for _ in range(5):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for i in range(ROUNDS):
            f(i % SETS)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / ROUNDS)
    us = statistics.median(times)
    results[name, dtype, direction] = us
    if len(sys.argv) < 3:
        print(f"{name}|{dtype}|{direction}|{us:.1f}|{flops / us * 1e-6:.1f}", flush=True)


def layer(l, n, dtype, label):
    name, cin, size, cout, k, stride, pad, groups = l
    out = (size + 2 * pad - k) // stride + 1
    layout = torch.channels_last if label.endswith("nhwc") else torch.contiguous_format

    def numbers(*shape):
        return torch.randn(*shape, device="cuda").to(dtype).to(memory_format=layout)

    x = [numbers(n, cin, size, size) for _ in range(SETS)]
    y = [numbers(n, cout, out, out) for _ in range(SETS)]
    w = numbers(cout, cin // groups, k, k)
    flops = 2.0 * n * cout * out * out * cin // groups * k * k
    row(name, label, "forward", flops, lambda i: F.conv2d(x[i], w, None, stride, pad, 1, groups))

    def backward(i, mask):
        return torch.ops.aten.convolution_backward(y[i], x[i], w, None, [stride] * 2, [pad] * 2, [1, 1], False,
                                                   [0, 0], groups, mask)

    row(name, label, "input", flops, lambda i: backward(i, [True, False, False]))
    row(name, label, "weight", flops, lambda i: backward(i, [False, True, False]))


def pools(n, dtype, label):
    x = [torch.randn(n, 64, 112, 112, device="cuda").to(dtype) for _ in range(SETS)]
    gy = [torch.randn(n, 64, 56, 56, device="cuda").to(dtype) for _ in range(SETS)]
    at = [F.max_pool2d(t, 3, 2, 1, return_indices=True)[1] for t in x]
    aten = torch.ops.aten
    row("max_pool 3x3/2 64 112", label, "forward", 0, lambda i: F.max_pool2d(x[i], 3, 2, 1, return_indices=True))
    row("max_pool 3x3/2 64 112", label, "input", 0, lambda i: aten.max_pool2d_with_indices_backward(
        gy[i], x[i], [3, 3], [2, 2], [1, 1], [1, 1], False, at[i]))
    row("avg_pool 2x2 64 112", label, "forward", 0, lambda i: F.avg_pool2d(x[i], 2))
    row("avg_pool 2x2 64 112", label, "input", 0, lambda i: aten.avg_pool2d_backward(
        gy[i], x[i], [2, 2], [2, 2], [0, 0], False, True, None))
    row("bilinear x2 64 56", label, "forward", 0, lambda i: F.interpolate(gy[i], scale_factor=2, mode="bilinear"))
    row("bilinear x2 64 56", label, "input", 0, lambda i: aten.upsample_bilinear2d_backward(
        x[i], [112, 112], [n, 64, 56, 56], False, None, None))
    row("global average 64 112", label, "forward", 0, lambda i: F.adaptive_avg_pool2d(x[i], 1))


def layouts(layers):
    torch.backends.cudnn.benchmark = True
    for l, n in layers:
        for label in ("bf16", "bf16-nhwc"):
            layer(l, n, torch.bfloat16, label)
    ours = {}
    for line in open(sys.argv[2]) if len(sys.argv) > 2 else []:
        if line.count("|") == 4:
            name, label, direction, us, _ = line.strip().split("|")
            ours[name, label, direction] = float(us)
    print(f"{'microseconds':24}{'direction':10}{'ours':>8}{'ours last':>11}{'cuDNN last':>12}{'cuDNN':>8}"
          f"{'ratio':>8}")
    for (name, label, direction), us in results.items():
        mine = ours.get((name, "bf16", direction))
        if label == "bf16" and mine is not None:
            last, theirs = ours.get((name, "bf16-nhwc", direction)), results[name, "bf16-nhwc", direction]
            ratio = us / mine if last is None else theirs / last  # of the same layout
            print(f"{name:24}{direction:10}{mine:8.1f}{last or 0:11.1f}{theirs:12.1f}{us:8.1f}{ratio:8.2f}")


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("layouts", "depthwise"):
        return layouts(LAYOUTS if sys.argv[1] == "layouts" else DEPTHWISE)
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 5  # of its own choice; all of them take a minute
    for label, dtype in (("bf16", torch.bfloat16), ("bf16-nhwc", torch.bfloat16), ("tf32", torch.float32),
                         ("f32", torch.float32)):
        torch.backends.cudnn.allow_tf32 = label == "tf32"
        for l in LAYERS:
            layer(l, n, dtype, label)
        if label in ("bf16", "f32"):
            pools(n, dtype, label)
    if len(sys.argv) < 3:
        return
    print(f"{'layer':24}{'dtype':6}{'direction':10}{'ours us':>9}{'TFLOP/s':>9}{'torch us':>10}{'ratio':>7}"
          f"{'nhwc us':>9}")
    for line in open(sys.argv[2]):
        if line.count("|") != 4:
            continue
        name, dtype, direction, us, rate = line.strip().split("|")
        theirs = results.get((name, dtype, direction))
        if theirs is None:
            continue
        nhwc = results.get((name, dtype + "-nhwc", direction))
        print(f"{name:24}{dtype:6}{direction:10}{us:>9}{rate:>9}{theirs:10.1f}{theirs / float(us):7.2f}"
              + (f"{nhwc:9.1f}" if nhwc else ""))


main()
