#!/usr/bin/env python3
"""Training speed of `strata train` beside PyTorch (eager and compiled, f32 and bf16), in one run on one machine.

  bench/compare_training.py --strata build/release/bin/strata [--models small medium] [--out bench/results]
  bench/compare_training.py --strata build/release/bin/strata --device cuda [--models gpt2-124m-padded llama-1b] [--engines strata]

Each engine trains the same model on the same batch shape with AdamW at the same constant learning rate; Strata's figure comes
from its own metrics.jsonl, so loading data and logging count against it. On the CPU: gradients are clipped, medians after the
first steps. On a card: bf16 autocast over f32 weights, no clipping, the same batches in the same order, so that the last losses can be compared (the
initial weights are each engine's own); the mean of --steps steps after --warmup; memory is the most that tensors held
(and what the allocator kept). Writes a Markdown table named for the date when --out is given."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import tomllib

from tokens import command, make_tokens, write_text

# Of both engines, on the CPU and on a card: whatever a configuration's own schedule is.
CPU_LR, CARD_LR = 1e-3, 3e-4


def constant(lr):
    return [f"train.lr={lr}", "train.schedule=constant", "train.warmup=0"]


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
    sets += [f"train.batch={s['batch']}", *constant(CPU_LR), "train.eval_every=0", "train.save_every=0",
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
                           "--dtype", dtype, "--mode", mode, "--seconds", str(seconds), "--lr", str(CPU_LR)], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_s"], None


# The padded vocabulary is what PyTorch's products want: with 50,257 columns they are slow and copied.
CONFIGS = {"gpt2-124m": "configs/gpt2-124m.toml", "gpt2-124m-padded": "configs/gpt2-124m.toml",
           "llama-1b": "configs/llama-1b.toml", "llama-3b": "configs/llama-3b.toml"}
VOCAB = {"gpt2-124m-padded": 50304}


def config_path(name):
    return pathlib.Path(name) if name.endswith(".toml") else HERE.parent / CONFIGS[name]


def call(command, env=None):
    """Runs a program whose last line is what counts; its errors become ours."""
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}", file=sys.stderr)
        return None
    return done.stdout


def cuda_strata(a, name, config, tmp):
    model, batch = config["model"], a.batch or config["train"]["batch"]
    run = pathlib.Path(name).stem
    data, out = pathlib.Path(tmp) / f"{run}.txt", pathlib.Path(tmp) / run
    write_text(make_tokens(model["vocab"], 8 * batch * model["context"] + 1), data)
    own = [s.removeprefix(f"{name}:") for s in a.set if s.startswith(f"{name}:") or not s.startswith(tuple(f"{m}:" for m in CONFIGS))]
    command = [a.strata, "train", str(config_path(name)), "--device", a.device, "--data", str(data), "--out", str(out),
               "--steps", str(a.warmup + a.steps), "--set", "data.tokenizer=ids", "data.shuffle=false", "data.valid_fraction=0",
               *constant(CARD_LR), "train.weight_decay=0.1", "train.eval_every=0", "train.save_every=-1", "train.sample_tokens=0",
               "train.grad_clip=0", f"model.vocab={model['vocab']}", f"train.batch={batch}", *own]
    text = call(command)
    if text is None:
        return None
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    begin, end = rows[a.warmup - 1], rows[-1]
    rate = (end["tokens"] - begin["tokens"]) / (end["elapsed_s"] - begin["elapsed_s"])
    reserved = next(line for line in text.splitlines() if line.startswith("peak memory"))
    return {"tokens_per_s": rate, "step_ms": 1e3 * batch * model["context"] / rate, "peak_gib": end["peak_memory"] / 2**30,
            "reserved_gib": float(reserved.split(",")[1].split()[0]), "first_step_s": rows[0]["elapsed_s"],
            "first_loss": rows[0]["loss"], "last_loss": end["loss"]}


def cuda_pytorch(a, name, config, mode):
    command = [sys.executable, str(HERE / "pytorch/train_cuda.py"), str(config_path(name)), "--mode", mode,
               "--warmup", str(a.warmup), "--steps", str(a.steps), "--batch", str(a.batch), "--vocab", str(config["model"]["vocab"]),
               "--device", a.device, "--lr", str(CARD_LR)]
    text = call(command)
    return json.loads(text.splitlines()[-1]) if text else None


def flops_per_token(m):
    """Of a training step: six for each weight of the products, and attention's over the whole square (PaLM, appendix B)."""
    heads, kv_heads = m["heads"], m.get("kv_heads") or m["heads"]
    ffn = m.get("ffn_dim") or 4 * m["dim"]
    block = m["dim"] * m["dim"] * (2 + 2 * kv_heads / heads) + m["dim"] * ffn * (3 if m["family"] == "llama" else 2)
    return 6 * (m["layers"] * block + m["vocab"] * m["dim"]) + 12 * m["layers"] * m["dim"] * m["context"]


def compare_on_card(a, write):
    """The table, given to write(table, card, version) after each row; whether all engines ran."""
    complete = True
    lines = ["| model | engine | tokens/s | against compiled | ms a step | TFLOP/s | peak GiB | reserved GiB | first step s | loss, first and last |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    card, version = "", ""
    with tempfile.TemporaryDirectory() as tmp:
        for name in a.models:
            with open(config_path(name), "rb") as f:
                config = tomllib.load(f)
            config["model"]["vocab"] = a.vocab or VOCAB.get(name) or config["model"]["vocab"]
            results = {}
            for engine in a.engines:
                label = "Strata" if engine == "strata" else f"PyTorch {engine}"
                r = cuda_strata(a, name, config, tmp) if engine == "strata" else cuda_pytorch(a, name, config, engine)
                results[label] = r
                if r is None:
                    complete = False
                    continue
                card, version = r.get("device", card), r.get("version", version)
                print(f"{name} {label}: {r['tokens_per_s']:,.0f} tokens/s, {r.get('peak_gib', 0):.1f} GiB", file=sys.stderr, flush=True)
            best = (results.get("PyTorch compiled") or {}).get("tokens_per_s")
            each = flops_per_token(config["model"])
            for label, r in results.items():
                if r is None:
                    lines.append(f"| {name} | {label} | failed |" + 7 * " |")
                    print(lines[-1], flush=True)
                    continue
                ratio = f"{r['tokens_per_s'] / best:.2f}" if best else ""
                lines.append(f"| {name} | {label} | {r['tokens_per_s']:,.0f} | {ratio} | {r['step_ms']:.1f} | "
                             f"{r['tokens_per_s'] * each / 1e12:.0f} | {r.get('peak_gib', 0):.1f} | {r.get('reserved_gib', 0):.1f} | "
                             f"{r['first_step_s']:.1f} | {r['first_loss']:.3f} {r['last_loss']:.3f} |")
                print(lines[-1], flush=True)
            write("\n".join(lines), card, version)
    return complete


def cuda_main(a):
    day = datetime.date.today().isoformat()

    def write(table, card, version):
        if not a.out:
            return
        if not card:
            card = next((line.split("  ", 1)[1].strip() for line in (call([a.strata, "info", "--no-peaks"]) or "").splitlines()
                         if line.startswith("CUDA")), "unknown")
        path = pathlib.Path(a.out) / f"training-cuda-{day}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Training steps on a card beside PyTorch\n\nCommand: `{command('bench/compare_training.py', sys.argv[1:])}`  \n"
                        f"Machine: {card}  \nDate: {day}, commit {a.commit}, PyTorch {version or 'not run'}\n\n{table}\n\n"
                        f"Weights and AdamW's moments f32, bf16 autocast, no clipping; both engines at a constant learning rate of {CARD_LR:g}, on\n"
                        "the same batches, each from initial weights of its own. TFLOP/s: 6 for each weight of a product and\n"
                        "token, and attention's over the whole square. The first step holds PyTorch's compilation.\n")

    return 0 if compare_on_card(a, write) else 1


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--strata", default=str(HERE.parent / "build/release/bin/strata"))
    p.add_argument("--models", nargs="+", help="small medium; on a card gpt2-124m gpt2-124m-padded llama-1b llama-3b; or a configuration (FILE.toml), timed as on a card")
    p.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    p.add_argument("--modes", nargs="+", default=["eager", "compiled"])
    p.add_argument("--engines", nargs="+", default=["strata", "eager", "compiled"], choices=["strata", "eager", "compiled"],
                   help="on a card: which to run")
    p.add_argument("--device", default="cpu")
    p.add_argument("--warmup", type=int, default=10, help="on a card: steps before the timed ones")
    p.add_argument("--batch", type=int, default=0, help="on a card: 0 takes the configuration's")
    p.add_argument("--vocab", type=int, default=0, help="on a card: 0 takes the configuration's")
    p.add_argument("--set", nargs="+", default=[], help="on a card: settings for strata train; MODEL:KEY=VALUE is for one model")
    p.add_argument("--steps", type=int, default=0, help="0: 60, on a card 30 timed ones")
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--text", help="training text; default: this project's own sources")
    p.add_argument("--out")
    p.add_argument("--commit", default="")
    a = p.parse_args()
    on_card = a.device != "cpu" or any(m.endswith(".toml") for m in a.models or [])
    known = CONFIGS if on_card else SETUPS
    a.models = a.models or [m for m in known if m != "llama-3b"]  # of which PyTorch's steps want more than 80 GB
    a.steps = a.steps or (30 if on_card else 60)
    for name in a.models:
        if name not in known and not (on_card and name.endswith(".toml")):
            p.error(f"no model {name} on {a.device}: there are {', '.join(known)}")
    if on_card:
        return cuda_main(a)
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
        path.write_text(f"# Training steps beside PyTorch\n\nCommand: `{command('bench/compare_training.py', sys.argv[1:])}`  \n"
                        f"Machine: {cpu_name()}, {os.cpu_count()} logical processors  \nDate: {day}, commit {a.commit}, "
                        f"PyTorch {version.stdout.strip()}\n\n{table}\n\nModels:\n{shapes}\n")


if __name__ == "__main__":
    sys.exit(main())
