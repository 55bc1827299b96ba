"""Adapters of the models that make_models.py made, written and read by PEFT.

make_adapters.py FOLDER [NAME ...]          FOLDER/<name>/adapter-<kind>: a folder of PEFT's with expected.safetensors, the
                                            logits [1, T, vocab] of the adapted model for `tokens` of reference.safetensors
make_adapters.py --check FOLDER [NAME ...]  reads what the tests wrote, FOLDER/<name>/adapter-<kind>-again (PEFT's, read and
                                            written by us) and -ours (made by us), and compares: no key missing or
                                            unexpected, the same logits
"""

import json
import os
import sys
import zlib

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import set_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from compare_logits import compare, logits_of

KINDS = {
    "lora": {"r": 4, "lora_alpha": 6},
    "rslora": {"r": 3, "lora_alpha": 5, "use_rslora": True, "lora_dropout": 0.1},
    "dora": {"r": 2, "lora_alpha": 4, "use_dora": True},
}
# Of models with experts, whose weights are one parameter for all of them. "each" is a folder as it was made with
# transformers 4, which has a module for each expert.
EXPERT_KINDS = {
    "lora": {"r": 4, "lora_alpha": 6, "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
    "rslora": {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_parameters": ["experts.down_proj"]},
    "dora": {"r": 2, "lora_alpha": 4, "use_dora": True},
    "each": {"r": 3, "lora_alpha": 4},
}


def has_experts(folder: str) -> bool:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return any("expert" in key for key in json.load(f))


def kinds(folder: str) -> dict:
    return EXPERT_KINDS if has_experts(folder) else KINDS


def base(folder: str) -> torch.nn.Module:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = AutoConfig.for_model(**json.load(f))
    # The folder's config.json has no line for each key that transformers writes.
    return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()


def logits(model: torch.nn.Module, folder: str) -> torch.Tensor:
    return logits_of(model, load_file(os.path.join(folder, "reference.safetensors"))["tokens"])


def is_decoder(folder: str) -> bool:
    """A model that predicts the next token, as transformers computed it: adapters are compared by its logits."""
    reference = os.path.join(folder, "reference.safetensors")
    if not os.path.isfile(reference):
        return False
    with safe_open(reference, "pt") as tensors:
        return "greedy" in tensors.keys() and "encoded" not in tensors.keys()  # decoders alone


def linear_maps(model: torch.nn.Module, experts: bool) -> list[str]:
    """The maps that are adapted. Of models with experts those of attention: PEFT takes gate_proj, up_proj and down_proj of any
    of their layers, and of shared experts, for those of experts (peft.utils.transformers_weight_conversion)."""
    kinds = ("Linear", "Conv1D")
    names = [n for n, m in model.named_modules() if type(m).__name__ in kinds and "head" not in n and "embed_out" not in n]
    return [n for n in names if "self_attn" in n] if experts else names


def make_each(folder: str, target: str, options: dict) -> None:
    """An adapter of transformers 4, its tensors by the base's, which has a matrix for each expert."""
    files = [f for f in sorted(os.listdir(folder)) if f.startswith("model") and f.endswith(".safetensors")]
    weights = {name: t for f in files for name, t in load_file(os.path.join(folder, f)).items()}
    modules = [n.removesuffix(".weight") for n, w in weights.items() if w.dim() == 2 and (".experts." in n or n.endswith("o_proj.weight"))]
    tensors = {}
    for module in sorted(modules):
        out, columns = weights[module + ".weight"].shape
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(options["r"], columns) / columns**0.5
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(out, options["r"]) * 0.3
    os.makedirs(target, exist_ok=True)
    save_file(tensors, os.path.join(target, "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "target_modules": sorted({m.rsplit(".", 1)[1] for m in modules})}
    with open(os.path.join(target, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(config | options, f)


def make(folder: str) -> None:
    for kind, options in kinds(folder).items():
        torch.manual_seed(zlib.crc32((os.path.basename(folder) + kind).encode()))
        model = base(folder)
        target = os.path.join(folder, "adapter-" + kind)
        if kind == "each":
            make_each(folder, target, options)
            adapted = PeftModel.from_pretrained(model, target).eval()
            save_file({"logits": logits(adapted, folder).contiguous()}, os.path.join(target, "expected.safetensors"))
            continue
        names = linear_maps(model, has_experts(folder))
        adapted = get_peft_model(model, LoraConfig(target_modules=names, rank_pattern={"^" + names[0]: 1}, **options)).eval()
        with torch.no_grad():
            for name, p in adapted.named_parameters():
                if "lora_B" in name:
                    p.normal_(0, 0.3)
                elif "magnitude" in name:
                    p.mul_(torch.empty_like(p).uniform_(0.7, 1.4))
        adapted.save_pretrained(target)
        save_file({"logits": logits(adapted, folder).contiguous()}, os.path.join(target, "expected.safetensors"))
    print(f"{os.path.basename(folder)}: adapters of {len(names)} maps")


def check(folder: str) -> None:
    for kind in kinds(folder):
        theirs = os.path.join(folder, "adapter-" + kind)
        again, made = theirs + "-again", theirs + "-ours"
        # What we read and wrote again computes what PEFT computed; what we made, what we computed.
        for ours, computed, most in ((again, theirs, 1e-5), (made, made, 1e-4)):
            if not os.path.isdir(ours):
                raise SystemExit(f"{ours} is not there: test_models writes it (scripts/test -R models)")
            model = PeftModel.from_pretrained(base(folder), ours).eval()
            result = set_peft_model_state_dict(model, load_file(os.path.join(ours, "adapter_model.safetensors")))
            missing = [k for k in result.missing_keys if "lora_" in k]
            if missing or result.unexpected_keys:
                raise SystemExit(f"{ours}: missing {missing}, unexpected {result.unexpected_keys}")
            want = load_file(os.path.join(computed, "expected.safetensors"))["logits"]
            compare(ours, logits(model, folder), want, most)
    print(f"{os.path.basename(folder)}: PEFT reads ours")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    root = arguments[0]
    names = arguments[1:] or sorted(n for n in os.listdir(root) if is_decoder(os.path.join(root, n)))
    if not names:
        raise SystemExit(f"{root} has no models: scripts/make-models writes them")
    for name in names:
        (check if "--check" in sys.argv else make)(os.path.join(root, name))
