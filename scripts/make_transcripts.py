"""What transformers writes for sound of more than a minute, with times: read by make_models.py for each model of sound.

Tensors for reference.safetensors, for each NAME of CASES: NAME_sound [n], NAME_tokens [all], NAME_counts [parts] (how many
tokens each part has), NAME_times [parts, 2] in seconds, and where the case has them NAME_thresholds [3] (compression_ratio,
logprob, no_speech; NaN: none), NAME_judged [windows, 3] (the numbers that were compared with them, of all that was
written), NAME_token_times [all]. language [1] is the likeliest for "long". The settings go into the folder as
transcripts_generation_config.json.
"""

import contextlib
import copy
import json
import os

import torch
import transformers
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin, WhisperNoSpeechDetection

PROMPT = [43, 7, 9, 11, 8]
# A name, seconds of sound, what generate() is told. Of thresholds "middle" is such that some windows pass and some do not.
CASES = (
    ("long", 71.3, {}),
    ("loud_end", 3.4, {}),
    ("beams", 5.2, {"num_beams": 3}),
    ("earlier", 5.7, {"condition_on_prev_tokens": True}),
    ("prompt", 3.9, {"prompt_ids": PROMPT}),
    ("prompt_first", 5.7, {"prompt_ids": PROMPT, "condition_on_prev_tokens": True}),
    ("prompt_all", 5.7, {"prompt_ids": PROMPT, "condition_on_prev_tokens": True, "prompt_condition_type": "all-segments"}),
    # Of one token to draw from, a text at a temperature is the likeliest, too; but the next does not see it.
    ("unlikely", 7.7, {"condition_on_prev_tokens": True, "temperature": (0.0, 0.7), "top_k": 1, "logprob_threshold": "middle"}),
    ("repeating", 7.7, {"condition_on_prev_tokens": True, "temperature": (0.0, 0.7), "top_k": 1,
                         "compression_ratio_threshold": "middle", "logprob_threshold": -100.0}),
    ("silent", 7.7, {"temperature": (0.0,), "logprob_threshold": 0.0, "no_speech_threshold": "middle"}),
    # Of beams no text is written anew: transformers searches for none any more once it drew.
    ("beams_judged", 4.3, {"temperature": (0.0,), "num_beams": 3, "logprob_threshold": -100.0}),
    ("words", 7.3, {"return_token_timestamps": True, "condition_on_prev_tokens": True}),
    ("beams_words", 3.3, {"return_token_timestamps": True, "num_beams": 3, "condition_on_prev_tokens": True}),
)
THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
NEVER = {"compression_ratio_threshold": 1e9, "logprob_threshold": -1e9, "no_speech_threshold": 2.0}


@contextlib.contextmanager
def noted():
    """The numbers that thresholds are compared with, of every text that is written."""
    rows = []
    ratio, mean = WhisperGenerationMixin._retrieve_compression_ratio, WhisperGenerationMixin._retrieve_avg_logprobs
    need = WhisperGenerationMixin._need_fallback

    def judged(self, sequence, outputs, index, processors, *rest):
        silent = [p.no_speech_prob for p in processors if isinstance(p, WhisperNoSpeechDetection)]
        temperature = rest[-1] or 0
        given = outputs[index] if isinstance(outputs[index], dict) else {}  # where nobody asks for scores: ids alone
        logprob = float(mean(given["scores"], sequence, temperature)) if "scores" in given else float("nan")
        rows.append([ratio(sequence, rest[1]), logprob, float(silent[0][index]) if silent else float("nan")])
        return need(self, sequence, outputs, index, processors, *rest)

    WhisperGenerationMixin._need_fallback = judged
    try:
        yield rows
    finally:
        WhisperGenerationMixin._need_fallback = need


def transcripts(model: torch.nn.Module, extractor: transformers.WhisperFeatureExtractor, folder: str) -> dict[str, torch.Tensor]:
    # Ids up to 36 are text, 37 ends one, 45 to 95 are times: those of the second that a window has.
    settings = {
        "decoder_start_token_id": 40, "eos_token_id": 37, "pad_token_id": 37, "bos_token_id": 37,
        "lang_to_id": {"<|de|>": 41, "<|en|>": 42}, "task_to_id": {"transcribe": 38, "translate": 39},
        "no_timestamps_token_id": 44, "suppress_tokens": [3, 38, 39, 40, 41, 42, 43], "begin_suppress_tokens": [5, 37],
        "max_initial_timestamp_index": 20, "max_length": model.config.max_target_positions, "is_multilingual": True,
        "prev_sot_token_id": PROMPT[0],
        "alignment_heads": [[layer, head] for layer in range(model.config.decoder_layers) for head in (0, 2)],
    }
    with open(os.path.join(folder, "transcripts_generation_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=2)
    kept = model.generation_config, copy.deepcopy(model.config)
    frame = extractor.hop_length / 16000

    def generate(features: torch.Tensor, options: dict) -> dict:
        model.generation_config = transformers.GenerationConfig(**copy.deepcopy(settings))
        options = dict(options)
        if "prompt_ids" in options:
            options["prompt_ids"] = torch.tensor(options["prompt_ids"])
        return model.generate(
            features, return_timestamps=True, return_segments=True, language="de", task="transcribe",
            attention_mask=torch.ones(1, features.shape[-1], dtype=torch.long),
            time_precision=2 * frame, time_precision_features=frame, **options,
        )

    out = {}
    for name, seconds, options in CASES:
        time = torch.arange(int(seconds * 16000)) / 16000
        wave = torch.sin(2000 * time * (1 + 0.01 * time)) * torch.sin(1.7 * time) ** 2
        sound = 0.3 * wave + 0.02 * torch.randn(len(time))
        if name == "loud_end":
            sound[: 2 * 16000] *= 0.001
        features = extractor(sound.numpy(), sampling_rate=16000, truncation=False, padding=False, return_tensors="pt").input_features
        options = dict(options)
        middle = [key for key in THRESHOLDS if options.get(key) == "middle"]
        if middle:
            with noted() as rows:
                generate(features, options | {key: NEVER[key] for key in middle})
            column = THRESHOLDS.index(middle[0])
            values = sorted({row[column] for row in rows})
            for share in (0.5, 0.75, 0.25, 0.9, 0.1):
                at = min(max(1, round(share * len(values))), len(values) - 1)
                options[middle[0]] = (values[at - 1] + values[at]) / 2
                with noted() as rows:
                    generate(features, options)
                if len({row[column] > options[middle[0]] for row in rows if row[1] != 0}) == 2:
                    break
            else:
                raise SystemExit(f"{folder}: {name}: no threshold divides the windows")
        with noted() as rows:
            result = generate(features, options)
        parts = result["segments"][0]
        out[name + "_sound"] = sound
        out[name + "_tokens"] = torch.cat([part["tokens"] for part in parts])
        out[name + "_counts"] = torch.tensor([len(part["tokens"]) for part in parts])
        out[name + "_times"] = torch.tensor([[float(part["start"]), float(part["end"])] for part in parts], dtype=torch.float64)
        if any(key in options for key in THRESHOLDS):
            out[name + "_thresholds"] = torch.tensor([options.get(key, float("nan")) for key in THRESHOLDS], dtype=torch.float64)
            out[name + "_judged"] = torch.tensor(rows, dtype=torch.float64)
        if "return_token_timestamps" in options:
            # In the library's own 0.02 s a place, from the window's beginning; to seconds of this model's.
            scale = 2 * frame / 0.02
            times = []
            for part in parts:
                begin, end = part["idxs"]
                own = part["result"]["token_timestamps"][begin:end].double()
                offset = part["token_timestamps"].double() - own
                times.append(own * scale + offset)
            out[name + "_token_times"] = torch.cat(times)
        if name == "long":
            out["language"] = model.detect_language(
                features[:, :, : extractor.nb_max_frames], generation_config=model.generation_config)
    model.generation_config, model.config = kept
    return out
