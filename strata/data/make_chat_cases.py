"""Writes chat_cases.jsonl: what transformers' apply_chat_template makes of conversations, ids and the assistant's mask.

    python make_chat_cases.py > chat_cases.jsonl      (transformers 5, tokenizers)

Ids are bytes, then the merges in their order, then the special tokens, as text::BpeTokenizer numbers them.
"""

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MERGES = [("A", "n"), ("s", "w"), ("An", "sw"), ("l", "l"), ("e", "ll"), ("Ġ", "t")]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}",
    # the answer begins within a word, so that a token spans the border
    "spans": "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}{{ m.content }}"
    "{% endgeneration %}w{{ eos_token }}{% else %}{{ m.role }}: {{ m.content }} {% endif %}{% endfor %}",
}
TALKS = [
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "nswell, then"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "tell all"},
        {"role": "assistant", "content": "ns"},
        {"role": "user", "content": "\u00e9t\u00e9"},
        {"role": "assistant", "content": "ns"},
    ],
    [{"role": "user", "content": "only me"}],
]


def main():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    names = list(range(ord("!"), ord("~") + 1)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    letters = {b: chr(b) for b in names}
    for i, b in enumerate(b for b in range(256) if b not in letters):
        letters[b] = chr(256 + i)
    assert set(letters.values()) == set(alphabet)
    vocab = {letter: byte for byte, letter in letters.items()}
    for left, right in MERGES:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[:2]})
    ours = {name: len(vocab) + i for i, name in enumerate(SPECIAL)}
    theirs = {fast.convert_tokens_to_ids(name): name for name in SPECIAL}
    merges = [[vocab[a], vocab[b]] for a, b in MERGES]
    print(json.dumps({"merges": merges, "special": SPECIAL, "templates": TEMPLATES}))
    for name, template in TEMPLATES.items():
        for messages in TALKS:
            out = fast.apply_chat_template(
                messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
            )
            ids = [ours[theirs[i]] if i in theirs else i for i in out["input_ids"]]
            case = {"template": name, "messages": messages, "ids": ids, "mask": out["assistant_masks"]}
            print(json.dumps(case))


if __name__ == "__main__":
    main()
