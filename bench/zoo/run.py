"""The zoo: forty ordinary programs trained by PyTorch and by strata, in turns, each in a process of its own.

    python bench/zoo/run.py --size cpu --out results/zoo [--device cuda --size card] [--compile] [--programs gpt2 vae]
                            [--together 8] [--threads 2 --workers 4]

Appends a line to OUT.jsonl after each part and leaves out what is there already, so that a run that was stopped goes
on; then writes OUT.md: time per step, first step, memory and losses, and what failed. See docs/design/zoo.md."""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import cores  # noqa: E402
from one import names  # noqa: E402
from turns import Apart, Turns  # noqa: E402

ENGINES = {"torch": ["--engine", "torch"], "strata": ["--engine", "strata"],
           "compiled": ["--engine", "torch", "--compile"]}


def part(program, engine, turn, args, weights, turns):
    """One engine's turn at a program: the line that one.py printed, or what went wrong."""
    command = [sys.executable, str(HERE / "one.py"), program, *ENGINES[engine], "--size", args.size,
               "--device", args.device, "--seconds", str(args.seconds), "--threads", str(args.threads),
               "--clock", args.clock, *turns.arguments, "--set", *args.set]
    if turn == 0 and engine != "compiled":  # losses are compared once
        command += ["--losses", str(args.losses), "--weights", str(weights)]
        command += ["--noise"] if engine == "torch" else []
    result = {"program": program, "engine": engine, "turn": turn, "size": args.size, "device": args.device}
    # A cache of choices of its own: nothing found by another process, and no lock that one standing still may hold.
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "XDG_CACHE_HOME": str(weights / f"{program}-{engine}-cache")}
    try:
        code, output, errors = turns.run(command, args.limit, env)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if lines:
            result = {**json.loads(lines[-1]), **result}
        else:
            result["error"] = f"exit code {code}: {errors.strip()[-400:]}"
    except subprocess.TimeoutExpired:
        result["error"] = f"not done within {args.limit:g} s"
    return result


def difference(a, b):
    """Largest difference of two lists of losses, relative to the loss, or to a twentieth of the first where it is
    below."""
    floor = 0.05 * abs(a[0])
    worst = 0.0
    for x, y in zip(a, b):
        if not (math.isfinite(x) and math.isfinite(y)):
            return math.inf
        worst = max(worst, abs(x - y) / max(abs(x), floor, 1e-12))
    return worst


def tolerance_of(row, size):
    """The program's, or four times what the last bit of the first weights does to PyTorch's own losses. The card's
    sizes train in bf16, which has 8 bits."""
    least = max(row["tolerance"], 2e-2) if size == "card" else row["tolerance"]
    noise = difference(row["losses"], row["nudged"]) if row.get("nudged") else 0.0
    return max(least, min(4 * noise, 5e-2))


def summary(rows, size):
    """One dictionary a program, from its parts."""
    table = []
    for program in sorted({r["program"] for r in rows}):
        mine = [r for r in rows if r["program"] == program]
        line = {"program": program, "problems": []}
        for engine in ENGINES:
            parts = [r for r in mine if r["engine"] == engine]
            for r in parts:
                if "error" in r:
                    line["problems"].append(f"{engine}: {r['error']}")
            times = [t for r in parts for t in r.get("times_s", [])]
            if times:
                line[engine] = {"median": min(statistics.median(r["times_s"]) for r in parts if r.get("times_s")),
                                "least": min(times),
                                "first": min(r["first_s"] for r in parts if "first_s" in r),
                                "memory": max(r["peak_bytes"] for r in parts if "peak_bytes" in r)}
        losses = {r["engine"]: r for r in mine if r.get("losses")}
        if "torch" in losses and "strata" in losses:
            line["difference"] = difference(losses["torch"]["losses"], losses["strata"]["losses"])
            line["allowed"] = tolerance_of(losses["torch"], size)
            if not line["difference"] <= line["allowed"]:
                line["problems"].append(f"losses differ by {line['difference']:.1e}")
        if "torch" in line and "strata" in line:
            line["ratio"] = line["torch"]["median"] / line["strata"]["median"]
        if "compiled" in line and "strata" in line:
            line["ratio_compiled"] = line["compiled"]["median"] / line["strata"]["median"]
        line["problems"] = list(dict.fromkeys(line["problems"]))
        table.append(line)
    return sorted(table, key=lambda line: line.get("ratio", 0.0))


def device_name(args):
    """The card's or the processor's."""
    if args.device != "cpu":
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip().splitlines()[0]
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def markdown(rows, args, machine):
    table = summary(rows, args.size)
    compiled = any("compiled" in line for line in table)
    command = re.sub(r" --out[ =]\S+", "", " ".join(["bench/zoo/run.py", *sys.argv[1:]]))
    held = "by which the process grew" if args.device == "cpu" else "that tensors held"
    text = [f"# The zoo, size {args.size}, on {args.device}", "",
            f"Command: `{command}`  ", f"{machine}", "",
            "Milliseconds a training step, the better median of each engine's turns, and the least; the ratio is "
            "PyTorch's median over Strata's (above 1: Strata is faster). First: seconds to build the model and take "
            f"its first step. MiB: the most {held}. "
            "Difference: of the losses of the first steps from the same weights, draws and batches, without dropout; "
            "and what is allowed.", ""]
    head = ["program", "ratio", "Strata ms", "least", "PyTorch ms", "least", "first s", "PyTorch", "MiB", "PyTorch",
            "difference", "allowed"]
    if compiled:
        head[2:2] = ["compiled ratio", "compiled ms", "compiled first s", "compiled MiB"]
    text += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in table:
        empty = {"median": math.nan, "least": math.nan, "first": math.nan, "memory": math.nan}
        s, t = line.get("strata", empty), line.get("torch", empty)
        cells = [line["program"], f"{line.get('ratio', math.nan):.2f}",
                 f"{1e3 * s['median']:.2f}", f"{1e3 * s['least']:.2f}",
                 f"{1e3 * t['median']:.2f}", f"{1e3 * t['least']:.2f}", f"{s['first']:.2f}", f"{t['first']:.2f}",
                 f"{s['memory'] / 2**20:.0f}", f"{t['memory'] / 2**20:.0f}", f"{line.get('difference', math.nan):.1e}",
                 f"{line.get('allowed', math.nan):.0e}"]
        if compiled:
            c = line.get("compiled", empty)
            cells[2:2] = [f"{line.get('ratio_compiled', math.nan):.2f}", f"{1e3 * c['median']:.2f}",
                          f"{c['first']:.2f}", f"{c['memory'] / 2**20:.0f}"]
        text.append("| " + " | ".join(cell.replace("nan", "-") for cell in cells) + " |")
    for key, name in (("ratio", "eager"), ("ratio_compiled", "compiled")):
        ratios = [line[key] for line in table if key in line]
        if ratios:
            text += ["", f"Beside {name}: geometric mean {geometric_mean(ratios):.2f}; {sum(r < 1 for r in ratios)} of "
                         f"{len(ratios)} below 1.0; least {min(ratios):.2f}."]
    both = [line for line in table if "strata" in line and "torch" in line]
    more = [line for line in both if line["strata"]["memory"] > line["torch"]["memory"]]
    text += ["", f"More memory than PyTorch's: {len(more)} ({', '.join(line['program'] for line in more) or 'none'})."]
    failed = [(line["program"], p) for line in table for p in line["problems"]]
    text += ["", "Failed: " + ("none." if not failed else "")]
    text += [f"- {program}: {problem.splitlines()[0]}" for program, problem in failed]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="*", default=names(), choices=names())
    parser.add_argument("--engines", nargs="*", default=["torch", "strata"], choices=["torch", "strata"])
    parser.add_argument("--compile", action="store_true", help="PyTorch's compiled models as a third engine")
    parser.add_argument("--size", choices=("tiny", "cpu", "card"), default="cpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="PROGRAM.KEY=VALUE",
                        help="another number in a program's size, in a table (--out) of its own: convnext.batch=256")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8, help="time steps for about so long a turn")
    parser.add_argument("--losses", type=int, default=8, help="steps whose losses are compared")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a part is given up")
    parser.add_argument("--budget", type=float, default=math.inf, help="begin no part after so many seconds")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: time that the process computed, for a machine that others use, with --threads 1")
    parser.add_argument("--together", type=int, default=1,
                        help="processes at once, each timed alone; their first steps are not, but for strata's")
    parser.add_argument("--workers", type=int, default=1,
                        help="programs at once on the CPU, timed at the same time, each bound to --threads processors of its own")
    parser.add_argument("--again", action="store_true", help="repeat parts that failed")
    parser.add_argument("--out", default="zoo", help="OUT.jsonl and OUT.md")
    args = parser.parse_args()
    own = []
    if args.workers > 1:
        if args.device != "cpu" or args.together > 1:
            parser.error("--workers are for --device cpu, without --together")
        try:
            own = cores.groups(args.workers, args.threads)
        except ValueError as e:
            parser.error(f"--workers: {e}")

    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_suffix(".jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [r for r in rows if (r["size"], r["device"]) == (args.size, args.device)]
    rows = [r for r in rows if not (args.again and "error" in r)]
    # Losses are compared from weights that are gone when the run ends: a pair of which one was stopped begins anew.
    done = {(r["program"], r["engine"]) for r in rows if r["turn"] == 0}
    rows = [r for r in rows if r["engine"] == "compiled" or all((r["program"], e) in done for e in args.engines)]
    have = {(r["program"], r["engine"], r["turn"]) for r in rows}
    start = time.monotonic()
    turns, writing = Apart() if own else Turns(), threading.Lock()
    several = max(args.together, args.workers)

    def do(program, engine, turn):
        """A part that is not there yet, if there is time to begin it. One that fails beside others is tried alone later."""
        if (program, engine, turn) in have or time.monotonic() - start > args.budget:
            return
        row = part(program, engine, turn, args, pathlib.Path(weights), turns)
        with writing:
            if "error" in row and several > 1 and (program, engine, turn) not in failed:
                failed.append((program, engine, turn))
                return
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            times = row.get("times_s")
            print(f"{program:21} {engine:9} {1e3 * statistics.median(times):9.2f} ms" if times else
                  f"{program:21} {engine:9} {row.get('error', '')}", flush=True)

    def pair(program):
        """The engines whose losses are compared: the first writes the weights that the other loads."""
        for turn in range(args.turns):
            for engine in args.engines:
                do(program, engine, turn)

    def compiled(program):
        for turn in range(args.turns):
            do(program, "compiled", turn)

    failed = []
    with tempfile.TemporaryDirectory() as weights, open(path, "a") as file:
        with ThreadPoolExecutor(several, initializer=(lambda: cores.bind(own.pop())) if own else None) as pool:
            begun = []
            for program in args.programs:
                begun += [pool.submit(compiled, program)] if args.compile else []
                begun += [pool.submit(pair, program)]
            for one in begun:
                one.result()
        for one in failed:
            do(*one)
    beside = f", {args.together} processes at once, of which all but the timed one stand still" if args.together > 1 else ""
    beside = f", {args.workers} programs at once, each bound to processors of its own" if args.workers > 1 else beside
    machine = f"{device_name(args)}, {args.threads} threads{beside}; {datetime.date.today()}"
    text = markdown(rows, args, machine)
    out.with_suffix(".md").write_text(text)
    print(text)
    return 1 if "Failed: none." not in text else 0


if __name__ == "__main__":
    sys.exit(main())
