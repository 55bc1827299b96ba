"""Makes each FOLDER/<name>/config.json into a random model, and beside it reference.safetensors: what transformers computes.

make_models.py FOLDER [NAME ...]. In f32, by the plain ("eager") attention; the seed is the model's name. The tensors of
reference.safetensors, of a decoder:

tokens [1, T], logits [1, T, vocab]     one text, longer than any window and than what scalings by length begin at
rows, mask [B, T], row_logits           texts of different lengths, padded at the beginning (mask: 1 at tokens)
prompt [1, P], greedy [1, 64]           the likeliest next tokens, one after the other, without a cache
train [B, T], loss, grad.NAME           the mean cross entropy of each token after those before it, its gradients

Of an encoder of text: tokens, mask [B, T] (padded at the ends), types [B, T]; hidden (0 at padding), pooled and logits where
the model has them; of an encoder of images: picture0 [H, W, 3], picture0_pixels and so on, pixels, hidden, pooled and logits,
wide and wide_hidden (another size), masked and masked_hidden; of an encoder-decoder: source (tokens, with mask [B, S], 1 at
tokens; or frames of sound, with sound, whole_sound, silence [n] and the frames of each, and what make_transcripts.py says),
encoded (0 at padding), tokens [B, T], logits, greedy [B, 64] that follow the start token, and what generate() finds with
three beams, which end with eos_token_id and have beams_not_first as begin_suppress_tokens: beams [B, 24], padded with -1,
and their scores beam_scores; of both encoders: pictures, tokens, pixels, text, image (vectors before they get length 1), scores. With weights, loss and
grad.NAME (of a file's tensor NAME): the sum of the last of these times the weights, and its gradients.
"""

import json
import os
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.utils import logging

from make_transcripts import transcripts

GREEDY = 64


def draw(model: torch.nn.Module) -> None:
    """Weights that make logits far from flat, and that no two parameters share by chance."""
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            p.normal_(0, 1.5 / p.shape[-1] ** 0.5 if "embed" not in name and "wte" not in name else 0.7)
        else:
            p.add_(torch.randn_like(p) * 0.2)
        if name.endswith("Attention.q.weight"):  # T5's, whose scores have no scale: it is in these weights
            p.mul_(model.config.d_kv**-0.5)
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
    return out | gradients(model)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Under the names and in the shapes that files have: as weights of the model, which writes them and has its own again."""
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        kept = {name: p.clone() for name, p in model.named_parameters()}
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        model.save_pretrained(folder)
        files = load_file(os.path.join(folder, "model.safetensors"))
        for name, p in model.named_parameters():
            p.copy_(kept[name])
    return {"grad." + name: t for name, t in files.items() if not name.endswith("e_score_correction_bias")}


def with_gradients(model: torch.nn.Module, out: dict[str, torch.Tensor], result: torch.Tensor) -> dict[str, torch.Tensor]:
    weights = torch.randn(result.shape)
    loss = (result * weights).sum()
    loss.backward()
    out = {name: t.detach() for name, t in out.items()} | {"weights": weights, "loss": loss.detach().reshape(1)}
    return out | gradients(model)


def text_encoder(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    lengths = [5, 17, 24]
    mask = torch.tensor([[int(i < n) for i in range(24)] for n in lengths])
    tokens = torch.where(mask == 1, torch.randint(2, model.config.vocab_size, mask.shape), model.config.pad_token_id)
    types = torch.randint(0, getattr(model.config, "type_vocab_size", 1), mask.shape)
    more = {"token_type_ids": types} if hasattr(model.config, "type_vocab_size") else {}
    base = model.base_model(input_ids=tokens, attention_mask=mask, **more)
    out = {"tokens": tokens, "mask": mask, "types": types, "hidden": base.last_hidden_state * mask[:, :, None]}
    result = out["hidden"]
    if getattr(base, "pooler_output", None) is not None:
        out["pooled"] = result = base.pooler_output
    if model is not model.base_model:
        logits = model(input_ids=tokens, attention_mask=mask, **more).logits
        out["logits"] = result = logits * mask[:, :, None] if logits.dim() == 3 else logits
    return with_gradients(model, out, result)


def pictures(folder: str, kind: str, height: int, width: int) -> dict[str, torch.Tensor]:
    """Pictures as the library's own processor of these models prepares them, which goes into the folder; by Pillow, if there."""
    if not transformers.utils.is_vision_available():
        return {}
    if kind == "vit":
        processor = transformers.ViTImageProcessorPil(size={"height": height, "width": width})
    elif kind == "clip":
        processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": height}, crop_size={"height": height, "width": width})
    else:
        processor = transformers.BitImageProcessorPil(
            size={"shortest_edge": min(height, width) + 9},
            crop_size={"height": height, "width": width},
            image_mean=[0.485, 0.456, 0.406],
            image_std=[0.229, 0.224, 0.225],
        )
    processor.save_pretrained(folder)
    out = {}
    for i, (high, wide) in enumerate([(61, 83), (83, 44), (13, 11), (height, width)]):
        waves = torch.sin(torch.arange(high)[:, None, None] * 0.3) * torch.cos(torch.arange(wide)[None, :, None] * 0.2)
        noise = torch.rand(high, wide, 3)
        picture = ((0.6 * noise + 0.2 + 0.2 * waves) * 300 - 20).clamp(0, 255).to(torch.uint8)
        out[f"picture{i}"] = picture
        pixels = processor(picture.numpy(), input_data_format="channels_last", return_tensors="np")["pixel_values"][0]
        out[f"picture{i}_pixels"] = torch.from_numpy(pixels).float()
    return out


def image_encoder(model: torch.nn.Module, folder: str) -> dict[str, torch.Tensor]:
    c = model.config
    height, width = (c.image_size, c.image_size) if isinstance(c.image_size, int) else c.image_size
    prepared = pictures(folder, c.model_type, height, width) if c.num_channels == 3 else {}
    resize = {"interpolate_pos_encoding": True} if c.model_type == "vit" else {}
    pixels = torch.randn(2, c.num_channels, height, width)
    wide = torch.randn(1, c.num_channels, height + c.patch_size, width + 3 * c.patch_size)
    base = model.base_model(pixel_values=pixels)
    out = {"pixels": pixels, "hidden": base.last_hidden_state, "pooled": base.pooler_output, "wide": wide}
    out = {name: t for name, t in out.items() if t is not None} | prepared
    if height == width:
        out["wide_hidden"] = model.base_model(pixel_values=wide, **resize).last_hidden_state
    if getattr(c, "use_mask_token", False):
        out["masked"] = torch.rand(2, height // c.patch_size * (width // c.patch_size)) < 0.4
        out["masked_hidden"] = model.base_model(pixel_values=pixels, bool_masked_pos=out["masked"]).last_hidden_state
        out["masked"] = out["masked"].long()
    result = out["hidden"]
    if model is not model.base_model:
        out["logits"] = result = model(pixel_values=pixels).logits
    return with_gradients(model, out, result)


def pair(model: torch.nn.Module, folder: str) -> dict[str, torch.Tensor]:
    c = model.config
    end = c.text_config.eos_token_id if c.text_config.eos_token_id != 2 else c.text_config.vocab_size - 1
    tokens = torch.randint(3, c.text_config.vocab_size - 1, (3, 12))
    mask = torch.ones_like(tokens)
    for row, n in enumerate([4, 11, 7]):
        tokens[row, n:] = 1
        tokens[row, n] = end
        mask[row, n + 1 :] = 0
    pixels = torch.randn(2, 3, c.vision_config.image_size, c.vision_config.image_size)
    both = model(input_ids=tokens, attention_mask=mask, pixel_values=pixels)
    size = c.vision_config.image_size
    out = {"tokens": tokens, "mask": mask, "pixels": pixels, "scores": both.logits_per_text}
    out |= pictures(folder, "clip", size, size)
    out["text"], out["image"] = both.text_embeds, both.image_embeds
    return with_gradients(model, out, both.logits_per_text)


def sound(model: torch.nn.Module, folder: str) -> dict[str, torch.Tensor]:
    """A second of sound as the library's own settings cut it; these go into the folder."""
    frames = 2 * model.config.max_source_positions
    extractor = transformers.WhisperFeatureExtractor(
        feature_size=model.config.num_mel_bins, hop_length=16000 // frames, chunk_length=1, n_fft=400 if frames == 100 else 512
    )
    extractor.save_pretrained(folder)
    out = {}
    for name, n in {"sound": 12345, "whole_sound": 16000, "silence": 10}.items():
        time = torch.arange(n) / 16000
        out[name] = 0.3 * torch.sin(2000 * time * (1 + time)) + 0.01 * torch.randn(n)
        if name == "silence":
            out[name].zero_()
        out[name + "_frames"] = torch.from_numpy(extractor(out[name].numpy(), sampling_rate=16000).input_features[0])
    state = torch.get_rng_state()
    out |= transcripts(model, extractor, folder)
    torch.set_rng_state(state)  # what is drawn behind it stays what it was
    return out


def encoder_decoder(model: torch.nn.Module, folder: str) -> dict[str, torch.Tensor]:
    """As transformers' generate() would read it, but that no token is kept from being written."""
    c = model.config
    if model.main_input_name == "input_ids":
        lengths = [5, 80, 31]
        mask = torch.tensor([[int(i < n) for i in range(80)] for n in lengths])
        source = torch.randint(2, c.vocab_size, mask.shape) * mask
        out = {"source": source, "mask": mask}
        given = {"input_ids": source, "attention_mask": mask}
    else:
        source = torch.randn(3, c.num_mel_bins, 2 * c.max_source_positions)
        out = {"source": source} | sound(model, folder)
        given = {"input_features": source}
        mask = torch.ones(3, c.max_source_positions)
    tokens = torch.randint(2, c.vocab_size, (3, 72))
    tokens[:, 0] = c.decoder_start_token_id
    both = model(**given, decoder_input_ids=tokens, use_cache=False)
    out |= {"encoded": both.encoder_last_hidden_state * mask[:, :, None], "tokens": tokens, "logits": both.logits}
    written = tokens[:, :1]
    with torch.no_grad():
        for _ in range(GREEDY):
            logits = model(**given, decoder_input_ids=written, use_cache=False).logits
            written = torch.cat([written, logits[:, -1].argmax(1, keepdim=True)], 1)
    out["greedy"] = written[:, 1:]
    not_first = [int(written[0, 1]), int(written[1, 1])]
    found = transformers.GenerationMixin.generate(
        model, **given, num_beams=3, do_sample=False, max_new_tokens=24, begin_suppress_tokens=not_first, length_penalty=0.8,
        use_cache=False, return_dict_in_generate=True, output_scores=True, suppress_tokens=None, forced_decoder_ids=None,
    )
    beams = found.sequences[:, 1:].clone()
    for row in beams:
        ends = (row == c.eos_token_id).nonzero()
        if len(ends) > 0:
            row[ends[0] + 1 :] = -1
    out |= {"beams": beams, "beam_scores": found.sequences_scores, "beams_not_first": torch.tensor(not_first)}
    return with_gradients(model, out, both.logits)


def make(folder: str) -> None:
    torch.manual_seed(zlib.crc32(os.path.basename(folder).encode()))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        given = json.load(f)
    config = AutoConfig.for_model(**given)
    config._attn_implementation = "eager"
    kind = given.get("architectures", [""])[0]
    if kind in ("", config.architectures) or kind.endswith("CausalLM"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    else:
        model = getattr(transformers, kind)(config).float().eval()
    # An output layer of its own, which transformers 5 ties when a model is made new.
    if given.get("model_type") == "t5" and not config.scale_decoder_outputs:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        draw(model)
    if config.is_encoder_decoder:
        reference = encoder_decoder(model, folder)
    elif isinstance(model, transformers.CLIPModel):
        reference = pair(model, folder)
    elif model.main_input_name == "pixel_values":
        reference = image_encoder(model, folder)
    elif "CausalLM" in type(model).__name__ or "LMHead" in type(model).__name__:
        reference = decoder(model, config.vocab_size)
    else:
        reference = text_encoder(model)
    said = reference.get("logits", reference.get("scores", reference.get("hidden")))
    spread = said.std(-1).mean().item()
    if not 0.05 < spread < 50:
        raise SystemExit(f"{folder}: results spread by {spread}, which compares little")
    model.save_pretrained(folder, max_shard_size="64KB" if "plain" in folder else "5GB")
    # The configuration stays as it was given: its spelling is part of what is tested.
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        os.replace(f.name, os.path.join(folder, "config.saved.json"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(given, f, indent=2)
    save_file({name: t.contiguous() for name, t in reference.items()}, os.path.join(folder, "reference.safetensors"))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{os.path.basename(folder)}: {parameters} parameters, results spread by {spread:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    root = sys.argv[1]
    names = sys.argv[2:] or sorted(n for n in os.listdir(root) if os.path.isfile(os.path.join(root, n, "config.json")))
    for name in names:
        make(os.path.join(root, name))
