#!/usr/bin/env python3
"""Every public op beside PyTorch's function of the same name: sizes, dtypes, layouts and options one at a time, as
`strata lab compare` plans them from the records; forward, and forward with backward. Prints what is slower, ranked by time
lost. docs/design/compare.md says how to read it.

  bench/compare_ops.py --strata build/release/bin/strata [OP ...] [--device cuda] --out results.jsonl [--minutes 9]
  bench/compare_ops.py --out results.jsonl --report [--table page.md]

What is in the results file already is not timed again: the same command goes on where the time limit stopped it. Needs
PyTorch and the strata package in one Python."""
import argparse
import collections
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cores  # noqa: E402
from tokens import command  # noqa: E402

# Fields of a planned case by which its results are found again.
IDENTITY = ("op", "size", "dtype", "varied", "args")
# Seconds that a worker may take until it can begin.
START = 120


def key_of(case, device):
    text = json.dumps([case[f] for f in IDENTITY] + [device], sort_keys=True)
    return hashlib.sha1(text.encode()).hexdigest()[:16]


def read_lines(path):
    """The objects of a file of lines; a last line that was cut off is none."""
    rows = []
    if path and os.path.exists(path):
        with open(path) as f:
            for line in f:
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
    return rows


def pending(cases, done, device):
    """(key, case) of what is not in the results yet."""
    known = {r["key"] for r in done if "key" in r}
    return [(k, c) for c in cases if (k := key_of(c, device)) not in known]


# The worker is a process of its own: what crashes or hangs there is one line of the results and not the end of the run.
class Worker:
    def __init__(self, options):
        self.command = [sys.executable, str(pathlib.Path(__file__).resolve().with_name("compare_worker.py")), *options]
        self.process = None
        self.waiting = b""

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.waiting = b""

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def line(self, until):
        """The next line; None when the time is up, "" when there are no more."""
        while b"\n" not in self.waiting:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                return ""
            self.waiting += part
        line, _, self.waiting = self.waiting.partition(b"\n")
        return line.decode()

    def ask(self, case, limit):
        """The rows of one case; after `limit` seconds, or when the process ends, one that says so and where it was."""
        if self.process is None:
            self.start()
            # Loading both engines is no case's time.
            if not self.line(time.monotonic() + START):
                return self.ended("starting")
        try:
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.ended("beginning")
        until, phase = time.monotonic() + limit, "beginning"
        while True:
            line = self.line(until)
            if line is None:
                self.stop()
                return [{"problem": f"took more than {limit:g} s: {phase}"}]
            if not line:
                return self.ended(phase)
            answer = json.loads(line)
            if isinstance(answer, list):
                if any("CUDA error" in row.get("problem", "") for row in answer):
                    self.stop()  # no later call of that process would work
                return answer
            phase = answer

    def ended(self, phase):
        if phase == "starting":
            self.process.kill()
        status = self.process.wait()
        self.process = None
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return [{"problem": f"ended the process: {name}: {phase}"}]


def run(todo, workers, out, deadline, limit, show=sys.stderr, cpus=None):
    """Asks for one case after another until the time is up; returns how many were done. Several workers take the next case
    each as they come to it, bound to the processors of theirs in `cpus`."""
    waiting, writing, count, failed = collections.deque(enumerate(todo)), threading.Lock(), 0, threading.Event()

    def work(worker, own):
        nonlocal count
        if own:
            cores.bind(own)  # this thread starts the worker's processes
        while time.monotonic() < deadline and not failed.is_set():
            try:
                i, (key, case) = waiting.popleft()
            except IndexError:
                return
            if show and show.isatty():
                print(f"\r\033[K{i + 1}/{len(todo)} {case['op']} {case['size']} {case['varied']}", end="", file=show, flush=True)
            about = {"key": key, **{k: case[k] for k in ("op", "size", "dtype", "varied", "label")}, "arguments": text_of(case)}
            rows = worker.ask(case, limit)
            with writing:
                f.write("".join(json.dumps({**about, **row}) + "\n" for row in rows))
                f.flush()
                count += 1

    with open(out, "a") as f, ThreadPoolExecutor(len(workers)) as pool:
        try:
            for done in [pool.submit(work, *one) for one in zip(workers, cpus or [None] * len(workers))]:
                done.result()
        finally:
            failed.set()  # an error of one thread, or an interrupt, ends the others after the case they are at
    return count


def text_of(case):
    """The arguments in short."""
    def one(spec):
        ((kind, x),) = spec.items()
        if kind == "tensor":
            return "None" if x is None else x["dtype"] + str(x["shape"]).replace(" ", "")
        if kind == "tensors":
            return "[" + " ".join(one({"tensor": t}) for t in x) + "]"
        if kind == "none":
            return "None"
        return "key" if kind == "key" else str(x).replace(" ", "")
    return " ".join(map(one, case["args"]))


def ratio(row):
    return row["theirs"] / row["ours"]


def timed(rows):
    """Those that say something: both engines ran, and gave results of the same shape."""
    return [r for r in rows if r.get("ours") and r.get("theirs") and not r.get("different")]


def summary(rows):
    """Counts, geometric mean and shares, for each pass and together."""
    lines = []
    for name in ("forward", "training", None):
        ratios = [ratio(r) for r in timed(rows) if name in (None, r["pass"])]
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        share = [100 * sum(x >= least for x in ratios) / len(ratios) for least in (1.0, 0.9, 0.7)]
        lines.append(f"| {name or 'both'} | {len(ratios)} | {mean:.2f} | {share[0]:.1f}% | {share[1]:.1f}% | {share[2]:.1f}% | {min(ratios):.3f} |")
    head = ["| pass | timed | geometric mean | at least 1.0 | at least 0.9 | at least 0.7 | worst |", "|---|---|---|---|---|---|---|"]
    return "\n".join(head + lines)


def kind_of(row):
    """What a case varies: a size, a layout, a dtype, the sample or an option."""
    varied = row["varied"]
    if not varied:
        return f"size: {row['size']}"
    if varied.startswith("dtype="):
        return varied
    return "another sample" if varied.startswith("sample ") else "an option" if "=" in varied else f"layout: {varied}"


def by_variation(rows):
    """Where it is slow, by what a case varies."""
    kinds = {}
    for r in timed(rows):
        kinds.setdefault((kind_of(r), r["pass"]), []).append(ratio(r))
    lines = ["| varied | pass | timed | geometric mean | at least 1.0 | below 0.7 |", "|---|---|---|---|---|---|"]
    for (kind, name), all_ in sorted(kinds.items()):
        mean = math.exp(sum(map(math.log, all_)) / len(all_))
        lines.append(f"| {kind} | {name} | {len(all_)} | {mean:.2f} | {100 * sum(x >= 1 for x in all_) / len(all_):.0f}% | "
                     f"{100 * sum(x < 0.7 for x in all_) / len(all_):.0f}% |")
    return "\n".join(lines)


def duration(s):
    return f"{s * 1e6:.1f} us" if s < 1e-3 else f"{s * 1e3:.2f} ms" if s < 1 else f"{s:.2f} s"


def ranked(rows, most, below=1.0):
    """What is slower, by time lost in a call."""
    slow = sorted((r for r in timed(rows) if ratio(r) < below), key=lambda r: r["theirs"] - r["ours"])
    lines = ["| op | pass | varied | size | arguments | Strata | PyTorch | ratio | lost |", "|---|---|---|---|---|---|---|---|---|"]
    for r in slow[:most]:
        arguments = r["arguments"] if len(r["arguments"]) <= 90 else r["arguments"][:87] + "..."
        mark = " (values differ)" if r.get("differs") else ""
        lines.append(f"| {r['op']}{mark} | {r['pass']} | {r['varied']} | {r['size']} | {arguments} | {duration(r['ours'])} | "
                     f"{duration(r['theirs'])} | {ratio(r):.2f} | {duration(r['ours'] - r['theirs'])} |")
    return "\n".join(lines), len(slow)


def worst_by_op(rows, below=0.9):
    """One line an op: how many of its cases are below the bound, where it loses most time, and its least ratio."""
    ops = {}
    for r in timed(rows):
        ops.setdefault(r["op"], []).append(r)
    lines = ["| op | cases | below 0.9 | geometric mean | most lost | there | ratio | least ratio | there |", "|---|---|---|---|---|---|---|---|---|"]
    entries = []
    for op, all_ in ops.items():
        slow = [r for r in all_ if ratio(r) < below]
        if not slow:
            continue
        mean = math.exp(sum(math.log(ratio(r)) for r in all_) / len(all_))
        most, least = max(slow, key=lambda r: r["ours"] - r["theirs"]), min(slow, key=ratio)
        lost = most["ours"] - most["theirs"]
        where = [f"{r['pass']} {r['size']} {r['dtype']} {r['varied']}".strip() for r in (most, least)]
        entries.append((-lost, f"| {op} | {len(all_)} | {len(slow)} | {mean:.2f} | {duration(lost)} | {where[0]} | {ratio(most):.2f} | "
                        f"{ratio(least):.2f} | {where[1]} |"))
    return "\n".join(lines + [e for _, e in sorted(entries)])


def left_out(rows):
    """What was not compared, and why: reasons with how many ops and cases."""
    reasons = {}
    for r in rows:
        if r.get("missing"):
            reason = "PyTorch has no function of that name"
        elif r.get("problem"):
            reason = r["problem"].split(":")[0]
        elif r.get("different"):
            reason = "results differ in shape or dtype"
        elif r.get("differs"):
            reason = "values differ (timed all the same)"
        else:
            continue
        reasons.setdefault(reason, {}).setdefault(r["op"], []).append(r)
    lines = []
    for reason, ops in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {reason}: {sum(map(len, ops.values()))} cases of {len(ops)} ops: {', '.join(sorted(ops))}")
    return "\n".join(lines)


def page(rows, most, title):
    table, slow = ranked(rows, most)
    return (f"{title}{summary(rows)}\n\nA ratio is PyTorch's least time over Strata's: above 1 Strata is faster. Training is the forward call "
            f"with its backward pass.\n\n## By what is varied\n\n{by_variation(rows)}\n\n## Slower, by time lost in a call ({min(slow, most)} of {slow})\n\n{table}\n\n"
            f"## Ops with a case below 0.9, by time lost\n\n{worst_by_op(rows)}\n\n## Not compared\n\n{left_out(rows)}\n")


def machine(device):
    if device != "cpu":
        import torch
        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} logical processors"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ops", nargs="*", metavar="OP", help="names of ops or families; none means all")
    p.add_argument("--strata", default=str(pathlib.Path(__file__).resolve().parents[1] / "build/release/bin/strata"))
    p.add_argument("--device", default="cpu")
    p.add_argument("--out", required=True, help="results, one JSON object a line; those that are there are kept")
    p.add_argument("--plan", help="cases from this file instead of asking the command")
    p.add_argument("--minutes", type=float, default=9, help="begin nothing after this time")
    p.add_argument("--seconds", type=float, default=0.1, help="for each engine and pass of a case")
    p.add_argument("--limit", type=float, default=60, help="seconds that one case may take altogether")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: the process's CPU time, on a busy machine")
    p.add_argument("--only", help="cases of which 'size dtype varied' matches this regular expression")
    p.add_argument("--report", action="store_true", help="time nothing, show what the file has")
    p.add_argument("--table", help="write the page to this file as well")
    p.add_argument("--rows", type=int, default=60, help="lines of the ranked table")
    p.add_argument("--commit", default="")
    p.add_argument("--part", default="1/1", help="I/N: every N-th case from the I-th on, for several machines or a sample of the plan")
    p.add_argument("--workers", type=int, default=1, help="cases at once on the CPU, each by a process bound to --threads processors of its own")
    a = p.parse_args()
    begin, left, cpus = time.monotonic(), 0, None
    if a.workers != 1:
        if a.device != "cpu" or not a.threads:
            sys.exit("--workers are for --device cpu, with --threads")
        try:
            cpus = cores.groups(a.workers, a.threads)
        except ValueError as e:
            sys.exit(f"--workers: {e}")
    if not a.report:
        if a.plan:
            lines = read_lines(a.plan)
        else:
            done = subprocess.run([a.strata, "lab", "compare", *a.ops, "--device", a.device], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr.strip() or f"strata lab compare: status {done.returncode}")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
        cases = [c for c in lines if "args" in c]
        if a.only:
            cases = [c for c in cases if re.search(a.only, f"{c['size']} {c['dtype']} {c['varied']}")]
        part, parts = (int(n) for n in a.part.split("/"))
        todo = pending(cases[part - 1::parts], read_lines(a.out), a.device)
        if todo:
            with open(a.out, "a") as f:
                f.write(json.dumps({"run": {"command": command("bench/compare_ops.py", sys.argv[1:]), "machine": machine(a.device),
                                            "date": datetime.date.today().isoformat(), "commit": a.commit}}) + "\n")
        options = ["--device", a.device, "--seconds", str(a.seconds), "--threads", str(a.threads), "--clock", a.clock]
        workers = [Worker(options) for _ in range(a.workers)]
        try:
            left = len(todo) - run(todo, workers, a.out, begin + 60 * a.minutes, a.limit, cpus=cpus)
        finally:
            for worker in workers:
                worker.stop()
    lines = read_lines(a.out)
    rows = [r for r in lines if "run" not in r]
    runs = [r["run"] for r in lines if "run" in r]
    one = runs[-1] if runs else {"command": "", "machine": "", "date": "", "commit": ""}
    title = (f"# Every op beside PyTorch\n\nCommand: `{one['command']}`  \nMachine: {one['machine']}  \n"
             f"Date: {one['date']}" + (f", commit {one['commit']}" if one["commit"] else "") + "\n\n")
    text = page(rows, a.rows, title)
    print(text)
    if a.table:
        pathlib.Path(a.table).write_text(text)
    if left:
        print(f"{left} cases are left: the same command goes on", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
