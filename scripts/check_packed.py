"""Low-bit folders that the tests wrote (FOLDER/packed-<number>), read by transformers: no key missing or unexpected, and the
logits of expected.safetensors for its tokens.

check_packed.py FOLDER
"""

import json
import os
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from compare_logits import compare, logits_of


def check(folder: str) -> None:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        quantization = json.load(f)["quantization_config"]
    name = f"{os.path.basename(folder)} ({quantization['quant_method']} {quantization.get('format', '')})"
    if quantization["quant_method"] != "compressed-tensors":
        print(f"{name}: of a library that is not asked")
        return
    if not next(iter(quantization["config_groups"].values()))["weights"]["symmetric"]:
        # compressed-tensors packs zero points, transformers 5.24 has a place for plain ones alone.
        print(f"{name}: zero points are not read by this version of transformers")
        return
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        raise SystemExit(f"{name}: {wrong}")
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    off = compare(name, logits_of(model.eval(), expected["tokens"]), expected["logits"], 1e-3)
    print(f"{name}: logits off by {off:.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    root = sys.argv[1]
    names = sorted(n for n in os.listdir(root) if n.startswith("packed-"))
    if not names:
        raise SystemExit(f"{root} has no packed-*: test_models writes them (scripts/test -R models)")
    for one in names:
        check(os.path.join(root, one))
