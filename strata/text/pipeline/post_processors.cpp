#include "strata/text/pipeline/post_processor_inl.h"

#include <algorithm>
#include <map>

namespace strata::text::pipeline {
namespace {

Segment special(std::vector<int32_t> ids, int32_t type_id) {
  Segment s;
  s.ids = std::move(ids);
  s.type_id = type_id;
  return s;
}

/// [CLS] A [SEP] B [SEP].
struct BertProcessing final : PostProcessor {
  explicit BertProcessing(Fields& f) : sep(f.token_and_id("sep").second), cls(f.token_and_id("cls").second) {}
  std::vector<Segment> apply(std::vector<Segment> segments, bool add) const override {
    if (!add) return segments;
    std::vector<Segment> out;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (i == 0) out.push_back(special({cls}, 0));
      out.push_back(std::move(segments[i]));
      out.push_back(special({sep}, i == 0 ? 0 : 1));
    }
    return out;
  }
  int32_t sep, cls;
};

/// <s> A </s></s> B </s>, all of one type.
struct RobertaProcessing final : PostProcessor {
  explicit RobertaProcessing(Fields& f) : sep(f.token_and_id("sep").second), cls(f.token_and_id("cls").second) {
    f.boolean("trim_offsets", true);
    f.boolean("add_prefix_space", true);
  }
  std::vector<Segment> apply(std::vector<Segment> segments, bool add) const override {
    for (Segment& s : segments) s.type_id = 0;
    if (!add) return segments;
    std::vector<Segment> out;
    for (size_t i = 0; i < segments.size(); ++i) {
      out.push_back(special({i == 0 ? cls : sep}, 0));
      out.push_back(std::move(segments[i]));
      out.push_back(special({sep}, 0));
    }
    return out;
  }
  int32_t sep, cls;
};

/// Trims offsets, which decide no ids.
struct ByteLevel final : PostProcessor {
  explicit ByteLevel(Fields& f) {
    f.boolean("add_prefix_space", true);
    f.boolean("trim_offsets", true);
    f.boolean("use_regex", true);
  }
  std::vector<Segment> apply(std::vector<Segment> segments, bool) const override { return segments; }
};

struct TemplateProcessing final : PostProcessor {
  static constexpr size_t kMaxPieces = 256;
  struct Piece {
    int sequence = -1;         // 0: A, 1: B, -1: special tokens
    std::vector<int32_t> ids;  // of those
    int32_t type_id = 0;
  };

  explicit TemplateProcessing(Fields& f) {
    std::map<std::string, std::vector<int32_t>> tokens;
    constexpr std::string_view wanted = "an object of {id, ids, tokens}";
    const Json* specials = f.find("special_tokens");
    if (specials == nullptr || !specials->is_object()) f.fail("special_tokens", wanted);
    Json kept = Json::object();
    for (const auto& [name, node] : specials->items()) {
      Fields token(node, cat(f.path(), ".special_tokens.", name), f.source());
      token.string("id");
      std::vector<int32_t>& ids = tokens[name];
      const Json* list = token.find("ids");
      const auto is_id = [](const Json& id) {
        return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
      };
      if (list == nullptr || !list->is_array() || !std::all_of(list->begin(), list->end(), is_id))
        token.fail("ids", "a list of ids");
      for (const Json& id : *list) ids.push_back(id.get<int32_t>());
      token.keep("ids", *list);
      if (const Json* texts = token.find("tokens"); texts != nullptr) token.keep("tokens", *texts);
      kept[name] = token.take();
    }
    f.keep("special_tokens", std::move(kept));
    const auto pieces = [&](std::string_view key, std::vector<Piece>& out, bool pair) {
      f.list(key, kMaxPieces, [&](const Json& node, std::string path) {
        if (!node.is_object() || node.size() != 1) f.fail(key, "objects of one member");
        const std::string& kind = node.begin().key();
        Fields fields(node.begin().value(), cat(path, '.', kind), f.source());
        Piece piece;
        const std::string id = fields.string("id");
        piece.type_id = static_cast<int32_t>(fields.integer("type_id", 0, INT32_MAX));
        if (kind == "Sequence" && (id == "A" || (id == "B" && pair))) {
          piece.sequence = id == "A" ? 0 : 1;
        } else if (kind == "SpecialToken" && tokens.count(id) != 0) {
          piece.ids = tokens[id];
        } else {
          fields.fail("id", "a sequence that there is, or one of special_tokens");
        }
        out.push_back(std::move(piece));
        return Json{{kind, fields.take()}};
      });
    };
    pieces("single", single, false);
    pieces("pair", pair, true);
  }

  std::vector<Segment> apply(std::vector<Segment> segments, bool add) const override {
    check(segments.size() == 1 || segments.size() == 2, "tokenizer", "a template of the post-processor got ",
          segments.size(), " parts, it is for one text or two");
    std::vector<Segment> out;
    for (const Piece& piece : segments.size() == 1 ? single : pair) {
      if (piece.sequence < 0 && !add) continue;
      Segment s = piece.sequence < 0 ? special(piece.ids, 0) : segments[static_cast<size_t>(piece.sequence)];
      s.type_id = piece.type_id;
      out.push_back(std::move(s));
    }
    return out;
  }

  std::vector<Piece> single, pair;
};

struct Sequence final : PostProcessor {
  explicit Sequence(Fields& f) {
    f.list("processors", kMaxParts, [&](const Json& node, std::string path) {
      Parsed<PostProcessor> parsed = parse_post_processor(node, std::move(path), f.source());
      parts.push_back(std::move(parsed.part));
      return std::move(parsed.json);
    });
  }
  std::vector<Segment> apply(std::vector<Segment> segments, bool add) const override {
    for (const auto& part : parts) segments = part->apply(std::move(segments), add);
    return segments;
  }
  std::vector<std::unique_ptr<const PostProcessor>> parts;
};

template <class T>
std::unique_ptr<const PostProcessor> parse_fields(Fields& f) {
  return std::make_unique<T>(f);
}

constexpr Kind<PostProcessor> kPostProcessors[] = {
    {"TemplateProcessing", parse_fields<TemplateProcessing>},
    {"BertProcessing", parse_fields<BertProcessing>},
    {"RobertaProcessing", parse_fields<RobertaProcessing>},
    {"ByteLevel", parse_fields<ByteLevel>},
    {"Sequence", parse_fields<Sequence>},
};

}  // namespace

Parsed<PostProcessor> parse_post_processor(const Json& node, std::string path, std::string_view source) {
  return parse_part<PostProcessor>(node, std::move(path), source, kPostProcessors);
}

}  // namespace strata::text::pipeline
