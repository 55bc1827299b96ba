#include "strata/eval/evaluate.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/data/text_reader.h"
#include "strata/eval/shots.h"
#include "strata/eval/text_proofs.h"
#include "strata/generate/text_model.h"
#include "strata/io/files.h"
#include "strata/text/utf8.h"

namespace strata::eval {
namespace {

constexpr const char* kOp = "evaluate";
constexpr uint64_t kMaxProofs = uint64_t{1} << 30;  // bytes of a file

void check_plan(const EvaluationPlan& p, bool compares) {
  const bool texts = !p.text.empty() || !p.documents.empty();
  check(texts || !p.choices.empty() || !p.answers.empty(), kOp,
        "there is nothing to evaluate on: name texts, choices or answers");
  for (const auto& [given, what] : {std::pair(compares, "a comparison"), std::pair(!p.proof.empty(), "a proof"),
                                    std::pair(!p.check_proof.empty(), "the check of a proof")})
    check(!given || texts, kOp, what, " reads texts, and there are none");
  check(p.shots >= 0, kOp, "there are ", p.shots, " examples to show");
  check(p.shots_from.empty() || p.shots > 0, kOp, "examples come from '", p.shots_from.empty() ? "" : p.shots_from[0],
        "', and none are shown");
  check(p.limit >= 0, kOp, "a limit is at least 0, got ", p.limit);
  check(p.batch >= 1, kOp, "a batch is at least 1, got ", p.batch);
}

// What a plan's files hold.
class Documents {
 public:
  explicit Documents(const EvaluationPlan& plan) : plan_(plan) {
    if (!plan.text.empty()) texts = data::read_documents(plan.text, {.field = plan.text_field});
    texts.insert(texts.end(), plan.documents.begin(), plan.documents.end());
    texts = first(std::move(texts));
    if (!plan.choices.empty()) read_choices();
    if (!plan.answers.empty()) read_answers();
    if (!plan.check_proof.empty())
      proofs = parse_text_proofs(io::read_file(plan.check_proof, kMaxProofs), plan.check_proof);
  }

  std::vector<std::string> texts;
  std::vector<Choice> choices;
  std::vector<Question> questions;
  std::optional<TextProofs> proofs;

 private:
  template <class T>
  std::vector<T> first(std::vector<T> all) const {
    if (plan_.limit > 0 && all.size() > static_cast<size_t>(plan_.limit)) all.resize(static_cast<size_t>(plan_.limit));
    return all;
  }

  // What stands before each question: the description, and examples with their answers.
  template <class Row, class Answer, class Read, class Same>
  std::vector<std::string> contexts(const std::vector<Row>& rows, const std::vector<Row>& all, Answer answer, Read read,
                                    Same same) const {
    const bool own = plan_.shots_from.empty();
    const std::vector<Row> others = own || plan_.shots == 0 ? std::vector<Row>() : read(plan_.shots_from, plan_.fields);
    const std::vector<Row>& examples = own ? all : others;
    ShotSampler shots(plan_.shots == 0 ? 0 : examples.size(), static_cast<size_t>(plan_.shots), plan_.shots_seed);
    std::vector<std::string> before;
    for (const Row& row : rows) {
      std::string text = plan_.description;
      const std::vector<size_t> shown =
          own ? shots.next([&](size_t i) { return same(examples[i], row); }) : shots.next();
      for (const size_t i : shown)
        text += examples[i].context + plan_.delimiter + answer(examples[i]) + plan_.shot_delimiter;
      before.push_back(text + row.context);
    }
    return before;
  }

  void read_choices() {
    using Row = data::ChoiceRow;
    const std::vector<Row> all = data::read_choices(plan_.choices, plan_.fields), rows = first(all);
    const std::vector<std::string> before = contexts(
        rows, all, [](const Row& r) { return r.choices[static_cast<size_t>(r.right)]; },
        [](const auto& files, const auto& fields) { return data::read_choices(files, fields); },
        [](const Row& a, const Row& b) {
          return a.context == b.context && a.choices == b.choices && a.right == b.right;
        });
    for (size_t i = 0; i < rows.size(); ++i)
      choices.push_back({before[i], rows[i].choices, rows[i].right, rows[i].place});
  }

  void read_answers() {
    using Row = data::AnswerRow;
    const std::vector<Row> all = data::read_answers(plan_.answers, plan_.fields), rows = first(all);
    const std::vector<std::string> before = contexts(
        rows, all, [](const Row& r) { return r.answers.front(); },
        [](const auto& files, const auto& fields) { return data::read_answers(files, fields); },
        [](const Row& a, const Row& b) { return a.context == b.context && a.answers == b.answers; });
    for (size_t i = 0; i < rows.size(); ++i) questions.push_back({before[i], rows[i].answers, rows[i].place});
  }

  const EvaluationPlan& plan_;
};

// Makes a plan's evaluations, one after another.
class Evaluator {
 public:
  Evaluator(const Subject& subject, const EvaluationPlan& plan, const std::optional<EvaluationReference>& reference,
            const EvaluationHooks& hooks)
      : subject_(subject), plan_(plan), reference_(reference), hooks_(hooks) {}

  std::vector<EvaluationResult> run() {
    const Documents found(plan_);
    if (!found.texts.empty()) of_texts(found);
    if (!found.choices.empty())
      measure("choices", "tok", plan_.choices, shots_text(),
              [&](const auto& o) { return multiple_choice(subject_, found.choices, plan_.delimiter, o); });
    if (!found.questions.empty()) {
      const std::string most = fmt::format("at most {} tokens", plan_.match.tokens);
      measure("answers", "texts", plan_.answers, plan_.shots > 0 ? most + ", " + shots_text() : most,
              [&](const auto& o) { return exact_match(subject_, found.questions, plan_.match, o.watch); });
    }
    return std::move(results_);
  }

 private:
  void of_texts(const Documents& found) {
    const std::vector<std::string>& texts = found.texts;
    const std::string windows =
        fmt::format("windows of {} tokens, each {} further", subject_.context, subject_.context - plan_.overlap + 1);
    measure("text", "tok", plan_.text, windows, [&](const auto& o) { return perplexity(subject_, texts, o); });
    if (reference_) {
      const Subject other = reference_->subject();
      measure("compare", "tok", plan_.text, "from " + reference_->name,
              [&](const auto& o) { return divergence(subject_, other, texts, o); });
    }
    if (!plan_.proof.empty())
      io::write_file(plan_.proof, to_json(prove_texts(subject_, texts, options("prove", "tok"))));
    if (found.proofs)
      measure("proof", "tok", plan_.text, fmt::format("{} proofs", found.proofs->proofs.size()),
              [&](const auto& o) { return check_texts(subject_, texts, *found.proofs, o); });
  }

  EvaluationOptions options(std::string_view name, std::string_view unit) const {
    EvaluationOptions o{.batch = plan_.batch, .overlap = plan_.overlap};
    if (hooks_.watch)
      o.watch = [this, name, unit](int64_t done, int64_t all) { return hooks_.watch(name, unit, done, all); };
    return o;
  }

  template <class F>
  void measure(const char* name, const char* unit, const std::vector<std::string>& files, std::string details, F f) {
    const auto start = std::chrono::steady_clock::now();
    EvaluationResult r{.name = name, .files = files, .details = std::move(details)};
    r.found = f(options(name, unit));
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (hooks_.told) hooks_.told(r);
    results_.push_back(std::move(r));
  }

  std::string shots_text() const {
    if (plan_.shots == 0) return "no examples shown";
    return fmt::format("{} example{} shown{}", plan_.shots, plan_.shots == 1 ? "" : "s",
                       plan_.shots_seed ? fmt::format(", seed {}", *plan_.shots_seed) : "");
  }

  const Subject& subject_;
  const EvaluationPlan& plan_;
  const std::optional<EvaluationReference>& reference_;
  const EvaluationHooks& hooks_;
  std::vector<EvaluationResult> results_;
};

std::string json_number(double v) {
  return std::isfinite(v) ? fmt::format("{:.17g}", v) : "null";
}
std::string json_text(const std::string& text) {
  return detail::json_string(text::valid_utf8(text));
}

std::string json_of(const EvaluationResult& r, bool samples) {
  std::string measures;
  for (const Measure& m : r.found.measures)
    measures +=
        fmt::format("{}{}: {{\"value\": {}, \"error\": {}}}", measures.empty() ? "" : ", ", detail::json_string(m.name),
                    json_number(m.value), m.error ? json_number(*m.error) : "null");
  std::string all = fmt::format(
      "{{\"files\": {}, \"documents\": {}, \"tokens\": {}, \"seconds\": {:.6g}, \"details\": {}, \"measures\": {{{}}}",
      detail::json_list(r.files, json_text), r.found.documents, r.found.tokens, r.seconds, json_text(r.details),
      measures);
  if (samples)
    all += ", \"samples\": " + detail::json_list(r.found.samples, [](const Sample& s) {
             std::string one =
                 fmt::format("\n{{\"values\": {}, \"log_probabilities\": {}", detail::json_list(s.values, json_number),
                             detail::json_list(s.log_probabilities, json_number));
             return one + fmt::format(", \"written\": {}}}", json_text(s.written));
           });
  return all + "}";
}

const LanguageModel& evaluated_decoder(const TextModel& model) {
  check(model.folder() != nullptr, kOp, "the folder has no tokenizer");
  return model.decoder(kOp);
}

Subject subject_of(const TextModel& model, SubjectOptions options) {
  evaluated_decoder(model);
  options.generation = model.options("{}");
  return make_subject(model.pretrained().model, model.tokenizer(), with_folder(std::move(options), *model.folder()));
}

}  // namespace

EvaluationReport evaluate(const Subject& subject, const EvaluationPlan& plan,
                          const std::optional<EvaluationReference>& reference, const EvaluationHooks& hooks) {
  check_plan(plan, reference.has_value());
  EvaluationReport report{
      .context = subject.context, .prefix = subject.prefix, .batch = plan.batch, .shots = plan.shots};
  report.samples = plan.samples;
  report.results = Evaluator(subject, plan, reference, hooks).run();
  return report;
}

std::string to_json(const EvaluationReport& report) {
  std::string parts, head;
  for (const EvaluationResult& r : report.results)
    parts +=
        fmt::format("{}\n{}: {}", parts.empty() ? "" : ",", detail::json_string(r.name), json_of(r, report.samples));
  for (const auto& [name, text] : {std::pair("model", &report.model), std::pair("version", &report.version),
                                   std::pair("device", &report.device), std::pair("dtype", &report.dtype)})
    if (!text->empty()) head += fmt::format("\"{}\": {}, ", name, json_text(*text));
  return fmt::format("{{{}\"context\": {}, \"prefix\": {}, \"batch\": {}, \"shots\": {}, \"results\": {{{}\n}}}}\n",
                     head, report.context, report.prefix, report.batch, report.shots, parts);
}

std::string evaluate(TextModel& model, std::string_view call, TextModel* reference, const EvaluationHooks& hooks) {
  const EvaluationCall asked = parse_evaluation_call(call);
  const LanguageModel& decoder = evaluated_decoder(model);
  if (reference != nullptr) evaluated_decoder(*reference);
  std::optional<EvaluationReference> other;
  if (reference != nullptr)
    other = {reference->pretrained().folder, [&] { return subject_of(*reference, asked.subject); }};
  EvaluationReport report;
  const auto run = [&] { report = evaluate(subject_of(model, asked.subject), asked.plan, other, hooks); };
  // Both at rest, in one order for all threads.
  if (reference == nullptr || reference == &model) {
    model.in_turn(kOp, run);
  } else {
    TextModel &first = std::less<>()(&model, reference) ? model : *reference,
              &second = &first == &model ? *reference : model;
    first.in_turn(kOp, [&] { second.in_turn(kOp, run); });
  }
  report.model = model.pretrained().folder;
  report.device = to_string(decoder.device());
  report.dtype = name_of(decoder.token_embedding.weight.dtype());
  return to_json(report);
}

}  // namespace strata::eval
