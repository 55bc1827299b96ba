#!/usr/bin/env python3
"""What passes until a program has its first result.

  bench/startup.py step  --strata build/release/bin/strata [--device cuda] [--set model.layers=28 ...] [--rounds 2]
  bench/startup.py token --strata build/release/bin/strata [--device cuda] [--set model.layers=16 ...] [--rounds 3]

`step`: the first training step of the shape of Llama 3.2B, and the parts that the run itself names. From the second round
on products were chosen before. `token`: a model of the shape of Llama 3.2 1B is saved once; then, the files out of the
system's cache, the disk's speed with reads of 16 MiB, and `strata generate --tokens 1`, from start to exit."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

from tokens import make_tokens, write_text

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE.parent / "configs/llama-1b.toml"
LLAMA_3B = ["model.layers=28", "model.dim=3072", "model.heads=24"]


def drop_from_cache(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as f:
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(path):
    block = bytearray(16 << 20)
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as f:
        while f.readinto(block):
            pass
    return time.monotonic() - begin


def train(a, tmp, name, steps, more):
    batch, model = tomllib.loads(CONFIG.read_text())["train"]["batch"], tomllib.loads(CONFIG.read_text())["model"]
    sizes = {k: v for k, v in (s.removeprefix("model.").split("=") for s in more if s.startswith("model."))}
    text = pathlib.Path(tmp) / "tokens.txt"
    if not text.exists():
        write_text(make_tokens(int(sizes.get("vocab", model["vocab"])), 8 * batch * int(sizes.get("context", model["context"])) + 1), text)
    out = pathlib.Path(tmp) / name
    command = [a.strata, "train", str(CONFIG), "--device", a.device, "--data", str(text), "--out", str(out), "--steps", str(steps),
               "--no-memory-check", "--set", "data.tokenizer=ids", "data.valid_fraction=0", "train.eval_every=0", "train.sample_tokens=0",
               "train.warmup=0", *more]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return out, time.monotonic() - begin, done.stderr


def step(a, tmp):
    for i in range(a.rounds):
        out, seconds, log = train(a, tmp, f"run{i}", 4, ["train.save_every=-1", *LLAMA_3B, *a.set])
        rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
        parts = next((line.strip() for line in log.splitlines() if "the first step ended" in line), "")
        print(f"round {i + 1}: first step {rows[0]['elapsed_s']:.2f} s, all four {rows[-1]['elapsed_s']:.2f} s, process {seconds:.2f} s; {parts}",
              flush=True)


def token(a, tmp):
    out, _, _ = train(a, tmp, "run", 1, ["train.optimizer=sgd", "train.keep_last=1", *a.set])
    weights = max(out.glob("step-*")) / "model.safetensors"
    size = weights.stat().st_size
    for i in range(a.rounds):
        drop_from_cache(out)
        plain = read_seconds(weights)
        drop_from_cache(out)
        begin = time.monotonic()
        subprocess.run([a.strata, "generate", "--checkpoint", str(out), "--device", a.device, "--tokens", "1", "--prompt", "1 2 3 4"],
                       check=True, capture_output=True)
        seconds = time.monotonic() - begin
        print(f"round {i + 1}: {size / 1e9:.2f} GB; read alone {plain:.2f} s ({size / plain / 1e9:.2f} GB/s); the first token and out again "
              f"{seconds:.2f} s ({size / seconds / 1e9:.2f} GB/s, {plain / seconds:.0%} of the disk's speed)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "token"])
    parser.add_argument("--strata", default="build/release/bin/strata")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tmp", help="folder on the disk to measure")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
        (step if a.what == "step" else token)(a, tmp)


if __name__ == "__main__":
    main()
