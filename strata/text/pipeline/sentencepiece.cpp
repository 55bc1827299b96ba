#include "strata/text/pipeline/sentencepiece.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "strata/core/base64_inl.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/tokenizer_json_inl.h"

namespace strata::text {
namespace {

using nlohmann::json;
using Piece = SentencePieceModel::Piece;

constexpr std::string_view kOp = "sentencepiece";
constexpr std::string_view kBlank = "\xe2\x96\x81";  // U+2581

detail::Vocabulary vocabulary_of(const SentencePieceModel& model) {
  detail::Vocabulary vocabulary;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& p = model.pieces[i];
    check(vocabulary.add(p.text, static_cast<int32_t>(i)), kOp, "piece ", i, " ", io::quote(p.text), " is piece ",
          vocabulary.find(p.text), " already");
    check(std::isfinite(p.score), kOp, "piece ", i, " ", io::quote(p.text), " has a score that is no number");
    check(p.type != PieceType::unused, kOp, "piece ", i, " ", io::quote(p.text),
          " is marked unused, which tokenizer.json cannot say");
  }
  return vocabulary;
}

constexpr size_t kMaxMerged = 256;  // bytes of a piece: it is looked for at every place where it can be cut

// All pairs of pieces that make a piece, in the order of its score; of one piece the pair of the shorter left side
// first: in a run of one character it is the leftmost, which sentencepiece takes.
json merges_of(const SentencePieceModel& model, const detail::Vocabulary& vocabulary) {
  const auto merges_to = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].type == PieceType::normal; };
  std::vector<int32_t> order;
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (merges_to(static_cast<int32_t>(i))) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return model.pieces[static_cast<size_t>(a)].score > model.pieces[static_cast<size_t>(b)].score;
  });
  json merges = json::array();
  for (const int32_t id : order) {
    const std::string_view text = model.pieces[static_cast<size_t>(id)].text;
    check(text.size() <= kMaxMerged, kOp, "piece ", id, " has ", text.size(), " bytes, at most ", kMaxMerged,
          " are allowed");
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) continue;
      const int32_t left = vocabulary.find(text.substr(0, cut)), right = vocabulary.find(text.substr(cut));
      if (left >= 0 && right >= 0 && merges_to(left) && merges_to(right))
        merges.push_back({std::string(text.substr(0, cut)), std::string(text.substr(cut))});
    }
  }
  return merges;
}

int32_t unknown_id(const SentencePieceModel& model) {
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (model.pieces[i].type == PieceType::unknown) return static_cast<int32_t>(i);
  throw ValueError(kOp, "no piece is of the unknown type");
}

json model_json(const SentencePieceModel& model) {
  const detail::Vocabulary vocabulary = vocabulary_of(model);
  const int32_t unknown = unknown_id(model);
  if (model.kind == SentencePieceModel::Kind::unigram) {
    json vocab = json::array();
    for (const Piece& p : model.pieces) vocab.push_back({p.text, static_cast<double>(p.score)});
    return {{"type", "Unigram"},
            {"unk_id", static_cast<uint32_t>(unknown)},
            {"vocab", std::move(vocab)},
            {"byte_fallback", model.byte_fallback}};
  }
  check(model.kind == SentencePieceModel::Kind::bpe, kOp,
        "a model of words or of characters is not read, only Unigram and BPE are");
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", model.pieces[static_cast<size_t>(unknown)].text},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", model.byte_fallback},
          {"ignore_merges", false},
          {"vocab", detail::vocabulary_json(vocabulary)},
          {"merges", merges_of(model, vocabulary)}};
}

// Whether texts can have it: blanks are escaped in texts, in pieces that users defined they are not.
bool is_user_defined(const SentencePieceModel& model, const Piece& p) {
  return p.type == PieceType::user_defined && !(model.escape_whitespaces && p.text.find(' ') != std::string::npos);
}

json replace(json pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

// The prefix. Pieces that users defined are looked for in the normalised text, and for that are normalised themselves:
// one of them alone gets no prefix.
json prefix_json(const SentencePieceModel& model) {
  const std::string_view blank = model.escape_whitespaces ? kBlank : " ";
  std::string any;
  for (const Piece& p : model.pieces) {
    if (!is_user_defined(model, p)) continue;
    any += any.empty() ? "" : "|";
    for (const char c : p.text) {
      if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0) any += '\\';
      any += c;
    }
  }
  if (any.empty()) return {{"type", "Prepend"}, {"prepend", blank}};
  return replace({{"Regex", cat("\\A(?=[\\s\\S])(?!(?:", any, ")\\z)")}}, blank);
}

json normalizer_json(const SentencePieceModel& model) {
  json steps = json::array();
  if (!model.precompiled_charsmap.empty())
    steps.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", strata::detail::base64(model.precompiled_charsmap)}});
  if (model.remove_extra_whitespaces) {
    // blanks at the end are removed after they were escaped: so written ones are, too
    steps.push_back(replace({{"Regex", "\\A +"}}, ""));
    steps.push_back(replace({{"Regex", model.escape_whitespaces ? cat("[ ", kBlank, "]+\\z") : " +\\z"}}, ""));
    steps.push_back(replace({{"Regex", " {2,}"}}, " "));
  }
  if (model.add_dummy_prefix) steps.push_back(prefix_json(model));
  if (model.escape_whitespaces) steps.push_back(replace({{"String", " "}}, kBlank));
  return steps.empty() ? json() : json{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

json decoder_json(const SentencePieceModel& model) {
  json steps = json::array();
  if (model.escape_whitespaces) steps.push_back(replace({{"String", kBlank}}, " "));
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// Where no piece has a blank after another character (and none of merges can), words are cut at blanks: to the same
// ids.
bool blanks_only_start(const SentencePieceModel& model) {
  return std::all_of(model.pieces.begin(), model.pieces.end(), [](const Piece& p) {
    if (p.type != PieceType::normal) return true;
    std::string_view rest = p.text;
    if (rest.starts_with(kBlank)) rest.remove_prefix(kBlank.size());
    return rest.find(kBlank) == std::string_view::npos;
  });
}

}  // namespace

json tokenizer_json(const SentencePieceModel& model, const AddedEnds& ends) {
  check(!model.treat_whitespace_as_suffix, kOp, "treat_whitespace_as_suffix is not read");
  json added = json::array();
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& p = model.pieces[i];
    if (p.type == PieceType::control || p.type == PieceType::unknown)
      added.push_back(detail::added_token(i, p.text, true, false));
    else if (is_user_defined(model, p))
      added.push_back(detail::added_token(i, p.text, false, true));
  }
  json cut;
  if (model.escape_whitespaces && blanks_only_start(model))
    cut = {{"type", "Metaspace"}, {"replacement", kBlank}, {"prepend_scheme", "never"}, {"split", true}};
  return detail::tokenizer_file({.model = model_json(model),
                                 .normalizer = normalizer_json(model),
                                 .pre_tokenizer = std::move(cut),
                                 .decoder = decoder_json(model),
                                 .added_tokens = std::move(added)},
                                ends);
}

}  // namespace strata::text
