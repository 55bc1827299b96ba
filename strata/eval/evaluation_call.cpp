// A call's JSON as an evaluation's plan.

#include <string_view>
#include <type_traits>

#include "strata/core/json_text.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/json_field_inl.h"

namespace strata::eval {
namespace {

using Field = detail::JsonField;
constexpr std::string_view kOp = "evaluate";

// What a field says into a member of its type.
template <class T>
void read(const Field& f, T& to) {
  if constexpr (std::is_same_v<T, bool>)
    to = f.truth();
  else if constexpr (std::is_same_v<T, std::string>)
    to = f.text();
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    to = f.texts();
  else if constexpr (std::is_same_v<T, std::optional<uint64_t>>)
    to = f.seed();
  else if constexpr (std::is_same_v<T, std::optional<int32_t>>)
    to = static_cast<int32_t>(f.whole());
  else
    to = f.whole();
}
template <auto member>
void plan(EvaluationCall& c, const Field& f) {
  read(f, c.plan.*member);
}
template <auto member>
void match(EvaluationCall& c, const Field& f) {
  read(f, c.plan.match.*member);
}
template <auto member>
void subject(EvaluationCall& c, const Field& f) {
  read(f, c.subject.*member);
}

void read_fields(EvaluationCall& c, const Field& f) {
  if (!f.value.is_object()) f.refuse("wanted {\"context\": a path or a pattern, ..}");
  for (const auto& [name, where] : f.value.items()) {
    if (!where.is_string() && !where.is_number_integer()) f.refuse(cat(name, " is no text"));
    data::set_field(c.plan.fields, cat(name, '=', where.is_string() ? where.get<std::string>() : where.dump()));
  }
}

struct Key {
  const char *name, *type, *doc;
  void (*read)(EvaluationCall&, const Field&);
};
using P = EvaluationPlan;
using M = MatchOptions;

const Key kKeys[] = {
    {"text", "texts", "Files of texts: their perplexity by word, byte and token. Of JSONL each row is a document.",
     plan<&P::text>},
    {"documents", "texts", "Texts themselves, behind those of the files.", plan<&P::documents>},
    {"text_field", "text", "Of JSONL, the member that is the text: \"text\" where nothing is said.",
     plan<&P::text_field>},
    {"proof", "text", "A file to write, with proofs of what was computed on the texts, 258 bytes for 32 tokens.",
     plan<&P::proof>},
    {"check_proof", "text", "A file of such proofs: whether another run that proved its work had this model.",
     plan<&P::check_proof>},
    {"choices", "texts", "JSONL files of questions with answers to choose among: acc, acc_norm, acc_bytes.",
     plan<&P::choices>},
    {"answers", "texts", "JSONL files of questions with an answer to write: exact_match.", plan<&P::answers>},
    {"fields", "fields",
     "Where in a row what stands: context, choices, answer, names (paths; context also a pattern with {paths}), first "
     "(the place told of the first choice).",
     read_fields},
    {"target_delimiter", "text", "Between question and answer; a space where nothing is said.", plan<&P::delimiter>},
    {"description", "text", "What stands before everything.", plan<&P::description>},
    {"num_fewshot", "integer", "Examples with their right answers that are shown before a question.", plan<&P::shots>},
    {"fewshot_from", "texts", "JSONL files where they come from; else the other questions of the same files.",
     plan<&P::shots_from>},
    {"fewshot_seed", "integer", "Drawn by this seed, as the harness draws them (1234 there); else the first.",
     plan<&P::shots_seed>},
    {"fewshot_delimiter", "text", "Behind each of them; two line breaks where nothing is said.",
     plan<&P::shot_delimiter>},
    {"max_gen_toks", "integer", "Tokens of an answer at most; 256 where nothing is said.", match<&M::tokens>},
    {"until", "texts", "Texts that end an answer, and are no part of it; two line breaks where nothing is said.",
     match<&M::stops>},
    {"ignore_case", "boolean", "Answers are compared in lower case.", match<&M::ignore_case>},
    {"ignore_punctuation", "boolean", "And without ASCII's punctuation.", match<&M::ignore_punctuation>},
    {"ignore_numbers", "boolean", "And without digits.", match<&M::ignore_digits>},
    {"trim", "boolean", "And without white space at their ends.", match<&M::trim>},
    {"max_length", "integer", "Tokens that the model sees at most; 0: as many as it takes.",
     subject<&SubjectOptions::context>},
    {"overlap", "integer",
     "Tokens that a window of a text shares at least with the one before; 1 where nothing is said.", plan<&P::overlap>},
    {"add_special_tokens", "boolean", "Texts with the tokens that the tokenizer puts around them, as they usually are.",
     subject<&SubjectOptions::special_tokens>},
    {"prefix_token_id", "integer", "The id before a text's first token; else beginning, else end of text.",
     subject<&SubjectOptions::prefix>},
    {"limit", "integer", "The first so many documents of each kind alone; 0: all.", plan<&P::limit>},
    {"batch_size", "integer", "Texts at a time; 8 where nothing is said.",
     [](EvaluationCall& c, const Field& f) { c.plan.batch = c.subject.batch = f.whole(); }},
    {"log_samples", "boolean", "With what was found of each document.", plan<&P::samples>},
};

}  // namespace

EvaluationCall parse_evaluation_call(std::string_view json) {
  const nlohmann::json said = detail::object_of(json, kOp, true);
  EvaluationCall call;
  for (const auto& [name, value] : said.items()) {
    const Field field{kOp, name, value, true};
    const Key* const key =
        std::ranges::find(kKeys, std::string_view(name), [](const Key& k) { return std::string_view(k.name); });
    if (key == std::end(kKeys)) field.refuse("there is no such option");
    if (!value.is_null()) key->read(call, field);
  }
  return call;
}

std::string describe_evaluation_options() {
  return detail::json_list(kKeys, [](const Key& k) {
    return cat("{\"name\": ", detail::json_string(k.name), ", \"type\": ", detail::json_string(k.type),
               ", \"doc\": ", detail::json_string(k.doc), "}");
  });
}

}  // namespace strata::eval
