#include "strata/text/pipeline/added_tokens_inl.h"

#include <algorithm>

#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

std::vector<std::pair<std::string_view, int32_t>> views(const std::vector<std::pair<std::string, int32_t>>& tokens) {
  return {tokens.begin(), tokens.end()};
}

/// How many tokens the model has; ids may have gaps.
int64_t count_tokens(const TokenModel& model) {
  int64_t n = model.id("").has_value() ? 1 : 0;
  for (int64_t id = 0; id < model.vocab_size(); ++id) n += model.token(static_cast<int32_t>(id)).empty() ? 0 : 1;
  return n;
}

}  // namespace

TokenFinder::TokenFinder(const std::vector<std::pair<std::string, int32_t>>& tokens)
    : trie_(views(tokens)), empty_(tokens.empty()) {
  for (const auto& [spelling, i] : tokens)
    if (!spelling.empty()) first_[static_cast<unsigned char>(spelling[0])] = true;
}

bool TokenFinder::find(std::string_view text, size_t at, size_t& begin, size_t& end, int32_t& token) const {
  if (empty_) return false;
  for (; at < text.size(); ++at) {
    if (!first_[static_cast<unsigned char>(text[at])]) continue;
    end = at;
    trie_.prefixes(text.substr(at), [&](size_t bytes, int32_t i) {
      end = at + bytes;
      token = i;
    });
    if (end == at) continue;
    begin = at;
    return true;
  }
  return false;
}

AddedTokens::AddedTokens(Fields& file, const TokenModel& model, const Normalizer* normalizer) {
  std::vector<AddedToken> listed;
  const Json* list = file.find("added_tokens");
  if (list != nullptr && !list->is_null()) {
    file.list("added_tokens", kMaxTokens, [&](const Json& node, std::string path) {
      Fields f(node, path.substr(path.starts_with('.') ? 1 : 0), file.source());
      AddedToken t;
      f.integer("id", 0, UINT32_MAX);
      t.content = f.string("content");
      t.single_word = f.boolean("single_word");
      t.lstrip = f.boolean("lstrip");
      t.rstrip = f.boolean("rstrip");
      t.normalized = f.boolean("normalized");
      t.special = f.boolean("special");
      if (t.content.size() > kMaxBytes) f.fail("content", cat("at most ", kMaxBytes, " bytes"));
      if (!t.content.empty()) listed.push_back(std::move(t));
      return Json();
    });
  }
  int64_t next = count_tokens(model);
  std::map<int32_t, AddedToken> by_id;
  for (AddedToken& t : listed) {
    std::optional<int32_t> id = this->id(t.content);
    if (!id) id = model.id(t.content);
    if (!id) {
      check<IoError>(next <= INT32_MAX, "tokenizer", "there are no more ids for added tokens");
      id = static_cast<int32_t>(next++);
    }
    t.id = *id;
    by_content_[t.content] = *id;
    by_id[*id] = std::move(t);
  }
  std::vector<std::pair<std::string, int32_t>> raw, normal;
  for (auto& [id, t] : by_id) {
    const auto place = static_cast<int32_t>(tokens_.size());
    by_id_[id] = tokens_.size();
    std::string spelling = t.content;
    if (t.normalized && normalizer != nullptr) {
      NormalText text;
      text.bytes = t.content;
      text.limit = growth_limit(text.bytes.size());
      normalizer->apply(text);
      if (text.bytes != t.content) normal_forms_[id] = spelling = text.bytes;
    }
    if (!spelling.empty()) (t.normalized ? normal : raw).emplace_back(std::move(spelling), place);
    tokens_.push_back(std::move(t));
  }
  raw_.emplace(raw);
  normalized_.emplace(normal);
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

std::optional<int32_t> AddedTokens::id(std::string_view content) const {
  const auto at = by_content_.find(std::string(content));
  return at == by_content_.end() ? std::nullopt : std::optional(at->second);
}

const std::string& AddedTokens::decoded(const AddedToken& token) const {
  const auto at = normal_forms_.find(token.id);
  return at == normal_forms_.end() ? token.content : at->second;
}

Json AddedTokens::json() const {
  Json out = Json::array();
  for (const AddedToken& t : tokens_)
    out.push_back({{"id", t.id},
                   {"content", t.content},
                   {"single_word", t.single_word},
                   {"lstrip", t.lstrip},
                   {"rstrip", t.rstrip},
                   {"normalized", t.normalized},
                   {"special", t.special}});
  return out;
}

bool AddedTokens::touches_word(std::string_view text, size_t begin, size_t end) {
  const CharSet& words = word_chars();
  return (begin > 0 && words.contains(char_before(text, begin).code)) ||
         (end < text.size() && words.contains(char_at(text, end).code));
}

size_t AddedTokens::blanks_before(std::string_view text, size_t begin, size_t from) {
  const CharSet& spaces = space_chars();
  while (begin > from) {
    const Char c = char_before(text, begin);
    if (!spaces.contains(c.code)) break;
    begin -= c.bytes;
  }
  return std::max(begin, from);
}

size_t AddedTokens::blanks_behind(std::string_view text, size_t end) {
  const CharSet& spaces = space_chars();
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (!spaces.contains(c.code)) break;
    end += c.bytes;
  }
  return end;
}

}  // namespace strata::text::pipeline
