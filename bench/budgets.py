#!/usr/bin/env python3
"""Training under memory budgets: the plan's forecast beside the run, step time and peak beside a run without, losses bit for bit.

  bench/budgets.py --strata build/release/bin/strata [--device cuda] [--steps 6] [--against OLD/strata] [CASE ...]

A case is a name of CASES below; all but `no-tier` where none is given. Each of its budgets is a run of its own, one after the other,
from the same first weights and batches. `strata estimate` is asked for each before, with the same settings (`--no-forecast`: not).
Where a budget has a disk, a second line has the bytes that a step moved, the time that the disk needs for them alone at the rate
measured beside, and the step's time by the larger of that and of a step without a budget.
`no-tier` sets the program beside an older one (--against) in turns."""
import argparse
import json
import mmap
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from tokens import make_tokens, write_text

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
LLAMA_3B = ["model.layers=28", "model.dim=3072", "model.heads=24", "model.kv_heads=8", "model.ffn_dim=8192", "model.vocab=128256",
            "model.context=2048", "train.batch=4"]
LLAMA_8B = ["model.layers=32", "model.dim=4096", "model.heads=32", "model.kv_heads=8", "model.ffn_dim=14336", "model.vocab=128256",
            "model.context=4096", "train.batch=1", "train.param_dtype=bf16", "train.param_update=compensated", "train.state_8bit=true"]

# 8 bytes a parameter in all: weight, what it lacks of f32, its gradient, and two moments of 8 bits.
# A short vocabulary: tables keep moments in f32, which are fetched as a whole.
LLAMA_BIG = ["model.dim=5120", "model.heads=40", "model.kv_heads=8", "model.ffn_dim=13824", "model.vocab=4096", "model.context=2048",
             "model.tied_embeddings=false", "train.batch=1", "train.param_dtype=bf16",
             "train.param_update=compensated", "train.state_8bit=true"]
CPU = ["train.device=cpu", "train.batch=16", "model.dim=512", "model.layers=6", "model.heads=8"]

# name: configuration, settings of all its runs, and the budgets (the first is what others are compared with). {disk} is a folder
# on the disk, {quarter} a fourth of what the first run held.
CASES = {
    "gpt2": ("gpt2-124m.toml", ["train.batch=32", "model.context=1024"],
             [[], ["memory.device=7.2GiB"], ["memory.device=7GiB"], ["memory.device=5GiB"], ["memory.activations=host"], ["memory.recompute=blocks"]]),
    "llama3b": ("llama-1b.toml", LLAMA_3B,
                [[], ["memory.device=40GiB"], ["memory.device=14GiB"], ["memory.device=14GiB", "memory.update=device"],
                 ["memory.device=14GiB", "memory.update=cpu"]]),
    "llama14": ("llama-1b.toml", LLAMA_3B,
                [["memory.device=14GiB"], ["memory.device=14GiB", "memory.update=device"], ["memory.device=14GiB", "memory.update=cpu"]]),
    # Eight layers of the 8B's shape: weights, gradients and state stay, activations leave and run again.
    "llama-layers": ("llama-8b.toml", ["model.layers=8", "model.vocab=1024", "model.tied_embeddings=false"],
                     [[], ["memory.device=37GiB"], ["memory.device=34GiB"]]),
    "llama8b": ("llama-1b.toml", LLAMA_8B, [[], ["memory.device=24GiB"]]),
    "llama8b-accumulate8": ("llama-1b.toml", [*LLAMA_8B, "train.accumulate=8"], [[], ["memory.device=24GiB"]]),
    # The largest models of a machine with 128 GiB of host memory, of which 105 are taken: 12.2, 16.6 and 25.4 billion parameters.
    "largest-12b": ("llama-1b.toml", [*LLAMA_BIG, "model.layers=44"], [["memory.device=70GiB", "memory.host=105GiB", "memory.disk={disk}"]]),
    "largest-16b": ("llama-1b.toml", [*LLAMA_BIG, "model.layers=60"], [["memory.device=76GiB", "memory.host=105GiB", "memory.disk={disk}"]]),
    "largest-25b": ("llama-1b.toml", [*LLAMA_BIG, "model.layers=92"], [["memory.device=130GiB", "memory.host=105GiB", "memory.disk={disk}"]]),
    "cpu": ("quickstart.toml", CPU,
            [[], ["memory.device=400MiB", "memory.disk={disk}"], ["memory.device=200MiB", "memory.disk={disk}"]]),
    "cpu-quarter": ("quickstart.toml", CPU, [[], ["memory.device={quarter}", "memory.disk={disk}"], []]),
    "no-tier": ("gpt2-124m.toml", ["train.batch=32", "model.context=1024"], [[]]),
}


class Watch(threading.Thread):
    """What a program took of the host's memory and of a disk, and moved from and to disks, by the steps that it had written."""

    def __init__(self, pid, metrics, disk):
        super().__init__(daemon=True)
        self.pid, self.metrics, self.disk = pid, metrics, disk
        self.resident = self.resident_in_steps = 0
        self.free = self.free_before = self.free_now()
        self.moved = []  # steps, bytes read, bytes written
        self.log = ""    # of the program
        self.ended = threading.Event()

    def free_now(self):
        s = os.statvfs(self.disk)
        return s.f_bavail * s.f_frsize

    def run(self):
        while not self.ended.wait(0.02):
            try:
                status = open(f"/proc/{self.pid}/status").read()
                io = dict(line.split(": ") for line in open(f"/proc/{self.pid}/io"))
                steps = open(self.metrics).read().count("\n") if self.metrics.exists() else 0
            except (OSError, ValueError):
                continue
            m = re.search(r"VmRSS:\s+(\d+) kB", status)
            held = int(m.group(1)) << 10 if m else 0
            self.resident = max(self.resident, held)
            if steps > 0:  # before, the machine is measured
                self.resident_in_steps = max(self.resident_in_steps, held)
            self.free = min(self.free, self.free_now())
            self.moved.append((steps, int(io["read_bytes"]), int(io["write_bytes"])))

    def a_step(self, first, last):
        """Bytes read and written from the end of one step to the end of another, of one step; None where that was not seen."""
        begin = next((m for m in self.moved if m[0] >= first), None)
        end = next((m for m in self.moved if m[0] >= last), None)
        if not begin or not end or end[0] <= begin[0]:
            return None
        return tuple((y - x) / (end[0] - begin[0]) for x, y in zip(begin[1:], end[1:]))


def disk_rates(folder, nbytes=1 << 30, each=8 << 20, threads=4):
    """Bytes a second of reading, of writing, and of both at once, with requests of 8 MiB past the page cache: the best of three."""
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    os.posix_fallocate(file, 0, 2 * nbytes)
    buffers = [mmap.mmap(-1, each) for _ in range(2 * threads)]
    for b in buffers:
        b.write(os.urandom(each))

    def work(write, k, base):
        for at in range(k * each, nbytes, threads * each):
            if write:
                os.pwritev(file, [buffers[k]], base + at)
            else:
                os.preadv(file, [buffers[threads + k]], base + at)

    def seconds(jobs):
        begin = time.monotonic()
        workers = [threading.Thread(target=work, args=(write, k, base)) for write, base in jobs for k in range(threads)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        return time.monotonic() - begin

    seconds([(True, 0)])
    seconds([(True, nbytes)])
    writing = min(seconds([(True, 0)]) for _ in range(3))
    reading = min(seconds([(False, 0)]) for _ in range(3))
    both = min(seconds([(False, 0), (True, nbytes)]) for _ in range(3))
    os.close(file)
    return nbytes / reading, nbytes / writing, 2 * nbytes / both


def disk_seconds(rates, read, written):
    """The least that a disk needs: as much as possible both ways at once, where that is faster."""
    reading, writing, both = rates
    together = min(read, written)
    apart = read / reading + written / writing
    return min(apart, 2 * together / both + (read - together) / reading + (written - together) / writing)


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


def train(a, strata, config, device, text, out, settings, disk):
    """The rows of a run's metrics, its watch and its seconds; or why there are none."""
    begin = time.monotonic()
    command = [strata, "train", str(config), "--device", device, "--data", str(text), "--out", str(out), "--steps", str(a.steps),
               "--no-memory-check", "--set", *settings]
    with tempfile.TemporaryFile("w+") as err, subprocess.Popen(command, stdout=err, stderr=err) as program:
        watch = Watch(program.pid, out / "metrics.jsonl", disk)
        watch.start()
        program.wait()
        watch.ended.set()
        watch.join()
        err.seek(0)
        log = watch.log = err.read().strip()
    if a.keep:
        kept = pathlib.Path(a.keep)
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{out.name}.log").write_text(log + "\n")
        for name in ("metrics.jsonl", "step.trace.json"):
            if (out / name).exists():
                shutil.copy(out / name, kept / f"{out.name}.{name}")
    if program.returncode != 0:
        return None, watch, log.splitlines()[-1] if log else str(program.returncode)
    return [json.loads(line) for line in open(out / "metrics.jsonl")], watch, time.monotonic() - begin


def median_rate(rows):
    return statistics.median_low(r["tokens_per_s"] for r in rows[len(rows) // 2:])


def prepare(a, name, tmp):
    """Configuration, settings, device and text of a case."""
    file, settings, _ = CASES[name]
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
    return CONFIGS / file, common, device, text


def case(a, name, tmp):
    config, common, device, text = prepare(a, name, tmp)
    base = None
    for i, budget in enumerate(CASES[name][2]):
        quarter = f"{int(base[1] / 4)}" if base else "0"
        label = " ".join(b.replace("memory.", "") for b in budget).format(disk="DISK", quarter="a quarter") or "no budget"
        budget = [b.format(disk=tmp, quarter=quarter) for b in budget]
        peak, seconds = (None, None) if a.no_forecast else forecast(a, config, [*common, *budget])[:2]
        rows, watch, whole = train(a, a.strata, config, device, text, tmp / f"{name}-{i}", [*common, *budget], tmp)
        if rows is None:
            print(f"{name:8} {label:36} failed: {whole}", flush=True)
            continue
        rate = median_rate(rows)
        took = rows[0]["tokens"] / rate
        losses = [r["loss"] for r in rows]
        held = max(r["peak_memory"] for r in rows)
        if base is None:
            base = (took, held, losses)
        same = "same losses" if losses == base[2] else f"losses differ at step {next(k for k, (x, y) in enumerate(zip(losses, base[2])) if x != y) + 1}"
        print(f"{name:8} {label:36} {took * 1e3:9.1f} ms {took / base[0]:6.2f}x {rate:9.0f} tokens/s  peak {held / 2**30:7.3f} GiB {held / base[1]:5.2f}x"
              f"  forecast {(seconds or 0) * 1e3:8.1f} ms {(peak or 0) / 2**30:7.3f} GiB  {same}; {len(rows)} steps in {whole:.0f} s,"
              f" host {watch.resident / 2**30:.2f} GiB ({watch.resident_in_steps / 2**30:.2f} after the first step), disk {(watch.free_before - watch.free) / 2**30:.2f} GiB", flush=True)
        # What was planned on this machine, what moved, and what kept the step from being one graph.
        for line in watch.log.splitlines():
            if re.match(r"(weights|activations|state|update)[: ]|step  |peak memory|no CUDA graph|the step is", line.strip()):
                print("    " + line.strip(), flush=True)
        moved = watch.a_step(len(rows) // 2, len(rows) - 1)
        if any(b.startswith("memory.disk=") for b in budget) and moved and max(moved) > 1e6:
            rates = disk_rates(tmp)
            alone = disk_seconds(rates, *moved)
            print(f"{'':8} a step reads {moved[0] / 1e9:.3f} GB and writes {moved[1] / 1e9:.3f}: {alone * 1e3:.1f} ms of a disk with {rates[0] / 1e9:.2f},"
                  f" {rates[1] / 1e9:.2f} and both at once {rates[2] / 1e9:.2f} GB/s; {took / max(alone, base[0]):.2f} of the larger of it and no budget", flush=True)


def no_tier(a, tmp, rounds=3):
    """A run without a budget by two programs in turns: milliseconds a step of each round."""
    config, common, device, text = prepare(a, "no-tier", tmp)
    programs = {"before": a.against, "now": a.strata}
    took = {name: [] for name in programs}
    for i in range(rounds):
        for name, strata in programs.items():
            rows, _, whole = train(a, strata, config, device, text, tmp / f"{name}-{i}", common, tmp)
            if rows is None:
                print(f"no-tier  {name} failed: {whole}", flush=True)
                return
            took[name].append(rows[0]["tokens"] / median_rate(rows) * 1e3)
    for name, ms in took.items():
        print(f"no-tier  {name:8} {statistics.median(ms):9.2f} ms a step ({', '.join(f'{t:.2f}' for t in ms)})", flush=True)
    print(f"no-tier  now takes {statistics.median(took['now']) / statistics.median(took['before']):.4f} of before", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--strata", default="build/release/bin/strata")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tmp", help="folder on the disk that budgets may use")
    parser.add_argument("--keep", metavar="FOLDER", help="what each run said, its metrics and its time line")
    parser.add_argument("--no-forecast", action="store_true", help="does not ask `strata estimate`")
    parser.add_argument("--against", metavar="STRATA", help="the older program of the case no-tier")
    a = parser.parse_args()
    for name in a.cases or [c for c in CASES if c != "no-tier"]:
        if name not in CASES:
            sys.exit(f"no case '{name}'; there are {', '.join(CASES)}")
        if name == "no-tier" and not a.against:
            sys.exit("no-tier needs --against")
        with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
            no_tier(a, pathlib.Path(tmp)) if name == "no-tier" else case(a, name, pathlib.Path(tmp))


if __name__ == "__main__":
    main()
