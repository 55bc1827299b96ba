#!/usr/bin/env python3
"""Writes cases.jsonl: what PyPI's `tokenizers` (0.23) makes of small tokenizers with every part, read by pipeline_test.cpp.

    make_cases.py > cases.jsonl

Most use one model, "bytes", whose ids are the bytes of the words, each word ended by "|": they tell where a text was cut. Ids are
written as characters, U+0100 and the id. Needs PyPI's sentencepiece, too, for a table of replacements.
"""

import io
import json
import random
import struct
import tempfile
import base64

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

R = random.Random(14)
TEXTS = """Hello, world! It's 3.14 o'clock; don't
  two  blanks\tand\ttabs \n\nnew\r\nlines   
Ünïcödé ÀÉ straße İstanbul ǅ ΣΑΣ ﬁ ½ Ⅷ
e\u0301 a\u0323\u0302 q\u0307\u0323 \u1e9b\u0323 가각 \u1100\u1161\u11a8 \u212b ｶﾞ
日本語のテキスト、漢字カタカナー。中文字符！
👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ a‍b
مرحبا بالعالم ١٢٣ नमस्ते दुनिया ๑๒ שלום
x<s>y </s>  z [MASK] <s><s> a[MASK]b
snake_case camelCase __init__(self, x=1): # code {}
1234567 1,234.5 ²³ ①② 12ab34
\u00a0nbsp\u3000wide\u200bzero\u2009thin\ufeff\ufffd\u0085
I'M HERE'S WE'LL 'tis ''s
a-b--c---d -e- _f_ =g= +h+ <i> $j$ ^k^ `l` |m| ~n~
<mask>  <MASK> x<MASK>x FooBar foobar Foo Bar
▁meta▁▁space ▁ a▁
Пример текста на русском. Ελληνικά! ქართული
word
 word
\u0000\u0001\u007f\u009f\u00ad
aaaaaaaaaa bbbb aaab abab""".split("\n")
TEXTS = [json.loads('"' + t.replace('"', '\\"') + '"') if "\\" in t else t for t in TEXTS] + ["", " ", "\n", "a"]
TEXTS += ["".join(chr(R.choice([R.randrange(32, 127), R.randrange(160, 0x600), R.randrange(0x900, 0xa00), R.randrange(0x4e00, 0x4f00), R.randrange(0x1f600, 0x1f640), 0x301, 32, 32]))
                  for _ in range(20)) for _ in range(6)]
BYTES = {f"<0x{b:02X}>": b for b in range(256)}


def bytes_model():
    return models.BPE(vocab=BYTES, merges=[], byte_fallback=True, end_of_word_suffix="|")


def written(ids):
    return "".join(chr(0x100 + i) for i in ids)


def charsmap():
    import sentencepiece
    rows = [("A", "a"), ("B", "bb"), ("é", "e"), ("e\u0301", "E"), ("\u0301", ""), ("漢", "han"), ("ﬁ", "fi"), ("\n", " "), ("\u200b", ""), ("①", "1"), ("가", "ga"), ("👍", "ok")]
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/rules.tsv", "w") as f:
            for a, b in rows:
                f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e"] * 10), model_writer=model, vocab_size=8, model_type="char",
                                                 normalization_rule_tsv=folder + "/rules.tsv", minloglevel=2)
    from sentencepiece import sentencepiece_model_pb2 as pb
    proto = pb.ModelProto.FromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def emit(tokenizer, texts, name=None, pairs=(), plain=()):
    data = json.loads(tokenizer.to_str())
    if name:
        data["model"] = name
    row = {"tokenizer": data, "cases": []}
    for t in texts:
        case = {"text": t}
        special, plain_ids = tokenizer.encode(t).ids, tokenizer.encode(t, add_special_tokens=False).ids
        case["ids"] = written(plain_ids)
        if special != plain_ids:
            case["special"] = written(special)
        tokenizer.encode_special_tokens = True
        unparsed = tokenizer.encode(t, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        # Where the model makes a special token of its spelling, text that spells it has to stay text here.
        spelled = [a for a, token in tokenizer.get_added_tokens_decoder().items() if token.special and token.content in t and a in unparsed]
        if spelled:
            case["spells"] = written(spelled)
        elif unparsed != plain_ids:
            case["plain"] = written(unparsed)
        if not name:
            decoded, skipped = tokenizer.decode(special, skip_special_tokens=False), tokenizer.decode(special)
            case["decoded"] = decoded
            if skipped != decoded:
                case["skipped"] = skipped
        row["cases"].append(case)
    for a, b in pairs:
        e = tokenizer.encode(a, b)
        row["cases"].append({"text": a, "pair": b, "special": written(e.ids), "types": "".join(map(str, e.type_ids))})
    print(json.dumps(row, ensure_ascii=False))


def some(n):
    return R.sample(TEXTS, n)


NORMALIZERS = {
    "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "lower": normalizers.Lowercase(),
    "strip": normalizers.Strip(), "left": normalizers.Strip(left=True, right=False), "right": normalizers.Strip(left=False, right=True),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "accents alone": normalizers.StripAccents(), "nmt": normalizers.Nmt(),
    "replace": normalizers.Replace("a", "[A]"), "replace regex": normalizers.Replace(Regex(r"\s+"), " "), "replace empty": normalizers.Replace(Regex("x*"), "-"),
    "replace digits": normalizers.Replace(Regex(r"\d{2,}|[[:punct:]]"), ""), "prepend": normalizers.Prepend("▁"), "bytes": normalizers.ByteLevel(),
    "bert": normalizers.BertNormalizer(), "bert cased": normalizers.BertNormalizer(lowercase=False), "bert accents": normalizers.BertNormalizer(strip_accents=True, lowercase=False),
    "bert plain": normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False),
    "llama": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), "empty": normalizers.Sequence([]),
    "spm": normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), "▁"), normalizers.Strip()]),
}
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
P = pre_tokenizers
PRE = [P.ByteLevel(add_prefix_space=p, use_regex=r) for p in (False, True) for r in (False, True)]
PRE += [P.BertPreTokenizer(), P.Whitespace(), P.WhitespaceSplit(), P.UnicodeScripts(), P.FixedLength(3), P.CharDelimiterSplit("a"), P.Digits(True), P.Digits(False)]
PRE += [P.Punctuation(b) for b in BEHAVIORS]
PRE += [P.Split(" ", b, invert=i) for b in BEHAVIORS for i in (False, True)]
PRE += [P.Split(Regex(r), b) for r, b in ((GPT4, "isolated"), (r"\w+|[^\w\s]+", "contiguous"), (r"[ab]+", "merged_with_next"), (r"x*", "merged_with_previous"), (r"(?<=a)b|^.|.$", "isolated"),
                                          (r"\p{Han}+|[[:upper:]]|\h", "isolated"), (r"[\w&&[^a-c]]+", "removed"), (r"\b", "isolated"), (r"[^\W\d_]+", "isolated"), (r"a{,2}b?|\p{N}{1,2}+", "isolated"),
                                          (r"(?m).+", "isolated"), (r"(\w)\1", "isolated"), (r"[\r\n]+\z|\R|[^\S\n]", "removed"), (r"\p{^L}|\P{^Lu}", "contiguous"), (r"(?i)foo|[a\-\]z]", "isolated"))]
PRE += [P.Metaspace(prepend_scheme=s, split=c) for s in ("always", "first", "never") for c in (True, False)] + [P.Metaspace(replacement="_")]
PRE += [P.Sequence([P.Split(Regex(GPT4), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")]),
        P.Sequence([P.Digits(True), P.Punctuation("isolated"), P.ByteLevel()]), P.Sequence([P.ByteLevel(), P.Digits()]), P.Sequence([P.Metaspace(), P.Metaspace(prepend_scheme="never"), P.UnicodeScripts()]), P.Sequence([])]
ADDED = [AddedToken("<s>", special=True, normalized=False), AddedToken("</s>", special=True, normalized=False, rstrip=True), AddedToken("[MASK]", special=True, normalized=False, lstrip=True),
         AddedToken("Foo", normalized=True, single_word=True), AddedToken("Bar", normalized=False), AddedToken("foob", normalized=True), AddedToken("<MASK>", special=True, normalized=True, lstrip=True, rstrip=True),
         AddedToken("漢字", normalized=False), AddedToken("--", normalized=True), AddedToken("aaa", normalized=True, single_word=True)]


def made(normalizer=None, pre=None, post=None, decoder=None, model=None):
    t = Tokenizer(model or bytes_model())
    if normalizer is not None:
        t.normalizer = normalizer
    if pre is not None:
        t.pre_tokenizer = pre
    if post is not None:
        t.post_processor = post
    if decoder is not None:
        t.decoder = decoder
    return t


def posts():
    yield processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    yield processors.ByteLevel()
    yield processors.TemplateProcessing(single="[CLS] $A [SEP]:3", pair="[CLS] $A [SEP] $B:1 [SEP]:1 $A:2", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    yield processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="$A [X]", pair="$B $A", special_tokens=[{"id": "[X]", "ids": [5, 6], "tokens": ["e", "f"]}])])


def decoder_cases():
    tokens = ["a", "b", "##c", "▁d", "▁▁", "e</w>", "</w>", "<0xE2>", "<0x82>", "<0xAC>", "<0x41>", "<0xff>", "<0x+1>", "<pad>", "|", " .", " n't", ".", "'", " ' ", "x", "Ġf", "Ã", "¤", "ð", "Ł", "ĺ", "Ģ", "ä", "  y ", "  ",
              "do", " do not", "", "don", "t", "m", " 'm", "日", "<s>"]
    d = decoders
    every = [None, d.ByteLevel(), d.WordPiece(), d.WordPiece(prefix="##", cleanup=False), d.Metaspace(), d.Metaspace(prepend_scheme="never"), d.BPEDecoder(), d.CTC(), d.CTC(cleanup=False), d.Replace("▁", " "),
             d.Replace(Regex("[ab]+"), "<>"), d.Fuse(), d.ByteFallback(), d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]), d.Sequence([d.Fuse(), d.Strip(" ", 2, 1)]),
             d.Sequence([d.Strip("a", 1, 0), d.Strip("b", 0, 1)]), d.Sequence([d.Fuse(), d.Replace("ab", "!"), d.Replace(Regex(r"\s+$|!+"), "?")]), d.Sequence([d.ByteFallback(), d.ByteLevel(), d.Replace("\ufffd", "?")]),
             d.Sequence([d.ByteLevel(), d.WordPiece()]), d.Sequence([d.BPEDecoder(), d.Metaspace()])]
    for decoder in every:
        t = made(decoder=decoder, model=models.WordLevel({k: i for i, k in enumerate(tokens)}, unk_token="x"))
        t.add_special_tokens(["<s>"])
        data = json.loads(t.to_str())
        row = {"tokenizer": data, "cases": []}
        for _ in range(9):
            ids = [R.randrange(len(tokens)) for _ in range(R.randrange(1, 14))]
            case = {"decode": written(ids)}
            try:
                case["decoded"] = t.decode(ids, skip_special_tokens=False)
                case["skipped"] = t.decode(ids)
            except BaseException:  # the library panics where Strip would cut more than there is
                continue
            row["cases"].append(case)
        print(json.dumps(row, ensure_ascii=False))


def trained():
    corpus = TEXTS * 3 + ["the quick brown fox jumps over the lazy dog, don't it?", "strata tokenises text and text again"] * 5
    t = made(pre=P.ByteLevel(add_prefix_space=False), post=processors.ByteLevel(trim_offsets=False), decoder=decoders.ByteLevel(), model=models.BPE())
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    emit(t, TEXTS)
    t = made(normalizers.BertNormalizer(), P.BertPreTokenizer(), decoder=decoders.WordPiece(), model=models.WordPiece(unk_token="[UNK]"))
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=150, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    emit(t, TEXTS, pairs=[("Hello?", "World!")])
    t = made(normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), decoder=decoders.Metaspace(), model=models.Unigram())
    t.train_from_iterator(TEXTS[:3] + corpus[-10:], trainers.UnigramTrainer(vocab_size=120, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    emit(t, TEXTS)


def main():
    print(json.dumps({"bytes": json.loads(Tokenizer(bytes_model()).to_str())["model"]}, ensure_ascii=False))
    for n in NORMALIZERS.values():
        emit(made(n, P.WhitespaceSplit()), some(5), "bytes")
    emit(made(normalizers.Precompiled(charsmap())), TEXTS[:22], "bytes")
    for p in PRE:
        emit(made(pre=p), some(4), "bytes")
    for n in list(NORMALIZERS.values())[::3]:
        for p in R.sample(PRE, 2):
            emit(made(n, p), some(3), "bytes")
    for n in (None, normalizers.Lowercase(), normalizers.Prepend("▁"), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]), normalizers.BertNormalizer()):
        for p in (None, P.Metaspace(prepend_scheme="first"), P.ByteLevel()):
            t = made(n, p)
            t.add_tokens(ADDED)
            emit(t, [TEXTS[7], TEXTS[13], TEXTS[4], TEXTS[1], "aaa aaaa,aaa", "  <MASK>  Foo Foox foobar <s>foo", "[MASK]漢字 \n[MASK]</s>  </s> x"], "bytes")
    for post in posts():
        emit(made(pre=P.WhitespaceSplit(), post=post), ["a b", ""], "bytes", pairs=[("a", "b c"), ("", "x")])
    decoder_cases()
    trained()


if __name__ == "__main__":
    main()
