#!/usr/bin/env python3
"""Writes cases.jsonl, what generate_test.cpp compares: texts that transformers writes with a small model whose weights
are a formula.

  python3 make_cases.py > cases.jsonl      (needs transformers)"""
import json
import math

import torch
import transformers

VOCAB, DIM, WIDTH, LAYERS, CONTEXT = 24, 16, 32, 2, 64


def weight(shape, salt):
    n = math.prod(shape)
    return torch.tensor([0.7 * math.sin(12.9898 * i + 78.233 * salt) for i in range(n)],
                        dtype=torch.float64).to(torch.float32).reshape(shape)


model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=VOCAB, hidden_size=DIM, intermediate_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
    eos_token_id=None, bos_token_id=None)).eval()
with torch.no_grad():
    model.model.embed_tokens.weight.copy_(weight((VOCAB, DIM), 1))
    model.lm_head.weight.copy_(weight((VOCAB, DIM), 2))
    for n, layer in enumerate(model.model.layers):
        for k, linear in enumerate([layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj,
                                    layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj,
                                    layer.mlp.down_proj]):
            linear.weight.copy_(weight(tuple(linear.weight.shape), 10 * n + 11 + k))

PROMPTS = [[3], [1, 2, 3, 4, 5], [7, 7, 0, 23, 11, 2, 19, 5, 1], [20, 4]]
OPTIONS = [
    {"max_new_tokens": 12},
    {"max_length": 14},
    {"max_new_tokens": 15, "repetition_penalty": 1.3},
    {"max_new_tokens": 15, "repetition_penalty": 0.8, "suppress_tokens": [3, 9, 17]},
    {"max_new_tokens": 20, "eos_token_id": [5, 11, 2]},
    {"max_new_tokens": 20, "eos_token_id": [5, 11, 2], "min_new_tokens": 7},
    {"max_new_tokens": 20, "eos_token_id": [5, 11, 2], "min_length": 9},
    {"max_new_tokens": 10, "bad_words_ids": [[0], [8], [13]], "sequence_bias": [[[4], 2.5], [[6], -3.0]]},
]
for beams in [2, 4]:
    for stops in [None, [5, 11, 2], [5, 11, 2, 9, 14, 20]]:
        for length_penalty, early in [(1.0, False), (0.0, "never"), (2.0, True), (-1.0, False), (1.5, "never"),
                                      (-0.5, True)]:
            OPTIONS.append({"max_new_tokens": 10, "num_beams": beams, "num_return_sequences": min(beams, 3),
                            "length_penalty": length_penalty, "early_stopping": early,
                            **({"eos_token_id": stops} if stops else {})})
OPTIONS += [
    {"max_new_tokens": 9, "num_beams": 4, "repetition_penalty": 1.4, "eos_token_id": [5]},
    {"max_new_tokens": 12, "num_beams": 4, "min_new_tokens": 6, "eos_token_id": [5, 11, 2, 9]},
    {"max_new_tokens": 12, "num_beams": 3, "suppress_tokens": [1, 2, 3], "eos_token_id": [5, 11]},
]

# Beams that are drawn. Numbers are those of Philox4x32-10 (strata/core/rng.h), so that both draw the same.
for beams in [2, 3]:
    for stops in [None, [5, 11]]:
        for how in [{}, {"temperature": 1.7, "top_k": 9}, {"top_k": 0, "top_p": 0.8}, {"top_k": 0, "min_p": 0.05, "temperature": 1.3},
                    {"top_k": 0, "typical_p": 0.9}, {"top_k": 20, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.95,
                                                    "repetition_penalty": 1.2}]:
            OPTIONS.append({"max_new_tokens": 9, "num_beams": beams, "do_sample": True, "num_return_sequences": 2,
                            "length_penalty": 0.7, "early_stopping": stops is not None, **how,
                            **({"eos_token_id": stops} if stops else {})})


def words(seed, block):
    counter = [block & 0xFFFFFFFF, block >> 32, 0, 0]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


class Draws:
    """What torch.multinomial gives without replacement: the largest of log p and Gumbel's noise."""

    def __init__(self, seed):
        self.seed, self.step = seed, 0

    def __call__(self, p, num_samples):
        n = p.numel()
        first = self.step * ((n + 1) // 2)
        self.step += 1
        noise = []
        for i in range(n):
            hi, lo = words(self.seed, first + i // 2)[2 * (i % 2):][:2]
            u = ((hi << 32 | lo) >> 11) * 2.0 ** -53
            noise.append(-math.log(-math.log(u)))
        best = torch.log(p[0].double()) + torch.tensor(noise, dtype=torch.float64)
        return torch.topk(best, num_samples).indices[None]


def written(row, prompt, stops):
    tokens = row[len(prompt):]
    for i, t in enumerate(tokens):
        if t in stops:
            return tokens[:i + 1]
    return tokens


for options in OPTIONS:
    stops = options.get("eos_token_id", [])
    for prompt in PROMPTS if "num_beams" not in options else PROMPTS[1:3]:
        config = transformers.GenerationConfig(pad_token_id=0, **options)
        torch.multinomial = Draws(7)
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config,
                             return_dict_in_generate=True, output_scores=True)
        case = {"prompt": prompt, "config": options,
                "texts": [written(row, prompt, stops) for row in out.sequences.tolist()]}
        if "num_beams" in options:
            case["scores"] = [round(s, 5) for s in out.sequences_scores.tolist()]
        print(json.dumps(case))
