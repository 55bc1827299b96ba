#!/usr/bin/env python3
"""Writes peft_cases.json, what peft_test.cpp reads: small linear maps with adapters, and what PEFT makes of an input.

  python3 make_peft_cases.py > peft_cases.json      (needs torch, transformers and peft)"""
import json
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers.pytorch_utils import Conv1D


def table(t):
    return {"shape": list(t.shape), "values": [float(f"{v:.9g}") for v in t.detach().float().flatten().tolist()]}


def case(name, bias=True, fan_in=5, fan_out=4, transposed=False, **options):
    torch.manual_seed(7)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = Conv1D(fan_out, fan_in) if transposed else torch.nn.Linear(fan_in, fan_out, bias=bias)

        def forward(self, x):
            return self.proj(x)

    net = Net()
    weight, b = net.proj.weight.detach().clone(), net.proj.bias.detach().clone() if bias else None
    adapted = get_peft_model(net, LoraConfig(target_modules=["proj"], **options)).eval()
    with torch.no_grad():
        for key, p in adapted.named_parameters():
            if "lora_B" in key:
                p.normal_()
            if "magnitude" in key:
                p.uniform_(0.5, 2)
    x = torch.randn(3, fan_in)
    y = adapted(x)
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        with open(folder + "/adapter_config.json") as f:
            config = json.load(f)
        tensors = load_file(folder + "/adapter_model.safetensors")
    merged = adapted.merge_and_unload().proj.weight
    row = {"name": name, "config": config, "tensors": {k: table(t) for k, t in sorted(tensors.items())},
           "weight": table(weight), "x": table(x), "y": table(y), "merged": table(merged)}
    if bias:
        row["bias"] = table(b)
    return row


CASES = [
    case("lora", r=2, lora_alpha=4),
    case("lora without a bias, gaussian", bias=False, r=3, lora_alpha=1, init_lora_weights="gaussian"),
    case("rslora", r=4, lora_alpha=3, use_rslora=True),
    case("dora", r=2, lora_alpha=4, use_dora=True),
    case("dora without a bias", bias=False, r=1, lora_alpha=5, use_dora=True),
    case("dora, rslora, dropout that evaluation does not have", r=3, lora_alpha=2, use_dora=True, use_rslora=True, lora_dropout=0.25),
    case("a map whose weight is [in, out]", transposed=True, fan_out=5, r=2, lora_alpha=4, use_dora=True),
    case("a rank over both sizes", fan_in=2, fan_out=3, r=4, lora_alpha=4),
]
print(json.dumps(CASES, separators=(",", ":")))
