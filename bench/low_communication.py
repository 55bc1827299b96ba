#!/usr/bin/env python3
"""Ways to exchange gradients (parallel.reduce) beside whole ones: losses, bytes and seconds of a small GPT on several ranks.

  bench/low_communication.py --strata build/release/bin/strata --data TEXT [--ranks 4] [--steps 400] [--out bench/results]

Every way trains the same model on the same batches. Bytes are what ranks counted, seconds what the host measured: of the exchange with its coding,
and of sending whole gradients alone. Without --out the page goes to the standard output."""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SHAPE = ["model.layers=4", "model.dim=128", "model.heads=4", "model.context=64", "train.batch=16", "train.lr=2e-3", "train.warmup=20",
         "train.sample_tokens=0", "train.save_every=-1", "train.eval_batches=32", "train.threads=1"]


def ways(steps):
    warm = steps // 5
    lion = "train.optimizer=lion"  # whose steps are signs, too
    return [("plain", []), ("int8", []), ("int4", []), ("powersgd", []), ("powersgd", ["parallel.reduce_rank=8"]),
            ("onebit", [f"parallel.reduce_warmup={warm}"]), ("demo", [lion]), ("demo", [lion, "parallel.reduce_keep=32", "parallel.reduce_decay=0.99"]),
            ("demo", [lion, "parallel.reduce_keep=64", "train.lr=3e-3"]), ("local_sgd", ["parallel.reduce_every=8"]),
            ("diloco", ["parallel.reduce_every=20"])]


def run(a, name, settings, folder):
    out = pathlib.Path(folder) / "run"
    command = [a.strata, "launch", "-n", a.ranks, "--", a.strata, "train", "--data", a.data, "--out", out, "--steps", a.steps, "--set",
               *SHAPE, f"train.eval_every={a.steps}", f"parallel.reduce={name}", *settings]
    p = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        return None, p.stdout[-2000:]
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    summary = [line for line in p.stdout.splitlines() if "a rank sent" in line]
    return rows, summary[-1].split("parallel.reduce", 1)[1] if summary else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out")
    a = parser.parse_args()
    lines, failures, plain = [], [], None
    for name, settings in ways(a.steps):
        with tempfile.TemporaryDirectory() as folder:
            rows, text = run(a, name, settings, folder)
        if rows is None:
            failures.append(f"{name}: {text}")
            continue
        loss = next(r["valid_loss"] for r in reversed(rows) if "valid_loss" in r)
        plain = plain or loss
        sent = sum(r.get("sent_bytes", 0) for r in rows) / len(rows)
        whole = rows[-1].get("plain_bytes", 0)
        seconds = sorted(r.get("exchange_s", 0) for r in rows)[len(rows) // 2]
        what = " ".join(f"`{s}`" for s in settings)
        lines.append(f"| {name} {what} | {loss:.4f} | {100 * (loss / plain - 1):+.1f}% | "
                     + (f"{sent:,.0f} | {whole / sent:.1f} | {1000 * seconds:.1f} |" if sent else " | 1 | |"))
        print(lines[-1], file=sys.stderr, flush=True)
    date = datetime.date.today().isoformat()
    page = "\n".join([
        f"# Gradients in fewer bytes, {date}", "",
        f"`bench/low_communication.py`: GPT of 4 layers of width 128, context 64, {a.ranks} ranks on a processor, {a.steps} steps of 16 rows.",
        "Losses are those of the same validation batches; bytes are one rank's, a step's mean over the whole run, warm-ups included; milliseconds are the",
        "median of a step's exchange on the host.", "",
        "| `parallel.reduce` | validation loss | to plain | bytes a step | fewer | ms |", "|---|---|---|---|---|---|", *lines, ""])
    if failures:
        page += "\nFailed: " + "; ".join(failures) + "\n"
    if a.out:
        pathlib.Path(a.out, f"low-communication-{date}.md").write_text(page)
    else:
        print(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
