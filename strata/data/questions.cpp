#include "strata/data/questions.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "strata/core/error.h"
#include "strata/data/json_rows_inl.h"
#include "strata/data/text_reader.h"
#include "strata/io/files.h"

namespace strata::data {
using io::quote;
using nlohmann::ordered_json;
namespace {

// The fields that are texts, by the names that they have in settings.
constexpr std::pair<std::string_view, std::string QuestionFields::*> kFields[] = {
    {"context", &QuestionFields::context},
    {"choices", &QuestionFields::choices},
    {"answer", &QuestionFields::answer},
    {"names", &QuestionFields::names},
};
constexpr std::string_view kFirst = "first";

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A row and where it stands.
class Row {
 public:
  Row(ordered_json json, std::string place) : json_(std::move(json)), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  const ordered_json& member(std::string_view path) const {
    const ordered_json* found = json_member(json_, path);
    check<IoError>(found != nullptr, "", place_, ": the object has no member ", quote(path), "; it has ",
                   json_members(json_));
    return *found;
  }
  std::string text(std::string_view path) const { return text_of(member(path), path); }
  std::string text_of(const ordered_json& value, std::string_view path) const {
    if (value.is_number_integer()) return value.dump();
    check<IoError>(value.is_string(), "", place_, ": the member ", quote(path), " is no text");
    return value.get<std::string>();
  }
  std::vector<std::string> texts(std::string_view path) const {
    const ordered_json& list = member(path);
    check<IoError>(list.is_array(), "", place_, ": the member ", quote(path), " is no list");
    std::vector<std::string> all;
    for (const ordered_json& value : list) all.push_back(text_of(value, path));
    return all;
  }

  // A path, or a pattern with paths in braces.
  std::string filled(std::string_view pattern) const {
    if (pattern.find_first_of("{}") == std::string_view::npos) return text(pattern);
    std::string all;
    for (size_t at = 0; at < pattern.size();) {
      const char c = pattern[at];
      const bool twice = at + 1 < pattern.size() && pattern[at + 1] == c;
      if ((c == '{' || c == '}') && twice) {
        all += c;
        at += 2;
      } else if (c == '{') {
        const size_t end = pattern.find('}', at);
        check<ValueError>(end != std::string_view::npos, "", "the pattern ", quote(pattern), " has a { without a }");
        all += text(pattern.substr(at + 1, end - at - 1));
        at = end + 1;
      } else {
        check<ValueError>(c != '}', "", "the pattern ", quote(pattern), " has a } without a {");
        all += c;
        ++at;
      }
    }
    return all;
  }

 private:
  ordered_json json_;
  std::string place_;
};

std::vector<std::string> choices_of(const Row& row, std::string_view paths) {
  if (paths.find(',') == std::string_view::npos) return row.texts(paths);
  std::vector<std::string> all;
  for (size_t begin = 0;;) {
    const size_t comma = paths.find(',', begin);
    all.push_back(row.text(paths.substr(begin, comma - begin)));
    if (comma == std::string_view::npos) return all;
    begin = comma + 1;
  }
}

// Where the right one is: by name, by place, by its text, in that order.
int64_t right_of(const Row& row, const QuestionFields& fields, const std::vector<std::string>& choices) {
  const ordered_json& value = row.member(fields.answer);
  const std::string told = row.text_of(value, fields.answer);
  const auto count = static_cast<int64_t>(choices.size());
  const auto only = [&](const std::vector<std::string>& all) -> std::optional<int64_t> {
    const auto found = std::ranges::find(all, told);
    if (found == all.end()) return std::nullopt;
    check<IoError>(std::find(found + 1, all.end(), told) == all.end(), "", row.place(), ": the right choice is ",
                   quote(told), ", and that could be several");
    return found - all.begin();
  };
  if (!fields.names.empty()) {
    const std::vector<std::string> names = row.texts(fields.names);
    check<IoError>(names.size() == choices.size(), "", row.place(), ": there are ", choices.size(), " choices and ",
                   names.size(), " names of them");
    if (const auto found = only(names)) return *found;
  } else if (value.is_string() && told.size() == 1 && told[0] >= 'A' && told[0] < 'A' + count) {
    return told[0] - 'A';
  }
  if (const std::optional<int64_t> place = whole_number(told)) {
    if (*place >= fields.first && *place - fields.first < count) return *place - fields.first;
  } else if (const auto found = only(choices)) {
    return *found;
  }
  throw IoError("", cat(row.place(), ": the right choice is ", quote(told), ", which is none of the ", count));
}

template <class Make>
void take_rows(TextReader reader, const Make& make) {
  TextBlock block;
  while (reader.next(block))
    for (const TextBlock::Part& part : block.parts) {
      const JsonLine line{block.part(part), reader.name(), part.line, part.byte};
      make(Row(json_row(line), place_of(line)));
    }
}

ChoiceRow choice_row(const Row& row, const QuestionFields& fields) {
  ChoiceRow question{.context = row.filled(fields.context), .choices = choices_of(row, fields.choices)};
  check<IoError>(question.choices.size() >= 2, "", row.place(), ": has ", question.choices.size(),
                 " choices, at least 2 are wanted");
  for (const std::string& choice : question.choices)
    check<IoError>(!choice.empty(), "", row.place(), ": has an empty choice");
  question.right = right_of(row, fields, question.choices);
  question.place = row.place();
  return question;
}

AnswerRow answer_row(const Row& row, const QuestionFields& fields) {
  AnswerRow question{.context = row.filled(fields.context), .answers = {}, .place = row.place()};
  const ordered_json& answer = row.member(fields.answer);
  question.answers =
      answer.is_array() ? row.texts(fields.answer) : std::vector<std::string>{row.text_of(answer, fields.answer)};
  check<IoError>(!question.answers.empty(), "", row.place(), ": has no answers");
  return question;
}

// Rows of several files, or of one in memory.
template <class T>
std::vector<T> read_rows(std::span<const std::string> sources, const QuestionFields& fields,
                         T (*make)(const Row&, const QuestionFields&)) {
  std::vector<T> rows;
  for (const TextFile& file : find_text_files(sources))
    take_rows(TextReader(file.path, {.format = TextFormat::jsonl}),
              [&](const Row& row) { rows.push_back(make(row, fields)); });
  check<IoError>(!rows.empty(), "", "there are no rows in ", quote(sources.front()));
  return rows;
}
template <class T>
std::vector<T> parse_rows(std::string_view file, const std::string& name, const QuestionFields& fields,
                          T (*make)(const Row&, const QuestionFields&)) {
  std::vector<T> rows;
  take_rows(TextReader(io::ByteStream(file, name), {.format = TextFormat::jsonl}),
            [&](const Row& row) { rows.push_back(make(row, fields)); });
  check<IoError>(!rows.empty(), "", "there are no rows in ", quote(name));
  return rows;
}

}  // namespace

void set_field(QuestionFields& fields, std::string_view setting) {
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  check(equals != std::string_view::npos, "eval", "a field is set by name=value, got ", quote(setting));
  const std::string_view value = setting.substr(equals + 1);
  if (name == kFirst) {
    const std::optional<int64_t> number = whole_number(value);
    check(number.has_value(), "eval", "the field first wants a whole number, got ", quote(value));
    fields.first = *number;
    return;
  }
  std::string all(kFirst);
  for (const auto& [known, member] : kFields) {
    if (known == name) {
      fields.*member = value;
      return;
    }
    all += cat(", ", known);
  }
  throw ValueError("eval", cat("there is no field ", quote(name), "; there are ", all));
}

std::vector<ChoiceRow> read_choices(std::span<const std::string> sources, const QuestionFields& fields) {
  return read_rows(sources, fields, choice_row);
}
std::vector<AnswerRow> read_answers(std::span<const std::string> sources, const QuestionFields& fields) {
  return read_rows(sources, fields, answer_row);
}
std::vector<ChoiceRow> parse_choices(std::string_view file, const std::string& name, const QuestionFields& fields) {
  return parse_rows(file, name, fields, choice_row);
}
std::vector<AnswerRow> parse_answers(std::string_view file, const std::string& name, const QuestionFields& fields) {
  return parse_rows(file, name, fields, answer_row);
}

}  // namespace strata::data
