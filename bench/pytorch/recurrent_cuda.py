"""Recurrent layers on a card, forward and backward, in both engines in turns: median ms and their ratio.

Both as they come: f32 operands of products, those within the steps too, may be rounded to TF32.  Usage:
recurrent_cuda.py [rounds]"""
import statistics
import sys
import time

import torch

import strata as st

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
CASES = [("LSTM", 32, 128, 512, "float32"), ("GRU", 32, 128, 512, "float32"), ("RNN", 32, 128, 512, "float32"),
         ("LSTM", 16, 1024, 768, "bfloat16"), ("GRU", 16, 1024, 768, "bfloat16"), ("LSTM", 64, 256, 1024, "bfloat16"),
         ("GRU", 64, 256, 1024, "bfloat16")]


def work(engine, kind, batch, steps, width, dtype):
    """Forward only, and forward with backward, of a layer of that engine."""
    real = getattr(engine, dtype)
    layer = getattr(engine.nn, kind)(width, width, batch_first=True).to("cuda").to(real)
    x = engine.randn(batch, steps, width).to("cuda").to(real)
    g = engine.randn(batch, steps, width).to("cuda").to(real)
    x.requires_grad = True

    def forward():
        with engine.no_grad():
            layer(x)

    def both():
        layer.zero_grad()
        x.grad = None
        layer(x)[0].backward(g)

    return forward, both


def once(engine, f):
    engine.cuda.synchronize()
    start = time.perf_counter()
    f()
    engine.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def main():
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"TF32 in cuDNN {torch.backends.cudnn.allow_tf32}, {torch.cuda.get_device_name()}")
    print(f"{'layer':5} {'batch x steps x width':22} {'dtype':9} {'pass':8} {'PyTorch':>9} {'Strata':>9} {'ratio':>6}")
    for kind, batch, steps, width, dtype in CASES:
        passes = [work(engine, kind, batch, steps, width, dtype) for engine in (torch, st)]
        for name, theirs, ours in zip(("forward", "both"), *passes):
            times = {}
            for i in range(ROUNDS + 2):
                for engine, f in ((torch, theirs), (st, ours)):
                    ms = once(engine, f)
                    if i >= 2:
                        times.setdefault(engine, []).append(ms)
            a, b = (statistics.median(times[engine]) for engine in (torch, st))
            shape = f"{batch} x {steps} x {width}"
            print(f"{kind:5} {shape:22} {dtype:9} {name:8} {a:9.2f} {b:9.2f} {b / a:6.2f}", flush=True)


main()
