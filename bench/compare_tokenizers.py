#!/usr/bin/env python3
"""Tokenizers of the usual chains beside PyPI's `tokenizers`: ids and decoded text compared, time on one thread and on many.

    bench/compare_tokenizers.py TEXT [--program build/release/bench/tokenizers_bench] [--megabytes 20] [--threads 1 2] [--passes 3] [--compare]

TEXT is any plain text; documents are made of its lines, some words changed, and of random Unicode (a twentieth). The tokenizers are
trained on it, vocabularies of 32,000. The two run in turns; the best of --passes counts. --compare also compares every id
and every decoded text.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile


def documents(text, megabytes, seed=14):
    rng = random.Random(seed)
    lines = [line for line in text.split("\n") if line.strip()]
    words = text.split()
    scripts = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0x1E00, 0x2000), (0x3040, 0x3100), (0x4E00, 0x9FA0), (0xAC00, 0xD7A0), (0x1F300, 0x1F650), (0x300, 0x370), (0x2000, 0x2070)]
    out, total = [], 0
    while total < megabytes * 1e6:
        if rng.random() < 0.05:
            low, high = rng.choice(scripts)
            doc = "".join(chr(rng.randrange(*rng.choice([(low, high), (low, high), (0x20, 0x21), rng.choice(scripts)]))) for _ in range(1000))
        else:
            doc = []
            size = 0
            while size < 4000:
                line = rng.choice(lines)
                if rng.random() < 0.2:
                    w = rng.choice(words)
                    line = line.replace(" ", " " + w[::-1] + rng.choice(["", "-", "'s", "ing", str(rng.randrange(10000)), " é", "  "]) + " ", 1)
                doc.append(line)
                size += len(line) + 1
            doc = "\n".join(doc)
        out.append(doc)
        total += len(doc.encode())
    return out


GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def charsmap(text):
    """sentencepiece's own nmt_nfkc rules."""
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text.split("\n")[:2000]), model_writer=model, vocab_size=200, model_type="bpe", minloglevel=2)
    return pb.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


def tokenizers_of(text, vocab):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    lines = text.split("\n")
    extra = documents(text, 2, 3)

    def train(t, trainer):
        t.train_from_iterator(lines + extra, trainer)
        return t

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    yield "GPT-2: ByteLevel, BPE", train(gpt2, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False))
    llama3 = Tokenizer(models.BPE(ignore_merges=True))
    llama3.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3.decoder = decoders.ByteLevel()
    llama3 = train(llama3, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, special_tokens=["<|begin_of_text|>"], show_progress=False))
    llama3.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    yield "Llama 3: Split, ByteLevel, BPE", llama3
    qwen = Tokenizer.from_str(gpt2.to_str())
    qwen.normalizer = normalizers.NFC()
    yield "NFC, ByteLevel, BPE", qwen
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer, bert.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    bert = train(bert, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=3000, show_progress=False))
    bert.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    yield "BERT: WordPiece", bert
    t5 = Tokenizer(models.Unigram())
    t5.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(text)), normalizers.Replace(Regex(" {2,}"), " ")])
    t5.pre_tokenizer, t5.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t5 = train(t5, trainers.UnigramTrainer(vocab_size=vocab // 2, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    yield "T5: Precompiled, Metaspace, Unigram", t5
    llama2 = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    llama2.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    llama2 = train(llama2, trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=500, show_progress=False))
    llama2.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    data = json.loads(llama2.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    yield "Llama 2 with words: Metaspace, BPE", Tokenizer.from_str(json.dumps(data))
    data["pre_tokenizer"] = None
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    yield "Llama 2: whole text, BPE", Tokenizer.from_str(json.dumps(data))


def peer(path, docs_path, threads, passes, out=None):
    """In a process of its own: rayon's threads are fixed at its first use."""
    code = """
import sys, time, json, os
from tokenizers import Tokenizer
begin = time.perf_counter()
t = Tokenizer.from_file(sys.argv[1])
loaded = time.perf_counter() - begin
docs = open(sys.argv[2], encoding="utf-8", newline="").read().split("\\0")[:-1]
best = 1e30
for _ in range(int(sys.argv[3])):
    begin = time.perf_counter()
    made = t.encode_batch_fast(docs)
    best = min(best, time.perf_counter() - begin)
print(json.dumps({"load_s": loaded, "encode_s": best, "ids": sum(len(e.ids) for e in made)}))
if len(sys.argv) > 4:
    import array
    with open(sys.argv[4], "wb") as f, open(sys.argv[5], "w", encoding="utf-8", newline="") as g:
        for e in made:
            array.array("i", e.ids + [-1]).tofile(f)
            g.write(t.decode(e.ids) + "\\0")
"""
    env = dict(os.environ, TOKENIZERS_PARALLELISM="true" if threads > 1 else "false", RAYON_NUM_THREADS=str(threads))
    return json.loads(subprocess.run([sys.executable, "-c", code, path, docs_path, str(passes), *(out or [])], env=env, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--program", default="build/release/bench/tokenizers_bench")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", help="a folder for the tokenizers and documents; those already there are used")
    args = parser.parse_args()
    text = open(args.text, encoding="utf-8").read()
    differs = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        names_path = folder + "/names.json"
        if not os.path.exists(names_path):
            names = []
            for i, (name, tokenizer) in enumerate(tokenizers_of(text, args.vocab)):
                tokenizer.save(f"{folder}/{i}.json")
                names.append(name)
            json.dump(names, open(names_path, "w"))
        docs_path = f"{folder}/documents-{args.megabytes}.txt"
        if not os.path.exists(docs_path):
            with open(docs_path, "w", encoding="utf-8", newline="") as f:
                for doc in documents(text, args.megabytes):
                    f.write(doc + "\0")
        print(f"{os.path.getsize(docs_path) / 1e6:.1f} MB in documents of about 4 KB; MB/s, best of {args.passes} passes\n")
        print("| tokenizer | threads | Strata | `tokenizers` | |\n|---|---|---|---|---|")
        for i, name in enumerate(json.load(open(names_path))):
            if args.only not in name:
                continue
            path = f"{folder}/{i}.json"
            for threads in args.threads:
                compare = args.compare and threads == args.threads[0]
                files = [[f"{folder}/{who}.{kind}" for kind in ("ids", "txt")] for who in ("ours", "theirs")]
                ours = json.loads(subprocess.run([args.program, path, docs_path, str(threads), str(args.passes), *(files[0] if compare else [])], check=True, capture_output=True, text=True).stdout)
                theirs = peer(path, docs_path, threads, args.passes, files[1] if compare else None)
                speed = [ours["bytes"] / 1e6 / x["encode_s"] for x in (ours, theirs)]
                note = ""
                if compare:
                    same = [open(a, "rb").read() == open(b, "rb").read() for a, b in zip(*files)]
                    differs = differs or not all(same)
                    note = f"; ids {'equal' if same[0] else 'DIFFER'}, text {'equal' if same[1] else 'DIFFERS'}"
                print(f"| {name} | {threads} | {speed[0]:.1f} | {speed[1]:.1f} | {speed[0] / speed[1]:.2f} times{note} |", flush=True)
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
