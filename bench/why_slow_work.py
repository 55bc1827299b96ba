"""The work that why_slow.py looks at, in a process of its own, which ncu runs.

    why_slow_work.py call NAME --engine strata|torch
    why_slow_work.py rows FILE --engine strata|torch
    why_slow_work.py row NAME --engine strata|torch --part PART [--seconds S]
    why_slow_work.py step PROGRAM --engine strata|torch [--compile] [--set PROGRAM.KEY=VALUE ...]
    why_slow_work.py host PROGRAM --engine strata|torch

Only what is between cuProfilerStart and cuProfilerStop is recorded: one call of each part of a case, or of each line of FILE (a case of
compare_ops.py's plan with the pass), after which a kernel of a known name runs (SEPARATOR), or one training step of a program of the zoo.
`host` profiles Python instead, `row` takes the time of a case's part, apart and in a row. The last line of the output is JSON."""
import argparse
import cProfile
import ctypes
import json
import pathlib
import pstats
import statistics
import sys
import time

SEPARATOR = "nextafter"  # a part of the separating kernel's name
DEVICE = "cuda"  # where single calls run
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "zoo"))


class Recorded:
    """Between enter and exit the profiler that watches this process records kernels."""

    def __enter__(self):
        status = ctypes.CDLL("libcuda.so.1").cuProfilerStart()
        if status != 0:
            raise RuntimeError(f"cuProfilerStart: error {status}")

    def __exit__(self, *_):
        ctypes.CDLL("libcuda.so.1").cuProfilerStop()


def quiet(engine, call):
    """The call without gradients."""
    def run():
        with engine.no_grad():
            call()
    return run


def attention(batch, heads, kv_heads, time_, size, dtype="bfloat16", square=False, **options):
    """Forward and backward; [B, T, H, D] in memory, as models have it."""
    def parts(engine, move):
        import torch
        make = lambda h: torch.randn(batch, time_, h, size, device=DEVICE).to(getattr(torch, dtype))
        q, k, v, g = (move(make(h)).transpose(1, 2) for h in (heads, kv_heads, kv_heads, heads))
        mask = move(torch.randn(time_, time_, device=DEVICE).to(getattr(torch, dtype))) if square else None
        for x in (q, k, v):
            x.requires_grad_()
        more = dict(options, enable_gqa=True) if heads != kv_heads else options
        run = lambda: engine.nn.functional.scaled_dot_product_attention(q, k, v, mask, **more)
        y = run()
        return {"forward": quiet(engine, run), "backward": lambda: engine.autograd.grad(y, (q, k, v), g, retain_graph=True)}
    return parts


def convolution_of(kind, x_shape, w_shape, dtype="bfloat16", **options):
    """conv2d, conv3d, conv_transpose3d and so on; in f32 as its layout comes, else with channels innermost. Each gradient alone."""
    def parts(engine, move):
        import torch
        torch.backends.cudnn.benchmark = True
        format_ = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(x_shape)) if dtype != "float32" else None
        draw = lambda shape: torch.randn(*shape, device=DEVICE).to(getattr(torch, dtype))
        last = lambda t: t.contiguous(memory_format=format_) if format_ else t
        x, w = move(last(draw(x_shape))), move(last(draw(w_shape)))
        conv = lambda x, w: getattr(engine.nn.functional, kind)(x, w, **options)
        g = move(last(draw(tuple(conv(x, w).shape))))
        x_leaf, w_leaf = (t.detach() for t in (x, w))  # each gradient alone: a graph that wants the other has both kernels
        for leaf in (x_leaf, w_leaf):
            leaf.requires_grad_()
        of_x, of_w = conv(x_leaf, w), conv(x, w_leaf)
        grad = engine.autograd.grad
        return {"forward": lambda: conv(x, w), "input": lambda: grad(of_x, x_leaf, g, retain_graph=True),
                "weight": lambda: grad(of_w, w_leaf, g, retain_graph=True)}
    return parts


def convolution(images, in_, out, plane, kernel, stride):
    """Channels innermost, bf16."""
    return convolution_of("conv2d", (images, in_, plane, plane), (out, in_, kernel, kernel), stride=stride, padding=kernel // 2 if kernel % 2 else 0)


def recurrent(kind, batch, steps, inputs, width, dtype="float32"):
    def parts(engine, move):
        import torch
        layer = getattr(engine.nn, kind)(inputs, width, batch_first=True).to(DEVICE).to(getattr(engine, dtype))
        x = move(torch.randn(batch, steps, inputs, device=DEVICE).to(getattr(torch, dtype)))
        return {"forward": quiet(engine, lambda: layer(x))}
    return parts


def attention_apart(time_, size, dtype):
    """Attention without matrix units (a negative scale, of negated queries, keeps a call from them), and by separate ops."""
    def parts(engine, move):
        import torch
        q, k, v = (move(torch.randn(1, 8, time_, size, device=DEVICE).to(getattr(torch, dtype))) for _ in range(3))
        functional, negated = engine.nn.functional, -q
        return {"one kernel": quiet(engine, lambda: functional.scaled_dot_product_attention(negated, k, v, scale=-0.1)),
                "separate ops": quiet(engine, lambda: functional.softmax(q @ k.transpose(-2, -1) * 0.1, -1) @ v)}
    return parts


def mask_gradient(batch, heads, time_, size, dtype="bfloat16"):
    """Attention whose additive mask [T, T] wants its gradient, backward."""
    def parts(engine, move):
        import torch
        make = lambda *shape: move(torch.randn(*shape, device=DEVICE).to(getattr(torch, dtype)))
        q, k, v, g = (make(batch, heads, time_, size) for _ in range(4))
        mask = make(time_, time_)
        for t in (q, k, v, mask):
            t.requires_grad_()
        y = engine.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return {"backward": lambda: engine.autograd.grad(y, (q, k, v, mask), g, retain_graph=True)}
    return parts


def sort(count):
    def parts(engine, move):
        import torch
        keys = move(torch.randint(-2**31, 2**31 - 1, (count,), device=DEVICE, dtype=torch.int32))
        return {"with places": lambda: engine.sort(keys), "keys alone": lambda: engine.msort(keys)}
    return parts


def norm_gradients(rows, columns, dtype="bfloat16"):
    def parts(engine, move):
        import torch
        x, g = (move(torch.randn(rows, columns, device=DEVICE).to(getattr(torch, dtype))) for _ in range(2))
        w, b = (move(torch.randn(columns, device=DEVICE).to(getattr(torch, dtype))) for _ in range(2))
        for t in (x, w, b):
            t.requires_grad_()
        functional = engine.nn.functional
        rms, layer = functional.rms_norm(x, (columns,), w), functional.layer_norm(x, (columns,), w, b)
        return {"rms_norm": lambda: engine.autograd.grad(rms, (x, w), g, retain_graph=True),
                "layer_norm": lambda: engine.autograd.grad(layer, (x, w, b), g, retain_graph=True)}
    return parts


def mlp_step(batch, width):
    """graphed_step.py's: forward, backward, update, gradients dropped."""
    def parts(engine, move):
        import torch
        nn = engine.nn
        net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(DEVICE)
        optimizer = engine.optim.AdamW(net.parameters(), lr=1e-4, **({"fused": True} if engine is torch else {}))
        x, y = move(torch.randn(batch, width, device=DEVICE)), move(torch.randint(0, 10, (batch,), device=DEVICE))

        def step():
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return {"step": step}
    return parts


CASES = {
    "attention D 128": attention(4, 16, 16, 4096, 128),
    "attention D 128, causal": attention(4, 16, 16, 4096, 128, is_causal=True),
    "attention D 128, causal, 8 kv heads, 8K": attention(2, 32, 8, 8192, 128, is_causal=True),
    "attention D 128, causal, 8 kv heads, 16K": attention(1, 32, 8, 16384, 128, is_causal=True),
    "attention D 256, causal": attention(4, 8, 8, 4096, 256, is_causal=True),
    "attention D 128, dropout": attention(4, 16, 16, 4096, 128, dropout_p=0.1),
    "attention D 128, additive mask": attention(4, 16, 16, 4096, 128, square=True),
    "attention S 512": attention(32, 8, 8, 512, 64),
    "attention S 512, dropout": attention(32, 8, 8, 512, 64, dropout_p=0.1),
    "attention S 512, additive mask": attention(32, 8, 8, 512, 64, square=True),
    "3x3 512-512 7": convolution(64, 512, 512, 7, 3, 1),
    "3x3/2 128-128 56": convolution(64, 128, 128, 56, 3, 2),
    "3x3/2 512-512 14": convolution(64, 512, 512, 14, 3, 2),
    "attention S 512, mask's gradient": mask_gradient(32, 8, 512, 64),
    "attention without matrix units f32": attention_apart(4096, 100, "float32"),
    "attention without matrix units f16": attention_apart(4096, 100, "float16"),
    "attention D 128, soft cap": attention(4, 16, 16, 4096, 128, logit_soft_cap=50.0),
    "conv3d f32": convolution_of("conv3d", (8, 64, 16, 32, 32), (64, 64, 3, 3, 3), "float32", padding=1),
    "conv3d bf16": convolution_of("conv3d", (8, 64, 16, 32, 32), (64, 64, 3, 3, 3), padding=1),
    "conv_transpose3d f32": convolution_of("conv_transpose3d", (8, 256, 16, 16, 16), (256, 128, 4, 4, 4), "float32", stride=2, padding=1),
    "depthwise 3x3 256 28": convolution_of("conv2d", (64, 256, 28, 28), (256, 1, 3, 3), padding=1, groups=256),
    "depthwise 7x7 768 7": convolution_of("conv2d", (256, 768, 7, 7), (768, 1, 7, 7), padding=3, groups=768),
    "LSTM 256 x 128 x 1024 f32": recurrent("LSTM", 256, 128, 512, 1024),
    "sort 2^28 i32": sort(1 << 28),
    "norm gradients 2048x16384": norm_gradients(2048, 16384),
    "norm gradients 2048x16384 f32": norm_gradients(2048, 16384, "float32"),
    "MLP 3 x 256, batch 64": mlp_step(64, 256),
}


def parts_of(name, engine_name):
    """({part: call} of a case, what waits for the engine)."""
    import torch
    if engine_name == "strata":
        import strata as engine
        move, synchronize = engine.from_dlpack, engine.cuda.synchronize
    else:
        engine, move, synchronize = torch, lambda x: x, torch.cuda.synchronize
    torch.manual_seed(1)
    return CASES[name](engine, move), synchronize


def calls(name, engine_name):
    """Records one call of each part of a case."""
    import torch
    one = torch.ones(1, device=DEVICE)
    parts, synchronize = parts_of(name, engine_name)
    separate = lambda: (torch.nextafter(one, one), torch.cuda.synchronize())
    separate()
    for call in parts.values():  # libraries choose their kernels
        for _ in range(3):
            call()
        synchronize()
    with Recorded():
        for call in parts.values():
            call()
            synchronize()
            separate()
    return {"parts": list(parts)}


def row(name, engine_name, part, seconds):
    """Milliseconds of a call, each after a rest in which power and clock recover, and of calls in a row for so many seconds, of
    which the first fifth is left out."""
    parts, synchronize = parts_of(name, engine_name)
    call = parts[part]

    def timed(count):
        synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        synchronize()
        return (time.perf_counter() - begin) / count

    timed(3)
    apart = []
    for _ in range(15):
        time.sleep(0.1)
        call()  # what a rest put to sleep wakes up
        apart.append(timed(1))
    count = max(1, int(0.02 / statistics.median(apart)))  # some 20 ms between two looks at the clock
    end, in_a_row = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        in_a_row.append(timed(count))
    return {"parts": [part], "apart": 1e3 * statistics.median(apart), "in_a_row": 1e3 * statistics.median(in_a_row[len(in_a_row) // 5:])}


def planned(path, engine_name):
    """Records one call of each case of a file; "problems" names those that could not be called."""
    import torch

    import compare_worker
    import strata as engine
    one, problems = torch.ones(1, device=DEVICE), {}
    wait = lambda: (torch.cuda.synchronize(), engine.cuda.synchronize())
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    torch.nextafter(one, one)
    for i, line in enumerate(lines):
        call = None
        try:
            call = compare_worker.single_call(line["case"], line["pass"], line["inputs"], DEVICE, engine_name)
            for _ in range(3):
                call()
            wait()
        except Exception as e:
            call, problems[i] = None, f"{type(e).__name__}: {e}"[:200]
        with Recorded():
            if call:
                call()
                wait()
            torch.nextafter(one, one)
            torch.cuda.synchronize()
    return {"parts": list(range(len(lines))), "problems": problems}


def training(args, torch):
    """The steps of a zoo program, after those that choose kernels, compile and fill memory."""
    from one import Weights, change, load, steps_of
    module = load(args.name)
    change(module, args.name, args.set)
    steps = steps_of(module, args.size, torch.device(args.device), 1, Weights(None, "", args.compile))
    for _ in range(4):
        float(next(steps).detach())
    return steps


def step(args, torch):
    steps = training(args, torch)
    torch.cuda.synchronize()
    with Recorded():
        next(steps)
        torch.cuda.synchronize()
    return {"parts": ["step"]}


def host(args, torch):
    """Where Python's time goes: functions by their own time, over enough steps for two seconds."""
    steps = training(args, torch)
    profile = cProfile.Profile()
    begin = time.perf_counter()
    count = 0
    profile.enable()
    while count < 10 or time.perf_counter() - begin < 2:
        float(next(steps).detach())
        count += 1
    profile.disable()
    stats = pstats.Stats(profile)
    rows = [(own / count, calls_ / count, f"{pathlib.Path(file).name}:{line} {function}")
            for (file, line, function), (_, calls_, own, _, _) in stats.stats.items()]
    rows.sort(reverse=True)
    return {"step_s": (time.perf_counter() - begin) / count, "own_s": sum(row[0] for row in rows), "rows": rows[:20]}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=("call", "row", "rows", "step", "host"))
    p.add_argument("name")
    p.add_argument("--part", help="row: of the case")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--engine", choices=("strata", "torch"), default="strata")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--size", default="card")
    p.add_argument("--device", default="cuda")
    p.add_argument("--set", nargs="*", default=[])
    args = p.parse_args()
    if args.what == "call":
        result = calls(args.name, args.engine)
    elif args.what == "row":
        result = row(args.name, args.engine, args.part, args.seconds)
    elif args.what == "rows":
        result = planned(args.name, args.engine)
    else:
        if args.engine == "strata":
            import strata.torch
            strata.torch.install()
        import torch
        result = (step if args.what == "step" else host)(args, torch)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
