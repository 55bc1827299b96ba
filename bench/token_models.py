#!/usr/bin/env python3
"""Training and encoding of tokenizer models beside PyPI's `tokenizers`, in turns on the same text and words.

  python3 bench/token_models.py TEXT BUILD/bench/token_models_bench [--mb 80] [--vocab 32000] [--threads 1 2] [--rounds 3]

The text is made of TEXT (tinyshakespeare): copies of it, in which every twentieth word has one letter replaced by a random one, up to --mb megabytes: so it has as many rare words as
a large corpus. Words are what stands between blanks in both engines. Seconds of training include counting words; encoding is of the same text with the vocabulary that was trained.
The least of --rounds is printed, as lines of a table."""
import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time


def make_part(source, megabytes, path, seed):
    r = random.Random(seed)
    lines = [line.split(" ") for line in open(source, encoding="utf-8").read().split("\n")]
    letters = "abcdefghijklmnopqrstuvwxyz"
    written = 0
    with open(path, "w", encoding="utf-8") as out:
        while written < megabytes << 20:
            for line in lines:
                words = list(line)
                for i, w in enumerate(words):
                    if w and r.random() < 0.05:
                        at = r.randrange(len(w))
                        words[i] = w[:at] + r.choice(letters) + w[at + 1:]
                written += out.write(" ".join(words) + "\n")


def make_text(source, megabytes, path):
    """Parts of 64 MB, by all processors."""
    parts = [(source, min(64, megabytes - at), f"{path}.{at}", 1 + at) for at in range(0, megabytes, 64)]
    with multiprocessing.Pool() as pool:
        pool.starmap(make_part, parts)
    with open(path, "wb") as out:
        for _, _, name, _ in parts:
            with open(name, "rb") as part:
                shutil.copyfileobj(part, out)
            os.remove(name)


def theirs(what, kind, text, vocab, model, threads):
    """A process of its own: the number of threads is read once."""
    out = subprocess.check_output([sys.executable, __file__, "--worker", what, kind, text, str(vocab), model],
                                  env={**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"})
    return json.loads(out)


def worker(what, kind, text, vocab, model):
    import tokenizers as t

    lines = open(text, encoding="utf-8").read().splitlines(keepends=True)
    blocks = ["".join(lines[i:i + 2000]) for i in range(0, len(lines), 2000)]
    start = time.perf_counter()
    if what == "train":
        tokenizer = t.Tokenizer(getattr(t.models, kind)(**({"unk_token": "<unk>"} if kind != "Unigram" else {})))
        tokenizer.pre_tokenizer = t.pre_tokenizers.WhitespaceSplit()
        options = {"unk_token": "<unk>"} if kind == "Unigram" else {"min_frequency": 2}
        tokenizer.train_from_iterator(blocks, getattr(t.trainers, {"BPE": "Bpe"}.get(kind, kind) + "Trainer")(vocab_size=vocab, show_progress=False, **options))
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds}))
        json.dump(json.loads(tokenizer.to_str())["model"], open(model, "w"))
    else:
        tokenizer = t.Tokenizer.from_str(json.dumps({"version": "1.0", "model": json.load(open(model))}))
        tokenizer.pre_tokenizer = t.pre_tokenizers.WhitespaceSplit()
        start = time.perf_counter()
        encodings = tokenizer.encode_batch_fast(blocks, add_special_tokens=False)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "ids": sum(len(e.ids) for e in encodings), "sum": sum(sum(e.ids) for e in encodings)}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("text")
    p.add_argument("program")
    p.add_argument("--mb", type=int, default=80)
    p.add_argument("--vocab", type=int, default=32000)
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--kinds", nargs="+", default=["BPE", "WordPiece", "Unigram"])
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        make_text(a.text, a.mb, text)
        print(f"| {os.path.getsize(text) / 1e6:.0f} MB, vocabulary {a.vocab} | threads | tokenizers | strata | ratio |\n|---|---|---|---|---|", flush=True)
        run = lambda *args: json.loads(subprocess.check_output([a.program, *map(str, args)]))
        for kind in a.kinds:
            for threads in a.threads:
                rows = {"train": [], "encode": []}
                for _ in range(a.rounds):
                    model = os.path.join(folder, "theirs.json")
                    rows["train"].append((theirs("train", kind, text, a.vocab, model, threads), run("train", kind, text, a.vocab, threads, os.path.join(folder, "ours.json"))))
                    rows["encode"].append((theirs("encode", kind, text, a.vocab, model, threads), run("encode", model, text, threads)))
                for t, o in rows["encode"]:
                    assert (t["ids"], t["sum"]) == (o["ids"], o["sum"]), "the ids differ"
                if kind == "BPE":
                    assert json.load(open(model)) == json.load(open(os.path.join(folder, "ours.json"))) | {"unk_token": "<unk>"}, "the models differ"
                for what, pairs in rows.items():
                    t, o = min(t["seconds"] for t, _ in pairs), min(o["seconds"] for _, o in pairs)
                    print(f"| {what} {kind} | {threads} | {t:.2f} s | {o:.2f} s | {t / o:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:5], int(sys.argv[5]), sys.argv[6])
    else:
        main()
