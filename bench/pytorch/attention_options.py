#!/usr/bin/env python3
"""scaled_dot_product_attention with masks, dropout and the other options on a card, strata beside PyTorch (whatever
kernel it chooses; for what its function lacks, flex_attention compiled), in turns in one process: forward, and backward,
milliseconds and TFLOP/s of all pairs (causal: of half).

    attention_options.py [--seconds S] [--filter TEXT] [--dtype bfloat16|float16|float32] [--shapes 2x32/8x8192x128 ...]
                         [--kernel flash|cudnn] [--check]

A shape is batch x heads x time x size, heads by "/" with those of keys and values. PyTorch keeps its defaults unless --kernel
names one; --check adds the largest difference of 64 rows of one head from the definition in double precision (plain and causal); masks have the queries' dtype or are boolean. In float32 each case runs twice, with
backends.cuda.matmul.allow_tf32 off and on in both engines."""
import argparse
import contextlib
import time

import torch  # before strata: see docs/design/no-slow-paths.md, at the end
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import strata as st


def timed(run, synchronize, seconds):
    """Seconds of a call: a group between two waits, the best of three."""
    run(), run()
    synchronize()
    begin = time.perf_counter()
    run()
    synchronize()
    count = max(3, int(seconds / max(time.perf_counter() - begin, 1e-5)))
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        synchronize()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def masks(batch, heads, time_, dtype):
    """Name to (mask on the CPU in torch, further arguments)."""
    lengths = torch.full((batch,), time_)
    lengths[1::2] -= time_ // 4
    padding = (torch.arange(time_)[None, :] < lengths[:, None])[:, None, None, :]
    square = torch.randn(time_, time_).to(dtype)
    slopes = (-torch.arange(heads, dtype=torch.float32).add(1).mul(-8 / heads).exp2()[:, None, None] *
              (torch.arange(time_)[:, None] - torch.arange(time_)[None, :]).abs()).to(dtype)
    return {
        "plain": (None, {}),
        "causal": (None, {"is_causal": True}),
        "dropout 0.1": (None, {"dropout_p": 0.1}),
        "causal, dropout 0.1": (None, {"is_causal": True, "dropout_p": 0.1}),
        "padding, boolean": (padding, {}),
        "padding, dropout 0.1": (padding, {"dropout_p": 0.1}),
        "square, boolean": (torch.ones(time_, time_, dtype=torch.bool).tril(), {}),
        "square, additive": (square, {}),
        "square, additive, with its gradient": (square, {}),
        "slopes by distance, additive": (slopes[None], {}),
    }


def further(batch, heads, time_):
    """What PyTorch's function lacks, by name: arguments of ours on the CPU in torch."""
    slopes = torch.arange(heads, dtype=torch.float32).add(1).mul(-8 / heads).exp2()
    lengths = torch.full((batch,), time_)
    lengths[1::2] -= time_ // 4
    return {
        "ALiBi": {"alibi_slopes": slopes},
        "ALiBi, causal": {"alibi_slopes": slopes, "is_causal": True},
        "soft cap 50": {"logit_soft_cap": 50.0},
        "soft cap 50, causal": {"logit_soft_cap": 50.0, "is_causal": True},
        "sinks": {"sinks": torch.linspace(-1, 2, heads)},
        "lengths": {"key_lengths": lengths},
        "lengths, ALiBi, soft cap": {"key_lengths": lengths, "alibi_slopes": slopes, "logit_soft_cap": 50.0},
    }


def flex(options, batch, time_):
    """The same by PyTorch's flex_attention: a function of (q, k, v)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled = torch.compile(flex_attention, dynamic=False)
    slopes, cap, sinks, lengths = (options.get(n) for n in ("alibi_slopes", "logit_soft_cap", "sinks", "key_lengths"))
    causal = options.get("is_causal", False)

    def score(s, b, h, i, j):
        if cap:
            s = cap * torch.tanh(s / cap)
        return s if slopes is None else s - slopes[h] * (i - j).abs()

    def seen(b, h, i, j):
        ok = i >= j if causal else i >= 0
        return ok if lengths is None else ok & (j < lengths[b])

    blocks = create_block_mask(seen, batch, None, time_, time_, device="cuda") if causal or lengths is not None else None

    def run(q, k, v):
        if sinks is None:
            return compiled(q, k, v, score_mod=score, block_mask=blocks)
        y, lse = compiled(q, k, v, score_mod=score, block_mask=blocks, return_lse=True)
        return y * torch.sigmoid(lse - sinks[:, None]).to(y.dtype)[..., None]
    return run


def error_of(y, q, k, v, causal):
    """The largest difference of the first head's last 64 rows from the definition in double precision."""
    rows = slice(q.shape[2] - 64, None)
    q, k, v, y = (x[0, 0].double() for x in (q[:, :, rows], k, v, y[:, :, rows]))
    scores = q @ k.T * q.shape[1] ** -0.5
    if causal:
        scores += torch.full_like(scores, float("-inf")).triu(k.shape[0] - 63)
    return float((torch.softmax(scores, -1) @ v - y).abs().max())


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=0.03)
    p.add_argument("--filter", default="", help="a mask's whole name, or a part of several")
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    p.add_argument("--shapes", nargs="*", default=["32x8x512x64", "4x16x4096x128"], help="batch x heads[/of keys] x time x size")
    p.add_argument("--kernel", choices=["flash", "cudnn"], help="PyTorch's")
    p.add_argument("--check", action="store_true", help="differences from double precision")
    a = p.parse_args()
    backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}.get(a.kernel)
    dtype = getattr(torch, a.dtype)
    print(f"{'shape':16} {'mask':36} {'forward ms':>20} {'ratio':>6} {'backward ms':>20} {'ratio':>6} {'TFLOP/s':>12}")
    for shape in a.shapes:
        b, h, t, d = shape.split("x")
        b, t, d, (h, *kv) = int(b), int(t), int(d), map(int, h.split("/"))
        kv = kv[0] if kv else h
        numbers = [torch.randn(b, t, heads, d).to(dtype) for heads in (h, kv, kv, h)]
        cases = {name: (mask, options, False) for name, (mask, options) in masks(b, h, t, dtype).items()}
        cases |= {name: (None, options, True) for name, options in further(b, h, t).items()}
        cases = {name: case for name, case in cases.items() if (a.filter == name if a.filter in cases else a.filter in name)}
        runs = [(name, tf32) for name in cases for tf32 in ((False, True) if dtype == torch.float32 else (False,))]
        for name, tf32 in runs:
            mask, options, by_flex = cases[name]
            for engine in (st, torch):
                engine.backends.cuda.matmul.allow_tf32 = tf32
            name += ", TF32" if tf32 else ""
            times, errors = {}, {}
            for engine, f, synchronize in ((st, st.nn.functional, st.cuda.synchronize), (torch, F, torch.cuda.synchronize)):
                def on_card(x):
                    if not isinstance(x, torch.Tensor):
                        return x
                    x = x.to("cuda")
                    return x if engine is torch else st.from_dlpack(x)
                q, k, v, g = (on_card(x).transpose(1, 2) for x in numbers)
                m = None if mask is None else on_card(mask)
                given = {key: on_card(x) for key, x in options.items()} | ({"enable_gqa": True} if kv != h else {})
                wanted = (q, k, v, m) if "gradient" in name else (q, k, v)
                for x in wanted:
                    x.requires_grad_()
                run = lambda: f.scaled_dot_product_attention(q, k, v, m, **given)
                if by_flex and engine is torch:
                    try:
                        function = flex(given, b, t)
                        function(q, k, v)
                    except Exception as e:  # a PyTorch without it
                        print(f"{shape:16} {name:36} flex_attention: {str(e).splitlines()[0][:80]}")
                        times[engine] = float("nan"), float("nan")
                        continue
                    run = lambda: function(q, k, v)
                with sdpa_kernel(backend) if backend and engine is torch else contextlib.nullcontext():
                    with engine.no_grad():
                        forward = timed(run, synchronize, a.seconds)
                    y = run()
                    grad = engine.autograd.grad
                    backward = timed(lambda: grad(y, wanted, g, retain_graph=True), synchronize, a.seconds)
                times[engine] = forward, backward
                if a.check and name.split(",")[0] in ("plain", "causal") and "dropout" not in name:
                    operands = [torch.from_dlpack(x.detach()) for x in (y, q, k, v)]
                    errors[engine] = error_of(*operands, options.get("is_causal", False))
                del q, k, v, g, m, y
            flop = 4 * b * h * t * t * d * (0.5 if options.get("is_causal") else 1)
            ours, theirs = times[st], times[torch]
            print(f"{shape:16} {name:36} {ours[0] * 1e3:9.3f} {theirs[0] * 1e3:9.3f} {theirs[0] / ours[0]:7.2f} "
                  f"{ours[1] * 1e3:10.3f} {theirs[1] * 1e3:9.3f} {theirs[1] / ours[1]:6.2f} "
                  f"{flop / ours[0] * 1e-12:6.0f} {2.5 * flop / ours[1] * 1e-12:5.0f}"
                  + (f"  differ by {errors[st]:.1e}, PyTorch's by {errors[torch]:.1e}" if errors else ""), flush=True)


if __name__ == "__main__":
    main()
