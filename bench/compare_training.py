#!/usr/bin/env python3
"""Training speed of `strata train` beside PyTorch (eager and compiled, f32 and bf16), in one run on one machine.

  bench/compare_training.py --strata build/release/bin/strata [--models small medium] [--out bench/results]

Each engine trains the same GPT on the same batch shape with AdamW and gradient clipping; Strata's figure comes from its
own metrics.jsonl, so loading data and logging count against it. Medians after the first steps. Writes a Markdown
table named for the date and the processor when --out is given."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SETUPS = {
    "small": dict(threads=2, layers=4, dim=256, heads=8, context=256, vocab=256, batch=8),
    "medium": dict(threads=16, layers=6, dim=512, heads=8, context=256, vocab=8192, batch=16),
}


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def strata(binary, name, dtype, steps, text, tmp):
    s = SETUPS[name]
    out = pathlib.Path(tmp) / f"{name}-{dtype}"
    sets = [f"model.{k}={s[k]}" for k in ("layers", "dim", "heads", "context", "vocab")]
    sets += [f"train.batch={s['batch']}", "train.lr=0.001", "train.warmup=10", "train.eval_every=0", "train.save_every=0",
             "train.sample_tokens=0", "train.grad_clip=1.0", "train.weight_decay=0.1", f"train.threads={s['threads']}"]
    command = [binary, "train", "--data", str(text), "--out", str(out), "--steps", str(steps), "--dtype", dtype]
    for item in sets:
        command += ["--set", item]
    env = dict(os.environ, OMP_NUM_THREADS=str(s["threads"]))
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"strata train failed: {done.stdout}{done.stderr}")
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    rates = [r["tokens_per_s"] for r in rows[5:]]
    return statistics.median(rates), rows


def pytorch(name, dtype, mode, seconds):
    s = SETUPS[name]
    done = subprocess.run([sys.executable, str(HERE / "pytorch/gpt_train.py"), "--model", name, "--threads", str(s["threads"]),
                           "--dtype", dtype, "--mode", mode, "--seconds", str(seconds)], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_s"], None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--strata", required=True)
    p.add_argument("--models", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    p.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    p.add_argument("--modes", nargs="+", default=["eager", "compiled"])
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--text", help="training text; default: this project's own sources")
    p.add_argument("--out")
    p.add_argument("--commit", default="")
    a = p.parse_args()
    lines = ["| model | threads | engine | dtype | tokens/s | against PyTorch's best |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as tmp:
        text = a.text
        if not text:
            text = pathlib.Path(tmp) / "corpus.txt"
            root = HERE.parent
            with open(text, "wb") as f:
                for pattern in ("strata/**/*.h", "strata/**/*.cpp", "docs/**/*.md"):
                    for path in sorted(root.glob(pattern)):
                        f.write(path.read_bytes())
        for name in a.models:
            threads = SETUPS[name]["threads"]
            theirs, ours = {}, {}
            for dtype in a.dtypes:
                ours[dtype], _ = strata(a.strata, name, dtype, a.steps, text, tmp)
                for mode in a.modes:
                    rate, problem = pytorch(name, dtype, mode, a.seconds)
                    if rate is None:
                        print(f"pytorch {name} {dtype} {mode}: {problem}", file=sys.stderr)
                    else:
                        theirs[f"{mode} {dtype}"] = rate
            best = max(theirs.values(), default=None)
            for key, rate in theirs.items():
                mode, dtype = key.split()
                lines.append(f"| {name} | {threads} | PyTorch {mode} | {dtype} | {rate:,.0f} | {rate / best:.2f} |")
            for dtype, rate in ours.items():
                ratio = f"{rate / best:.2f}" if best else ""
                lines.append(f"| {name} | {threads} | Strata | {dtype} | {rate:,.0f} | {ratio} |")
    table = "\n".join(lines)
    print(table)
    if a.out:
        day = datetime.date.today().isoformat()
        path = pathlib.Path(a.out) / f"training-{day}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
        shapes = "\n".join(f"- {n}: {SETUPS[n]}" for n in a.models)
        path.write_text(f"# Training steps beside PyTorch\n\nCommand: `{' '.join(['bench/compare_training.py'] + sys.argv[1:])}`  \n"
                        f"Machine: {cpu_name()}, {os.cpu_count()} logical processors  \nDate: {day}, commit {a.commit}, "
                        f"PyTorch {version.stdout.strip()}\n\n{table}\n\nModels:\n{shapes}\n")


main()
