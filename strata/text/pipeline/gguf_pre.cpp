#include "strata/text/pipeline/gguf_pre_inl.h"

namespace strata::text::detail {
namespace {

// The expressions are those of the models' own tokenizer.json files, or mean the same. They go by the models that
// brought them up.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"
    "Ὅὐ-"
    "ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι"
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⲳⲳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-"
    "𐑏𐒰-"
    "𐓓𐓘-𐓻"
    "𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
constexpr std::string_view kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kDeepseekIdeographs = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kDeepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
}  // namespace

std::span<const GgufPre> gguf_pres() {
  static const GgufPre kPres[] = {
      {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "modern-bert", "roberta-bpe", "jina-es", "jina-de",
                 "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "gigachat", "a.x-4.0", "mellum", "exaone4",
                 "trillion", "granite-docling"},
       .expressions = {kGpt2}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano"},
       .expressions = {kLlama3},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, .expressions = {kLlama3}},
      {.names = {"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan", "solar-open", "grok-2", "kormo",
                 "f2llmv2"},
       .expressions = {kQwen2}},
      {.names = {"qwen35"}, .expressions = {kQwen35}},
      {.names = {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       .expressions = {R"(\p{N})", kGpt2}},
      {.names = {"default"},
       .expressions = {R"([\p{P}\$\+<=>\^~\|]+)",
                       R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
                       "[0-9][0-9][0-9]"}},
      {.names = {"falcon"}, .expressions = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.names = {"deepseek-llm"},
       .expressions = {"[\r\n]", kDeepseekLetters, kDeepseekPunctuation, R"(\s+$)", kDeepseekIdeographs, R"(\p{N}+)"}},
      {.names = {"deepseek-coder"},
       .expressions = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekIdeographs, R"(\p{N})"}},
      {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       .expressions = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
      {.names = {"tekken"}, .expressions = {kTekken}, .ignore_merges = true, .add_bos = true},
      {.names = {"gpt-4o", "llama4", "minimax-m2", "kanana2"}, .expressions = {kGpt4o}},
      {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .expressions = {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
      {.names = {"viking"}, .expressions = {" ?[^(\\s|.,!?…。，、।۔،)]+", R"(\p{N})"}},
  };
  return kPres;
}

}  // namespace strata::text::detail
