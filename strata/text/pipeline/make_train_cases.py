#!/usr/bin/env python3
"""Writes train_cases.jsonl, what token_trainer_test.cpp trains: words, options, and the model that PyPI's tokenizers trains.

  python3 make_train_cases.py [cases of each kind] [seed] > train_cases.jsonl      (needs tokenizers)

A row: {"type", "options", "words": {word: count}, "model"}; "exact": the model is the same to its ids and merges. Otherwise, with characters that have a prefix or suffix, tokenizers
numbers those in an order that changes from run to run; then only rows are kept that give the same tokens each time, and these are compared."""
import json
import random
import sys

from tokenizers import Tokenizer, models, trainers

KINDS = {"BPE": (models.BPE, trainers.BpeTrainer), "WordPiece": (models.WordPiece, trainers.WordPieceTrainer), "WordLevel": (models.WordLevel, trainers.WordLevelTrainer)}


def train(kind, options, words):
    make_model, make_trainer = KINDS[kind]
    tokenizer = Tokenizer(make_model(**({"unk_token": options["unk_token"]} if "unk_token" in options else {})))
    given = {k: v for k, v in options.items() if k != "unk_token"}
    tokenizer.train_from_iterator((w for w, n in words.items() for _ in range(n)), make_trainer(show_progress=False, **given))
    return json.loads(tokenizer.to_str())["model"]


def case(r, kind):
    alphabet = r.choice(["ab", "abc", "abcdé日", "▁lowernest"])
    words = {"".join(r.choice(alphabet) for _ in range(r.randint(1, r.choice([3, 9])))): r.randint(1, 9) for _ in range(r.randint(1, 14))}
    options = {"vocab_size": r.randint(3, 60), "min_frequency": r.choice([0, 0, 2, 5])}
    if r.random() < 0.5:
        options["special_tokens"] = r.sample(["<s>", "</s>", "a", "ab"], r.randint(1, 3))
    if kind != "WordLevel":
        if r.random() < 0.3:
            options["initial_alphabet"] = ["z", "a"]
        if r.random() < 0.2:
            options["limit_alphabet"] = r.randint(1, 12)
    if kind == "BPE":
        if r.random() < 0.3:
            options["max_token_length"] = r.randint(1, 6)
        if r.random() < 0.2:
            options["continuing_subword_prefix"] = "#"
        if r.random() < 0.2:
            options["end_of_word_suffix"] = "</w>"
        if r.random() < 0.3:
            options["unk_token"] = "<unk>"
    exact = kind == "WordLevel" or (kind == "BPE" and "continuing_subword_prefix" not in options and "end_of_word_suffix" not in options and "limit_alphabet" not in options)
    if kind == "WordLevel":
        words = {w: n for w, n in words.items() if w not in options.get("special_tokens", [])}  # tokenizers gives these a second id
    if not exact:
        words = {w: r.randint(1, 300) for w in words}  # counts that are hardly ever equal
    made = [train(kind, options, words) for _ in range(1 if exact else 20)]
    if any(set(m["vocab"]) != set(made[0]["vocab"]) for m in made) or (exact and any(m != made[0] for m in made)):
        return None
    return {"type": kind, "options": options, "words": words, "exact": exact, "model": made[0]}


def main():
    cases, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 12), (int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    r = random.Random(seed)
    for kind in ["BPE"] * 2 + ["WordPiece"] * 3 + ["WordLevel"]:
        for _ in range(cases):
            row = case(r, kind)
            if row is not None:
                print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
