#include "strata/text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/text/bpe.h"
#include "strata/text/pipeline/pipeline_parts_inl.h"

namespace strata::text {
using json = nlohmann::json;
namespace {
constexpr uint64_t kMaxFile = 100'000'000;
}

std::vector<int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t next = std::string_view::npos, length = 0;
    int32_t special = 0;
    for (const auto& [name, id] : special_tokens()) {
      const size_t at = text.find(name);
      if (at == std::string_view::npos || at > next || (at == next && name.size() < length)) continue;
      next = at;
      length = name.size();
      special = id;
    }
    const std::vector<int32_t> plain = encode(text.substr(0, next));
    ids.insert(ids.end(), plain.begin(), plain.end());
    if (next == std::string_view::npos) break;
    ids.push_back(special);
    text.remove_prefix(next + length);
  }
  return ids;
}

void Tokenizer::save(const std::string& path) const {
  io::write_file(path, to_json());
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    check<IndexError>(id >= 0 && id < 256, "tokenizer", "id ", id, " is out of range, the vocabulary has 256");
    text += static_cast<char>(id);
  }
  return text;
}

std::string ByteTokenizer::to_json() const {
  return "{\"format\":\"strata-tokenizer\",\"version\":1,\"type\":\"byte\"}\n";
}

IdTokenizer::IdTokenizer(int64_t vocab_size) : vocab_(vocab_size) {
  check(vocab_ >= 1 && vocab_ <= std::numeric_limits<int32_t>::max(), "tokenizer", "a vocabulary of ", vocab_,
        ", wanted 1 to 2^31 - 1");
}

std::vector<int32_t> IdTokenizer::encode(std::string_view text) const {
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  std::vector<int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  for (;;) {
    while (at != end && blank(*at)) ++at;
    if (at == end) return ids;
    int64_t id = -1;
    const auto [next, error] = std::from_chars(at, end, id);
    const bool number = error != std::errc::invalid_argument && (next == end || blank(*next));
    check(number, "tokenizer", "byte ", at - text.data(), " starts no number: wanted ids between blanks");
    check<IndexError>(error == std::errc() && id >= 0 && id < vocab_, "tokenizer", "id ",
                      std::string_view(at, static_cast<size_t>(next - at)), " is out of range, the vocabulary has ",
                      vocab_);
    ids.push_back(static_cast<int32_t>(id));
    at = next;
  }
}

std::string IdTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    check<IndexError>(id >= 0 && id < vocab_, "tokenizer", "id ", id, " is out of range, the vocabulary has ", vocab_);
    text += std::to_string(id) + ' ';
  }
  return text;
}

std::string IdTokenizer::to_json() const {
  return cat("{\"format\":\"strata-tokenizer\",\"version\":1,\"type\":\"ids\",\"vocab\":", vocab_, "}\n");
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, std::string_view source) {
  constexpr std::string_view op = "tokenizer";
  const auto need = [&](bool ok, std::string_view field, std::string_view wanted) {
    check<IoError>(ok, op, io::quote(source), ": field ", io::quote(field), " must be ", wanted);
  };
  check<IoError>(text.size() <= kMaxFile, op, io::quote(source), " has ", text.size(), " bytes, at most ", kMaxFile,
                 " are allowed");
  const json j = io::parse_json(text, source);
  if (j.is_object() && !j.contains("format") && j.contains("model")) return pipeline::TokenizerParts::parse(j, source);
  need(j.is_object() && j.value("format", json()) == "strata-tokenizer", "format",
       "'strata-tokenizer' (a tokenizer.json has a model instead)");
  need(j.value("version", json()) == 1, "version", "1");
  const json type = j.value("type", json());
  need(type == "byte" || type == "bpe" || type == "ids", "type", "'byte', 'bpe' or 'ids'");
  if (type == "byte") return std::make_unique<ByteTokenizer>();
  if (type == "ids") {
    const json vocab = j.value("vocab", json());
    need(vocab.is_number_unsigned() && vocab.get<uint64_t>() >= 1 &&
             vocab.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max()),
         "vocab", "a number from 1 to 2^31 - 1");
    return std::make_unique<IdTokenizer>(vocab.get<int64_t>());
  }

  need(j.contains("special_tokens") && j["special_tokens"].is_array(), "special_tokens", "a list of strings");
  std::vector<std::string> special;
  for (const json& name : j["special_tokens"]) {
    need(name.is_string(), "special_tokens", "a list of strings");
    special.push_back(name.get<std::string>());
  }
  need(j.contains("merges") && j["merges"].is_array(), "merges", "a list of pairs of ids");
  std::vector<Merge> merges;
  const auto is_id = [](const json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  };
  for (const json& pair : j["merges"]) {
    need(pair.is_array() && pair.size() == 2 && is_id(pair[0]) && is_id(pair[1]), cat("merges[", merges.size(), "]"),
         "a pair of ids");
    merges.emplace_back(pair[0].get<int32_t>(), pair[1].get<int32_t>());
  }
  try {
    return std::make_unique<BpeTokenizer>(std::move(merges), special);
  } catch (const ValueError& e) {
    throw IoError(op, cat(io::quote(source), ": ", e.what()));
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  return parse_tokenizer(io::read_file(path, kMaxFile), path);
}

}  // namespace strata::text
