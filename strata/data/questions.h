#pragma once
// Questions of evaluations, from JSONL files: with answers to choose among, or with an answer to write.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// Where in a row of JSON what of a question stands. A path names a member, one within others as "meta.label". What is
/// read as text may be a pattern instead, which has paths in braces: "Question: {question}\nAnswer:" ({{ and }} are
/// braces).
struct QuestionFields {
  std::string context = "question";  ///< what stands before the answer: path or pattern
  std::string choices = "choices";   ///< the answers to choose among: a list of texts; paths of several, with commas
  /// The right one: its place, its name, or its text; of read_answers the answer, a text or a list of them. A path.
  std::string answer = "answer";
  /// What the choices are called where the right one is told by name: a list of texts; none: A, B, C, ..
  std::string names = {};
  /// The place that is told of the first choice.
  int64_t first = 0;
};
/// Sets fields by "name=value" ("context=ctx", "choices=endings", "first=1"). Throws ValueError that lists the names.
void set_field(QuestionFields& fields, std::string_view setting);

/// A question with answers to choose among.
struct ChoiceRow {
  std::string context;
  std::vector<std::string> choices;
  int64_t right = 0;       ///< from 0
  std::string place = {};  ///< "'a.jsonl': line 3"
};
/// A question with what is right to answer.
struct AnswerRow {
  std::string context;
  std::vector<std::string> answers;
  std::string place = {};  ///< "'a.jsonl': line 3"
};

/// All rows of JSONL files (find_text_files, compressed or not). Throws IoError naming file and line: not JSON, no such
/// member or one of another type, fewer than two choices, a right one that is none of them or could be several; or
/// where there are no rows. \code
///   data::QuestionFields fields;
///   for (const char* s : {"context=Question: {question}\nAnswer:", "choices=choices.text", "names=choices.label",
///                         "answer=answerKey"})
///     data::set_field(fields, s);
///   const auto rows = data::read_choices(std::vector<std::string>{"arc.jsonl"}, fields);
/// \endcode
std::vector<ChoiceRow> read_choices(std::span<const std::string> sources, const QuestionFields& fields = {});
std::vector<AnswerRow> read_answers(std::span<const std::string> sources, const QuestionFields& fields = {});
/// The same of a file that is in memory; `name` is what errors call it.
std::vector<ChoiceRow> parse_choices(std::string_view file, const std::string& name, const QuestionFields& fields = {});
std::vector<AnswerRow> parse_answers(std::string_view file, const std::string& name, const QuestionFields& fields = {});

}  // namespace strata::data
