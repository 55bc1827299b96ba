"""What of a training step on several cards is exchanges that are waited for: from the files of device_timeline.cpp. For
dist_bench.py's part `timeline`; alone, for files that are there:

  bench/step_timeline.py FILE...
"""
import collections
import glob
import gzip
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "zoo")]
from why_slow import kind_of, short  # noqa: E402

# Copies too: those that copy engines make for a gather, and of parts to their places.
EXCHANGE = re.compile(r"nccl|^memcpy|\b(meet|add_parts|all_reduce)_kernel", re.IGNORECASE)
MARK = re.compile(r"add_mark_kernel")
Activity = collections.namedtuple("Activity", "begin end stream launch bytes name")


def environment(library, out):
    """What a program's environment needs for its cards to be watched."""
    places = [f"{folder}/{more}" for folder in sorted(glob.glob("/usr/local/cuda*")) for more in ("lib64", "lib", "extras/CUPTI/lib64", "targets/x86_64-linux/lib")]
    places += [str(p / more) for p in map(pathlib.Path, sys.path) for more in ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")]
    found = [p for p in places if glob.glob(f"{p}/libcupti.so*")]
    return {"CUDA_INJECTION64_PATH": str(pathlib.Path(library).resolve()), "STRATA_TIMELINE": str(out),
            "LD_LIBRARY_PATH": ":".join([os.environ.get("LD_LIBRARY_PATH", "")] * ("LD_LIBRARY_PATH" in os.environ) + found)}


def read(path):
    activities = []
    for line in open(path, errors="replace"):
        parts = line.rstrip("\n").split("\t", 5)
        if len(parts) == 6:
            activities.append(Activity(*map(int, parts[:5]), parts[5]))
    return sorted(activities)


def steps_of(activities, most=5):
    """The last replays of the graph that has most in it, each with the time until the next one begins."""
    launches = collections.defaultdict(list)
    for a in activities:
        if a.launch:
            launches[a.launch].append(a)
    if not launches:
        return []
    full = max(map(len, launches.values()))
    steps = sorted((x for x in launches.values() if len(x) > full / 2), key=lambda x: x[0].begin)
    return [(x, (y[0].begin - x[0].begin) / 1e6) for x, y in zip(steps, steps[1:])][-most:]


def keep(paths, out):
    """The last whole step of the first rank that has one: ms into it, ms, stream, bytes of a copy, name; a line each."""
    for path in sorted(paths):
        steps = steps_of(read(path))
        if not steps:
            continue
        step = steps[-1][0]
        out.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(out, "wt") as f:
            for a in step:
                f.write(f"{(a.begin - step[0].begin) / 1e6:.4f}\t{(a.end - a.begin) / 1e6:.4f}\t{a.stream}\t{a.bytes}\t{short(a.name)}\n")
        return


def union(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([begin, end])
    return merged


def without(spans, others):
    """What of merged spans is in none of the others, merged too."""
    left, at = [], 0
    for begin, end in spans:
        while at > 0 and others[at - 1][1] > begin:
            at -= 1
        while at < len(others) and others[at][1] <= begin:
            at += 1
        k = at
        while begin < end and k < len(others) and others[k][0] < end:
            if others[k][0] > begin:
                left.append([begin, others[k][0]])
            begin = max(begin, others[k][1])
            k += 1
        if begin < end:
            left.append([begin, end])
    return left


def length(spans):
    return sum(end - begin for begin, end in spans) / 1e6


def exchange_name(name):
    found = re.search(r"nccl\w*?_(AllGather|ReduceScatter|AllReduce|SendRecv|Broadcast)\w*", name)
    return found.group(0) if found else short(name)


def analysed(step):
    """One step's activities in ms: by kind, by exchange (number, time, alone), and when nothing but exchanges ran."""
    exchanges = [a for a in step if EXCHANGE.search(a.name)]
    others = [a for a in step if not EXCHANGE.search(a.name) and not MARK.search(a.name)]
    computing = union([(a.begin, a.end) for a in others])
    kinds, by_name = collections.Counter(), collections.defaultdict(lambda: [0, 0.0, 0.0])
    for a in others:
        kinds[kind_of(a.name)] += (a.end - a.begin) / 1e6
    for a in exchanges:
        row = by_name[exchange_name(a.name)]
        row[0] += 1
        row[1] += (a.end - a.begin) / 1e6
        row[2] += length(without([[a.begin, a.end]], computing))
    begin, end = step[0].begin, max(a.end for a in step)
    exchanging = union([(a.begin, a.end) for a in exchanges])
    alone = without(exchanging, computing)
    nothing = without(without([[begin, end]], computing), exchanging)
    waits = []
    for b, e in sorted(alone, key=lambda s: s[0] - s[1])[:8]:
        what = max((a for a in exchanges if a.begin < e and a.end > b), key=lambda a: min(a.end, e) - max(a.begin, b))
        before = max((a for a in others if a.end <= b), key=lambda a: a.end, default=None)
        after = min((a for a in others if a.begin >= e), key=lambda a: a.begin, default=None)
        waits.append(((b - begin) / 1e6, (e - b) / 1e6, exchange_name(what.name), (what.end - what.begin) / 1e6,
                      short(before.name) if before else "(begin)", short(after.name) if after else "(end)"))
    return {"kinds": kinds, "exchanges": by_name, "busy": length(computing), "exchanging": length(exchanging), "alone": length(alone),
            "nothing": length(nothing), "span": (end - begin) / 1e6, "waits": waits}


def table_of(runs):
    """Lines for {a run's label: [path, ...of its ranks]}: the first rank's steps by kind, label beside label, and each's waits."""
    found, lines = {}, []
    for label, paths in runs.items():
        for path in sorted(paths):
            steps = steps_of(read(path))
            if steps:
                found[label] = ([analysed(s) for s, _ in steps], sum(t for _, t in steps) / len(steps))
                break
        else:
            lines += [f"{label}: no captured step was seen in {len(paths)} files", ""]
    if not found:
        return lines

    def mean(all_steps, of):
        return sum(map(of, all_steps)) / len(all_steps)

    lines += ["| ms a step | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    kinds = sorted({k for steps, _ in found.values() for s in steps for k in s["kinds"]}, key=lambda k: -max(mean(s, lambda x: x["kinds"][k]) for s, _ in found.values()))
    rows = [("from one replay to the next", lambda r: r[1]), ("kernels that compute run", lambda r: mean(r[0], lambda s: s["busy"])),
            ("exchanges run", lambda r: mean(r[0], lambda s: s["exchanging"])),
            ("only exchanges run (waited for)", lambda r: mean(r[0], lambda s: s["alone"])),
            ("nothing runs", lambda r: mean(r[0], lambda s: s["nothing"]))]
    rows += [(k, lambda r, k=k: mean(r[0], lambda s: s["kinds"][k])) for k in kinds]
    for name, of in rows:
        lines.append(f"| {name} | " + " | ".join(f"{of(r):.2f}" for r in found.values()) + " |")
    for label, (steps, _) in found.items():
        names = {n for s in steps for n in s["exchanges"]}
        if not names:
            continue
        lines += ["", f"{label}:", "", "| exchange | number | ms | of them while nothing computes |", "|---|---|---|---|"]
        for n in sorted(names, key=lambda n: -mean(steps, lambda s: s["exchanges"][n][1])):
            lines.append(f"| {n} | " + " | ".join(f"{mean(steps, lambda s, i=i: s['exchanges'][n][i]):.{0 if i == 0 else 2}f}" for i in range(3)) + " |")
        lines += ["", "| longest waits of one step: ms into it | ms | for | which takes | behind | before |", "|---|---|---|---|---|---|"]
        for at, ms, what, takes, before, after in steps[-1]["waits"]:
            lines.append(f"| {at:.1f} | {ms:.2f} | {what} | {takes:.2f} | {before} | {after} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table_of({pathlib.Path(p).name: [p] for p in sys.argv[1:]})))
