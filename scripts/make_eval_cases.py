"""Writes FOLDER/eval: tiny models with tokenizers, files to evaluate them on, and what comes out of it by transformers.

make_eval_cases.py FOLDER. FOLDER has what make_models.py read; each model of CASES gets its configuration with another
vocabulary, random weights (the seed is its name), and a tokenizer trained on texts.jsonl. Beside the models:

texts.jsonl      {"text"}                             documents, some longer than the models' context
choices.jsonl    {"question", "choices", "answer"}    the place of the right one
shots.jsonl      the same                             examples to show
NAME/answers.jsonl  {"question", "answer"}            of some rows what the model writes itself, else something else
NAME/expected.json  of "text", "choices", "choices-first" (2 shots, the first of shots.jsonl), "choices-drawn" (3 of the
                    others, seed 1234) and "answers" the "measures" of lm-evaluation-harness, computed here from their
                    definitions, and "samples": each text's log-probability, each choice's, each text that was written

compare_eval.py compares with the harness itself.
"""

import json
import math
import os
import random
import re
import sys
import zlib

import torch
import transformers
from make_models import draw
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging

VOCAB = 384
TOKENS = 12  # of an answer at most
STOPS = ["\n\n", "."]
WORDS = """a the of and to in is that it was for on are with as at be this have from or one had by word but not what all were we
when your can said there use an each which she do how their if will up other about out many then them these so some her would
make like him into time has look two more write go see number no way could people my than first water been call who oil now
find long down day did get come made may part over naïve Straße café мир 水 Ωμέγα 3.14 1,024 don't it's""".split()


def sentence(rnd: random.Random, words: int) -> str:
    return " ".join(rnd.choice(WORDS) for _ in range(words))


def texts(rnd: random.Random) -> list[dict]:
    rows = []
    for i in range(12):
        parts = [sentence(rnd, rnd.randint(3, 12)) + rnd.choice([".", "!", "?", ","]) for _ in range(rnd.randint(1, 45))]
        text = rnd.choice([" ", "\n", "  ", "\n\n"]).join(parts)
        rows.append({"text": [text, " " + text, text + "\n", text.replace(" ", "\u00a0", 3)][i % 4]})
    return rows


def choices(rnd: random.Random, count: int) -> list[dict]:
    rows = []
    for i in range(count):
        # Blanks at the end of a question go with the answer; answers of one character are often one token.
        question = sentence(rnd, rnd.randint(2, 20)) + ["", "?", " ", ":\n", "\u00a0"][i % 5]
        answers = [sentence(rnd, rnd.randint(1, 5)) for _ in range(rnd.randint(2, 5))] if i % 3 else list("ABCD")
        rows.append({"question": question, "choices": answers, "answer": rnd.randrange(len(answers))})
    rows[7]["question"] = ""
    rows[8]["question"] = sentence(rnd, 300)  # longer than a context
    return rows


# transformers gives Qwen2's models these words whatever their tokenizer.json says.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(corpus: list[str], bos: bool = False, words: str = "") -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if words:
        tok.normalizer = normalizers.NFC()
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(words), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tok.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|begin|>", "<|endoftext|>"] if bos else ["<|endoftext|>"]
    tok.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    if bos:
        tok.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", tok.token_to_id("<|begin|>"))]
        )
    return tok


def sentence_pieces(corpus: list[str], prefixed: bool) -> Tokenizer:
    """As Llama's and Gemma's tokenizers: no words, bytes where there is no piece, a beginning of text."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    prefix = [normalizers.Prepend("▁")] if prefixed else []
    tok.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    # Trained on words, for a whole text would become one token.
    learned = Tokenizer(models.BPE(unk_token="<unk>"))
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    learned.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=VOCAB - len(special), special_tokens=["<unk>"], show_progress=False)
    )
    state = json.loads(learned.to_str())["model"]
    pieces = [p for p, _ in sorted(state["vocab"].items(), key=lambda x: x[1]) if p != "<unk>"]
    merges = [tuple(m) for m in state["merges"]]
    tok.model = models.BPE(
        vocab={p: i for i, p in enumerate(special + pieces)}, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tok


# The model of FOLDER; its tokenizer, beginning and end of text.
CASES = {
    "gpt2-plain": (byte_level, None, "<|endoftext|>"),
    "gpt_neox-plain": (byte_level, "<|endoftext|>", "<|endoftext|>"),
    "qwen2-plain": (lambda c: byte_level(c, words=QWEN), None, "<|endoftext|>"),
    "llama-plain": (lambda c: sentence_pieces(c, True), "<s>", "</s>"),
    "llama-llama3": (lambda c: byte_level(c, bos=True), "<|begin|>", "<|endoftext|>"),
    "mistral-window": (lambda c: sentence_pieces(c, True), "<s>", "</s>"),
    "gemma2-plain": (lambda c: sentence_pieces(c, False), "<s>", "</s>"),
    "mixtral-plain": (lambda c: sentence_pieces(c, True), "<s>", "</s>"),
}


def make(root: str, name: str, corpus: list[str]) -> None:
    train, bos, eos = CASES[name]
    torch.manual_seed(zlib.crc32(f"eval-{name}".encode()))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train(corpus), bos_token=bos, eos_token=eos, pad_token=eos)
    with open(os.path.join(root, name, "config.json"), encoding="utf-8") as f:
        given = json.load(f)
    given |= {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id if bos else tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id,
    }
    config = AutoConfig.for_model(**given)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        draw(model)
    folder = os.path.join(root, "eval", name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = AutoTokenizer.from_pretrained(folder)
    if any(loaded.encode(t) != tokenizer.encode(t) for t in corpus):
        raise SystemExit(f"eval/{name}: transformers makes another tokenizer of the files than was written")


class Reference:
    """The measures by their definitions: a row at a time, nothing cached, sums in double."""

    def __init__(self, folder: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.context = self.model.config.max_position_embeddings
        bos = self.tok.bos_token_id
        self.prefix = self.tok.eos_token_id if bos is None else bos

    def log_probability(self, before: list[int], after: list[int]) -> float:
        ids = (before + after)[-(self.context + 1) :]
        logits = self.model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).logits[0, -len(after) :]
        of_each = logits.double().log_softmax(-1).gather(1, torch.tensor(after)[:, None])
        return of_each.sum().item()

    def pair(self, before: str, after: str) -> float:
        if before.rstrip() == "":
            return self.log_probability([self.prefix], self.tok.encode(before + after, add_special_tokens=False))
        blanks = len(before) - len(before.rstrip())
        before, after = before[: len(before) - blanks], before[len(before) - blanks :] + after
        ids, whole = self.tok.encode(before), self.tok.encode(before + after)
        return self.log_probability(ids, whole[len(ids) :])

    def text(self, rows: list[dict]) -> dict:
        words, n_bytes, tokens = 0, 0, 0
        samples = []
        for row in rows:
            total = 0.0
            ids = self.tok.encode(row["text"])
            for at in range(0, len(ids), self.context):
                total += self.log_probability([ids[at - 1] if at else self.prefix], ids[at : at + self.context])
            # The harness's last window reaches back for what fits before it.
            if (short := len(ids) % self.context) and len(ids) > self.context:
                at = len(ids) - short
                total -= self.log_probability([ids[at - 1]], ids[at:])
                total += self.log_probability(ids[len(ids) - self.context - 1 : at], ids[at:])
            words += len(re.split(r"\s+", row["text"]))
            n_bytes += len(row["text"].encode())
            tokens += len(ids)
            samples.append(total)
        total = sum(samples)
        measures = {
            "word_perplexity": math.exp(-total / words),
            "byte_perplexity": math.exp(-total / n_bytes),
            "bits_per_byte": -total / n_bytes / math.log(2),
            "token_perplexity": math.exp(-total / tokens),
        }
        return {"measures": measures, "samples": samples}

    def choices(self, rows: list[dict], shown: list[list[dict]]) -> dict:
        right: dict[str, list[float]] = {"acc": [], "acc_norm": [], "acc_bytes": []}
        samples = []
        for row, examples in zip(rows, shown, strict=True):
            before = "".join(f"{e['question']} {e['choices'][e['answer']]}\n\n" for e in examples) + row["question"]
            said = [self.pair(before, " " + c) for c in row["choices"]]
            samples.append(said)
            for name, size in [("acc", lambda c: 1), ("acc_norm", len), ("acc_bytes", lambda c: len(c.encode()))]:
                scores = [s / size(c) for s, c in zip(said, row["choices"], strict=True)]
                right[name].append(float(scores.index(max(scores)) == row["answer"]))
        return {"measures": with_errors(right), "samples": samples}

    def written(self, prompt: str) -> str:
        ids = self.tok.encode(prompt)[-(self.context - TOKENS) :]
        new: list[int] = []
        while len(new) < TOKENS:
            token = self.model(input_ids=torch.tensor([ids + new]), use_cache=False).logits[0, -1].argmax().item()
            if token == self.tok.eos_token_id:
                break
            new.append(token)
        text = self.tok.decode(new, skip_special_tokens=True)
        for stop in STOPS:
            text = text.split(stop)[0]
        return text


def with_errors(values: dict[str, list[float]]) -> dict[str, float]:
    out = {}
    for name, v in values.items():
        mean = sum(v) / len(v)
        out[name] = mean
        out[name + "_stderr"] = math.sqrt(sum((x - mean) ** 2 for x in v) / (len(v) - 1) / len(v))
    return out


def answers(rnd: random.Random, reference: Reference) -> tuple[list[dict], dict]:
    rows, right, samples = [], [], []
    for i in range(24):
        question = sentence(rnd, 300 if i == 5 else rnd.randint(2, 15)) + ["", "?", "\n"][i % 3]
        written = reference.written(question)
        answer = [written, "something else", ["not this", written], written + "!"][i % 4]
        right.append(float(written in (answer if isinstance(answer, list) else [answer])))
        rows.append({"question": question, "answer": answer})
        samples.append(written)
    return rows, {"measures": with_errors({"exact_match": right}), "samples": samples}


def write_rows(path: str, rows: list[dict]) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def drawn(rows: list[dict], shots: int, seed: int) -> list[list[dict]]:
    """Of the rows themselves, a row never before itself."""
    rnd = random.Random(seed)
    return [[r for r in rnd.sample(rows, shots + 1) if r != row][:shots] for row in rows]


def main(root: str) -> None:
    os.makedirs(os.path.join(root, "eval"), exist_ok=True)
    rnd = random.Random(14)
    documents, questions, shots = texts(rnd), choices(rnd, 40), choices(rnd, 12)
    for name, rows in [("texts", documents), ("choices", questions), ("shots", shots)]:
        write_rows(os.path.join(root, "eval", name + ".jsonl"), rows)
    corpus = [row["text"] for row in documents] + [sentence(rnd, 400)]
    for name in CASES:
        make(root, name, corpus)
        folder = os.path.join(root, "eval", name)
        with torch.no_grad():
            reference = Reference(folder)
            rows, exact = answers(random.Random(15), reference)
            write_rows(os.path.join(folder, "answers.jsonl"), rows)
            expected = {
                "text": reference.text(documents),
                "choices": reference.choices(questions, [[]] * len(questions)),
                "choices-first": reference.choices(questions, [shots[:2]] * len(questions)),
                "choices-drawn": reference.choices(questions, drawn(questions, 3, 1234)),
                "answers": exact,
            }
        with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as f:
            json.dump(expected, f, indent=1)
        bits, said = expected["text"]["measures"]["bits_per_byte"], expected["choices"]["measures"]
        print(f"eval/{name}: {bits:.2f} bits a byte, acc {said['acc']:.3f}, acc_norm {said['acc_norm']:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    main(sys.argv[1])
