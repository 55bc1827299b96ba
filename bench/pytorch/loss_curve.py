#!/usr/bin/env python3
"""Loss curves of `strata train` and of PyTorch from the same initial weights, on the same batches in the same order.

  bench/pytorch/loss_curve.py --strata build/release/bin/strata [--steps 300] [--engines strata rerun eager compiled]

Strata writes its initial weights as safetensors (train.save_first) and the learning rate of each step; PyTorch reads both.
The data are ids that this script makes, or the bytes of --text; batch k holds windows k B to k B + B - 1 of it, which
order.txt in --work writes down. How far two bf16 curves may be apart is measured: eager and compiled PyTorch differ in
rounding alone. Strata's rerun must be equal bit for bit, losses and final weights. Exit status 1 where it is not, or
where the curves are further apart than --tolerance in the mean over the last half."""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tokens import command, make_tokens, write_text  # noqa: E402


def strata(a, config, data, out, first):
    command = [a.strata, "train", a.config, "--device", a.device, "--data", str(data), "--out", str(out), "--steps", str(a.steps),
               "--quiet", "--set", "data.tokenizer=ids", "data.shuffle=false", "data.valid_fraction=0", "train.eval_every=0",
               "train.save_every=0", "train.sample_tokens=0", f"train.save_first={str(first).lower()}",
               f"model.vocab={config['model']['vocab']}", f"train.batch={a.batch}", f"train.lr={a.lr}", f"train.warmup={a.warmup}",
               "train.schedule=cosine", "train.grad_clip=1.0", "train.weight_decay=0.1", *a.set]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return [json.loads(line) for line in open(out / "metrics.jsonl")]


def weights_file(run, step):
    return run / f"step-{step:08d}" / "model.safetensors"


def load_safetensors(path):
    import torch
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    data = bytearray(raw[8 + length:])
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "F32", f"{name} is {t['dtype']}"
        begin, end = t["data_offsets"]
        tensors[name] = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(t["shape"])
    return tensors


def pytorch(a, config, tokens, initial, rates, mode):
    import torch
    import models
    torch.set_float32_matmul_precision("high")
    model = models.make(config["model"])
    saved = load_safetensors(initial)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(saved.pop(models.GPT.strata_name(name)))
    saved = {k: v for k, v in saved.items() if not k.startswith("head.")}
    assert not saved, f"weights that the PyTorch model lacks: {list(saved)}"
    model.to(a.device)
    optimizer = models.adamw(model, a.lr, 0.1)
    torch._dynamo.reset()
    run = torch.compile(model) if mode == "compiled" else model
    cuda = a.device.startswith("cuda")
    n, context = a.batch * config["model"]["context"], config["model"]["context"]
    ids = torch.frombuffer(tokens, dtype=torch.int32).long().to(a.device)
    losses = []
    for i, rate in enumerate(rates):
        x, y = (ids[i * n + d:i * n + d + n].view(a.batch, context) for d in (0, 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=config["train"]["dtype"] == "bf16"):
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), torch.__version__


def apart(a, b):
    """Mean over the last half, and the largest difference."""
    d = [abs(x - y) for x, y in zip(a, b)]
    half = d[len(d) // 2:]
    return sum(half) / len(half), max(d)


def table(curves, notes):
    names, steps = list(curves), len(curves["Strata"])
    lines = ["| step | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    marks = sorted({0, 1, 2, 4, 9, steps - 1} | set(range(24, steps, 25)))
    for i in (i for i in marks if i < steps):
        lines.append(f"| {i + 1} | " + " | ".join(f"{curves[c][i]:.4f}" for c in names) + " |")
    distances = []
    for i, x in enumerate(names):
        for y in names[i + 1:]:
            mean, most = apart(curves[x], curves[y])
            distances.append(f"{x} and {y}: {mean:.5f} apart in the mean over the last half, {most:.5f} at most.")
    return "\n".join(lines) + "\n\n" + "\n".join(f"- {note}" for note in notes + distances) + "\n"


def write_page(a, curves, notes, version):
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    day = datetime.date.today().isoformat()
    head = (f"# Loss curves from the same weights on the same batches\n\nCommand: "
            f"`{command('bench/pytorch/loss_curve.py', sys.argv[1:])}`  \nDate: {day}, commit {a.commit}, PyTorch {version}\n\n")
    (out / f"loss-curve-{day}.md").write_text(head + table(curves, notes))
    (out / f"loss-curve-{day}.json").write_text(json.dumps(curves) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--strata", default=str(HERE.parent.parent / "build/release/bin/strata"))
    p.add_argument("--config", default=str(HERE.parent.parent / "configs/gpt2-124m.toml"), help="a model of family gpt")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=0, help="0: the configuration's")
    p.add_argument("--vocab", type=int, default=0, help="0: the configuration's")
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--warmup", type=int, default=30)
    p.add_argument("--device", default="cuda")
    p.add_argument("--text", help="train on the bytes of this file instead of made-up ids")
    p.add_argument("--engines", nargs="+", default=["strata", "rerun", "eager", "compiled"],
                   choices=["strata", "rerun", "eager", "compiled"])
    p.add_argument("--set", nargs="+", default=[], help="settings for strata train")
    p.add_argument("--work", help="folder for data and runs, kept; default: a temporary one")
    p.add_argument("--tolerance", type=float, default=0.02, help="nats")
    p.add_argument("--out", help="folder for the table and the curves")
    p.add_argument("--commit", default="")
    a = p.parse_args()
    with open(a.config, "rb") as f:
        config = tomllib.load(f)
    a.batch = a.batch or config["train"]["batch"]
    config["model"]["vocab"] = a.vocab or config["model"]["vocab"]
    context = config["model"]["context"]
    n = a.batch * context
    work = pathlib.Path(a.work or tempfile.mkdtemp(prefix="loss_curve_"))
    work.mkdir(parents=True, exist_ok=True)
    if a.text:
        import array
        content = pathlib.Path(a.text).read_bytes()
        content = (content * (1 + (a.steps * n + 1) // len(content)))[:a.steps * n + 1]
        tokens = array.array("i", content)
    else:
        tokens = make_tokens(config["model"]["vocab"], a.steps * n + 1)
    write_text(tokens, work / "ids.txt", context)
    with open(work / "order.txt", "w") as f:
        for k in range(a.steps):
            f.write(" ".join(str((k * a.batch + i) * context) for i in range(a.batch)) + "\n")

    failed = False
    curves, notes, version = {}, [], "not run"
    begin = time.monotonic()

    def told(what):
        print(f"{what} [{time.monotonic() - begin:.0f} s]", file=sys.stderr, flush=True)
        if a.out:
            write_page(a, curves, notes, version)

    rows = strata(a, config, work / "ids.txt", work / "strata", True)
    curves["Strata"] = [r["loss"] for r in rows]
    told("Strata")
    if "rerun" in a.engines:
        again = strata(a, config, work / "ids.txt", work / "rerun", False)
        same_loss = curves["Strata"] == [r["loss"] for r in again]
        same_weights = weights_file(work / "strata", a.steps).read_bytes() == weights_file(work / "rerun", a.steps).read_bytes()
        notes.append(f"Rerun of Strata: losses {'equal' if same_loss else 'DIFFERENT'}, final weights "
                     f"{'equal bit for bit' if same_weights else 'DIFFERENT'}.")
        failed |= not (same_loss and same_weights)
        told(notes[-1])
    for mode in ("eager", "compiled"):
        if mode in a.engines:
            curves[f"PyTorch {mode}"], version = pytorch(a, config, tokens, weights_file(work / "strata", 0),
                                                         [r["lr"] for r in rows], mode)
            told(f"PyTorch {mode}")
    for name, curve in curves.items():
        if name != "Strata" and not apart(curves["Strata"], curve)[0] <= a.tolerance:
            failed = True
    print(table(curves, notes))
    if not a.work:
        shutil.rmtree(work)
    sys.exit(1 if failed else 0)


main()
