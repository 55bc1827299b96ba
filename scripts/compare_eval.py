"""strata eval beside lm-evaluation-harness: the same models, the same files, one table.

compare_eval.py FOLDER STRATA [--speed DIR]. FOLDER is make_eval_cases.py's (FOLDER/eval), STRATA the command; wants lm_eval,
datasets, torch and transformers. Exits 1 where a measure differs by more than 1e-3 (of perplexities their logarithm, per word,
byte or token) or a log-probability by more than 1e-3 of its own size. --speed writes a larger random model into DIR and times
both on it, in turns.
"""

import argparse
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import tempfile
import time

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TASKS = {
    "text": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "choices": """
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
""",
    "answers": """
output_type: generate_until
doc_to_text: question
doc_to_target: answer
generation_kwargs: {until: ["\\n\\n", "."], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}
FIRST = "num_fewshot: 2\nfewshot_split: train\nfewshot_config: {sampler: first_n}\n"
DRAWN = "num_fewshot: 3\nfewshot_split: test\n"


def rows_of(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def write_task(folder: str, name: str, body: str, files: dict[str, str]) -> None:
    files = {split: os.path.abspath(path) for split, path in files.items()}
    splits = "test_split: test\n" + ("training_split: train\n" if "train" in files else "")
    with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:
        f.write(f"task: {name}\ndataset_path: json\ndataset_kwargs: {json.dumps({'data_files': files})}\n{splits}{body}")


def harness(folder: str, root: str, model: str, batch: int) -> dict:
    """Of each kind its measures, and its samples' log-probabilities or texts."""
    at = {name: os.path.join(root, name + ".jsonl") for name in ("texts", "choices", "shots")}
    # One answer a row: lists of some rows alone are no column of Arrow's.
    answers = rows_of(os.path.join(model, "answers.jsonl"))
    flat = os.path.join(folder, "answers.jsonl")
    with open(flat, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r | {"answer": one_answer(r)}, ensure_ascii=False) + "\n" for r in answers)
    write_task(folder, "text", TASKS["text"], {"test": at["texts"]})
    write_task(folder, "choices", TASKS["choices"], {"test": at["choices"]})
    write_task(folder, "choices-first", TASKS["choices"] + FIRST, {"test": at["choices"], "train": at["shots"]})
    write_task(folder, "choices-drawn", TASKS["choices"] + DRAWN, {"test": at["choices"]})
    write_task(folder, "answers", TASKS["answers"], {"test": flat})
    kinds = ["text", "choices", "choices-first", "choices-drawn", "answers"]
    out = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": model, "dtype": "float32"},
        tasks=kinds,
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        batch_size=batch,
        device="cpu",
        log_samples=True,
        bootstrap_iters=0,
    )
    results = {}
    for kind in kinds:
        measures = {}
        for key, v in out["results"][kind].items():
            name, _, of = key.partition(",")
            if of == "none" and isinstance(v, float):
                measures[name] = v
        samples = []
        for s in sorted(out["samples"][kind], key=lambda s: s["doc_id"]):
            said = s["resps"]
            if kind == "text":
                samples.append([said[0][0]])
            else:
                samples.append(said[0][0] if kind == "answers" else [float(r[0][0]) for r in said])
        results[kind] = {"measures": measures, "samples": samples}
    return results


def one_answer(row: dict) -> str:
    return row["answer"] if isinstance(row["answer"], str) else row["answer"][-1]


def ours(strata: str, folder: str, root: str, model: str, batch: int) -> dict:
    def run(*arguments: str) -> dict:
        out = os.path.join(folder, "out.json")
        command = [strata, "eval", "--model", model, "--batch", str(batch), "--quiet", "--samples", "--json", out, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as f:
            return json.load(f)["results"]

    questions, shots = os.path.join(root, "choices.jsonl"), os.path.join(root, "shots.jsonl")
    stops = ["--tokens", "12", "--stop", "\n\n", "--stop", "."]
    found = run("--text", os.path.join(root, "texts.jsonl"), "--choices", questions)
    found |= run("--answers", os.path.join(folder, "answers.jsonl"), *stops)
    found["choices-first"] = run("--choices", questions, "--shots", "2", "--shots-from", shots)["choices"]
    found["choices-drawn"] = run("--choices", questions, "--shots", "3", "--shots-seed", "1234")["choices"]
    results = {}
    for kind, r in found.items():
        measures = {}
        for name, m in r["measures"].items():
            measures[name] = m["value"]
            if m["error"] is not None:
                measures[name + "_stderr"] = m["error"]
        results[kind] = {
            "measures": measures,
            "samples": [s["written"] if kind == "answers" else s["log_probabilities"] for s in r["samples"]],
        }
    return results


def gap(name: str, a: float, b: float) -> float:
    return abs(math.log(a) - math.log(b)) if name.endswith("perplexity") else abs(a - b)


def compare(strata: str, root: str) -> bool:
    """The table; whether all of it is near enough."""
    print("| model | measure | lm-evaluation-harness | strata eval | difference |\n|---|---|---|---|---|")
    good, count, worst, largest, texts, equal = True, 0, 0.0, 0.0, 0, 0
    for name in sorted(os.listdir(root)):
        model = os.path.join(root, name)
        if not os.path.exists(os.path.join(model, "expected.json")):
            continue
        with tempfile.TemporaryDirectory() as folder:
            theirs = harness(folder, root, model, batch=4)
            mine = ours(strata, folder, root, model, batch=4)
        for kind, t in theirs.items():
            for measure, v in t["measures"].items():
                d = gap(measure, v, mine[kind]["measures"][measure])
                good &= d <= 1e-3
                worst = max(worst, d)
                count += 1
                if not measure.endswith("_stderr"):
                    print(f"| {name} | {kind}: {measure} | {v:.8g} | {mine[kind]['measures'][measure]:.8g} | {d:.1e} |")
            for a, b in zip(t["samples"], mine[kind]["samples"], strict=True):
                if isinstance(a, str):
                    texts += 1
                    equal += a == b
                else:
                    for x, y in zip(a, b, strict=True):
                        largest = max(largest, abs(x - y) / max(1.0, abs(x)))
    print(f"\n{count} measures, standard errors among them: the largest difference {worst:.1e} (of perplexities their logarithms).")
    print(f"Log-probabilities of texts and choices: the largest difference {largest:.1e} of their own size.")
    print(f"Texts that were written: {equal} of {texts} the same.")
    return good and largest <= 1e-3 and equal == texts


def speed(strata: str, root: str, folder: str) -> None:
    """A Llama of some 25 million parameters over the same files, in turns; tokens that were read, by the wall clock."""
    given = os.path.join(root, "llama-llama3")
    tokenizer = AutoTokenizer.from_pretrained(given)
    config = AutoConfig.from_pretrained(given)
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 512, 1376, 8
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 8, 4, 64
    config.max_position_embeddings = 512
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    texts, questions = rows_of(os.path.join(root, "texts.jsonl")), rows_of(os.path.join(root, "choices.jsonl"))
    parameters = sum(p.numel() for p in model.parameters())
    del model
    text_file, choice_file = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "choices.jsonl")
    with open(text_file, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": r["text"] + f" {i}"}) + "\n" for i in range(3) for r in texts)
    with open(choice_file, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r | {"question": f"{i} " + r["question"]}) + "\n" for i in range(3) for r in questions)
    tokens = sum(len(tokenizer.encode(r["text"])) for r in rows_of(text_file))
    write_task(folder, "text", TASKS["text"], {"test": text_file})
    write_task(folder, "choices", TASKS["choices"], {"test": choice_file})
    manager = TaskManager(include_path=folder, include_defaults=False)
    lm = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=8)
    out = os.path.join(folder, "out.json")
    times: dict[str, list[tuple[float, float]]] = {"text": [], "choices": []}
    for kind, file in [("text", text_file), ("choices", choice_file)]:
        for _ in range(3):
            begin = time.perf_counter()
            theirs = lm_eval.simple_evaluate(model=lm, tasks=[kind], task_manager=manager, bootstrap_iters=0)
            harness_s = time.perf_counter() - begin
            command = [strata, "eval", "--model", folder, "--" + kind, file, "--quiet", "--json", out]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with open(out, encoding="utf-8") as f:
                mine = json.load(f)["results"][kind]
            times[kind].append((harness_s, mine["seconds"]))
            name = "bits_per_byte" if kind == "text" else "acc"
            assert gap(name, theirs["results"][kind][name + ",none"], mine["measures"][name]["value"]) < 1e-3
    print(f"\nLlama's shape, {parameters / 1e6:.1f}M parameters, f32, {torch.get_num_threads()} threads, batches of 8, the best of 3 "
          "in turns, both without loading the model:\n")
    print("| work | lm-evaluation-harness | strata eval | |\n|---|---|---|---|")
    for kind, pairs in times.items():
        a, b = min(p[0] for p in pairs), min(p[1] for p in pairs)
        if kind == "text":
            print(f"| {tokens} tokens of text | {tokens / a:,.0f} tokens/s | {tokens / b:,.0f} tokens/s | {a / b:.2f} times |")
        else:
            n = len(questions) * 3
            print(f"| {n} questions with choices | {n / a:.1f} a second | {n / b:.1f} a second | {a / b:.2f} times |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("strata")
    parser.add_argument("--speed")
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    versions = [f"{p} {importlib.metadata.version(p)}" for p in ("lm_eval", "transformers", "torch")]
    print(", ".join(versions) + "\n")
    cases = os.path.join(given.folder, "eval")
    near = compare(given.strata, cases)
    if given.speed:
        os.makedirs(given.speed, exist_ok=True)
        speed(given.strata, cases, given.speed)
    sys.exit(0 if near else 1)
