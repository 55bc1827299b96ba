#include "strata/text/pipeline_tokenizer.h"

#include <algorithm>

#include "strata/core/parallel.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/json.h"
#include "strata/text/jinja/template.h"
#include "strata/text/pipeline/encoder_inl.h"
#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"
#include "strata/text/utf8.h"

namespace strata::text {
using pipeline::Fields;
using pipeline::Json;
using pipeline::Segment;

namespace {

constexpr std::string_view kOp = "tokenizer";

bool is_utf8(std::string_view text) {
  return invalid_utf8(text) == text.size();
}

/// A text and, where it is not UTF-8, a copy with U+FFFD.
class Valid {
 public:
  explicit Valid(std::string_view text) : text_(text) {
    if (is_utf8(text)) return;
    copy_ = valid_utf8(text);
    text_ = copy_;
  }
  operator std::string_view() const { return text_; }

 private:
  std::string copy_;
  std::string_view text_;
};

Json part_or_null(Fields& file, std::string_view key) {
  const Json* found = file.find(key);
  return found == nullptr ? Json() : *found;
}

}  // namespace

std::optional<std::string_view> pipeline::TokenizerParts::decoded(int32_t id) const {
  check<IndexError>(id >= 0 && id < vocab_size, kOp, "id ", id, " is out of range, the vocabulary has ", vocab_size);
  if (const AddedToken* t = added->find(id)) return added->decoded(*t);
  const std::string_view token = model->token(id);
  if (token.empty() && model->id("") != id) return {};
  return token;
}

PipelineTokenizer::PipelineTokenizer(std::shared_ptr<const pipeline::TokenizerParts> parts,
                                     std::shared_ptr<const pipeline::Around> around)
    : parts_(std::move(parts)), around_(std::move(around)) {}
PipelineTokenizer::~PipelineTokenizer() = default;

std::unique_ptr<PipelineTokenizer> PipelineTokenizer::parse(std::string_view json, std::string_view source) {
  return pipeline::TokenizerParts::parse(io::parse_json(json, source), source);
}

std::unique_ptr<PipelineTokenizer> pipeline::TokenizerParts::parse(const Json& root, std::string_view source) {
  Fields file(root, "", source);
  if (file.find("version") != nullptr && file.string("version") != "1.0") file.fail("version", "\"1.0\"");
  const pipeline::RegexBudget budget(0);

  auto parts = std::make_shared<TokenizerParts>();
  const Json* model = file.find("model");
  if (model == nullptr) file.fail("model", "an object");
  parts->model = parse_token_model(*model, source);
  if (const Json node = part_or_null(file, "normalizer"); !node.is_null())
    parts->normalizer = pipeline::parse_normalizer(node, "normalizer", source);
  if (const Json node = part_or_null(file, "pre_tokenizer"); !node.is_null())
    parts->pre_tokenizer = pipeline::parse_pre_tokenizer(node, "pre_tokenizer", source, parts->pre_tokenizers);
  parts->spells_bytes = !parts->pre_tokenizers.empty() && parts->pre_tokenizers.back()->spells_bytes();
  if (const Json node = part_or_null(file, "decoder"); !node.is_null())
    parts->decoder = pipeline::parse_decoder(node, "decoder", source);
  else
    parts->decoder.part = pipeline::blanks_between();
  parts->truncation = part_or_null(file, "truncation");
  parts->padding = part_or_null(file, "padding");
  for (const auto& [key, node] : {std::pair<std::string_view, const Json&>("truncation", parts->truncation),
                                  std::pair<std::string_view, const Json&>("padding", parts->padding)})
    if (!node.is_null() && !node.is_object()) file.fail(key, "an object or null");

  parts->added.emplace(file, *parts->model, parts->normalizer.part.get());
  parts->vocab_size = parts->model->vocab_size();
  std::vector<std::pair<std::string, int32_t>> spellings;
  for (const AddedToken& t : parts->added->tokens()) {
    parts->vocab_size = std::max<int64_t>(parts->vocab_size, int64_t{t.id} + 1);
    if (!t.special) continue;
    parts->special[t.content] = t.id;
    if (parts->model->id(t.content) != t.id || pipeline::count_chars(t.content) < 2) continue;
    std::vector<int32_t> ids;
    try {
      parts->model->encode(t.content, ids);
    } catch (const ValueError&) {  // it cannot spell it
    }
    if (std::find(ids.begin(), ids.end(), t.id) != ids.end()) spellings.emplace_back(t.content, t.id);
  }

  for (const auto& [spelling, id] : spellings) parts->guarded.push_back(id);
  std::sort(parts->guarded.begin(), parts->guarded.end());
  parts->guarded_spellings.emplace(spellings);

  auto post = std::make_shared<pipeline::Around>();
  if (const Json node = part_or_null(file, "post_processor"); !node.is_null())
    static_cast<pipeline::Parsed<pipeline::PostProcessor>&>(*post) =
        pipeline::parse_post_processor(node, "post_processor", source);
  std::unique_ptr<PipelineTokenizer> made(new PipelineTokenizer(std::move(parts), std::move(post)));
  made->check_post_processor(source);
  return made;
}

void PipelineTokenizer::check_post_processor(std::string_view source) const {
  if (around_->part == nullptr) return;
  for (size_t texts = 1; texts <= 2; ++texts) {
    std::vector<Segment> made;
    try {
      made = around_->part->apply(std::vector<Segment>(texts), true);
    } catch (const ValueError&) {  // encoding will say it
    }
    for (const Segment& s : made)
      for (const int32_t id : s.ids)
        check<IoError>(id < vocab_size(), kOp, io::quote(source), ": post_processor puts id ", id,
                       ", the vocabulary has ", vocab_size());
  }
}

int64_t PipelineTokenizer::vocab_size() const {
  return parts_->vocab_size;
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text) const {
  return encode(text, {.add_special_tokens = false, .parse_special = false});
}

std::vector<int32_t> PipelineTokenizer::encode_with_special(std::string_view text) const {
  return encode(text, {.add_special_tokens = false, .parse_special = true});
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Segment> segments(1);
  pipeline::encode_text(*parts_, Valid(text), {.parse_special = options.parse_special}, segments[0].ids, nullptr);
  if (around_->part != nullptr) segments = around_->part->apply(std::move(segments), options.add_special_tokens);
  if (segments.size() == 1) return std::move(segments[0].ids);
  std::vector<int32_t> ids;
  for (const Segment& s : segments) ids.insert(ids.end(), s.ids.begin(), s.ids.end());
  return ids;
}

Encoding PipelineTokenizer::encode_pair(std::string_view first, std::string_view second,
                                        const EncodeOptions& options) const {
  std::vector<Segment> segments(2);
  for (size_t i = 0; i < 2; ++i) {
    pipeline::encode_text(*parts_, Valid(i == 0 ? first : second), {.parse_special = options.parse_special},
                          segments[i].ids, nullptr);
    segments[i].type_id = static_cast<int32_t>(i);
    segments[i].sequence = static_cast<int>(i);
  }
  if (around_->part != nullptr) segments = around_->part->apply(std::move(segments), options.add_special_tokens);
  Encoding made;
  for (const Segment& s : segments) {
    made.ids.insert(made.ids.end(), s.ids.begin(), s.ids.end());
    made.type_ids.resize(made.ids.size(), s.type_id);
  }
  return made;
}

Encoding PipelineTokenizer::encode(const jinja::Rendered& rendered, bool add_special_tokens) const {
  check(is_utf8(rendered.text), kOp, "a rendered template is not UTF-8");
  std::vector<Segment> segments(1);
  std::vector<size_t> begins;
  pipeline::encode_text(*parts_, rendered.text, {.from_data = &rendered.from_data}, segments[0].ids, &begins);
  segments[0].sequence = 0;
  std::vector<bool> generated(begins.size());
  auto range = rendered.generated.begin();
  for (size_t i = 0; i < begins.size(); ++i) {
    while (range != rendered.generated.end() && range->second <= begins[i]) ++range;
    generated[i] = range != rendered.generated.end() && range->first <= begins[i];
  }
  if (around_->part != nullptr) segments = around_->part->apply(std::move(segments), add_special_tokens);
  Encoding made;
  for (const Segment& s : segments) {
    made.ids.insert(made.ids.end(), s.ids.begin(), s.ids.end());
    made.type_ids.resize(made.ids.size(), s.type_id);
    if (s.sequence == 0) made.generated.insert(made.generated.end(), generated.begin(), generated.end());
    made.generated.resize(made.ids.size());
  }
  return made;
}

std::vector<std::vector<int32_t>> PipelineTokenizer::encode_batch(std::span<const std::string_view> texts,
                                                                  const EncodeOptions& options) const {
  std::vector<std::vector<int32_t>> all(texts.size());
  parallel_for(0, static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) all[i] = encode(texts[i], options);
  });
  return all;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids) const {
  return decode(ids, DecodeOptions{});
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const int32_t id : ids) text += decoder.add(id);
  return text + decoder.finish();
}

std::optional<int32_t> PipelineTokenizer::id(std::string_view token) const {
  const std::optional<int32_t> added = parts_->added->id(token);
  return added ? added : parts_->model->id(token);
}

std::string_view PipelineTokenizer::token(int32_t id) const {
  const AddedToken* added = parts_->added->find(id);
  return added != nullptr ? std::string_view(added->content) : parts_->model->token(id);
}

const std::map<std::string, int32_t>& PipelineTokenizer::special_tokens() const {
  return parts_->special;
}
std::span<const AddedToken> PipelineTokenizer::added_tokens() const {
  return parts_->added->tokens();
}
std::string_view PipelineTokenizer::model_type() const {
  return parts_->model->type();
}

std::string PipelineTokenizer::to_json() const {
  const Json all = {{"version", "1.0"},
                    {"truncation", parts_->truncation},
                    {"padding", parts_->padding},
                    {"added_tokens", parts_->added->json()},
                    {"normalizer", parts_->normalizer.json},
                    {"pre_tokenizer", parts_->pre_tokenizer},
                    {"post_processor", around_->json},
                    {"decoder", parts_->decoder.json},
                    {"model", parts_->model->to_json()}};
  return all.dump() + "\n";
}

std::string PipelineTokenizer::identity() const {
  io::Hasher hasher;
  for (const Json& part : {parts_->added->json(), parts_->normalizer.json, parts_->pre_tokenizer, around_->json,
                           parts_->model->to_json()}) {
    const std::string text = part.dump();
    hasher.update_u64(text.size());
    hasher.update(text);
  }
  return io::to_hex(hasher.digest());
}

std::unique_ptr<PipelineTokenizer> PipelineTokenizer::with_template(std::optional<int32_t> begin,
                                                                    std::optional<int32_t> end) const {
  Json tokens = Json::object();
  const auto special = [&](std::optional<int32_t> id, int type) {
    if (!id) return Json::array();
    const std::string name(token(*id));
    check(!name.empty(), kOp, "id ", *id, " is no token");
    tokens[name] = {{"id", name}, {"ids", Json::array({static_cast<uint32_t>(*id)})}, {"tokens", Json::array({name})}};
    return Json::array({Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}}});
  };
  const auto around = [&](const char* sequence, int type) {
    Json all = special(begin, type);
    all.push_back(Json{{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    for (Json& piece : special(end, type)) all.push_back(std::move(piece));
    return all;
  };
  Json pair = around("A", 0);
  const Json single = pair;
  for (Json& piece : around("B", 1)) pair.push_back(std::move(piece));
  const Json node = {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", std::move(tokens)}};
  auto post = std::make_shared<pipeline::Around>();
  static_cast<pipeline::Parsed<pipeline::PostProcessor>&>(*post) =
      pipeline::parse_post_processor(node, "post_processor", "template");
  return std::unique_ptr<PipelineTokenizer>(new PipelineTokenizer(parts_, std::move(post)));
}

}  // namespace strata::text
