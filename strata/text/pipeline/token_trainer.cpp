#include "strata/text/pipeline/token_trainer.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/utf8.h"

namespace strata::text {
namespace detail {

using nlohmann::json;

// The most frequent words, of equals the smaller bytes.
json train_word_level_model(const WordCounts& words, const TokenTrainOptions& options) {
  std::vector<std::pair<int64_t, std::string_view>> kept;
  for (int64_t w = 0; w < words.size(); ++w)
    if (words.count(w) >= options.min_frequency) kept.emplace_back(words.count(w), words.word(w));
  std::sort(kept.begin(), kept.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  json vocab = json::object();
  for (const std::string& token : options.special_tokens) vocab.emplace(token, vocab.size());
  for (const auto& [count, word] : kept) {
    if (static_cast<int64_t>(vocab.size()) >= options.vocab_size) break;
    vocab.emplace(word, vocab.size());
  }
  return {
      {"type", kWordLevelType.name}, {"vocab", std::move(vocab)}, {"unk_token", options.unk_token.value_or("<unk>")}};
}

namespace {
void check_options(const TokenTrainOptions& o) {
  constexpr std::string_view op = "train_token_model";
  check(o.vocab_size >= static_cast<int64_t>(o.special_tokens.size()) && o.vocab_size < Vocabulary::kMaxIds, op,
        "vocab_size is ", o.vocab_size, ", wanted from ", o.special_tokens.size(), " special tokens to ",
        Vocabulary::kMaxIds - 1);
  const auto valid = [&](std::string_view name, const std::string& text) {
    check(valid_utf8(text) == text, op, name, " ", io::quote(text), " is not UTF-8");
  };
  for (const std::string& token : o.special_tokens) {
    check(!token.empty(), op, "a special token cannot be empty");
    valid("special_tokens", token);
  }
  for (const std::string& c : o.initial_alphabet)
    check(!c.empty() && utf8_length(c) == c.size(), op, "initial_alphabet ", io::quote(c), " is not one character");
  valid("continuing_subword_prefix", o.continuing_subword_prefix.value_or(""));
  valid("end_of_word_suffix", o.end_of_word_suffix.value_or(""));
  valid("unk_token", o.unk_token.value_or(""));
  check(o.continuing_subword_prefix.value_or("").size() <= kMaxDecoration, op, "continuing_subword_prefix has over ",
        kMaxDecoration, " bytes");
  check(o.end_of_word_suffix.value_or("").size() <= kMaxDecoration, op, "end_of_word_suffix has over ", kMaxDecoration,
        " bytes");
  check(o.limit_alphabet.value_or(0) >= 0, op, "limit_alphabet is ", o.limit_alphabet.value_or(0), ", wanted >= 0");
  check(o.max_token_length.value_or(1) >= 1, op, "max_token_length is ", o.max_token_length.value_or(1),
        ", wanted >= 1");
  check(o.shrinking_factor > 0 && o.shrinking_factor < 1, op, "shrinking_factor is ", o.shrinking_factor,
        ", wanted between 0 and 1");
  check(o.n_sub_iterations >= 1 && o.n_sub_iterations <= 1000, op, "n_sub_iterations is ", o.n_sub_iterations,
        ", wanted 1 to 1000");
  check(o.max_piece_length >= 1 && o.max_piece_length <= 256, op, "max_piece_length is ", o.max_piece_length,
        ", wanted 1 to 256");
  check(o.seed_size >= 1 && o.seed_size < Vocabulary::kMaxIds, op, "seed_size is ", o.seed_size, ", wanted 1 to ",
        Vocabulary::kMaxIds - 1);
}
}  // namespace
}  // namespace detail

nlohmann::json train_token_model(std::string_view type, const WordCounts& words, const TokenTrainOptions& options) {
  detail::check_options(options);
  std::string known;
  for (const detail::TokenModelType* t : detail::token_model_types()) {
    if (t->name == type) return t->train(words, options);
    known += cat(known.empty() ? "" : ", ", t->name);
  }
  throw ValueError("train_token_model", cat("there is no type ", io::quote(type), ", known are ", known));
}

}  // namespace strata::text
