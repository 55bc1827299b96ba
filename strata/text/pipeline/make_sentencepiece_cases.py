#!/usr/bin/env python3
"""Writes sentencepiece_cases.jsonl, what sentencepiece_test.cpp reads: small models that PyPI's sentencepiece trains, normalised texts, and their ids.

  python3 make_sentencepiece_cases.py > sentencepiece_cases.jsonl      (needs sentencepiece, tokenizers)

A row: {"kind", "model": hexadecimal, "texts", "normalized", "ids"}. That the whole tokenizer.json does as sentencepiece does is seen with another program's help, by hand:

  python3 make_sentencepiece_cases.py check PROGRAM      (PROGRAM prints the tokenizer.json of a tokenizer.model)"""
import io
import json
import random
import subprocess
import sys
import tempfile

import sentencepiece

SENTENCES = ["the lowest newer widest wide low new", "lower and lower they went down", "nowhere to go, nowhere to be: 12 or 21", "she sells sea shells", "aaaa aaaaa aa", "größer 日本 é"] * 5
OPTIONS = [dict(), dict(byte_fallback=True), dict(add_dummy_prefix=False, remove_extra_whitespaces=False), dict(split_by_whitespace=False), dict(user_defined_symbols=["<sep>", "low"])]


def train(kind, options):
    model = io.BytesIO()
    size = 56 + 256 * options.get("byte_fallback", False)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=size, model_type=kind, normalization_rule_name=options.pop("rule", "identity"), minloglevel=2,
                                             hard_vocab_limit=False, **options)
    return model.getvalue()


def texts(r):
    letters = "".join(SENTENCES)
    for _ in range(14):
        line = r.choice(SENTENCES)
        yield r.choice([line, "  " + line + " ", line.replace(" ", "   "), "".join(r.choice(letters + "xé\n—") for _ in range(r.randint(1, 30))), "a" * r.randint(1, 9), "<sep>" + line + "<sep>"])


def main():
    r = random.Random(4)
    for kind in ["bpe", "unigram"]:
        for options in OPTIONS if kind == "bpe" else OPTIONS[:1] + OPTIONS[2:3]:
            options = dict(options)
            found = options.get("user_defined_symbols", [])
            model = train(kind, options)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            row = {"kind": kind, "model": model.hex(), "texts": [], "normalized": [], "ids": []}
            for text in texts(r):
                if any(f in text for f in found):
                    continue  # these are looked for before a model sees the text
                row["texts"].append(text)
                row["normalized"].append(processor.normalize(text))
                row["ids"].append(processor.encode(text))
            print(json.dumps(row, ensure_ascii=False))


def check(program):
    from tokenizers import Tokenizer
    r = random.Random(5)
    for kind in ["bpe", "unigram"]:
        for options in OPTIONS + [dict(rule="nmt_nfkc")]:
            model = train(kind, dict(options))
            with tempfile.NamedTemporaryFile(suffix=".model") as file:
                file.write(model)
                file.flush()
                tokenizer = Tokenizer.from_str(subprocess.check_output([program, file.name]).decode())
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            made = [t for _ in range(20) for t in texts(r)]
            differ = [t for t in made if processor.encode(t) != tokenizer.encode(t, add_special_tokens=False).ids]
            print(kind, options, len(differ), "of", len(made), "differ", differ[:3])


if __name__ == "__main__":
    check(sys.argv[2]) if len(sys.argv) == 3 else main()
