#!/usr/bin/env python3
"""Several cards of one machine, Strata beside PyTorch in one run: collectives (dist_bench and pytorch/collectives.py), and GPT-2
124M trained by `strata launch -n N -- strata train` beside DistributedDataParallel compiled.

  bench/dist_bench.py --strata build/release/bin/strata --bench build/release/bench/dist_bench [--cards 1 2 4] [--out bench/results]
                      [--parts losses layouts training collectives variants timeline saving kill experts] [--seconds 0]

`losses`: the same global batch on every number of cards, the largest difference of a step's loss to one card's. `layouts`: the same for
settings of one's own, each a text "CARDS: SETTING ..." after --layouts. `training`: --batch rows a card, of any configuration and
--set, beside PyTorch's (--peer). `variants`: the same without PyTorch for each text after --variants, which may set variables of the
environment, too. `timeline`: what of such a step computes and what is waited for (bench/device_timeline.cpp). `saving`: steps while a checkpoint
is written. `kill`: from a rank's SIGKILL to the next step. `experts`: a layer of experts that the cards share, beside PyTorch's. Each part ends by itself after a time of its own; --seconds leaves out parts for which the time is not enough."""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

import dist_parts
from tokens import command, make_tokens, write_text

HERE = pathlib.Path(__file__).resolve().parent
LR = 3e-4
CASES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


class Runs:
    """Programs that may fail: what they say is kept, and told where they do."""

    def __init__(self, seconds, first):
        self.first = first
        self.end = time.monotonic() + seconds if seconds else None
        self.failures = []

    def call(self, label, limit, arguments, cards, more=None):
        if self.end and time.monotonic() + min(limit, 20) > self.end:
            self.failures.append(f"{label}: left out, no time")
            return None
        limit = min(limit, self.end - time.monotonic()) if self.end else limit
        env = dict(os.environ, NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "WARN"), NCCL_NVLS_ENABLE="0")
        env |= more or {}
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(self.first + c) for c in cards)
        start = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:  # a file: grandchildren may hold a pipe open
            p = subprocess.Popen(list(map(str, arguments)), env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = p.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, 15)
                try:
                    p.wait(5)
                except subprocess.TimeoutExpired:
                    os.killpg(p.pid, 9)
                    p.wait()
                code = f"no end within {limit:.0f} s"
            out.seek(0)
            text = out.read()
        print(f"{label}: {time.monotonic() - start:.0f} s, {'ok' if code == 0 else code}", file=sys.stderr, flush=True)
        if code != 0:
            self.failures.append(f"{label}: {code}")
            print(f"  $ {' '.join(map(str, arguments))}\n{text[-5000:]}", file=sys.stderr, flush=True)
            return None
        return text


def lines_of(text):
    """The JSON objects; the launcher writes "[0] " before what rank 0 writes."""
    return [json.loads(m.group(1)) for m in re.finditer(r"^(?:\[0\] )?(\{.*\})$", text or "", re.MULTILINE)]


def torchrun(runs, n, script, *arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--nnodes", 1, "--nproc-per-node", n, "--master-addr", "127.0.0.1",
            "--master-port", 29510 + 10 * runs.first + n, HERE / "pytorch" / script, *arguments]


def launched(a, n, program, more=()):
    return program if n == 1 else [a.strata, "launch", "-n", n, *more, "--", *program]


def train(a, runs, label, n, data, out, batch, steps, cards, limit, more=(), env=None, launch=()):
    program = [a.strata, "train", a.config, "--data", data, "--out", out, "--steps", steps, "--set", "data.tokenizer=ids",
               "data.shuffle=false", "data.valid_fraction=0", f"train.lr={LR}", "train.schedule=constant", "train.warmup=0",
               "train.eval_every=0", "train.save_every=-1", "train.sample_tokens=0", "train.grad_clip=0", f"model.vocab={a.vocab}",
               f"model.context={a.context}", f"train.batch={batch}", *more, *a.set]
    text = runs.call(label, limit, launched(a, n, program, launch), cards, env)
    if text is None:
        return None, ""
    # What STRATA_TELL_LATE=1 tells of rank 0, in the order in which it came.
    late = re.findall(r"^\[0\] strata: (.*) came late$", text, re.MULTILINE)
    if late:
        print(f"  came late, {len(late)} in all; the last ones: {', '.join(late[-80:])}", file=sys.stderr, flush=True)
    rows = [json.loads(line) for line in open(pathlib.Path(out) / "metrics.jsonl")]
    note = re.search(r".*CUDA graph.*", text)
    return rows, note.group(0).strip() if note else ""


def rate(rows, warm):
    begin, end = rows[warm - 1], rows[-1]
    return (end["tokens"] - begin["tokens"]) / (end["elapsed_s"] - begin["elapsed_s"])


def losses(a, runs, tmp, data):
    """In f32 and with a warmup: what cards differ by is the order of sums, which bf16 and the first steps of AdamW make large."""
    table = ["| cards | steps | last loss | apart from one card, first 10 steps | all steps | again, the same bits | tokens/s | graph |",
             "|---|---|---|---|---|---|---|---|"]
    one, exact = None, ['train.dtype="f32"', "train.warmup=20"]
    for n in a.cards:
        rows, note = train(a, runs, f"losses on {n}", n, data, f"{tmp}/losses{n}", a.batch, a.loss_steps, range(n), 60, exact)
        if rows is None:
            table.append(f"| {n} | failed | | | | | | |")
            continue
        one = one or (n, [r["loss"] for r in rows])
        same = ""
        if n == max(a.cards) and n > 1:
            again, _ = train(a, runs, f"losses on {n} again", n, data, f"{tmp}/again{n}", a.batch, a.loss_steps, range(n), 60, exact)
            same = "" if again is None else str([r["loss"] for r in again] == [r["loss"] for r in rows]).lower()
        apart = [abs(x - r["loss"]) for x, r in zip(one[1], rows)]
        to = "" if one[0] == 1 else f" (to {one[0]})"
        print(f"losses on {n}: " + " ".join(f"{r['loss']:.5f}" for r in rows[:10]), file=sys.stderr, flush=True)
        table.append(f"| {n} | {len(rows)} | {rows[-1]['loss']:.4f} | {max(apart[:10]):.1e}{to} | {max(apart):.1e}{to} | {same} | "
                     f"{rate(rows, min(a.warmup, len(rows) - 1)):,.0f} | {note.removeprefix('[0] ')} |")
        print(table[-1], flush=True)
    return table


def layouts(a, runs, tmp, data):
    """Each layout's losses beside one card's, in f32 and with a warmup as `losses`."""
    table = ["| layout | cards | last loss | apart from one card, first 10 steps | all steps | tokens/s | peak GiB a card | graph |",
             "|---|---|---|---|---|---|---|---|"]
    one = None
    for i, layout in enumerate(["1:", *a.layouts]):
        cards, _, settings = layout.partition(":")
        n, settings = int(cards), settings.split()
        label = " ".join(settings) or "one card"
        rows, note = train(a, runs, label, n, data, f"{tmp}/layout{i}", a.batch, a.loss_steps, range(n), 75,
                           ['train.dtype="f32"', "train.warmup=20", *settings])
        if rows is None:
            table.append(f"| `{label}` | {n} | failed | | | | | |")
            continue
        found = [r["loss"] for r in rows]
        one = one or found
        apart = [abs(x - y) for x, y in zip(one, found)]
        table.append(f"| {'one card' if not settings else f'`{label}`'} | {n} | {found[-1]:.4f} | {max(apart[:10]):.1e} | {max(apart):.1e} | "
                     f"{rate(rows, min(a.warmup, len(rows) - 1)):,.0f} | {rows[-1]['peak_memory'] / 2**30:.2f} | {note.removeprefix('[0] ')} |")
        print(table[-1], flush=True)
    return table


def training(a, runs, tmp, data):
    table = ["| cards | engine | tokens/s | against PyTorch | times one card | ms a step | peak GiB |", "|---|---|---|---|---|---|---|"]
    ones = {}
    for n in a.cards:
        ours, theirs = None, None
        rows, _ = train(a, runs, f"training on {n}", n, data, f"{tmp}/train{n}", a.batch * n, a.warmup + a.steps, range(n), 60)
        if rows:
            ours = {"tokens_per_s": rate(rows, a.warmup), "peak_gib": rows[-1]["peak_memory"] / 2**30}
        arguments = [a.config, "--mode", "compiled", "--warmup", a.warmup, "--steps", a.steps, "--batch", a.batch, "--vocab", a.vocab, "--lr", LR,
                     "--context", a.context, *(["--shard"] if a.peer == "fsdp" and n > 1 else [])]
        alone = [sys.executable, HERE / "pytorch/train_cuda.py", *arguments]
        peer = {"ddp": "DDP", "fsdp": "FSDP2", "none": ""}[a.peer]
        text = runs.call(f"{peer} compiled on {n}", 150, alone if n == 1 else torchrun(runs, n, "train_cuda.py", *arguments), range(n)) if peer else ""
        found = lines_of(text)
        theirs = found[-1] if found else None
        for name, r in (("Strata", ours), *([(f"PyTorch, {peer} compiled", theirs)] if peer else [])):
            if r is None:
                table.append(f"| {n} | {name} | failed | | | | |")
            else:
                ones.setdefault(name, (n, r["tokens_per_s"]))
                ratio = f"{r['tokens_per_s'] / theirs['tokens_per_s']:.2f}" if theirs else ""
                table.append(f"| {n} | {name} | {r['tokens_per_s']:,.0f} | {ratio} | {r['tokens_per_s'] / ones[name][1]:.2f} | "
                             f"{1e3 * n * a.batch * a.context / r['tokens_per_s']:.1f} | {r['peak_gib']:.1f} |")
            print(table[-1], flush=True)
    return table


def collectives(a, runs, tmp, data):
    table = ["| cards | collective | Strata | PyTorch | Strata against it |", "|---|---|---|---|---|"]
    for n in a.cards:
        if n == 1:
            continue
        ours = {r["what"]: r for r in lines_of(runs.call(f"dist_bench on {n}", 60, launched(a, n, [a.bench]), range(n)))}
        theirs = {r["what"]: r for r in lines_of(runs.call(f"PyTorch's collectives on {n}", 60, torchrun(runs, n, "collectives.py"), range(n)))}
        for name in CASES + ["64 KiB all_reduce in a graph", "64 MiB gather beside products"]:
            unit, better = ("us", -1) if " in " in name or "beside" in name else ("bus_gb_s", 1)
            x, y = ours.get(name, {}).get(unit), theirs.get(name, {}).get(unit)
            ratio = f"{(x / y) ** better:.2f}" if x and y else ""
            shown = [f"{v:.1f} {'us' if better < 0 else 'GB/s'}" if v else "failed" for v in (x, y)]
            table.append(f"| {n} | {name if better < 0 else name + ', 1 GiB'} | {shown[0]} | {shown[1]} | {ratio} |")
            print(table[-1], flush=True)
    return table


def part_of(part):
    return lambda a, runs, tmp, data: part(a, runs, tmp, data, train, rate)


PARTS = {"losses": losses, "layouts": layouts, "training": training, "collectives": collectives} | {
    part.__name__: part_of(part) for part in (dist_parts.variants, dist_parts.timeline, dist_parts.saving, dist_parts.kill, dist_parts.experts)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--strata", default=str(HERE.parent / "build/release/bin/strata"))
    p.add_argument("--bench", default=str(HERE.parent / "build/release/bench/dist_bench"))
    p.add_argument("--experts-bench", default=str(HERE.parent / "build/release/bench/experts_bench"))
    p.add_argument("--cards", type=int, nargs="+", default=[1, 2, 4])
    p.add_argument("--first-card", type=int, default=0, help="the others follow it")
    p.add_argument("--parts", nargs="+", default=["losses", "training", "collectives"], choices=list(PARTS))
    p.add_argument("--config", default=str(HERE.parent / "configs/gpt2-124m.toml"))
    p.add_argument("--layouts", nargs="+", default=[], metavar="'CARDS: SETTING ...'", help="for the part of that name")
    p.add_argument("--variants", nargs="+", default=[], metavar="'CARDS: SETTING|VARIABLE=VALUE ...'", help="for variants, timeline")
    p.add_argument("--watch", default=str(HERE.parent / "build/release/bench/device_timeline.so"), help="for timeline")
    p.add_argument("--keep", metavar="FOLDER", help="for timeline: what one step of a rank ran, each kernel, as text")
    p.add_argument("--limit", type=float, default=90, help="seconds of one program: variants, timeline, saving, kill")
    p.add_argument("--kills", type=int, default=2)
    p.add_argument("--kill-steps", type=int, default=400, help="steps of the run that is disturbed")
    p.add_argument("--peer", choices=("ddp", "fsdp", "none"), default="ddp", help="what `training` runs of PyTorch's, compiled")
    p.add_argument("--batch", type=int, default=32, help="rows: of a card; of all, for the losses")
    p.add_argument("--vocab", type=int, default=0, help="0: the configuration's, for GPT-2 50304")
    p.add_argument("--context", type=int, default=0, help="0: the configuration's")
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--loss-steps", type=int, default=40)
    p.add_argument("--set", nargs="+", default=[], help="settings for strata train")
    p.add_argument("--seconds", type=float, default=0, help="for everything; 0: as long as it takes")
    p.add_argument("--out")
    p.add_argument("--commit", default="")
    a = p.parse_args()
    model = tomllib.loads(pathlib.Path(a.config).read_text())["model"]
    a.vocab = a.vocab or (50304 if "gpt2" in pathlib.Path(a.config).name else model["vocab"])
    a.context = a.context or model["context"]
    runs = Runs(a.seconds, a.first_card)
    text = ""
    with tempfile.TemporaryDirectory() as tmp:
        data = pathlib.Path(tmp) / "tokens.txt"
        if set(a.parts) - {"collectives", "experts"}:
            write_text(make_tokens(a.vocab, 8 * max(a.cards) * a.batch * a.context + 1), data)
        for part in a.parts:
            text += f"## {part.capitalize()}\n\n" + "\n".join(PARTS[part](a, runs, tmp, data)) + "\n\n"
    print("\n" + text + "\n".join(runs.failures), flush=True)
    if a.out:
        day = datetime.date.today().isoformat()
        path = pathlib.Path(a.out) / f"dist-{day}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        card = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.split("\n")[0]
        path.write_text(f"# Several cards beside PyTorch\n\nCommand: `{command('bench/dist_bench.py', sys.argv[1:])}`  \nMachine: {card}  \n"
                        f"Date: {day}, commit {a.commit}; multicast (NVLS) off for both\n\n{text}"
                        f"{pathlib.Path(a.config).stem}, {a.batch} rows of {a.context} tokens (losses: of all cards; training: a card), vocabulary {a.vocab}, bf16 autocast over\n"
                        f"f32 weights (losses: f32, 20 steps of warmup), AdamW at {LR:g}, no clipping.\n")
    return 1 if runs.failures else 0


sys.exit(main())
