#include "strata/generate/chat_prompt.h"

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"
#include "strata/text/jinja/template.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata {
namespace {

constexpr const char* kOp = "chat_prompt";

std::string_view template_of(const text::TokenizerFolder& folder, const std::string& name) {
  if (name.empty()) {
    check(!folder.chat_template.empty(), kOp, "this folder has no chat template");
    return folder.chat_template;
  }
  const auto found = folder.chat_templates.find(name);
  if (found != folder.chat_templates.end()) return found->second;
  std::string names;
  for (const auto& [known, text] : folder.chat_templates) names += cat(names.empty() ? "" : ", ", known);
  throw ValueError(kOp, cat("there is no template '", name, "'; there are: ", names));
}

}  // namespace

std::vector<int64_t> chat_prompt(const text::TokenizerFolder& folder, std::string_view messages,
                                 std::string_view more) {
  const auto* tokenizer = dynamic_cast<const text::PipelineTokenizer*>(folder.tokenizer.get());
  check(tokenizer != nullptr, kOp, "this tokenizer knows no special tokens, which a conversation is marked with");
  const nlohmann::json list = io::parse_json(messages, "messages"), extra = io::parse_json(more, "variables");
  check<IoError>(list.is_array() && !list.empty(), kOp, "messages are a list of objects, and not empty");
  for (const nlohmann::json& m : list)
    check<IoError>(m.is_object() && m.contains("role") && m["role"].is_string(), kOp,
                   "a message is an object with a \"role\", got ",
                   m.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  check<IoError>(extra.is_object(), kOp, "variables are an object");
  std::string name;
  nlohmann::ordered_json data = nlohmann::ordered_json::object(), trusted = nlohmann::ordered_json::object();
  for (const auto& [key, value] : extra.items()) {
    if (key == "template") {
      check<IoError>(value.is_string(), kOp, "\"template\" is a name");
      name = value.get<std::string>();
    } else {
      data[key] = value;
    }
  }
  data["messages"] = list;
  if (!data.contains("add_generation_prompt")) data["add_generation_prompt"] = true;
  for (const auto& [token, id] : folder.named) trusted[token] = std::string(tokenizer->token(id));
  const text::jinja::Rendered rendered = text::jinja::Template(template_of(folder, name)).render(data, trusted);
  const std::vector<int32_t> ids = tokenizer->encode(rendered).ids;
  check(!ids.empty(), kOp, "the template made nothing of these messages");
  return {ids.begin(), ids.end()};
}

}  // namespace strata
