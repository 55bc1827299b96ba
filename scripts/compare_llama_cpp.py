#!/usr/bin/env python3
"""Our GGUF files read by llama.cpp: logits and greedy tokens beside transformers', for each tiny decoder of scripts/make-models.

    pip install llama-cpp-python safetensors
    scripts/compare_llama_cpp.py [MODEL ...] [--models build/models] [--strata build/release/bin/strata] [--type f32]

A folder is written as a GGUF file by `strata model convert`, llama.cpp computes the logits of the tokens that the folder's
reference.safetensors has, and then sixteen greedy tokens. Each file is opened in a process of its own: a file that llama.cpp
does not take may end it. Exit status 1 where one is refused or off by more than 1e-3 of the largest logit, unless llama.cpp
(0.3.36 of the package) is known to compute something else: LIMITS."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

MOST = 1e-3  # of the largest logit: llama.cpp's own sums, of f32; it looks GELU up in a table of f16
# What llama.cpp does not do, by its source. The tiny models have all that their families can say.
WINDOWS = "windows are not read of this architecture"
SCALE = "a scale of attention other than that of the head's size (or of 27B) is not read"
LIMITS = {
    "deepseek_v2-plain": "groups of experts are chosen by their two best, as in V3, not by the best",
    "deepseek_v2-yarn": "without a low rank of queries it takes 26, 27 or 48 layers only",
    "gemma2-plain": SCALE,
    "gemma3-plain": SCALE,
    "llama-yarn": "beta_fast and beta_slow are not read of this architecture",
    "mistral-window": WINDOWS,
    "mixtral-window": WINDOWS,
    "phi3-window": WINDOWS,
    "phi3-longrope": "factors are chosen by the context's size, not by the text's length",
    "qwen2-window": WINDOWS,
    "qwen3-window": "a bias of attention's output is not read",
    "qwen3_moe-mixed": "layers without experts among those with are not read",
}


def child(gguf, reference):
    import ctypes

    import llama_cpp.llama_cpp as L
    import numpy as np
    from safetensors import safe_open
    with safe_open(reference, "np") as f:
        if "prompt" not in f.keys():
            return print(json.dumps(None))  # encoder-decoders
        tokens, want, prompt, greedy = (f.get_tensor(k) for k in ("tokens", "logits", "prompt", "greedy"))
    L.llama_backend_init()
    m = L.llama_model_default_params()
    m.n_gpu_layers, m.use_mmap = 0, False
    model = L.llama_model_load_from_file(gguf.encode(), m)
    if not model:
        raise SystemExit("llama.cpp does not load it")
    c = L.llama_context_default_params()
    c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.n_threads_batch = 512, 512, 512, 2, 2
    c.type_k = c.type_v = 0  # f32
    c.flash_attn_type = 0
    context = L.llama_init_from_model(model, c)
    vocab = want.shape[-1]

    def logits_of(ids, clear=True):
        if clear:
            L.llama_memory_clear(L.llama_get_memory(context), True)
        n = len(ids)
        batch = L.llama_batch_init(n, 0, 1)
        for i, t in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(t), logits_of.at + i if not clear else i, 1, 1
            batch.seq_id[i][0] = 0
        batch.n_tokens = n
        logits_of.at = (0 if clear else logits_of.at) + n
        assert L.llama_decode(context, batch) == 0
        got = np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(n)])
        L.llama_batch_free(batch)
        return got

    logits_of.at = 0
    got = logits_of(tokens[0])
    by_position = abs(got - want[0]).max(-1) / abs(want[0]).max()
    off, wrong = float(by_position.max()), [i for i, v in enumerate(by_position) if not v <= MOST]
    ids, now = [], logits_of(prompt[0])[-1]
    for _ in range(16):
        ids.append(int(now.argmax()))
        now = logits_of([ids[-1]], clear=False)[-1]
    same = ids == greedy[0].tolist()[:16]
    print(json.dumps({"off": off, "same": same, "first": wrong[0] if wrong else None}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="MODEL")
    p.add_argument("--models", default="build/models", type=pathlib.Path)
    p.add_argument("--strata", default="build/release/bin/strata")
    p.add_argument("--type", default="f32", help="of the matrices; others than f32 are off by their rounding, and are not judged")
    p.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        return child(*a.child)
    failed = 0
    print("| model | largest difference | 16 greedy tokens | |\n|---|---|---|---|")
    for folder in sorted(f for f in a.models.iterdir() if (f / "reference.safetensors").exists()):
        if a.names and not any(n in folder.name for n in a.names):
            continue
        known = LIMITS.get(folder.name, "")
        with tempfile.TemporaryDirectory() as tmp:
            gguf = f"{tmp}/model.gguf"
            done = subprocess.run([a.strata, "model", "convert", str(folder), gguf, "--type", a.type], capture_output=True, text=True)
            if done.returncode:
                why = done.stderr.split("error: ")[-1].strip()
                if "GGUF files have no name" not in why:  # encoders
                    print(f"| {folder.name} | | | refused by us: {' '.join(why.split())[:150]} |", flush=True)
                continue
            done = subprocess.run([sys.executable, __file__, "--child", gguf, str(folder / "reference.safetensors")], capture_output=True, text=True)
        if done.returncode:
            wrong = [line for line in done.stderr.splitlines() if any(w in line.lower() for w in ("error", "assert", "fail", "missing"))]
            print(f"| {folder.name} | | | {known or 'exit status %d: ' % done.returncode + (' / '.join(wrong)[:300] or done.stderr[-200:])} |", flush=True)
            failed += not known
            continue
        r = json.loads(done.stdout.splitlines()[-1])
        if r is None:
            continue
        right = a.type != "f32" or (r["off"] <= MOST and r["same"])
        failed += not right and not known
        why = "" if right else f"{known or 'WRONG'}{'' if r['first'] is None else '; from position %d on' % r['first']}"
        print(f"| {folder.name} | {r['off']:.1e} | {'the same' if r['same'] else 'others'} | {why} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
