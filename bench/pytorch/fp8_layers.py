#!/usr/bin/env python3
"""A Llama layer's linear maps, forward and backward, in PyTorch: bf16, and fp8 by a hand-written layer around
torch._scaled_mm (e4m3 forward, e5m2 for gradients, one dynamic scale for each operand), both compiled; and the same in
Strata, bf16 (the cast of the weight is made by the optimizer there, and not timed here) and fp8. What lies between the
maps (norms, attention, SwiGLU) is left out: each map gets an input of its own.

    bench/pytorch/fp8_layers.py [--engines torch strata] [--shapes llama-3b llama-8b]
"""
import argparse
import statistics

SHAPES = {"llama-3b": [(3072, 5120), (3072, 3072), (3072, 16384), (8192, 3072)],
          "llama-8b": [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)]}
ROWS = 8192


def of_torch(shapes):
    import torch

    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2

    def codes(x, dtype):
        scale = torch.finfo(dtype).max / x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * scale).clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype), 1 / scale

    class Fp8(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            a, scale_a = codes(x, e4m3)
            b, scale_b = codes(w, e4m3)
            ctx.save_for_backward(a, scale_a, b, scale_b)
            return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True)

        @staticmethod
        def backward(ctx, g):
            a, scale_a, b, scale_b = ctx.saved_tensors
            c, scale_c = codes(g, e5m2)
            gx = torch._scaled_mm(c, b.t().contiguous().t(), scale_c, scale_b, out_dtype=torch.bfloat16)
            gw = torch._scaled_mm(c.t().contiguous(), a.t().contiguous().t(), scale_c, scale_a,
                                  out_dtype=torch.bfloat16)
            return gx, gw.float()

    def fp8(x, w):
        return Fp8.apply(x, w)

    def bf16(x, w):
        return torch.nn.functional.linear(x, w.to(torch.bfloat16))

    def all_of(layer):
        def run(xs, ws, gs):
            for x, w, g in zip(xs, ws, gs):
                x.grad = w.grad = None
                layer(x, w).backward(g)
        return run

    for name, pairs in shapes.items():
        make = lambda *s, **k: torch.randn(*s, device="cuda", **k)  # noqa: E731
        xs = [make(ROWS, i, dtype=torch.bfloat16).requires_grad_() for i, _ in pairs]
        ws = [(make(o, i) * 0.02).requires_grad_() for i, o in pairs]
        gs = [make(ROWS, o, dtype=torch.bfloat16) for _, o in pairs]
        for kind, layer in (("bf16", bf16), ("fp8", fp8)):
            run = all_of(torch.compile(layer))
            report(f"torch compiled {kind}", name, pairs, timed(lambda: run(xs, ws, gs), torch.cuda))


def of_strata(shapes):
    import strata as st

    for name, pairs in shapes.items():
        make = lambda *s: st.randn(*s, device="cuda")  # noqa: E731
        xs = [make(ROWS, i).to(st.bfloat16).requires_grad_() for i, _ in pairs]
        ws = [(make(o, i) * 0.02).requires_grad_() for i, o in pairs]
        gs = [make(ROWS, o).to(st.bfloat16) for _, o in pairs]
        for kind, options in (("bf16", {}), ("fp8", {"fp8": "tensor"}), ("fp8 by row", {"fp8": "row"})):
            def run():
                for x, w, g in zip(xs, ws, gs):
                    x.grad = w.grad = None
                    with st.autocast("cuda", **options):
                        y = st.nn.functional.linear(x, w)
                    y.backward(g)
            report(f"strata {kind}", name, pairs, timed(run, st.cuda))


def timed(f, cuda):
    for _ in range(5):
        f()
    times = []
    for _ in range(10):
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        f()
        end.record()
        cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def report(engine, name, pairs, ms):
    tera = 6e-9 * ROWS * sum(i * o for i, o in pairs)
    print(f"{name:10} {engine:22} {ms:8.3f} ms  {tera / ms:6.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engines", nargs="+", default=["torch", "strata"], choices=["torch", "strata"])
    p.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    a = p.parse_args()
    for engine in a.engines:
        {"torch": of_torch, "strata": of_strata}[engine]({s: SHAPES[s] for s in a.shapes})
