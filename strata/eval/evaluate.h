#pragma once
// Evaluations over files in one call, as the command line, Python, Node and C make them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/data/questions.h"
#include "strata/eval/subject.h"
#include "strata/eval/tasks.h"

namespace strata {
class TextModel;
}

namespace strata::eval {

/// What a model is evaluated on, and how. Files are what data::find_text_files() takes, compressed or not.
struct EvaluationPlan {
  std::vector<std::string> text{};       ///< files of texts: perplexity()
  std::vector<std::string> documents{};  ///< and texts themselves, behind those of the files
  std::string text_field = "text";       ///< of JSONL, the member that is the text
  std::string proof{};                   ///< a file to write, with proofs of what was computed on the texts
  std::string check_proof{};             ///< a file of such proofs: whether its writer had this model

  std::vector<std::string> choices{};     ///< JSONL of questions with answers to choose among: multiple_choice()
  std::vector<std::string> answers{};     ///< JSONL of questions with an answer to write: exact_match()
  data::QuestionFields fields{};          ///< where in their rows what stands
  std::string delimiter = " ";            ///< between question and answer
  std::string description{};              ///< what stands before everything
  int64_t shots = 0;                      ///< examples with their right answers that are shown before a question
  std::vector<std::string> shots_from{};  ///< JSONL where they come from; none: the other questions of the same files
  std::optional<uint64_t> shots_seed{};   ///< ShotSampler's; none: the first examples
  std::string shot_delimiter = "\n\n";    ///< behind each example
  MatchOptions match{};                   ///< of answers

  int64_t limit = 0;     ///< the first so many documents of each kind alone; 0: all
  int64_t batch = 8;     ///< rows of a forward pass
  int64_t overlap = 1;   ///< rolling_windows()
  bool samples = false;  ///< JSON has what was found of each document
};

/// One evaluation of a plan.
struct EvaluationResult {
  std::string name;                  ///< "text", "compare", "proof", "choices", "answers"
  std::vector<std::string> files{};  ///< what it read
  std::string details{};             ///< "windows of 256 tokens, each 256 further"
  double seconds = 0;
  Evaluation found{};
};

/// What a plan gave, with what decides its numbers.
struct EvaluationReport {
  std::string model{}, version{}, device{}, dtype{};  ///< the caller's to say; what is empty JSON leaves out
  int64_t context = 0;                                ///< Subject::context
  int32_t prefix = 0;                                 ///< Subject::prefix
  int64_t batch = 8, shots = 0;
  bool samples = false;
  std::vector<EvaluationResult> results{};
};

/// The model that texts are compared with: kl and its kin.
struct EvaluationReference {
  std::string name;                  ///< a path, for details
  std::function<Subject()> subject;  ///< called when it is needed: another model may have to be loaded
};

/// Who hears of an evaluation as it goes on. Either may be undefined.
struct EvaluationHooks {
  /// How far the evaluation of that name is; `unit` is what is counted, "tok" or "texts". False stops it, which is a
  /// ValueError.
  std::function<bool(std::string_view name, std::string_view unit, int64_t done, int64_t all)> watch{};
  std::function<void(const EvaluationResult&)> told{};  ///< of each result once it is there
};

/// Makes all evaluations that a plan names, in the order of EvaluationResult::name; its files are read before, so that
/// what is wrong with one shows before work that may take hours. Nothing is drawn: the same files give the same
/// numbers. Throws ValueError for a plan that names nothing to evaluate on, that compares or proves without texts, for
/// numbers out of range and what the evaluations refuse, IoError naming file and line for files that cannot be read.
EvaluationReport evaluate(const Subject& subject, const EvaluationPlan& plan,
                          const std::optional<EvaluationReference>& reference = {}, const EvaluationHooks& hooks = {});

/// {"model", "version", "device", "dtype", "context", "prefix", "batch", "shots", "results": {"text": {"files",
/// "documents", "tokens", "seconds", "details", "measures": {"loss": {"value", "error"}, ..}}, ..}}, with samples also
/// "samples": [{"values", "log_probabilities", "written"}, ..] in each. What is no finite number is null.
std::string to_json(const EvaluationReport& report);

/// A call of another language.
struct EvaluationCall {
  EvaluationPlan plan{};
  SubjectOptions subject{};
};
/// Of a JSON object with the options of describe_evaluation_options(); null is an option that is not given. Throws
/// ValueError naming the option that is not known, of another type or out of range.
EvaluationCall parse_evaluation_call(std::string_view json);
/// The options of a call as JSON, which declarations in other languages are made of: [{"name", "type", "doc"}, ..].
/// Names are lm-evaluation-harness's where it has one.
std::string describe_evaluation_options();

/// A decoder with its tokenizer evaluated; JSON in and out. `reference` is another one (or itself) that texts are
/// compared with. No generate() of either runs meanwhile, and a model that trains goes on training afterwards. Throws
/// as evaluate() and parse_evaluation_call() do, and ValueError for a model that does not continue texts or has no
/// tokenizer.
///
///     const auto model = TextModel::load("Qwen2.5-0.5B");
///     const std::string found = eval::evaluate(*model, R"({"text": "wiki.txt", "limit": 100})");
std::string evaluate(TextModel& model, std::string_view call, TextModel* reference = nullptr,
                     const EvaluationHooks& hooks = {});

}  // namespace strata::eval
