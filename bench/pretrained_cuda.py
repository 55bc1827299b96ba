#!/usr/bin/env python3
"""Models of the shapes of Llama 3.2 1B and 3.1 8B with random weights on one card, beside transformers and PyTorch in the same run.

    bench/pretrained_cuda.py [PART ...] [--bin build/release] [--tmp FOLDER]

Parts are those of PARTS below, all of them where none is named. Each is a process with a time limit of its own, so that one that fails takes
no other with it. A row: what is measured, Strata, the peer, Strata's share of the limit that bytes or operations give (of a copy's
speed and a product's, which the first part measures), and the goal."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
               head_dim=64, tie_word_embeddings=True),
    "8b": dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, tie_word_embeddings=False),
}
USUAL = dict(model_type="llama", max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, hidden_act="silu")
# The characters that stand for bytes in byte-level vocabularies.
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = [*map(chr, PRINTED), *(chr(256 + i) for i in range(256 - len(PRINTED)))]
PARTS = {}
CORES = len(os.sched_getaffinity(0))


def part(seconds):
    """A part of the run, and its time limit."""
    def add(f):
        PARTS[f.__name__] = (f, seconds)
        return f
    return add


def run_folder(a):
    return pathlib.Path(a.tmp) / "folder-8b"


class Run:
    """What a part needs: where things are, and what the card can do."""

    def __init__(self, a):
        self.bin, self.tmp = pathlib.Path(a.bin), pathlib.Path(a.tmp)
        self.folder = pathlib.Path(a.folder or run_folder(a))
        self.text = pathlib.Path(a.text or HERE.parent / "docs/design/pretrained.md")
        self.tokenizers = a.tokenizers and pathlib.Path(a.tokenizers)
        self.bytes_s, self.flops_s = a.bytes_s, a.flops_s

    def program(self, name):
        return str(next(p for p in (self.bin / "bench" / name, self.bin / "bin" / name, self.bin / name) if p.exists()))

    def config(self, shape):
        path = self.tmp / f"{shape}.json"
        path.write_text(json.dumps(USUAL | SHAPES[shape] | dict(architectures=["LlamaForCausalLM"], torch_dtype="bfloat16")))
        return str(path)

    def write_tokenizer(self, folder):
        """A tokenizer.json into the folder: the one that --tokenizers has, else byte pairs that nobody learned, as many as Llama 3's.
        Returns the size of its vocabulary."""
        to = folder / "tokenizer.json"
        if self.tokenizers:
            shutil.copy(self.tokenizers / "1.json", to)
            return len(json.loads(to.read_text())["model"]["vocab"]) + 1
        draw = random.Random(1)
        pieces = list(BYTES)
        vocab, merges = {piece: i for i, piece in enumerate(pieces)}, []
        while len(pieces) < 128000:
            left, right = draw.choice(pieces), draw.choice(pieces[:2000])
            if len(left + right) <= 12 and left + right not in vocab:
                vocab[left + right] = len(pieces)
                pieces.append(left + right)
                merges.append([left, right])
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        to.write_text(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level, "post_processor": None,
                                  "decoder": level, "model": {"type": "BPE", "vocab": vocab, "merges": merges}}))
        return len(vocab)

    def ours(self, *arguments):
        """What pretrained_bench says."""
        done = subprocess.run([self.program("pretrained_bench"), "cuda", *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-600:])
        return json.loads(done.stdout)

    def row(self, work, ours, peer="", bound="", goal="", more=""):
        print(f"| {work} | {ours} | {peer} | {bound} | {goal} | {more} |", flush=True)


def attempt(run, work, f):
    """f's result; where it fails a row says so, and None."""
    try:
        return f()
    except Exception as e:
        run.row(work, "failed", more=f"{type(e).__name__}: {' '.join(str(e).split())[-300:]}")
        return None


# ---- transformers


def hf_model(run, shape, layers=None):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**{k: v for k, v in (USUAL | SHAPES[shape]).items() if k != "model_type"})
    if layers:
        config.num_hidden_layers = layers
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            from transformers.initialization import no_init_weights
            with no_init_weights():
                model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(1)
    return model.eval()


def hf_decode(model, rows, context, steps, compiled):
    """Milliseconds of a step with a static cache of context + 2 steps places; the token is chosen on the card, and read."""
    import torch
    from transformers import StaticCache
    cache = StaticCache(config=model.config, max_cache_len=context + 2 * steps + 16)

    def forward(ids, position):
        logits = model(input_ids=ids, past_key_values=cache, cache_position=position, position_ids=position[None].expand(rows, 1),
                       use_cache=True).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    step = torch.compile(forward, mode="reduce-overhead", fullgraph=True) if compiled else forward
    ids = torch.ones(rows, 1, dtype=torch.long, device="cuda")
    times = []
    with torch.no_grad():
        forward(ids, torch.tensor([context], device="cuda"))  # makes the cache, which graphs then find where it is
        for i in range(steps + 5):
            torch.compiler.cudagraph_mark_step_begin()
            position = torch.tensor([context + i], device="cuda")
            begin = time.perf_counter()
            ids = step(ids, position).clone()
            ids.tolist()
            times.append(time.perf_counter() - begin)
    return statistics.median(times[5:]) * 1e3


# ---- the parts


@part(60)
def machine(run):
    import torch
    name = torch.cuda.get_device_name()
    x = torch.empty(1 << 30, dtype=torch.float32, device="cuda")
    y = torch.empty_like(x)
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))

    def seconds(f):
        best = 1e9
        for _ in range(8):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            f()
            end.record()
            end.synchronize()
            best = min(best, begin.elapsed_time(end) / 1e3)
        return best

    copy = 2 * x.nbytes / seconds(lambda: y.copy_(x))
    product = 2 * 8192**3 / seconds(lambda: a @ b)
    print(f"{name}, PyTorch {torch.__version__}, {CORES} processor cores: copies {copy / 1e12:.2f} TB/s, bf16 products {product / 1e12:.0f} TFLOP/s")
    print(json.dumps({"bytes_s": copy, "flops_s": product}), flush=True)


def decode_row(run, shape, form, rows, prompt, steps, goal):
    work = f"{shape} {form}, batch {rows}, context {prompt}: tokens/s"
    r = attempt(run, work, lambda: run.ours("decode", run.config(shape), form, rows, prompt, steps))
    if not r:
        return
    least = (r["weight_gb"] + r["cache_gb"]) * 1e9 / run.bytes_s * 1e3
    more = (f"{r['step_ms']:.3f} ms a step, tokens read each step ({r['queued_ms']:.3f} unread); reads {r['weight_gb']:.2f} GB of weights, "
            f"{r['cache_gb']:.2f} of keys and values; {r['requests']} requests for memory; peak {r['peak_gib']:.1f} GiB")
    run.row(work, f"{rows / r['step_ms'] * 1e3:.0f}", "", f"{least / r['step_ms']:.0%} of {rows / least * 1e3:.0f}", goal, more)


def hf_row(run, shape, rows, context, steps, compiled=False):
    how = "compiled" if compiled else "eager"
    work = f"transformers, {how}: {shape} bf16, batch {rows}, context {context}: tokens/s"
    ms = attempt(run, work, lambda: hf_decode(hf_model(run, shape), rows, context, steps, compiled))
    if ms:
        run.row(work, "", f"{rows / ms * 1e3:.0f}", more=f"{ms:.2f} ms a step, a static cache")


@part(60)
def decode1b(run):
    decode_row(run, "1b", "bf16", 1, 128, 200, "1350; aim 1500")
    hf_row(run, "1b", 1, 128, 30)


@part(150)
def decode1b_compiled(run):
    hf_row(run, "1b", 1, 128, 60, compiled=True)


@part(90)
def decode8b(run):
    for form, goal in [("bf16", 250), ("e4m3", 440), ("int4", 680)]:
        decode_row(run, "8b", form, 1, 128, 100, goal)
    hf_row(run, "8b", 1, 128, 20)


def kernels_of_step(run, shape, form):
    """The kernels of one captured step as Nsight Compute's `ncu` times them one after the other: a layer's in their order, and by name."""
    from why_slow import BASIC, READ, TIME, read_kernels, short
    log = run.tmp / "kernels.csv"
    command = ["ncu", "--graph-profiling", "node", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units",
               "base", "--log-file", str(log), "--metrics", ",".join(BASIC), run.program("pretrained_bench"), "cuda", "decode",
               run.config(shape), form, "1", "128", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    kernels = read_kernels(log.read_text()) if log.exists() else []
    # Steps repeat: what lies between the last two drawn tokens is one of them, begun somewhere else.
    drawn = [i for i, k in enumerate(kernels) if "sample_kernel" in k["Kernel Name"]]
    if done.returncode or len(drawn) < 2:
        raise RuntimeError(f"exit code {done.returncode}, {len(kernels)} kernels: {(done.stderr + done.stdout).strip()[-300:]}")
    step = kernels[drawn[-2] + 1:drawn[-1] + 1]
    attention = [i for i, k in enumerate(step) if "decode" in k["Kernel Name"]]
    middle = len(attention) // 2
    alone = sum(k[TIME] for k in step) * 1e-3
    unwatched = run.ours("decode", run.config(shape), form, 1, 128, 100)
    print(f"\n{shape} {form}: a captured step has {len(step)} kernels, alone {alone:.0f} us in all; unwatched it takes "
          f"{unwatched['step_ms'] * 1e3:.0f} us, {unwatched['queued_ms'] * 1e3:.0f} where nobody reads its token\n")
    print("| of one layer, from one attention to the next | us alone | MB read |\n|---|---|---|")
    for k in step[attention[middle - 1]:attention[middle]]:
        print(f"| {short(k['Kernel Name'])} | {k[TIME] * 1e-3:.2f} | {(k.get(READ) or 0) * 1e-6:.2f} |")
    named = collections.defaultdict(list)
    for k in step:
        named[short(k["Kernel Name"])].append(k[TIME] * 1e-3)
    print("\n| of a step | kernels | us alone |\n|---|---|---|")
    for name, times in sorted(named.items(), key=lambda item: -sum(item[1])):
        print(f"| {name} | {len(times)} | {sum(times):.1f} |")
    print(flush=True)


@part(120)
def kernels1b(run):
    attempt(run, "kernels of a 1b step", lambda: kernels_of_step(run, "1b", "bf16"))


@part(150)
def kernels8b(run):
    attempt(run, "kernels of an 8b step", lambda: kernels_of_step(run, "8b", "bf16"))


@part(90)
def prefill8b(run):
    tokens = 4096
    r = attempt(run, "prefill", lambda: run.ours("prefill", run.config("8b"), "bf16", tokens, 5))

    def theirs():
        import torch
        model = hf_model(run, "8b")
        ids = torch.ones(1, tokens, dtype=torch.long, device="cuda")
        times = []
        with torch.inference_mode():
            for _ in range(5):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                model.model(input_ids=ids, use_cache=True)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - begin)
        return statistics.median(times[2:]) * 1e3

    ms = attempt(run, "transformers, prefill", theirs)
    s = SHAPES["8b"]
    width = (s["num_attention_heads"] + 2 * s["num_key_value_heads"]) * s["head_dim"]
    numbers = s["num_hidden_layers"] * s["hidden_size"] * (width + s["hidden_size"] + 3 * s["intermediate_size"])
    flops = 2 * numbers * tokens + 2 * s["num_hidden_layers"] * tokens**2 * s["hidden_size"]
    least = flops / run.flops_s * 1e3
    if r:
        run.row("8b, 4,096 tokens read: ms", f"{r['ms']:.1f}", f"eager {ms:.1f}" if ms else "", f"{least / r['ms']:.0%} of {least:.1f}", 110,
                f"peak {r['peak_gib']:.1f} GiB")


@part(150)
def batch64(run):
    decode_row(run, "8b", "bf16", 64, 2048, 32, 5000)
    hf_row(run, "8b", 64, 2048, 10)


@part(120)
def product(run):
    for rows, columns in [(4096, 14336)]:
        done = subprocess.run([run.program("lowbit_bench"), "cuda", str(rows), str(columns), "1", "2", "4", "8", "16", "32"], capture_output=True,
                              text=True, timeout=60)
        print(done.stdout + done.stderr[-500:], flush=True)


@part(240)
def lora(run):
    rows, tokens = 4, 2048
    ours = {form: attempt(run, f"lora on {form}", lambda: run.ours("lora", run.config("8b"), form, rows, tokens, 5)) for form in ("bf16", "nf4")}
    ms = attempt(run, "lora, PyTorch", lambda: torch_lora(run, rows, tokens))
    s = SHAPES["8b"]
    width = (s["num_attention_heads"] + 2 * s["num_key_value_heads"]) * s["head_dim"]
    numbers = s["num_hidden_layers"] * s["hidden_size"] * (width + s["hidden_size"] + 3 * s["intermediate_size"]) + s["hidden_size"] * s["vocab_size"]
    # Forward and the gradients of inputs: two products a weight. Attention forward and backward.
    flops = 4 * numbers * rows * tokens + 7 * s["num_hidden_layers"] * rows * tokens**2 * s["hidden_size"]
    least = flops / run.flops_s * 1e3
    for form, r in ours.items():
        if r:
            speed = rows * tokens / r["step_ms"] * 1e3
            peer = f"compiled, bf16: {rows * tokens / ms * 1e3:.0f}" if ms else ""
            run.row(f"8b LoRA on {form}, {rows} x {tokens}: tokens/s", f"{speed:.0f}", peer, f"{least / r['step_ms']:.0%} of {rows * tokens / least * 1e3:.0f}",
                    "1.2 times" if form == "bf16" else "0.85 of bf16",
                    f"{r['step_ms']:.1f} ms, captured {r['captured']}, {r['bits']:.2f} bits a frozen number, peak {r['peak_gib']:.1f} GiB, loss {r['loss']:.3f}")


@part(240)
def kernels_lora(run):
    """A fine-tuning step on bf16 and on nf4 by kind of kernel: what a layer adds, from steps with two layers and with four."""
    from why_slow import READ, TIME, WRITTEN, read_kernels, short

    def kernels_of(form, layers):
        """Kernels of the last step: name -> (how many, us alone, MB read and written)."""
        path, log = run.tmp / f"8b-{layers}.json", run.tmp / f"lora-{form}-{layers}.csv"
        path.write_text(json.dumps(json.loads(pathlib.Path(run.config("8b")).read_text()) | dict(num_hidden_layers=layers, vocab_size=1024)))
        command = ["ncu", "--graph-profiling", "node", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units",
                   "base", "--log-file", str(log), "--metrics", ",".join((TIME, READ, WRITTEN)), run.program("pretrained_bench"), "cuda", "lora",
                   str(path), form, "4", "2048", "1"]
        done = subprocess.run(command, capture_output=True, text=True)
        kernels = read_kernels(log.read_text()) if log.exists() else []
        # The optimizer's kernels are at a step's end: what lies between two times of them is a step, begun somewhere else.
        ends = [i for i, k in enumerate(kernels) if "rule_kernel" in k["Kernel Name"]
                and (i + 1 == len(kernels) or "rule_kernel" not in kernels[i + 1]["Kernel Name"])]
        if done.returncode or len(ends) < 2:
            names = collections.Counter(short(k["Kernel Name"]) for k in kernels).most_common(40)
            raise RuntimeError(f"exit code {done.returncode}, {len(kernels)} kernels, {names}: {(done.stderr + done.stdout).strip()[-300:]}")
        named = collections.defaultdict(lambda: [0, 0.0, 0.0])
        for k in kernels[ends[-2] + 1:ends[-1] + 1]:
            of = named[short(k["Kernel Name"])]
            of[0] += 1
            of[1] += k[TIME] * 1e-3
            of[2] += ((k.get(READ) or 0) + (k.get(WRITTEN) or 0)) * 1e-6
        return named

    for form in ("bf16", "nf4"):
        counts = {layers: attempt(run, f"kernels of lora on {form}, {layers} layers", lambda: kernels_of(form, layers)) for layers in (2, 4)}
        if not all(counts.values()):
            continue
        more = {name: [(b - a) / 2 for a, b in zip(counts[2].get(name, [0, 0, 0]), of)] for name, of in counts[4].items()}
        whole, copied = sum(m[1] for m in more.values()), sum(m[2] for m in more.values())
        print(f"\n8b LoRA on {form}, 4 x 2048: a layer takes {whole:.0f} us alone, forward and backward, and moves {copied:.0f} MB "
              f"({copied * 1e6 / run.bytes_s * 1e6:.0f} us)\n\n| of a layer | kernels | us alone | share | MB moved |\n|---|---|---|---|---|")
        for name, (n, us, mb) in sorted(more.items(), key=lambda item: -item[1][1])[:30]:
            print(f"| {name} | {n:g} | {us:.1f} | {us / whole:.1%} | {mb:.0f} |")
        print(flush=True)


def torch_lora(run, rows, tokens):
    """The same adapters on the same maps, written in plain PyTorch (peft is not assumed), compiled layer by layer."""
    import torch
    from torch import nn
    torch.manual_seed(1)
    rank, alpha = 16, 32

    class LoraLinear(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = nn.Parameter(torch.randn(rank, base.in_features, device="cuda") * 0.01)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank, device="cuda"))

        def forward(self, x):
            return self.base(x) + nn.functional.linear(nn.functional.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype)) * (alpha / rank)

    model = hf_model(run, "8b")
    for p in model.parameters():
        p.requires_grad_(False)
    for layer in model.model.layers:
        for holder, names in [(layer.self_attn, "q_proj k_proj v_proj o_proj"), (layer.mlp, "gate_proj up_proj down_proj")]:
            for name in names.split():
                setattr(holder, name, LoraLinear(getattr(holder, name)))
    model.train()
    model.config.use_cache = False
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    ids, targets = (torch.randint(0, model.config.vocab_size, (rows, tokens), device="cuda") for _ in range(2))
    for layer in model.model.layers:
        layer.compile()

    @torch.compile
    def loss_of(x, targets):
        return nn.functional.cross_entropy(model.lm_head(x).float().view(-1, model.config.vocab_size), targets.view(-1))

    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model.model(input_ids=ids, use_cache=False).last_hidden_state, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:]) * 1e3


def read_seconds(paths, threads):
    def read(path):
        block = bytearray(16 << 20)
        with open(path, "rb", buffering=0) as f:
            while f.readinto(block):
                pass

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, paths))
    return time.monotonic() - begin


@part(120)
def folder(run):
    """The folder that `start` reads, where --folder says."""
    model = hf_model(run, "8b")
    begin = time.monotonic()
    model.save_pretrained(run.folder, max_shard_size="2GB")
    run.write_tokenizer(run.folder)
    print(f"(a folder of {sum(f.stat().st_size for f in run.folder.iterdir()) / 1e9:.2f} GB, written in {time.monotonic() - begin:.0f} s)", flush=True)


@part(200)
def start(run):
    """From nothing to the first token of a folder: a process's start to its end, as who calls it sees it."""
    folder = run.folder
    files = sorted(folder.glob("*.safetensors"))
    size = sum(f.stat().st_size for f in files)

    def forget():
        for f in files:
            with open(f, "rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def first_token():
        begin = time.monotonic()
        done = subprocess.run([run.program("strata"), "generate", "--model", str(folder), "--device", "cuda", "--prompt", "The first word", "--tokens",
                               "1", "--temperature", "0", "--statistics"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-600:])
        return time.monotonic() - begin, done.stderr.strip().splitlines()[-1]

    read_seconds(files, 8)
    cached = [attempt(run, "start, cached", first_token) for _ in range(2)]
    if all(cached):
        best = min(cached)
        run.row("8b folder, cached, to the first token and out again: s", f"{best[0]:.2f}", "", "", 3, f"{size / best[0] / 1e9:.1f} GB/s; {best[1]}")
    read = {}
    for threads in (1, 8):
        forget()
        read[threads] = read_seconds(files, threads)
    forget()
    cold = attempt(run, "start, cold", first_token)
    if cold:
        disk = min(read.values())
        run.row("8b folder, cold: s", f"{cold[0]:.2f}", "", f"{disk / cold[0]:.0%} of the disk", "0.9 of the disk",
                f"read alone in {read[1]:.2f} s by one thread, {read[8]:.2f} by eight ({size / disk / 1e9:.2f} GB/s)")
    code = ("import sys, torch; from transformers import AutoModelForCausalLM as M; m = M.from_pretrained(sys.argv[1], dtype=torch.bfloat16, "
            "device_map='cuda'); m.generate(torch.ones(1, 3, dtype=torch.long, device='cuda'), max_new_tokens=1, do_sample=False)")
    begin = time.monotonic()
    peer = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    seconds = time.monotonic() - begin
    run.row("8b folder, cached, transformers: s", "", f"{seconds:.2f}" if peer.returncode == 0 else f"failed: {peer.stderr.strip()[-200:]}")


@part(200)
def tokenise(run):
    done = subprocess.run([sys.executable, str(HERE / "compare_tokenizers.py"), str(run.text), "--program", run.program("tokenizers_bench"), "--megabytes", "100",
                           "--threads", "1", str(CORES), "--passes", "1", "--keep", str(run.tokenizers)], capture_output=True, text=True)
    print(done.stdout + done.stderr[-600:], flush=True)


@part(240)
def bpe(run):
    done = subprocess.run([sys.executable, str(HERE / "token_models.py"), str(run.text), run.program("token_models_bench"), "--mb", "1000", "--threads",
                           str(CORES), "--rounds", "1", "--kinds", "BPE"], capture_output=True, text=True)
    print(done.stdout + done.stderr[-600:], flush=True)


@part(400)
def cpu1b(run):
    """Q4_0 on the processor, beside llama.cpp (PyPI's llama-cpp-python) with the same file, in turns: the best of each counts."""
    import torch
    from llama_cpp_peer import llama_cpp
    from transformers import LlamaConfig, LlamaForCausalLM
    folder, gguf = run.tmp / "cpu1b", run.tmp / "cpu1b.gguf"
    folder.mkdir()
    settings = USUAL | SHAPES["1b"] | dict(vocab_size=run.write_tokenizer(folder))
    settings.pop("model_type")
    torch.set_default_dtype(torch.bfloat16)
    from transformers.initialization import no_init_weights
    with no_init_weights():
        model = LlamaForCausalLM(LlamaConfig(**settings))
    model.tie_weights()  # what is not initialised is not tied either
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((torch.rand(p.shape) - 0.5) * 0.07) if p.dim() > 1 else p.fill_(1)
    model.save_pretrained(folder)
    done = subprocess.run([run.program("strata"), "model", "convert", str(folder), str(gguf), "--type", "q4_0"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-600:])
    prompt = (run.tmp / "prompt")
    prompt.write_text(" ".join(run.text.read_text().split()[:400 if run.tokenizers else 80]))  # some 500 tokens
    size, ways = gguf.stat().st_size, {}

    def ours(dtype):
        done = subprocess.run([run.program("strata"), "generate", "--model", str(gguf), "--device", "cpu", "--dtype", dtype, "--prompt",
                               prompt.read_text(), "--tokens", "64", "--temperature", "0", "--statistics"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-300:])
        said = done.stderr.strip().splitlines()[-1]
        tokens, read, written = re.search(r"(\d+) tokens read at ([\d.]+) a second, \d+ written at ([\d.]+)", said).groups()
        return float(read), float(written), f"of {tokens}"

    calls = {f"Strata, the rest {d}": lambda d=d: ours(d) for d in ("bf16", "f32")}
    calls |= {f"llama.cpp{more}": lambda more=more: llama_cpp(gguf, not more) for more in ("", ", weights as they lie")}
    for _ in range(2):
        for name, call in calls.items():
            said = attempt(run, f"1b Q4_0, {name}", call)
            if said:
                ways.setdefault(name, []).append(said)
    best = {name: (max(s[0] for s in said), max(s[1] for s in said), said[0][2]) for name, said in ways.items()}
    peers = [best[name] for name in best if name.startswith("llama")]
    for name, (read, written, how) in best.items():
        beside = "" if name.startswith("llama") or not peers else (f"{read / max(p[0] for p in peers):.2f} and "
                                                                   f"{written / max(p[1] for p in peers):.2f} times llama.cpp")
        run.row(f"1b Q4_0 ({size / 1e9:.2f} GB), {CORES} cores, {name}: tokens/s", f"{read:.1f} read {how}, {written:.1f} written", "", "", "1.1 times",
                beside)


# ---- the run


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    p.add_argument("--bin", default=str(HERE.parent / "build/release"), help="where the programs are")
    p.add_argument("--tmp", help="a folder on the disk that is to be measured")
    p.add_argument("--folder", help="where the 8B folder is or shall be; else it goes with the run")
    p.add_argument("--text", help="any plain text, for the parts that tokenise")
    p.add_argument("--tokenizers", help="a folder that bench/compare_tokenizers.py --keep left; 1.json is the tokenizer of the folders that are made")
    p.add_argument("--bytes-s", type=float, default=4.28e12)
    p.add_argument("--flops-s", type=float, default=789e12)
    p.add_argument("--seconds", type=float, default=1e9, help="of all parts together: what is left bounds each")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    for name in a.parts:
        if name not in PARTS:
            p.error(f"there is no part {name}; there are {', '.join(PARTS)}")
    if a.worker:
        return PARTS[a.parts[0]][0](Run(a))
    ends = time.monotonic() + a.seconds
    with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
        for name in ["machine"] + [n for n in a.parts or PARTS if n != "machine"]:
            begin = time.monotonic()
            command = [sys.executable, __file__, name, "--worker", "--bin", a.bin, "--tmp", tmp, "--bytes-s", str(a.bytes_s), "--flops-s",
                       str(a.flops_s)]
            for option, value in [("--text", a.text), ("--tokenizers", a.tokenizers), ("--folder", a.folder)]:
                command += [option, value] if value else []
            limit = round(min(PARTS[name][1], ends - begin))
            if limit < 5:
                print(f"| {name} | not run | | | | no time was left |", flush=True)
                continue
            try:
                done = subprocess.run(command, timeout=limit, stdout=subprocess.PIPE if name == "machine" else None)
                failed = f"exit status {done.returncode}" if done.returncode else ""
            except subprocess.TimeoutExpired:
                done, failed = None, f"stopped after {limit} s"
            if name == "machine":
                if done and not failed:
                    lines = done.stdout.decode().splitlines()
                    print("\n".join(lines[:-1]))
                    found = json.loads(lines[-1])
                    a.bytes_s, a.flops_s = found["bytes_s"], found["flops_s"]
                print("\n| work | Strata | peer | of the limit | goal | |\n|---|---|---|---|---|---|", flush=True)
            if failed:
                print(f"| {name} | failed | | | | {failed} |", flush=True)
            print(f"({name}: {time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
