#include "strata/data/chat.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/data/json_rows_inl.h"
#include "strata/data/marked_text_inl.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/text/jinja/template.h"

namespace strata::data {
using io::quote;
using nlohmann::ordered_json;
using text::jinja::Ranges;
using text::jinja::Rendered;
namespace {

// Who speaks, as sets of conversations spell it.
constexpr std::pair<std::string_view, std::string_view> kSpeakers[] = {
    {"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
    {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"},
};
// Members of a row that the template sees beside the messages.
constexpr std::string_view kTemplateMembers[] = {"tools", "documents"};

// A row of one of the forms.
struct Row {
  ordered_json variables = ordered_json::object();  // for the template, without messages
  ordered_json messages = ordered_json::array();
  size_t learn_from = 0;  // of the messages: the assistant's from here on
  bool templated = true;
  std::string prompt, answer;  // where not templated
};

// Whether the template itself says what the assistant wrote.
bool has_generation_blocks(std::string_view source) {
  for (size_t at = 0; (at = source.find("{%", at)) != std::string_view::npos; ++at) {
    const size_t word = source.find_first_not_of("-+ \t\r\n", at + 2);
    if (word != std::string_view::npos && source.substr(word).starts_with("generation")) return true;
  }
  return false;
}

ordered_json message(std::string_view role, const ordered_json& content) {
  ordered_json m = ordered_json::object();
  m["role"] = role;
  m["content"] = content;
  return m;
}

}  // namespace

struct ChatEncoder::Impl {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<MarkedText> marked;
  std::optional<text::jinja::Template> chat_template;
  bool marks_answers = false;  // the template has generation blocks
  ordered_json trusted;
  ChatOptions options;

  // A list of messages, each with a role.
  static void add_messages(const ordered_json& list, std::string_view name, const std::string& place,
                           ordered_json& messages) {
    check<IoError>(list.is_array() && !list.empty(), "", place, ": ", quote(name),
                   " is to be a list of messages, with at least one");
    for (const ordered_json& m : list) {
      const auto role = m.is_object() ? m.find("role") : m.end();
      check<IoError>(m.is_object() && role != m.end() && role->is_string(), "", place, ": message ",
                     messages.size() + 1, " of ", quote(name), " is to be an object with a role");
      messages.push_back(m);
    }
  }

  static void add_conversation(const ordered_json& list, const std::string& place, ordered_json& messages) {
    check<IoError>(list.is_array() && !list.empty(), "", place,
                   ": 'conversations' is to be a list of messages, with at least one");
    for (const ordered_json& m : list) {
      const ordered_json* from = json_member(m, "from");
      const ordered_json* value = json_member(m, "value");
      check<IoError>(from && from->is_string() && value && value->is_string(), "", place, ": message ",
                     messages.size() + 1, " of 'conversations' is to have texts as 'from' and 'value'");
      const auto who = from->get<std::string>();
      const auto speaker = std::ranges::find(kSpeakers, who, [](const auto& pair) { return pair.first; });
      if (speaker == std::end(kSpeakers)) {
        std::string all;
        for (const auto& [name, role] : kSpeakers) all += cat(all.empty() ? "" : ", ", name);
        throw IoError("", cat(place, ": message ", messages.size() + 1, " is from ", quote(who), ", known are ", all));
      }
      messages.push_back(message(speaker->second, *value));
    }
  }

  // What answers a prompt: both texts, or lists of messages, or one of each.
  static void set_answer(const ordered_json* prompt, const ordered_json& answer, std::string_view name,
                         const std::string& place, Row& row) {
    if ((!prompt || prompt->is_string()) && answer.is_string()) {
      row.templated = false;
      if (prompt) row.prompt = prompt->get<std::string>();
      row.answer = answer.get<std::string>();
      return;
    }
    if (prompt && prompt->is_string()) row.messages.push_back(message("user", *prompt));
    if (prompt && !prompt->is_string()) add_messages(*prompt, "prompt", place, row.messages);
    row.learn_from = row.messages.size();
    if (answer.is_string()) {
      row.messages.push_back(message("assistant", answer));
    } else {
      add_messages(answer, name, place, row.messages);
    }
  }

  static Row start_row(const ordered_json& json, const std::string& place) {
    Row row;
    if (const ordered_json* more = json_member(json, "chat_template_kwargs"); more && !more->is_null()) {
      check<IoError>(more->is_object(), "", place, ": 'chat_template_kwargs' is no object");
      row.variables = *more;
    }
    for (const std::string_view name : kTemplateMembers)
      if (const auto found = json.find(std::string(name)); found != json.end())
        row.variables[std::string(name)] = *found;
    return row;
  }

  static Row row_of(const ordered_json& json, const std::string& place) {
    Row row = start_row(json, place);
    const auto member = [&](const char* name) { return json.find(name) == json.end() ? nullptr : &*json.find(name); };
    if (const ordered_json* messages = member("messages")) {
      add_messages(*messages, "messages", place, row.messages);
    } else if (const ordered_json* conversations = member("conversations")) {
      add_conversation(*conversations, place, row.messages);
    } else if (const ordered_json* completion = member("completion"); completion && member("prompt")) {
      set_answer(member("prompt"), *completion, "completion", place, row);
    } else if (const ordered_json* text = member("text"); text && text->is_string()) {
      row.templated = false;
      row.answer = text->get<std::string>();
    } else {
      throw IoError("", cat(place,
                            ": has neither 'messages', 'conversations', 'prompt' with 'completion' nor 'text'; "
                            "its members are ",
                            json_members(json)));
    }
    return row;
  }

  Rendered render(const Row& row, size_t messages, bool prompt, const std::string& place) const {
    check<ValueError>(chat_template.has_value(), "chat", place, ": has messages, and there is no chat template");
    ordered_json data = row.variables;
    data["messages"] = ordered_json(row.messages.begin(), row.messages.begin() + static_cast<std::ptrdiff_t>(messages));
    data["add_generation_prompt"] = prompt;
    try {
      return chat_template->render(data, trusted);
    } catch (const ValueError& e) {
      throw ValueError("", cat(place, ": ", e.what()));
    }
  }

  // The length of a rendered beginning of the conversation, which is to be how the whole begins.
  size_t prefix(const Row& row, size_t messages, bool prompt, const Rendered& whole, const std::string& place) const {
    const std::string text = render(row, messages, prompt, place).text;
    check<ValueError>(
        whole.text.starts_with(text), "chat", place, ": the chat template renders the first ", messages, " messages",
        prompt ? " and the prompt behind them" : "",
        " otherwise than within all of them, so what the assistant wrote cannot be found; a template with "
        "{% generation %} blocks says it");
    return text.size();
  }

  Ranges answers(const Row& row, const Rendered& whole, const std::string& place) const {
    Ranges ranges;
    if (marks_answers) {
      const size_t from = row.learn_from == 0 ? 0 : prefix(row, row.learn_from, false, whole, place);
      // Answers that touch are one range.
      for (const auto& [begin, end] : whole.generated)
        if (end > from) ranges.emplace_back(std::max(begin, from), end);
      return ranges;
    }
    for (size_t i = row.learn_from; i < row.messages.size(); ++i) {
      if (row.messages[i]["role"] != "assistant") continue;
      const size_t begin = prefix(row, i, true, whole, place), end = prefix(row, i + 1, false, whole, place);
      check<ValueError>(begin <= end, "chat", place, ": message ", i + 1, " renders shorter than the prompt for it");
      if (begin == end) continue;
      if (!ranges.empty() && ranges.back().second >= begin) {
        ranges.back().second = end;
      } else {
        ranges.emplace_back(begin, end);
      }
    }
    return ranges;
  }

  MarkedTokens encode(const Row& row, const std::string& place) const {
    MarkedTokens result;
    const auto add = [&](const std::vector<int32_t>& ids, bool learn) {
      result.tokens.insert(result.tokens.end(), ids.begin(), ids.end());
      result.learned.insert(result.learned.end(), ids.size(), learn ? 1 : 0);
    };
    if (!row.templated) {
      add(tokenizer->encode(row.prompt), options.learn_all);
      add(tokenizer->encode(row.answer), true);
      if (!options.end_token.empty()) add({tokenizer->special_tokens().at(options.end_token)}, true);
      return result;
    }
    const Rendered whole = render(row, row.messages.size(), false, place);
    if (options.learn_all) return marked->encode(whole.text, whole.from_data, {{0, whole.text.size()}});
    return marked->encode(whole.text, whole.from_data, answers(row, whole, place));
  }
};

ChatEncoder::ChatEncoder(std::shared_ptr<const text::Tokenizer> tokenizer, std::string_view chat_template,
                         const ChatOptions& options) {
  auto impl = std::make_unique<Impl>();
  check(tokenizer != nullptr, "ChatEncoder", "needs a tokenizer");
  impl->tokenizer = std::move(tokenizer);
  impl->marked.emplace(*impl->tokenizer);
  impl->options = options;
  if (!chat_template.empty()) impl->chat_template.emplace(chat_template);
  impl->marks_answers = has_generation_blocks(chat_template);
  try {
    impl->trusted = json_row({options.variables, "variables of the chat template", 1, 0});
  } catch (const IoError& e) {
    throw ValueError("", e.what());
  }
  const auto& special = impl->tokenizer->special_tokens();
  check(options.end_token.empty() || special.contains(options.end_token), "ChatEncoder",
        "the tokenizer has no special token ", quote(options.end_token));
  impl_ = std::move(impl);
}
ChatEncoder::~ChatEncoder() = default;
ChatEncoder::ChatEncoder(ChatEncoder&&) noexcept = default;
ChatEncoder& ChatEncoder::operator=(ChatEncoder&&) noexcept = default;

MarkedTokens ChatEncoder::encode(std::string_view row, std::string_view file, uint64_t line, uint64_t byte) const {
  const JsonLine where{row, file, line, byte};
  return impl_->encode(Impl::row_of(json_row(where), place_of(where)), place_of(where));
}

PreferencePair ChatEncoder::encode_pair(std::string_view row, std::string_view file, uint64_t line,
                                        uint64_t byte) const {
  const JsonLine where{row, file, line, byte};
  const std::string place = place_of(where);
  const ordered_json json = json_row(where);
  const auto member = [&](const char* name) { return json.find(name) == json.end() ? nullptr : &*json.find(name); };
  const ordered_json* answers[2] = {member("chosen"), member("rejected")};
  check<IoError>(answers[0] && answers[1], "", place, ": has not both 'chosen' and 'rejected'; its members are ",
                 json_members(json));
  Row rows[2];
  for (int i = 0; i < 2; ++i) {
    rows[i] = Impl::start_row(json, place);
    Impl::set_answer(member("prompt"), *answers[i], i == 0 ? "chosen" : "rejected", place, rows[i]);
  }
  check<IoError>(rows[0].templated == rows[1].templated, "", place,
                 ": of 'chosen' and 'rejected' one is a text, the other a list of messages");
  // Messages that both begin with belong to the prompt, but for the last one, which is an answer all the same.
  size_t shared = rows[0].learn_from;
  const size_t most = std::min(rows[0].messages.size(), rows[1].messages.size());
  while (shared + 1 < most && rows[0].messages[shared] == rows[1].messages[shared]) ++shared;
  PreferencePair pair;
  for (int i = 0; i < 2; ++i) {
    rows[i].learn_from = shared;
    (i == 0 ? pair.chosen : pair.rejected) = impl_->encode(rows[i], place);
  }
  return pair;
}

}  // namespace strata::data
