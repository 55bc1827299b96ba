"""What a training step of the zoo's programs moves, and what fusing chains of elementwise calls would save of it.

Counted from a recording of one step on the meta device (no card, no memory), so at the card's sizes:

    PYTHONPATH=build/release/python python bench/zoo/count.py --size card --page bench/results/zoo-cuda-2026-11-26.md

A chain saves a read where an elementwise call, or one that reduces or normalises, reads what an elementwise call of the
same pass (forward, backward) wrote, and the write where nobody else reads it. That is the most that a compiler can save
by fusion: it does not count what recomputation would. A program that looks at values is recorded on the processor at
the size `cpu`; its bytes are then of that size."""

import argparse
import collections
import math
import pathlib
import re
import subprocess
import sys

OPS = pathlib.Path(__file__).resolve().parents[2] / "strata" / "ops"
CHAINS = ("activation", "copy", "dropout", "elementwise", "index")  # families whose calls a compiler fuses
READERS = ("loss", "norm", "reduce", "softmax")  # and those that it lets read a chain
PRODUCTS = ("attention", "conv", "matmul", "rnn")


def families():
    """The family of each op: the folder of its record."""
    found = {}
    for path in sorted(OPS.glob("*/*.cpp")):
        for name in re.findall(r'\.schema\s*=\s*"(\w+)\(', path.read_text()):
            found[name] = path.parent.name
    return found


def values_in(arg):
    """Values among an argument of a recorded call: a tensor, a list of them, something else."""
    if isinstance(arg, dict):
        return [arg] if "storage" in arg else []
    return [v for part in arg for v in values_in(part)] if isinstance(arg, (list, tuple)) else []


def nbytes(value, storages):
    """Bytes of a value, an expanded one without its repetitions."""
    count = math.prod(n for n, stride in zip(value["shape"], value["stride"]) if stride != 0)
    size = next(int(bits) // 8 for bits in re.findall(r"(\d+)$", str(value["dtype"])) or ["8"])
    return min(count * size, storages[value["storage"]]["nbytes"])


def count(recording, family_of):
    """Totals of a recording: calls, flops, bytes, bytes by kind, and what fusion would save of them."""
    storages = recording.storages()
    calls = [recording[i] for i in range(len(recording))]
    total = collections.Counter()
    reads = collections.defaultdict(list)  # by storage: (call, value)
    made_by = {}
    for i, call in enumerate(calls):
        if not call["work"] or not call["bytes"]:
            continue
        family = family_of.get(call["op"], "")
        kind = "chains" if family in CHAINS else "products" if family in PRODUCTS else "other"
        total["calls"] += 1
        total["flops"] += call["flops"]
        total["bytes"] += call["bytes"]
        total[kind] += call["bytes"]
        for value in values_in(list(call["args"].values())):
            reads[value["storage"]].append((i, value))
        for value in call["results"]:
            if family in CHAINS and call["form"] == "fresh":
                made_by[value["storage"]] = (i, value)
    for storage, (i, made) in made_by.items():
        near = []
        for j, value in reads[storage]:
            fused = family_of.get(calls[j]["op"], "") in CHAINS + READERS
            if fused and calls[j]["phase"] == calls[i]["phase"]:
                near.append(nbytes(value, storages))
        total["saved"] += sum(near)
        if near and len(near) == len(reads[storage]) and storages[storage]["freed"] < len(calls):
            total["saved"] += nbytes(made, storages)
    return total


def record_step(name, size, device, settings):
    """The recording of a program's third step."""
    import strata.torch

    strata.torch.install()
    import one
    import torch

    import strata as st

    module = one.load(name)
    one.change(module, name, settings)
    training = one.steps_of(module, size, torch.device(device), 1, one.Weights(None, ""))
    for _ in range(2):
        next(training)
    recording = st.record(lambda: next(training))
    training.close()
    return recording


def measured(page):
    """Milliseconds a step of a page of the zoo on a card, by program: Strata's and compiled PyTorch's (or None)."""
    found, columns = {}, []
    for line in page.read_text().splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if cells[0] == "program":
            columns = cells
        elif columns and len(cells) == len(columns) and re.fullmatch(r"[\d.]+", cells[columns.index("Strata ms")]):
            row = dict(zip(columns, cells))
            compiled = row.get("compiled ms", "-")
            found[row["program"]] = (float(row["Strata ms"]), None if compiled == "-" else float(compiled))
    return found


def line_of(name, size, total, args, times):
    saved = total["saved"] / args.gb_s / 1e6
    cells = [name, size, total["calls"], f"{total['flops'] / 1e12:.2f}"]
    cells += [f"{total[key] / 1e9:.1f}" for key in ("bytes", "chains", "saved")]
    cells.append(f"{100 * total['saved'] / total['bytes']:.0f}%")
    if times is not None:
        strata, compiled = times.get(name, (None, None))
        known = strata is not None and size == "card"
        cells += [f"{saved:.1f}" if size == "card" else "-", f"{strata:.1f}" if known else "-",
                  f"{compiled:.1f}" if known and compiled else "-",
                  f"{strata - compiled:.1f}" if known and compiled else "-"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--size", choices=("tiny", "cpu", "card"), default="card")
    parser.add_argument("--gb-s", type=float, default=2800, help="of a card's memory, as elementwise kernels reach it")
    parser.add_argument("--page", type=pathlib.Path, help="a page of the zoo on a card, to set the savings beside")
    parser.add_argument("--set", nargs="*", default=[], metavar="PROGRAM.KEY=VALUE", help="as one.py's")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # this program, in this process
    args = parser.parse_args()
    times = measured(args.page) if args.page else None
    if args.one:
        family_of = families()
        try:
            size, total = args.size, count(record_step(args.one, args.size, "meta", args.set), family_of)
        except Exception as error:  # it looks at values, which tensors on meta have none of
            if "meta" not in str(error):
                raise
            size = "tiny" if args.size == "tiny" else "cpu"
            total = count(record_step(args.one, size, "cpu", args.set), family_of)
        print(line_of(args.one, size, total, args, times))
        return
    head = ["program", "size", "calls", "TFLOP", "GB", "of them elementwise", "fusion saves GB", "of all"]
    if times is not None:
        head += ["ms saved", "Strata ms", "compiled ms", "gap ms"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    names = args.programs or sorted(path.stem for path in (pathlib.Path(__file__).parent / "programs").glob("*.py"))
    for name in names:  # a process each: what one holds is gone with it
        command = [sys.executable, __file__, "--one", name, *sys.argv[1:]]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout if done.returncode == 0 else f"| {name} | failed |\n", end="", flush=True)


if __name__ == "__main__":
    main()
