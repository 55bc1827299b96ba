#!/usr/bin/env python3
"""Writes unicode_sets_inl.h: the sets of characters by which PyPI's `tokenizers` (0.23) decides, asked from it one character at a time.

    make_unicode_sets.py > unicode_sets_inl.h

Its parts bring tables of several versions of Unicode, so no installed library has the same ones. What it decides by Oniguruma's
classes is left to PCRE2.
"""

from tokenizers import normalizers, pre_tokenizers

CHARS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def ranges(chars):
    out = []
    for c in chars:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def rows(items):
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)


def table(name, comment, chars):
    print(f"\n/// {comment}\ninline constexpr CharRange {name}[] = {{")
    rows(f"{{0x{b:x}, 0x{e:x}}}" for b, e in ranges(chars))
    print("};")


def vanishes(normalizer):
    return [c for c in CHARS if normalizer.normalize_str("a" + chr(c) + "b") == "ab"]


def pieces(pre, n):
    return [c for c in CHARS if len(pre.pre_tokenize_str("a" + chr(c) + "b")) == n]


def main():
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    print("#pragma once\n// Sets of characters. Written by make_unicode_sets.py; do not edit.\n\n#include <cstdint>\n")
    print("namespace strata::text::pipeline {\n\n/// First and last character.\nstruct CharRange {\n  uint32_t first, last;\n};")
    table("kSpaceChars", "What splits words: White_Space.", pieces(pre_tokenizers.WhitespaceSplit(), 2))
    table("kControlChars", "What BertNormalizer's clean_text removes.", [c for c in vanishes(normalizers.BertNormalizer(**{**bert, "clean_text": True}))])
    table("kPunctuationChars", "What Punctuation and BertPreTokenizer split at.", pieces(pre_tokenizers.Punctuation(), 3))
    table("kNumericChars", "What Digits splits at.", pieces(pre_tokenizers.Digits(individual_digits=True), 3))
    table("kNonspacingMarks", "What BertNormalizer's strip_accents removes after decomposition.",
          vanishes(normalizers.BertNormalizer(**{**bert, "strip_accents": True})))
    table("kCombiningMarks", "What StripAccents removes.", vanishes(normalizers.StripAccents()))
    table("kWordChars", "\\w of Whitespace and of added tokens that are single words.", pieces(pre_tokenizers.Whitespace(), 1))

    # Scripts as numbers: a character is of the first script seen so far with which it is not split. 0: any.
    scripts, seen, heads = pre_tokenizers.UnicodeScripts(), [], []

    def split(a, b):
        return len(scripts.pre_tokenize_str(chr(a) + chr(b))) > 1

    def script(c):
        if not split(0x61, c) and not split(0x3B1, c):
            return 0
        for i, head in enumerate(heads):
            if not split(head, c):
                return i + 1
        heads.append(c)
        return len(heads)

    last = None
    for c in CHARS:
        # Neighbours are mostly of one script: one question tells, unless either is "any".
        if last and last[2] and last[1] == c - 1 and not split(c - 1, c) and split(0x61 if last[2] != 1 else 0x3B1, c):
            last[1] = c
            continue
        s = script(c)
        if last and last[2] == s and last[1] == c - 1:
            last[1] = c
        else:
            last = [c, c, s]
            seen.append(last)
    print("\n/// Characters of one script, Hiragana and Katakana counted as Han.\nstruct ScriptRange {\n  uint32_t first, last;\n  uint8_t script;\n};")
    print("\n/// Scripts as UnicodeScripts knows them; a character that stands in no range is of any script.\ninline constexpr ScriptRange kScripts[] = {")
    rows(f"{{0x{b:x}, 0x{e:x}, {s}}}" for b, e, s in seen if s)
    print("};")

    import unicodedata
    new = [c for c in CHARS if normalizers.NFKD().normalize_str(chr(c)) == chr(c) != unicodedata.normalize("NFKD", chr(c))]
    table("kNotDecomposed", "Characters with a decomposition that is newer than the normal forms' tables: left as they are.", new)
    print("\n}  // namespace strata::text::pipeline")


if __name__ == "__main__":
    main()
