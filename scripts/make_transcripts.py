"""What transformers writes for sound of more than a minute, with times: read by make_models.py for each model of sound.

Tensors for reference.safetensors, for each NAME of "long" (71.3 s), "loud_end" (3.4 s, of which the last are not silent) and
"beams" (with three beams): NAME_sound [n], NAME_tokens [all], NAME_counts [parts] (how many tokens each part has), NAME_times
[parts, 2] in seconds. The settings go into the folder as transcripts_generation_config.json.
"""

import copy
import json
import os

import torch
import transformers


def transcripts(model: torch.nn.Module, extractor: transformers.WhisperFeatureExtractor, folder: str) -> dict[str, torch.Tensor]:
    # Ids up to 36 are text, 37 ends one, 45 to 95 are times: those of the second that a window has.
    settings = {
        "decoder_start_token_id": 40, "eos_token_id": 37, "pad_token_id": 37, "bos_token_id": 37,
        "lang_to_id": {"<|de|>": 41, "<|en|>": 42}, "task_to_id": {"transcribe": 38, "translate": 39},
        "no_timestamps_token_id": 44, "suppress_tokens": [3, 38, 39, 40, 41, 42, 43], "begin_suppress_tokens": [5, 37],
        "max_initial_timestamp_index": 20, "max_length": model.config.max_target_positions, "is_multilingual": True,
    }
    with open(os.path.join(folder, "transcripts_generation_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=2)
    kept = model.generation_config, copy.deepcopy(model.config)
    out = {}
    for name, seconds, beams in (("long", 71.3, 1), ("loud_end", 3.4, 1), ("beams", 5.2, 3)):
        time = torch.arange(int(seconds * 16000)) / 16000
        wave = torch.sin(2000 * time * (1 + 0.01 * time)) * torch.sin(1.7 * time) ** 2
        sound = 0.3 * wave + 0.02 * torch.randn(len(time))
        if name == "loud_end":
            sound[: 2 * 16000] *= 0.001
        features = extractor(sound.numpy(), sampling_rate=16000, truncation=False, padding=False, return_tensors="pt").input_features
        model.generation_config = transformers.GenerationConfig(**copy.deepcopy(settings))
        result = model.generate(
            features, return_timestamps=True, return_segments=True, language="de", task="transcribe", num_beams=beams,
            time_precision=2 * extractor.hop_length / 16000, time_precision_features=extractor.hop_length / 16000,
        )
        parts = result["segments"][0]
        out[name + "_sound"] = sound
        out[name + "_tokens"] = torch.cat([part["tokens"] for part in parts])
        out[name + "_counts"] = torch.tensor([len(part["tokens"]) for part in parts])
        out[name + "_times"] = torch.tensor([[float(part["start"]), float(part["end"])] for part in parts], dtype=torch.float64)
    model.generation_config, model.config = kept
    return out
