#!/usr/bin/env python3
"""Forecasts of `strata plan` beside runs: two small models on several processes of this machine, or on its cards.

  bench/plan_bench.py --strata build/release/bin/strata [--ranks 2 4] [--layouts 8] [--steps 12] [--out bench/results]
  bench/plan_bench.py --strata build/release/bin/strata --device cuda --ranks 4 --layouts 12 --seconds 300

For each number of ranks the links are measured once (`strata launch -n N -- strata info --links`), for each model a plan is
made, and layouts from its whole range are trained for some steps, the first three of which do not count: the plan's first, and
the best ones of other kinds. A row has the forecast and the median of a step, and of the memory of a rank; the summary says how much slower the plan's first
is than the best that was measured, and how the orders agree (Spearman)."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from tokens import make_tokens, write_text

HERE = pathlib.Path(__file__).resolve().parent
MODELS = {
    "gpt, 4 x 128": ["model.layers=4", "model.dim=128", "model.heads=4", "model.context=128", "model.vocab=256", "train.batch=16"],
    "llama, 2 x 256": ["model.family=llama", "model.layers=2", "model.dim=256", "model.heads=8", "model.context=64",
                       "model.vocab=256", "train.batch=16"],
}
# Of cards. Stages run on processors alone.
ON_CARDS = {"GPT-2 124M, 64 rows": ["gpt2-124m", "model.vocab=50304", "train.batch=64", "parallel.pp=1"],
            "Llama 1.24B, 16 rows": ["llama-1b", "train.batch=16", "parallel.pp=1"]}
COMMON = ["train.threads=1", "train.eval_every=0", "train.sample_tokens=0", "train.save_every=0"]
SKIPPED = 3


def call(arguments, limit=300):
    p = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=limit,
                       env=dict(os.environ, NCCL_NVLS_ENABLE="0"))
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {p.returncode}\n{p.stdout[-2000:]}{p.stderr[-2000:]}")
    return p.stdout


def chosen(plan, count):
    """The first, and of each kind (which axes, which ZeRO, a pipeline's schedule, recomputing) the best one: spread over the range."""
    seen, best = set(), []
    for p in plan["layouts"]:
        s = dict(x.split("=", 1) for x in p["settings"])
        kind = tuple(sorted((k, v) for k, v in s.items() if k.split(".")[1] not in ("batch", "accumulate", "micro_batches", "stages")))
        if kind in seen:
            continue
        seen.add(kind)
        best.append(p)
    if len(best) <= count:
        return best
    return [best[round(i * (len(best) - 1) / (count - 1))] for i in range(count)]


def ranks_of(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    place = [0] * len(values)
    for i, at in enumerate(order):
        place[at] = i
    return place


def spearman(a, b):
    x, y = ranks_of(a), ranks_of(b)
    n = len(a)
    return 1 - 6 * sum((i - j) ** 2 for i, j in zip(x, y)) / (n * (n * n - 1)) if n > 1 else 1.0


def measured(strata, ranks, folder, data, name, config, settings, steps, skipped, limit):
    """A step's median and least seconds, and the peak of memory."""
    out = folder / name
    call([strata, "launch", "-n", ranks, "--", strata, "train", *config, "--data", data, "--out", out, "--steps", steps, "--quiet",
          "--no-memory-check", "--set", *settings], limit)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    times = [b["elapsed_s"] - a["elapsed_s"] for a, b in zip(rows, rows[1:])][skipped - 1:]
    return statistics.median(times), min(times), rows[-1]["peak_memory"]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--strata", required=True, type=pathlib.Path)
    a.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    a.add_argument("--layouts", type=int, default=8)
    a.add_argument("--steps", type=int, default=12)
    a.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    a.add_argument("--models", type=int, default=2, help="so many of them")
    a.add_argument("--seconds", type=float, default=0, help="begin no run after so long; 0: whenever")
    a.add_argument("--limit", type=float, default=300, help="seconds of one program")
    a.add_argument("--out", type=pathlib.Path)
    a = a.parse_args()
    end = time.monotonic() + a.seconds if a.seconds else float("inf")
    cards = a.device == "cuda"
    strata = a.strata.resolve()
    lines = []

    def say(text=""):
        lines.append(text)
        print(text, flush=True)

    with tempfile.TemporaryDirectory() as t:
        folder = pathlib.Path(t)
        (folder / "text.txt").write_text("".join(f"line {i % 37} of a small text, {i * i % 101}\n" for i in range(6000)))
        for ranks in a.ranks:
            links = folder / f"links{ranks}.json"
            call([strata, "launch", "-n", ranks, "--", strata, "info", "--links", "--device", a.device, "--out", links])
            m = json.loads(links.read_text())
            say(f"\n{ranks} ranks: steps reach {m['efficiency']:.2f} of {m['limits'].get('matmul_bf16' if cards else 'matmul_f32', 0):.0f} GFLOP/s, {m['call_us']:.1f} us a "
                f"call; others leave {m['share']:.2f}; pairs {m['links']['inside']['gb_s']:.2f} GB/s, {m['links']['inside']['latency_us']:.0f} us; collectives "
                f"{m['links']['scale']:.2f} of that (few bytes {m['links']['small_scale']:.2f}); {100 * m['links']['overlap']:.0f}% hidden")
            for name, model in list((ON_CARDS if cards else MODELS).items())[:a.models]:
                config, data = [], folder / "text.txt"
                settings = model + COMMON
                if cards:
                    config = [HERE.parent / f"configs/{model[0]}.toml"]
                    vocab = 128256 if "llama" in model[0] else 50304
                    data = folder / f"tokens{vocab}.txt"
                    if not data.exists():
                        write_text(make_tokens(vocab, 1 << 19), data)
                    settings = model[1:] + [s for s in COMMON if "threads" not in s] + ["data.tokenizer=ids", "data.valid_fraction=0",
                                                                                         "train.grad_clip=0", "train.save_every=-1"]
                    plan_settings = [s for s in settings if "tokenizer" not in s]
                    if "llama" in model[0]:
                        plan_settings.append(f"model.vocab={vocab}")
                else:
                    plan_settings = settings
                plan = json.loads(call([strata, "plan", *config, "--ranks", ranks, "--links", links, "--json", "--set", *plan_settings], a.limit))
                rows = []
                for i, p in enumerate(chosen(plan, a.layouts)):
                    if time.monotonic() > end:
                        print(f"{p['layout']}: no time", file=sys.stderr)
                        continue
                    try:
                        found = measured(strata, ranks, folder, data, f"{ranks}{name[:3]}{i}", config, settings + p["settings"], a.steps,
                                         min(SKIPPED * (3 if cards else 1), a.steps - 2), a.limit)
                    except (RuntimeError, subprocess.TimeoutExpired) as e:
                        print(f"{p['layout']}: {e}", file=sys.stderr, flush=True)
                        continue
                    rows.append((p, *found))
                say(f"\n### {name}, {ranks} ranks ({len(plan['layouts'])} layouts)\n")
                if not rows:
                    say("No layout ran.")
                    continue
                best = min(r[1] for r in rows)
                say("| layout | forecast, ms | measured, ms (least) | forecast / measured | memory: forecast, MiB | measured | forecast / measured |\n"
                    "|---|---|---|---|---|---|---|")
                for p, median, least, peak in rows:
                    say(f"| {p['layout']} | {1e3 * p['seconds']:.1f} | {1e3 * median:.1f} ({1e3 * least:.1f}) | {p['seconds'] / median:.2f} | "
                        f"{p['peak'] / 2**20:,.0f} | {peak / 2**20:,.0f} | {p['peak'] / max(peak, 1):.2f} |")
                say(f"\nThe plan's first takes {rows[0][1] / best:.2f} times the best that was measured; the orders agree to "
                    f"{spearman([r[0]['seconds'] for r in rows], [r[1] for r in rows]):.2f} (Spearman), by the least times "
                    f"{spearman([r[0]['seconds'] for r in rows], [r[2] for r in rows]):.2f}.")
    if a.out:
        today = datetime.date.today().isoformat()
        (a.out / f"plan-{today}.md").write_text(f"# Forecasts of layouts beside runs, {today}\n\n`{' '.join(['bench/plan_bench.py'] + sys.argv[1:])}` "
                                                f"on {os.cpu_count()} cores\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
