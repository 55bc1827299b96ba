#!/usr/bin/env python3
"""A small training step on a card, microseconds: PyTorch eager, torch.compile(mode="reduce-overhead") where it works, strata
eager and st.graphed, in turns in one process.

    graphed_step.py [--seconds S] [--no-compile]

The steps: a three-layer perceptron of width 256 at batch 64 (AdamW), and one transformer encoder block (32 x 128 x 256, 4
heads, AdamW). A step is forward, backward, update and dropping the gradients; what compiles is forward and loss, as PyTorch's
documentation has it, with backward from its graph; the optimizer is fused. Times are those of calls in a row with one wait at
the end, so that of launches and the device's work the slower counts."""
import argparse
import time

import torch  # before strata: see docs/design/no-slow-paths.md, at the end

import strata as st


def mlp(lib):
    nn = lib.nn
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def encoder(lib):
    return lib.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)


CASES = {
    "MLP 3 x 256, batch 64": (mlp, (64, 256), lambda lib, out, y: lib.nn.functional.cross_entropy(out, y), (64,)),
    "encoder block 32 x 128 x 256": (encoder, (32, 128, 256), lambda lib, out, y: (out - y).pow(2).mean(), (32, 128, 256)),
}


def step_of(lib, name, how):
    """A function without arguments that does a step and returns the loss."""
    build, shape, loss_of, target = CASES[name]
    lib.manual_seed(0)
    net = build(lib).to("cuda")
    x = lib.randn(*shape).to("cuda")
    y = (lib.randint(0, 10, target) if len(target) == 1 else lib.randn(*target)).to("cuda")
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-4, **({"fused": True} if lib is torch else {}))

    def forward(x, y):
        return loss_of(lib, net(x), y)

    if how == "compiled":
        forward = torch.compile(forward, mode="reduce-overhead")

    def step(x, y):
        if how == "compiled":
            torch.compiler.cudagraph_mark_step_begin()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = st.graphed(step) if how == "graphed" else step
    return lambda: run(x, y)


def timed(run, synchronize, seconds):
    for _ in range(5):
        loss = run()
    synchronize()
    begin = time.perf_counter()
    run()
    synchronize()
    count = max(10, int(seconds / max(time.perf_counter() - begin, 1e-5)))
    begin = time.perf_counter()
    for _ in range(count):
        loss = run()
    synchronize()
    return (time.perf_counter() - begin) / count * 1e6, float(loss)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=0.5, help="of each measurement; three are made, the best counts")
    p.add_argument("--no-compile", action="store_true")
    a = p.parse_args()
    ways = [("PyTorch eager", torch, "eager")]
    if not a.no_compile:
        ways.append(("PyTorch compiled", torch, "compiled"))
    ways += [("strata eager", st, "eager"), ("strata graphed", st, "graphed")]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, strata {st.__version__}; microseconds a step\n")
    print("| step | " + " | ".join(name for name, _, _ in ways) + " |")
    print("|---" * (len(ways) + 1) + "|")
    for case in CASES:
        steps, best = {}, {}
        for name, lib, how in ways:
            try:
                steps[name] = step_of(lib, case, how)
                steps[name]()
            except Exception as e:  # a compiler that is not there, above all
                steps.pop(name, None)
                print(f"{name}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)
        for _ in range(3):
            for name, lib, _ in ways:
                if name in steps:
                    best[name] = min(best.get(name, float("inf")), timed(steps[name], lib.cuda.synchronize, a.seconds)[0])
        print(f"| {case} | " + " | ".join(f"{best[n]:.0f}" if n in best else "-" for n, _, _ in ways) + " |", flush=True)


if __name__ == "__main__":
    main()
