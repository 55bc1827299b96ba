"""Makes each FOLDER/<name>/config.json into a random model, and beside it reference.safetensors: what transformers computes.

make_models.py FOLDER [NAME ...]. In f32, by the plain ("eager") attention; the seed is the model's name. The tensors of
reference.safetensors, of a decoder:

tokens [1, T], logits [1, T, vocab]     one text, longer than any window and than what scalings by length begin at
rows, mask [B, T], row_logits           texts of different lengths, padded at the beginning (mask: 1 at tokens)
prompt [1, P], greedy [1, 64]           the likeliest next tokens, one after the other, without a cache
train [B, T], loss, grad.NAME           the mean cross entropy of each token after those before it, its gradients
"""

import json
import os
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

GREEDY = 64


def draw(model: torch.nn.Module) -> None:
    """Weights that make logits far from flat, and that no two parameters share by chance."""
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            p.normal_(0, 1.5 / p.shape[-1] ** 0.5 if "embed" not in name and "wte" not in name else 0.7)
        else:
            p.add_(torch.randn_like(p) * 0.2)
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.normal_(0, 0.2)


def decoder(model: torch.nn.Module, vocab: int) -> dict[str, torch.Tensor]:
    def logits(tokens: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return model(input_ids=tokens, use_cache=False, **more).logits.float()

    def text(rows: int, length: int) -> torch.Tensor:
        return torch.randint(1, vocab, (rows, length))

    tokens = text(1, 48)
    lengths = [5, 24, 17]
    mask = torch.tensor([[int(i >= 24 - n) for i in range(24)] for n in lengths])
    rows = text(len(lengths), 24) * mask
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    prompt = text(1, 8)
    written = prompt
    with torch.no_grad():
        out = {
            "tokens": tokens,
            "logits": logits(tokens),
            "rows": rows,
            "mask": mask,
            "row_logits": logits(rows, attention_mask=mask, position_ids=positions) * mask[:, :, None],
        }
        for _ in range(GREEDY):
            written = torch.cat([written, logits(written)[:, -1].argmax(1, keepdim=True)], 1)
    train = text(2, 20)
    loss = torch.nn.functional.cross_entropy(logits(train)[:, :-1].flatten(0, 1), train[:, 1:].flatten())
    loss.backward()
    out |= {"prompt": prompt, "greedy": written[:, prompt.shape[1] :], "train": train, "loss": loss.detach().reshape(1)}
    return out


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Under the names and in the shapes that the model's files have: a copy of it, whose weights are the gradients."""
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for p in model.parameters():
            p.copy_(p.grad)
        model.save_pretrained(folder)
        files = load_file(os.path.join(folder, "model.safetensors"))
    return {"grad." + name: t for name, t in files.items() if not name.endswith("e_score_correction_bias")}


def make(folder: str) -> None:
    torch.manual_seed(zlib.crc32(os.path.basename(folder).encode()))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        given = json.load(f)
    config = AutoConfig.for_model(**given)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        draw(model)
    reference = decoder(model, config.vocab_size)
    spread = reference["logits"].std(-1).mean().item()
    if not 0.5 < spread < 50:
        raise SystemExit(f"{folder}: logits spread by {spread}, which compares little")
    model.save_pretrained(folder, max_shard_size="64KB" if "plain" in folder else "5GB")
    # The configuration stays as it was given: its spelling is part of what is tested.
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        os.replace(f.name, os.path.join(folder, "config.saved.json"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(given, f, indent=2)
    reference |= gradients(model)
    save_file({name: t.contiguous() for name, t in reference.items()}, os.path.join(folder, "reference.safetensors"))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{os.path.basename(folder)}: {parameters} parameters, logits spread by {spread:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    root = sys.argv[1]
    names = sys.argv[2:] or sorted(n for n in os.listdir(root) if os.path.isfile(os.path.join(root, n, "config.json")))
    for name in names:
        make(os.path.join(root, name))
