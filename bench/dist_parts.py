"""Parts of dist_bench.py about a run of several cards as it is: variants of settings, where a step's time goes, saving, a kill."""
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import threading
import time

import step_timeline

HERE = pathlib.Path(__file__).resolve().parent


def asked(text):
    """A variant "CARDS: SETTING ... NAME=VALUE ...": cards, settings, what it sets in the environment (NAME in capitals)."""
    cards, _, words = text.partition(":")
    words = words.split()
    apart = [w for w in words if re.match(r"[A-Z][A-Z0-9_]*=", w)]
    return int(cards), [w for w in words if w not in apart], dict(w.split("=", 1) for w in apart)


def variants(a, runs, tmp, data, train, rate):
    """Training as `training` has it, of each of --variants, without a peer."""
    table = ["| variant | cards | tokens/s | ms a step | peak GiB a card | last loss | graph |", "|---|---|---|---|---|---|---|"]
    for i, text in enumerate(a.variants):
        n, settings, env = asked(text)
        label = " ".join([*settings, *(f"{k}={v}" for k, v in env.items())]) or "as it is"
        rows, note = train(a, runs, label, n, data, f"{tmp}/variant{i}", a.batch * n, a.warmup + a.steps, range(n), a.limit, settings, env)
        if rows is None:
            table.append(f"| `{label}` | {n} | failed | | | | |")
        else:
            speed = rate(rows, a.warmup)
            tokens = (rows[-1]["tokens"] - rows[-2]["tokens"])
            table.append(f"| `{label}` | {n} | {speed:,.0f} | {1e3 * tokens / speed:.1f} | {rows[-1]['peak_memory'] / 2**30:.1f} | "
                         f"{rows[-1]['loss']:.4f} | {note.removeprefix('[0] ')} |")
        print(table[-1], flush=True)
    return table


def timeline(a, runs, tmp, data, train, rate):
    """Each of --variants, or --cards, with the card watched (device_timeline.cpp): what computes, what is waited for."""
    found, lines = {}, []
    for i, text in enumerate(a.variants or [f"{n}:" for n in a.cards]):
        n, settings, env = asked(text)
        label = " ".join([f"{n} cards:", *settings, *(f"{k}={v}" for k, v in env.items())]).removesuffix(":")
        folder = pathlib.Path(tmp) / f"timeline{i}"
        folder.mkdir()
        env |= step_timeline.environment(a.watch, folder / "rank")
        rows, _ = train(a, runs, f"timeline, {label}", n, data, f"{tmp}/watched{i}", a.batch * n, a.warmup + 8, range(n), a.limit, settings, env)
        if rows is None:
            lines.append(f"{label}: failed")
        else:
            found[label] = list(map(str, folder.glob("rank.*")))
            if a.keep:
                step_timeline.keep(found[label], pathlib.Path(a.keep) / f"timeline{i}.txt.gz")
    lines = step_timeline.table_of(found) + lines
    print("\n".join(lines), flush=True)
    return lines


def saving(a, runs, tmp, data, train, rate):
    """Steps while a checkpoint is written beside them, beside those before it; and PyTorch's distributed checkpoints."""
    table = ["| engine | step before, ms | while it is written, ms | times | longest step, ms | written for, s |", "|---|---|---|---|---|---|"]
    n, at, steps = max(a.cards), 30, 30 + a.steps
    out = pathlib.Path(tmp) / "saving"
    rows, _ = train(a, runs, "saving", n, data, out, a.batch * n, steps, range(n), a.limit,
                    ["train.save_async=true", f"train.save_every={at}", "train.keep_last=3"])
    if rows is None:
        table.append("| Strata | failed | | | | |")
    else:
        took = {r["step"]: r["elapsed_s"] - before["elapsed_s"] for before, r in zip(rows, rows[1:])}
        saved = [p for p in out.glob(f"**/*{at}*/*") if p.is_file()]
        # The log was written last when the last step ended: that tells its clock from the files'.
        ended = max((p.stat().st_mtime for p in saved), default=0) - (out / "metrics.jsonl").stat().st_mtime + rows[-1]["elapsed_s"]
        begun = next(r["elapsed_s"] for r in rows if r["step"] == at)
        meanwhile = [took[r["step"]] for r in rows if r["step"] > at and r["elapsed_s"] - took[r["step"]] < ended]
        before = statistics.mean(took[s] for s in range(10, at))
        table.append(line_of("Strata", before, meanwhile, ended - begun))
    print(table[-1], flush=True)
    program = [sys.executable, "-m", "torch.distributed.run", "--nnodes", 1, "--nproc-per-node", n, "--master-addr", "127.0.0.1", "--master-port",
               29610 + runs.first, HERE / "pytorch/save_steps.py", a.config, "--batch", a.batch, "--context", a.context, "--vocab", a.vocab, "--out",
               f"{tmp}/dcp", "--at", at, "--steps", steps]
    text = runs.call("saving, DCP", a.limit, program, range(n))
    last = [json.loads(m) for m in re.findall(r"^\{.*\}$", text or "", re.MULTILINE)]
    table.append(line_of("PyTorch, FSDP2, DCP async_save", last[-1]["before_s"], last[-1]["meanwhile_s"], last[-1]["written_s"]) if last
                 else "| PyTorch | failed | | | | |")
    print(table[-1], flush=True)
    return table


def line_of(name, before, meanwhile, written):
    if not meanwhile:
        return f"| {name} | {1e3 * before:.1f} | none ended meanwhile | | | {written:.2f} |"
    mean = statistics.mean(meanwhile)
    return (f"| {name} | {1e3 * before:.1f} | {1e3 * mean:.1f} ({len(meanwhile)} steps; middle one {1e3 * statistics.median(meanwhile):.1f}) | "
            f"{mean / before:.3f} | {1e3 * max(meanwhile):.1f} | {written:.2f} |")


def experts(a, runs, tmp, data, train, rate):
    """A layer of experts that the cards share, forward and backward (experts_bench.cpp), beside PyTorch's."""
    table = ["| cards | engine | what | ms | TFLOP/s a card |", "|---|---|---|---|---|"]
    for n in (n for n in a.cards if n > 1):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", 1, "--nproc-per-node", n, "--master-addr", "127.0.0.1", "--master-port",
                    29710 + runs.first + n, HERE / "pytorch/experts.py"]
        for name, program in (("Strata", [a.strata, "launch", "-n", n, "--", a.experts_bench]), ("PyTorch", torchrun)):
            text = runs.call(f"experts, {name} on {n}", a.limit, program, range(n))
            rows = [json.loads(m) for m in re.findall(r"^(?:\[0\] )?(\{.*\})$", text or "", re.MULTILINE)]
            table += [f"| {n} | {name} | {r['what']} | {r['ms']:.3f} | {r['tflops']:.0f} |" for r in rows] or [f"| {n} | {name} | failed | | |"]
    print("\n".join(table[2:]), flush=True)
    return table


def rank_process(rank, out):
    """The process of a rank of the run that writes to that folder."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"train" in words[1:2] and str(out).encode() in words and f"RANK={rank}".encode() in variables:
            return int(entry.name)
    return None


def kill(a, runs, tmp, data, train, rate):
    """A rank gets SIGKILL; from there to the end of the second step behind the log's last one."""
    table = ["| kill of rank | next step after, s |", "|---|---|"]
    n, out = max(a.cards), pathlib.Path(tmp) / "kill"
    log, stop, seen = out / "metrics.jsonl", threading.Event(), []

    def steps():
        try:
            return [json.loads(line)["step"] for line in log.read_text().splitlines() if line.endswith("}")]
        except (OSError, ValueError):
            return []

    def disturb():
        for k in range(a.kills):
            while not stop.is_set() and len(steps()) < 15 * (k + 1):
                time.sleep(0.02)
            rank = n - 1 - k % n
            pid = rank_process(rank, out)
            if pid is None or stop.is_set():
                return
            last, begin = max(steps(), default=0), time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while not stop.is_set() and max(steps(), default=0) < last + 2:
                time.sleep(0.005)
            if not stop.is_set():
                seen.append((rank, time.monotonic() - begin))

    watcher = threading.Thread(target=disturb)
    watcher.start()
    train(a, runs, "kill", n, data, out, a.batch * n, a.kill_steps, range(n), a.limit, ["parallel.mirror=1"], None, ["--restarts", a.kills])
    stop.set()
    watcher.join()
    table += [f"| {rank} | {s:.2f} |" for rank, s in seen] or ["| none was followed by a step | |"]
    print("\n".join(table[2:]), flush=True)
    return table
