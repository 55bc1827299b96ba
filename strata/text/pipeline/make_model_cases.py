#!/usr/bin/env python3
"""Writes model_cases.jsonl, what token_model_test.cpp encodes: models as tokenizer.json writes them, words, and the ids that PyPI's tokenizers gives.

  python3 make_model_cases.py [models of each type] [seed] > model_cases.jsonl      (needs tokenizers)

A row: {"model": {...}, "words": [...], "ids": [[...] or null where tokenizers refuses the word]}"""
import json
import random
import sys

from tokenizers import Tokenizer

ALPHABETS = ["ab", "abcd", "aé日𝄞", "▁lower wide", "ĠnewĊst", "<0x4>A"]


def word(r, alphabet, most):
    return "".join(r.choice(alphabet) for _ in range(r.randint(1, most)))


def words(r, alphabet, tokens):
    made = [word(r, alphabet, 12) for _ in range(12)] + [word(r, alphabet[:2], 90), word(r, alphabet + "?\n", 20), word(r, alphabet + "ßx", 60), "?", "??", "é?日", "aaaaaaaaa"]
    return made + [r.choice(tokens) + r.choice(tokens) for _ in range(4)]


def numbered(r, tokens):
    """Ids in any order, sometimes with gaps."""
    tokens = list(dict.fromkeys(tokens))
    ids = r.sample(range(len(tokens) * r.choice([1, 1, 3])), len(tokens))
    return dict(zip(tokens, ids))


def byte_tokens(r, alphabet):
    some = {b for c in alphabet[:3] + "?ß" for b in c.encode()}
    return ["<0x%02X>" % b for b in (range(256) if r.random() < 0.3 else some)]


def bpe(r, alphabet):
    prefix, suffix = r.choice([None, None, None, "##", ""]), r.choice([None, None, None, "</w>", ""])
    joined = lambda a, b: a + b[len(prefix or ""):]
    known = [c for c in alphabet if r.random() < 0.9]
    characters = known + [(prefix or "") + c for c in known] + [c + (suffix or "") for c in known] + [(prefix or "") + c + (suffix or "") for c in known]
    fallback = r.random() < 0.4
    parts, merges, made = list(characters), [], []
    if fallback and r.random() < 0.3:
        made += byte_tokens(r, alphabet)
        parts += made[:2]
    for _ in range(r.randint(0, 24) if parts else 0):
        a, b = r.choice(parts), r.choice(parts)
        if len(b) < len(prefix or "") or any(ord(c) > 127 for c in b[:len(prefix or "")]):
            continue  # tokenizers cuts the prefix's bytes off whatever is there, through characters too
        merges.append((a, b))
        made.append(joined(a, b))
        parts.append(made[-1])
    r.shuffle(merges)
    merges += merges[:1] if r.random() < 0.2 else []
    unk = r.choice([None, "<unk>", "<unk>", "a", "<missing>"])
    tokens = characters + made + (byte_tokens(r, alphabet) if fallback else []) + (["<unk>"] if unk == "<unk>" else [])
    legacy = r.random() < 0.4 and not any(" " in t for m in merges for t in m)
    return {"type": "BPE", "dropout": r.choice([None, 0.0]), "unk_token": unk, "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix, "fuse_unk": r.random() < 0.5,
            "byte_fallback": fallback, "ignore_merges": r.random() < 0.2, "vocab": numbered(r, tokens), "merges": [" ".join(m) for m in merges] if legacy else [list(m) for m in merges]}


def unigram(r, alphabet):
    fallback = r.random() < 0.4
    tokens = ["<unk>"] + [c for c in alphabet if r.random() < 0.8] + [word(r, alphabet, 5) for _ in range(r.randint(0, 20))] + (byte_tokens(r, alphabet) if fallback else [])
    if r.random() < 0.8:
        tokens = list(dict.fromkeys(tokens))
    # Few different scores, so that there are ties.
    scores = r.choice([lambda: -float(r.randint(1, 3)), lambda: -0.5 * r.randint(0, 30), lambda: -10 * r.random()])
    vocab = [[t, 0.0 if i == 0 else scores()] for i, t in enumerate(tokens)]
    unk = r.choice([0, 0, 0, r.randrange(len(vocab)), None])
    return {"type": "Unigram", "unk_id": unk, "vocab": vocab, "byte_fallback": fallback}


def word_piece(r, alphabet):
    prefix = r.choice(["##", "##", "", "a"])
    tokens = [c for c in alphabet if r.random() < 0.9] + [prefix + c for c in alphabet if r.random() < 0.9]
    tokens += [r.choice(["", prefix]) + word(r, alphabet, 4) for _ in range(r.randint(0, 20))] + r.choice([["[UNK]"], ["[UNK]"], []])
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix, "max_input_chars_per_word": r.choice([100, 100, 30, 5, 0]), "vocab": numbered(r, tokens or ["x"])}


def word_level(r, alphabet):
    return {"type": "WordLevel", "unk_token": r.choice(["<unk>", "<unk>", "<missing>"]), "vocab": numbered(r, ["<unk>"] + [word(r, alphabet, 2) for _ in range(20)])}


def main():
    models, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 10), (int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    r = random.Random(seed)
    for make in [bpe] * 3 + [unigram] * 2 + [word_piece] + [word_level]:
        for _ in range(models if make is not word_level else max(models // 5, 3)):
            alphabet = r.choice(ALPHABETS)
            model = make(r, alphabet)
            tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                                                       "decoder": None, "model": model}))
            names = [t for t, _ in model["vocab"]] if model["type"] == "Unigram" else list(model["vocab"])
            row = {"model": model, "words": [], "ids": []}
            for w in words(r, alphabet, names or ["x"]):
                row["words"].append(w)
                try:
                    row["ids"].append([t.id for t in tokenizer.model.tokenize(w)])
                except Exception:
                    row["ids"].append(None)
            print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
