#!/usr/bin/env python3
"""What limits the calls and steps that are slower than they should be, by a card's counters (Nsight Compute's `ncu`), of both
engines on one card in one run.

    why_slow.py calls [NAME...]     kernels of single calls: bytes, pipes, why warps wait; NAME is a case's, or a part of several
    why_slow.py row PART CASE...    a part of cases, each call after a rest and many in a row: times, power and clock
    why_slow.py rows ROWS PLAN      kernels of each op's slowest case in compare_ops.py's rows ROWS, of cases in PLAN: the causes
    why_slow.py steps [PROGRAM...]  training steps of the zoo: time and bytes by kind of kernel; the time outside of kernels
    why_slow.py train [MODEL...]    `strata train` of gpt2-124m-padded, llama-1b, llama-3b: time by op beside the machine's
                                    limits, and what the card draws and its clock while the captured steps run

--out FILE adds to a page (Markdown); --minutes N begins nothing after so many and ends what is then at work. What was measured
is written all the same, also where somebody ends this program (SIGTERM). `steps` takes --compile (PyTorch
compiled beside, which takes a minute a program), --host (where Python's time goes) and --set, as zoo/run.py does.
Kernels are timed one after the other, with the card's clocks as they are. Counters of single calls come from several
replays of a kernel with empty caches; those of steps from one, with the caches as the step leaves them."""
import argparse
import collections
import csv
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "zoo")]
from tokens import command as command_line  # noqa: E402
from turns import Apart  # noqa: E402
from compare_ops import key_of, ratio, read_lines, timed  # noqa: E402
from why_slow_work import CASES, SEPARATOR  # noqa: E402

TIME, READ, WRITTEN = BASIC = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
SHARES = {  # a column's name to a counter in percent
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1, shared": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "exp": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
STALLS = ("barrier branch_resolve dispatch_stall drain gmma imc_miss lg_throttle long_scoreboard math_pipe_throttle membar "
          "mio_throttle misc no_instruction not_selected selected short_scoreboard sleeping tex_throttle wait warpgroup_arrive").split()
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WAVES, REGISTERS = "launch__waves_per_multiprocessor", "launch__registers_per_thread"

# The first that fits a kernel's name is its kind.
KINDS = {
    "attention": r"attention_cuda|fmha|flash|cudnn.*sdpa|sdpa|mha",
    "convolutions": r"conv_cuda|conv(?!ert)|wgrad|dgrad|implicit|winograd|cudnn",
    "products": r"gemm|nvjet|cutlass|xmma|cublas|gemv|splitk|few_kernel",
    "optimizer": r"strata::optim|adam|sgd|multi_tensor",
    "sorts, indices": r"sort|radix|scatter|gather|index|embedding|places|join_|put_|rows_kernel|cub::",
    "norms, sums, softmax": r"norm|softmax|reduc|triton_(red|per)|cross_entropy|sums?_kernel|scan|loss",
    "elementwise": r"elementwise|triton_poi|dense_kernel|strided_kernel|copy|cast|fill|memset|dropout|swiglu|rotary|cat_kernel|CatArray",
}
PEERS = {"strata": "Strata", "torch": "PyTorch", "compiled": "PyTorch compiled"}


def kind_of(kernel):
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, kernel, re.IGNORECASE)), "rest")


def short(kernel):
    """A kernel's name without return type, template and call arguments, and without most of its namespaces."""
    kernel = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    inner = re.search(r"at::native::([a-z_0-9]+_(?:kernel_cuda|cuda_kernel|kernel_impl))|functions::(\w+)", kernel)
    flat, depth = "", 0
    for c in re.sub(r"^(void|static|auto) ", "", kernel):
        depth += (c in "<(") - (c in ">)")
        if c in "<(" and depth == 1 and c == "(":
            break
        if depth == 0 and c not in ">)":
            flat += c
    name = "::".join(flat.strip().split("::")[-2:])
    function = inner and (inner[1] or inner[2])
    return (f"{name} of {function}" if function and function not in name else name)[:60]


def number(text):
    """A number of ncu's; None where it has none."""
    try:
        return float(text.replace(",", ""))
    except (ValueError, AttributeError):
        return None


def read_kernels(text):
    """The kernels of `ncu --csv --page raw`, in the order in which they ran: dictionaries of counters, and "Kernel Name"."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    rows = list(csv.DictReader(lines[begin:]))
    kernels = []
    for row in rows:
        if not (row["ID"] or "").strip().isdigit():  # the line of units
            continue
        kernels.append({key: value if key == "Kernel Name" else number(value) for key, value in row.items()})
    return kernels


def divided(kernels, count):
    """Lists of kernels, `count` of them, which separating kernels end."""
    parts, now = [], []
    for kernel in kernels:
        if SEPARATOR in kernel["Kernel Name"]:
            parts.append(now)
            now = []
        else:
            now.append(kernel)
    if count == 1 and not parts:
        return [now]
    if len(parts) != count:
        raise ValueError(f"{len(parts)} parts were recorded, {count} were expected")
    return parts


def known_counters():
    """Names that this machine's ncu has, without what follows the dot; empty where it does not say."""
    done = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True)
    return {line.split()[0] for line in done.stdout.splitlines() if "__" in line.split(" ")[0]} if done.returncode == 0 else set()


def done_by(command, limit):
    """(exit code, output, errors); what the command started ends with it after so many seconds (TimeoutExpired)."""
    return Apart().run(command, max(limit, 1), None)


def recorded(work, counters, sections, cache, limit):
    """(kernels, what the work printed); raises RuntimeError with what went wrong."""
    with tempfile.TemporaryDirectory() as tmp:
        log = pathlib.Path(tmp) / "log"
        command = ["ncu", "--profile-from-start", "off", "--target-processes", "application-only", "--clock-control", "none",
                   "--cache-control", cache, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
                   "--metrics", ",".join(counters)]
        for section in sections:
            command += ["--section", section]
        code, output, errors = done_by([*command, sys.executable, str(HERE / "why_slow_work.py"), *work], limit)
        text = log.read_text() if log.exists() else ""
        kernels, lines = read_kernels(text), [line for line in output.splitlines() if line.startswith("{")]
        if code != 0 or not lines or not kernels:
            raise RuntimeError(f"exit code {code}: {(errors + text)[-600:]}")
        return kernels, json.loads(lines[-1])


def percent(kernel, name):
    value = kernel.get(name)
    return "" if value is None else f"{value:.0f}%"


def stalls(kernel):
    """The three reasons for which most warps wait at an issued instruction."""
    found = [(kernel.get(STALL.format(reason)) or 0, reason) for reason in STALLS if reason not in ("selected", "not_selected")]
    return ", ".join(f"{reason} {value:.1f}" for value, reason in sorted(found, reverse=True)[:3] if value)


def row_of_call(part, engine, kernel, whole):
    seconds = kernel[TIME] * 1e-9
    moved = (kernel.get(READ) or 0) + (kernel.get(WRITTEN) or 0)
    cells = [part, engine, short(kernel["Kernel Name"]), f"{seconds * 1e6:.1f}", f"{seconds / whole:.0%}", f"{moved / 1e6:.1f}",
             f"{moved / seconds / 1e9:.0f}", *(percent(kernel, name) for name in SHARES.values()),
             f"{kernel.get(CONFLICTS) or 0:.2g}", f"{kernel.get(WAVES) or 0:.2f}", f"{kernel.get(REGISTERS) or 0:.0f}", stalls(kernel)]
    return "| " + " | ".join(cells) + " |"


def table_of_calls(name, results):
    """`results`: for each engine {part: kernels}."""
    lines = [f"### {name}", "", "| part | engine | kernels | us | MB of memory |", "|---|---|---|---|---|"]
    parts = list(next(iter(results.values()), {}))
    for part in parts:
        for engine, of in results.items():
            kernels = of[part]
            moved = sum((k.get(READ) or 0) + (k.get(WRITTEN) or 0) for k in kernels)
            lines.append(f"| {part} | {engine} | {len(kernels)} | {sum(k[TIME] for k in kernels) * 1e-3:.1f} | {moved / 1e6:.1f} |")
    head = ["part", "engine", "kernel", "us", "of the call", "MB", "GB/s", *SHARES, "bank conflicts", "waves", "registers", "warps wait for"]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for part in parts:
        for engine, of in results.items():
            whole = sum(k[TIME] for k in of[part]) * 1e-9
            lines += [row_of_call(part, engine, k, whole) for k in of[part] if k[TIME] * 1e-9 >= 0.03 * whole]
    return "\n".join(lines)


def problem_of(e):
    """A line for the page: of a command that was ended only after how long."""
    return f"not done within {e.timeout:.0f} s" if isinstance(e, subprocess.TimeoutExpired) else str(e)[:700]


def look_at_calls(args, write, left):
    known = known_counters()
    wanted = [*BASIC, *SHARES.values(), CONFLICTS, *(STALL.format(reason) for reason in STALLS)]
    counters = [name for name in wanted if not known or name.split(".")[0] in known]
    sections = ["LaunchStats", "WarpStateStats"]
    for name in CASES:
        if args.names and not any(part == name if part in CASES else part in name for part in args.names):
            continue
        results = {}
        try:
            for engine in args.engines:
                if left() <= 0:
                    write(f"{name}, {PEERS[engine]}: not begun, the time was used up")
                    continue
                try:
                    work = ["call", name, "--engine", engine]
                    try:
                        kernels, said = recorded(work, counters, sections, "all", left())
                    except RuntimeError as e:  # an ncu that does not know one of the counters: what its own sections have
                        if "metric" not in str(e).lower() or len(counters) == len(BASIC):
                            raise
                        counters, sections = BASIC, sections + ["SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"]
                        kernels, said = recorded(work, counters, sections, "all", left())
                    results[PEERS[engine]] = dict(zip(said["parts"], divided(kernels, len(said["parts"]))))
                except (RuntimeError, ValueError, subprocess.TimeoutExpired) as e:
                    write(f"{name}, {PEERS[engine]}: {problem_of(e)}")
        finally:
            if results:
                write(table_of_calls(name, results))


def slowest_cases(rows, plan, below, device="cuda"):
    """Of each op the row below that ratio that loses most time, with its case: [{"case", "pass", "inputs", "row"}], the most lost first."""
    cases, slow = {key_of(case, device): case for case in plan if "args" in case}, {}
    for row in timed(rows):
        if ratio(row) < below and row["key"] in cases:
            lost = row["ours"] - row["theirs"]
            if row["op"] not in slow or lost > slow[row["op"]]["lost"]:
                slow[row["op"]] = {"case": cases[row["key"]], "pass": row["pass"], "inputs": row.get("inputs", 1), "row": row, "lost": lost}
    return sorted(slow.values(), key=lambda line: -line["lost"])


def table_of_rows(lines, results):
    """`results`: for each engine a list of kernels a line, or what went wrong. The kernels of a call, the longest two by name."""
    head = ["op", "pass", "arguments", "ratio, timed", "engine", "us, timed", "kernels", "us in kernels", "MB", "longest", "us", "MB",
            *SHARES, "warps wait for", "next", "us"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for i, line in enumerate(lines):
        row = line["row"]
        for engine, of in results.items():
            about = [row["op"], row["pass"], row["arguments"][:60], f"{ratio(row):.2f}", engine,
                     f"{1e6 * row['ours' if engine == 'Strata' else 'theirs']:.1f}"]
            kernels = of[i]
            if isinstance(kernels, str) or not kernels:
                table.append("| " + " | ".join([*about, kernels or "none"]) + " |" * (len(head) - len(about)))
                continue
            moved = lambda k: ((k.get(READ) or 0) + (k.get(WRITTEN) or 0)) / 1e6
            first, *others = sorted(kernels, key=lambda k: -k[TIME])
            cells = [len(kernels), f"{sum(k[TIME] for k in kernels) * 1e-3:.1f}", f"{sum(map(moved, kernels)):.1f}", short(first["Kernel Name"]),
                     f"{first[TIME] * 1e-3:.1f}", f"{moved(first):.1f}", *(percent(first, name) for name in SHARES.values()), stalls(first),
                     *([short(others[0]["Kernel Name"]), f"{others[0][TIME] * 1e-3:.1f}"] if others else ["", ""])]
            table.append("| " + " | ".join([*about, *map(str, cells)]) + " |")
    return "\n".join(table)


def look_at_rows(args, write, left):
    if len(args.names) != 2:
        sys.exit("why_slow.py rows: name the rows and the plan")
    lines = slowest_cases(*(read_lines(name) for name in args.names), args.below)
    known = known_counters()
    wanted = [*BASIC, *SHARES.values(), *(STALL.format(reason) for reason in STALLS)]
    counters = [name for name in wanted if not known or name.split(".")[0] in known]
    results = {}
    with tempfile.TemporaryDirectory() as tmp:
        file = pathlib.Path(tmp) / "cases.jsonl"
        file.write_text("".join(json.dumps({k: line[k] for k in ("case", "pass", "inputs")}) + "\n" for line in lines))
        for engine in args.engines:
            try:
                kernels, said = recorded(["rows", str(file), "--engine", engine], counters, [], "all", left())
                parts = divided(kernels, len(lines))
                results[PEERS[engine]] = [said["problems"].get(str(i), part) for i, part in enumerate(parts)]
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as e:
                write(f"{PEERS[engine]}: {problem_of(e)}")
    if results:
        write(table_of_rows(lines, results))


def table_of_step(name, results):
    """`results`: engine to (milliseconds of a step that nobody watches, or None; its kernels, none if they were not recorded)."""
    kinds = [*KINDS, "rest"]
    head = ["engine", "ms a step", "ms in kernels", "kernels", "GB of memory", *(f"{kind}, ms (GB)" for kind in kinds)]
    lines = [f"### {name}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    top = ["| engine | kernel | kind | calls | ms | GB |", "|---|---|---|---|---|---|"]
    gb = lambda k: ((k.get(READ) or 0) + (k.get(WRITTEN) or 0)) * 1e-9
    for engine, (ms, kernels) in results.items():
        of = {kind: [k for k in kernels if kind_of(k["Kernel Name"]) == kind] for kind in kinds}
        cells = [f"{sum(k[TIME] for k in kernels) * 1e-6:.2f}", f"{len(kernels)}", f"{sum(map(gb, kernels)):.2f}",
                 *(f"{sum(k[TIME] for k in of[kind]) * 1e-6:.2f} ({sum(map(gb, of[kind])):.2f})" for kind in kinds)]
        lines.append("| " + " | ".join([engine, "-" if ms is None else f"{ms:.2f}", *(cells if kernels else ["-"] * len(cells))]) + " |")
        named = collections.defaultdict(list)
        for k in kernels:
            named[short(k["Kernel Name"]), kind_of(k["Kernel Name"])].append(k)
        most = sorted(named.items(), key=lambda item: -sum(k[TIME] for k in item[1]))[:15]
        top += [f"| {engine} | {kernel} | {kind} | {len(group)} | {sum(k[TIME] for k in group) * 1e-6:.2f} | {sum(map(gb, group)):.2f} |"
                for (kernel, kind), group in most]
    return "\n".join([*lines, "", *top])


def alone(program, engine, args, limit):
    """Median milliseconds of a step that nobody watches."""
    command = [sys.executable, str(HERE / "zoo/one.py"), program, "--engine", "strata" if engine == "strata" else "torch", "--size", args.size,
               "--device", "cuda", "--seconds", "0.5", "--set", *args.set]
    code, output, errors = done_by(command + (["--compile"] if engine == "compiled" else []), limit)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    result = json.loads(lines[-1]) if lines else {"error": f"exit code {code}: {errors[-400:]}"}
    if "times_s" not in result:
        raise RuntimeError(result.get("error", "no times"))
    return 1e3 * statistics.median(result["times_s"])


def table_of_host(name, results):
    lines = [f"### {name}: where Python's time goes", "", "| engine | ms a step, profiled | calls | ms of its own | function |",
             "|---|---|---|---|---|"]
    for engine, result in results.items():
        lines += [f"| {engine} | {result['step_s'] * 1e3:.2f} | {calls:.1f} | {own * 1e3:.3f} | `{function}` |"
                  for own, calls, function in result["rows"]]
    return "\n".join(lines)


def host_of(work, limit):
    """Where Python's time goes, as why_slow_work.py says it."""
    code, output, errors = done_by([sys.executable, str(HERE / "why_slow_work.py"), "host", *work], limit)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if code != 0 or not lines:
        raise RuntimeError(f"exit code {code}: {errors[-400:]}")
    return json.loads(lines[-1])


def look_at_steps(args, write, left):
    """A table a program. Its parts, the shortest first, are alone: one that fails or has no time left takes no other's figures away."""
    engines = [*args.engines, *(["compiled"] if args.compile else [])]
    for program in args.names:
        times, kernels, hosts = {}, {}, {}
        try:
            for engine in engines:
                work = [program, "--engine", "strata" if engine == "strata" else "torch", "--size", args.size, "--set", *args.set]
                work += ["--compile"] if engine == "compiled" else []
                parts = [("time of a step", times, lambda: alone(program, engine, args, left()))]
                parts += [("Python's time", hosts, lambda: host_of(work, left()))] if args.host else []
                parts += [("kernels", kernels, lambda: recorded(["step", *work], BASIC, [], "none", left())[0])]
                for what, into, do in parts:
                    if left() <= 0:
                        write(f"{program}, {PEERS[engine]}, {what}: not begun, the time was used up")
                        continue
                    try:
                        into[PEERS[engine]] = do()
                    except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as e:
                        write(f"{program}, {PEERS[engine]}, {what}: {problem_of(e)}")
        finally:
            found = [PEERS[engine] for engine in engines if PEERS[engine] in times or PEERS[engine] in kernels]
            if found:
                write(table_of_step(program, {peer: (times.get(peer), kernels.get(peer, [])) for peer in found}))
            if hosts:
                write(table_of_host(program, hosts))


class CardState:
    """What nvidia-smi says ten times a second while it lives: power, clock, and whether power holds the clock down."""

    FIELDS = "power.draw.instant,clocks.sm,utilization.gpu,clocks_event_reasons.sw_power_cap"

    def __enter__(self):
        self.rows = []
        self.process = subprocess.Popen(["nvidia-smi", f"--query-gpu={self.FIELDS}", "--format=csv,noheader,nounits", "-lms", "100"],
                                        stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=lambda: self.rows.extend((time.monotonic(), line) for line in self.process.stdout))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.thread.join()

    def summary(self):
        """Medians over the samples in which the card was at work."""
        cells = [[cell.strip() for cell in line.split(",")] for _, line in self.rows]
        busy = [c for c in cells if len(c) == 4 and (number(c[2]) or 0) >= 90 and None not in map(number, c[:2])]
        if not busy:
            return "no sample of the card at work"
        held = sum(c[3] == "Active" for c in busy) / len(busy)
        return (f"{len(busy)} samples at work: {statistics.median(float(c[0]) for c in busy):.0f} W, "
                f"{statistics.median(float(c[1]) for c in busy):.0f} MHz; power holds the clock in {held:.0%} of them")


def look_at_row(args, write, left):
    part, *names = args.names
    lines = ["| case | engine | ms after a rest | ms in a row | the card in a row |", "|---|---|---|---|---|"]
    for name in names or list(CASES):
        for engine in args.engines:
            try:
                with CardState() as card:
                    code, output, errors = done_by([sys.executable, str(HERE / "why_slow_work.py"), "row", name, "--engine", engine, "--part", part], left())
                if code != 0:
                    raise RuntimeError(f"exit code {code}: {errors[-300:]}")
                said = json.loads(output.splitlines()[-1])
                lines.append(f"| {name} | {PEERS[engine]} | {said['apart']:.4f} | {said['in_a_row']:.4f} | {card.summary()} |")
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as e:
                write(f"{name}, {PEERS[engine]}: {problem_of(e)}")
    write("\n".join(lines))


def look_at_training(args, write, left):
    from compare_training import CARD_LR, VOCAB, config_path, constant
    from tokens import make_tokens, write_text
    for name in args.names or ["gpt2-124m-padded", "llama-1b"]:
        config = tomllib.loads(config_path(name).read_text())
        vocab, batch = VOCAB.get(name) or config["model"]["vocab"], config["train"]["batch"]
        with tempfile.TemporaryDirectory() as tmp:
            text = pathlib.Path(tmp) / "tokens.txt"
            write_text(make_tokens(vocab, 8 * batch * config["model"]["context"] + 1), text)
            for steps, more in ((60, []), (9, ["--profile", "--graph", "off"])):
                if left() <= 0:
                    write(f"{name}: not begun, the time was used up")
                    continue
                out = pathlib.Path(tmp) / f"run{steps}"
                command = [args.strata, "train", str(config_path(name)), "--device", "cuda", "--data", str(text), "--out", str(out), "--quiet",
                           "--steps", str(steps), *more, "--set", "data.tokenizer=ids", "data.valid_fraction=0", *constant(CARD_LR),
                           "train.grad_clip=0", "train.eval_every=0", "train.save_every=-1", "train.sample_tokens=0", f"model.vocab={vocab}",
                           *(["train.grad_dtype=bf16"] if name.startswith("llama") else []), *args.set]
                try:
                    with CardState() as card:
                        code, output, errors = done_by(command, left())
                except subprocess.TimeoutExpired as e:
                    write(f"{name}: {problem_of(e)}")
                    continue
                if code != 0:
                    write(f"{name}: {(output + errors)[-700:]}")
                    continue
                rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
                rate = statistics.median(row["tokens_per_s"] for row in rows[len(rows) // 2:])
                what = "op by op, profiled" if more else "captured"
                write(f"### {name}, {what}\n\n{rate:,.0f} tokens/s, {1e3 * batch * config['model']['context'] / rate:.1f} ms a step; {card.summary()}"
                      + (f"\n\n```\n{output.strip()}\n```" if more else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("calls", "row", "rows", "steps", "train"))
    p.add_argument("names", nargs="*")
    p.add_argument("--engines", nargs="+", default=["strata", "torch"], choices=["strata", "torch"])
    p.add_argument("--compile", action="store_true", help="steps: PyTorch compiled too")
    p.add_argument("--host", action="store_true", help="steps: where Python's time goes")
    p.add_argument("--size", default="card", choices=("tiny", "cpu", "card"))
    p.add_argument("--set", nargs="*", default=[], help="steps: PROGRAM.KEY=VALUE; train: settings of strata train")
    p.add_argument("--below", type=float, default=0.9, help="rows: ops with a ratio below this")
    p.add_argument("--strata", default=str(HERE.parent / "build/release/bin/strata"))
    p.add_argument("--minutes", type=float, default=9)
    p.add_argument("--out", help="page to add to")
    args = p.parse_args()
    if args.what == "row" and not args.names:
        p.error("row: name a part (forward, backward, ..)")
    if args.what == "steps" and not args.names:
        p.error("steps: name programs of the zoo")
    end = time.monotonic() + 60 * args.minutes

    def write(text):
        print(text + "\n", flush=True)
        if args.out:
            with open(args.out, "a") as page:
                page.write(text + "\n\n")

    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    cards = subprocess.run(ask, capture_output=True, text=True).stdout.split("\n")[:-1] if shutil.which(ask[0]) else []
    if not cards:
        sys.exit("why_slow.py: no card here")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("why_slow.py: ended from outside"))  # tables are written on the way out
    said = command_line("bench/why_slow.py", [f'"{a}"' if " " in a else a for a in sys.argv[1:]])
    write(f"## {args.what}\n\nCommand: `{said}`, {cards[0]}" + (f", one of {len(cards)}" if len(cards) > 1 else ""))
    {"calls": look_at_calls, "row": look_at_row, "rows": look_at_rows, "steps": look_at_steps, "train": look_at_training}[args.what](args, write, lambda: end - time.monotonic())


if __name__ == "__main__":
    main()
