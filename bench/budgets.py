#!/usr/bin/env python3
"""Training under memory budgets: the plan's forecast beside the run, step time and peak beside a run without, losses bit for bit.

  bench/budgets.py --strata build/release/bin/strata [--device cuda] [--steps 6] [CASE ...]

A case is a name of CASES below; all where none is given. Each of its budgets is a run of its own, one after the other, from the
same first weights and batches. `strata estimate` is asked for each before, with the same settings."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from tokens import make_tokens, write_text

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
LLAMA_3B = ["model.layers=28", "model.dim=3072", "model.heads=24", "model.kv_heads=8", "model.ffn_dim=8192", "model.vocab=128256",
            "model.context=2048", "train.batch=4"]
LLAMA_8B = ["model.layers=32", "model.dim=4096", "model.heads=32", "model.kv_heads=8", "model.ffn_dim=14336", "model.vocab=128256",
            "model.context=4096", "train.batch=1", "train.param_dtype=bf16", "train.param_update=compensated", "train.state_8bit=true"]

# name: configuration, settings of all its runs, and the budgets (the first is what others are compared with)
CASES = {
    "gpt2": ("gpt2-124m.toml", ["train.batch=32", "model.context=1024"],
             [[], ["memory.device=7.2GiB"], ["memory.device=7GiB"], ["memory.device=5GiB"], ["memory.activations=host"], ["memory.recompute=blocks"]]),
    "llama3b": ("llama-1b.toml", LLAMA_3B,
                [[], ["memory.device=40GiB"], ["memory.device=14GiB"], ["memory.device=14GiB", "memory.update=split"],
                 ["memory.device=14GiB", "memory.update=cpu"]]),
    "llama14": ("llama-1b.toml", LLAMA_3B,
                [["memory.device=14GiB"], ["memory.device=14GiB", "memory.update=split"], ["memory.device=14GiB", "memory.update=cpu"]]),
    "llama8b": ("llama-1b.toml", LLAMA_8B, [["memory.device=24GiB"], ["memory.device=24GiB", "train.accumulate=8"]]),
    "cpu": ("quickstart.toml", ["train.device=cpu", "train.batch=16", "model.dim=512", "model.layers=6", "model.heads=8"],
            [[], ["memory.device=400MiB", "memory.disk={disk}"], ["memory.device=200MiB", "memory.disk={disk}"]]),
}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def number(pattern, text, scale=1.0):
    m = re.search(pattern, text)
    return float(m.group(1)) * scale if m else None


def bytes_of(text):
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
    m = re.match(r"([0-9.]+) (\w+)", text)
    return float(m.group(1)) * units[m.group(2)]


def forecast(a, config, settings):
    code, out, err = run([a.strata, "estimate", str(config), "--device", a.device, "--set", *settings])
    if code != 0:
        return None, None, err.strip()
    peak = re.search(r"^device +(.*?)(?: of .*)?$", out, re.M)
    seconds = number(r"^step +([0-9.e+-]+) s", out) or number(r"\nstep +([0-9.e+-]+) s", out)
    if peak:
        return bytes_of(peak.group(1)), seconds, out
    return (number(r"peak +([0-9.]+) GiB", out) or 0) * (1 << 30), None, out


def case(a, name, tmp):
    file, settings, budgets = CASES[name]
    config = CONFIGS / file
    device = next((s.split("=")[1] for s in settings if s.startswith("train.device=")), a.device)
    vocab = next((int(s.split("=")[1]) for s in settings if s.startswith("model.vocab=")), 0)
    common = [*settings, "data.valid_fraction=0", "train.eval_every=0", "train.sample_tokens=0", "train.save_every=-1", "train.warmup=0", *a.set]
    text = tmp / f"{name}.txt"
    if device != "cpu":
        vocab = vocab or 50304
        write_text(make_tokens(vocab, 400_000), text)
        common += ["data.tokenizer=ids", f"model.vocab={vocab}"]
    else:
        text.write_text("a line of text that is as good as any other, number after number\n" * 20000)
    base = None
    for i, budget in enumerate(budgets):
        budget = [b.format(disk=tmp) for b in budget]
        peak, seconds, _ = forecast(a, config, [*common, *budget])
        out = tmp / f"{name}-{i}"
        begin = time.monotonic()
        code, log, err = run([a.strata, "train", str(config), "--device", device, "--data", str(text), "--out", str(out), "--steps", str(a.steps),
                              "--no-memory-check", "--set", *common, *budget])
        whole = time.monotonic() - begin
        label = " ".join(b.replace("memory.", "").replace(str(tmp), "DISK") for b in budget) or "no budget"
        if code != 0:
            print(f"{name:8} {label:36} failed: {err.strip().splitlines()[-1] if err.strip() else code}", flush=True)
            continue
        rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
        tail = rows[len(rows) // 2:]
        rate = sorted(r["tokens_per_s"] for r in tail)[len(tail) // 2]
        took = rows[0]["tokens"] / rate
        losses = [r["loss"] for r in rows]
        held = max(r["peak_memory"] for r in rows)
        if base is None:
            base = (took, held, losses)
        same = "same losses" if losses == base[2] else f"losses differ at step {next(k for k, (x, y) in enumerate(zip(losses, base[2])) if x != y) + 1}"
        print(f"{name:8} {label:36} {took * 1e3:9.1f} ms {took / base[0]:6.2f}x {rate:9.0f} tokens/s  peak {held / 2**30:7.3f} GiB {held / base[1]:5.2f}x"
              f"  forecast {(seconds or 0) * 1e3:8.1f} ms {(peak or 0) / 2**30:7.3f} GiB  {same}; {whole:.0f} s", flush=True)
        # What was planned on this machine, what moved, and what kept the step from being one graph.
        for line in (log + err).splitlines():
            if re.match(r"(weights|activations|state)[: ]|step  |peak memory|no CUDA graph|the step is", line.strip()):
                print("    " + line.strip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--strata", default="build/release/bin/strata")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tmp", help="folder on the disk that budgets may use")
    a = parser.parse_args()
    for name in a.cases or CASES:
        if name not in CASES:
            sys.exit(f"no case '{name}'; there are {', '.join(CASES)}")
        with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
            case(a, name, pathlib.Path(tmp))


if __name__ == "__main__":
    main()
