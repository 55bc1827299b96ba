"""word_cases.json: what transformers' WhisperTokenizer takes for words, of texts in a small tokenizer of bytes.

python strata/generate/make_word_cases.py > strata/generate/word_cases.json
"""

import json
import types

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

TEXTS = [
    " Hello there, world!", " \"Wait\" - he (Mr. O'Neil) said: no?", "Grüße aus München", " 日本語です。はい、", " ¿Qué? ¡Sí!", " a  b   c",
    "...", " - - x", " “quoted” [and] {braced}", "naïve café’s 5.0% ", " emoji 🙂 end", " tab\tnew\nline", "", " ", "!?", " (", " x ( y",
]

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(
    ["the world said hello there and then he was there"] * 3,
    trainers.BpeTrainer(vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
)
like = types.SimpleNamespace(
    decode=lambda ids, decode_with_timestamps: tokenizer.decode(ids), eos_token_id=tokenizer.get_vocab_size(), language=None)
cases = []
lists = [tokenizer.encode(text).ids for text in TEXTS]
lists += [lists[3][:-1], lists[10][2:7], lists[2][3:], [200, 201, 202], list(range(20))]  # characters that are cut
for ids in lists:
    case = {"ids": ids}
    for name, language in (("blanks", "english"), ("characters", "japanese")):
        words, _, indices = _combine_tokens_into_words(like, ids, language)
        case[name] = [[word, own] for word, own in zip(words, indices)]
    cases.append(case)
print(json.dumps({"tokenizer": tokenizer.to_str(), "cases": cases}, ensure_ascii=True))
