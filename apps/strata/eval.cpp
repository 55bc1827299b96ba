// strata eval: how good a model is on local files, by the measures of lm-evaluation-harness.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "apps/strata/signals.h"
#include "strata/core/json_text.h"
#include "strata/data/questions.h"
#include "strata/data/text_reader.h"
#include "strata/eval/shots.h"
#include "strata/eval/tasks.h"
#include "strata/eval/text_proofs.h"
#include "strata/io/files.h"
#include "strata/text/utf8.h"
#include "strata/train/machine.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMaxProofs = uint64_t{1} << 30;  // bytes of a file

struct Arguments {
  ModelArguments model;
  std::vector<std::string> text, choices, answers, fields, shots_from;
  std::string compare, json, proof, check_proof, text_field = "text", delimiter = " ", shot_delimiter = "\n\n",
                                                 description;
  int64_t batch = 8, context = 0, overlap = 1, limit = 0, shots = 0;
  std::optional<uint64_t> shots_seed;
  std::optional<int64_t> prefix;
  eval::MatchOptions match;
  bool no_special = false, samples = false, quiet = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The line of an evaluation: its part, speed, time left.
class EvalLine {
 public:
  EvalLine(std::string what, const char* unit, bool quiet)
      : what_(std::move(what)),
        unit_(unit),
        quiet_(quiet),
        terminal_(::isatty(STDERR_FILENO) != 0),
        start_(Clock::now()),
        drawn_(start_) {}
  ~EvalLine() {
    if (open_) std::fputs("\r\x1b[K", stderr);
  }
  EvalLine(const EvalLine&) = delete;

  // False where somebody wants it to stop.
  bool operator()(int64_t done, int64_t all) {
    const Clock::time_point now = Clock::now();
    if (!quiet_ && now - drawn_ >= (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) {
      drawn_ = now;
      std::string line = text(done, all);
      winsize size{};
      if (terminal_ && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        line.resize(std::min<size_t>(line.size(), size.ws_col - 1u));
      std::fputs((terminal_ ? "\r\x1b[K" + line : line + '\n').c_str(), stderr);
      std::fflush(stderr);
      open_ = terminal_;
    }
    return !StopOnSignal::stop_requested();
  }
  double seconds() const { return seconds_since(start_); }

 private:
  std::string text(int64_t done, int64_t all) const {
    const auto d = static_cast<double>(done), a = static_cast<double>(all);
    std::string line = fmt::format("{:3.0f}%  {}  {} of {} {}", all > 0 ? 100 * d / a : 0, what_, format_count(d),
                                   format_count(a), unit_);
    if (const double s = seconds(); done > 0 && s > 0)
      line += fmt::format("  {} {}/s  {} left", format_count(d / s), unit_, format_duration((a - d) / d * s));
    return line;
  }

  std::string what_;
  const char* unit_;
  bool quiet_, terminal_, open_ = false;  // open: the terminal shows it
  Clock::time_point start_, drawn_;
};

// An evaluation with what stands around it.
struct Result {
  std::string name;  // "text"
  std::vector<std::string> files;
  std::string details;  // ", windows of 256 tokens that share 1"
  double seconds = 0;
  eval::Evaluation found;
};

// One kind of evaluation, and all that differs between them.
class Evaluator {
 public:
  Evaluator(const Arguments& a, const Language& language, eval::Subject subject)
      : a_(a), language_(language), subject_(std::move(subject)) {
    options_.batch = a.batch;
    options_.overlap = a.overlap;
    for (const std::string& f : a.fields) data::set_field(fields_, f);
  }

  std::vector<Result> run() {
    std::vector<Result> results;
    if (!a_.text.empty()) of_texts(results);
    if (!a_.choices.empty()) {
      const std::vector<eval::Choice> questions = choices();
      results.push_back(measure("choices", "tok", a_.choices, shots_text(), [&](const eval::EvaluationOptions& o) {
        return eval::multiple_choice(subject_, questions, a_.delimiter, o);
      }));
    }
    if (!a_.answers.empty()) {
      const std::vector<eval::Question> questions = answers();
      const std::string most = fmt::format("at most {} tokens", a_.match.tokens);
      results.push_back(measure(
          "answers", "texts", a_.answers, a_.shots > 0 ? most + ", " + shots_text() : most,
          [&](const eval::EvaluationOptions& o) { return eval::exact_match(subject_, questions, a_.match, o.watch); }));
    }
    return results;
  }

  static eval::Subject subject_of(const Arguments& a, const Language& l) {
    eval::SubjectOptions o;
    o.context = a.context;
    o.special_tokens = !a.no_special;
    o.generation = l.options;
    o.batch = a.batch;
    if (a.prefix) {
      o.prefix = static_cast<int32_t>(*a.prefix);
    } else if (l.folder != nullptr && (l.folder->bos || l.folder->eos)) {
      o.prefix = l.folder->bos ? l.folder->bos : l.folder->eos;
    }
    if (l.folder != nullptr && l.folder->eos &&
        std::ranges::find(o.generation.stop_ids, *l.folder->eos) == o.generation.stop_ids.end())
      o.generation.stop_ids.push_back(*l.folder->eos);
    return eval::make_subject(l.model, l.tokenizer, o);
  }

 private:
  void of_texts(std::vector<Result>& results) {
    const std::vector<std::string> texts =
        first(data::read_documents(a_.text, {.field = a_.text_field, .utf8 = data::Utf8Policy::refuse}));
    const std::string windows =
        fmt::format("windows of {} tokens, each {} further", subject_.context, subject_.context - a_.overlap + 1);
    results.push_back(measure("text", "tok", a_.text, windows,
                              [&](const eval::EvaluationOptions& o) { return eval::perplexity(subject_, texts, o); }));
    if (!a_.compare.empty()) {
      const Language other = a_.model.beside(a_.compare);
      const eval::Subject reference = subject_of(a_, other);
      results.push_back(measure("compare", "tok", a_.text, "from " + a_.compare, [&](const eval::EvaluationOptions& o) {
        return eval::divergence(subject_, reference, texts, o);
      }));
    }
    if (!a_.proof.empty()) {
      EvalLine line("proof", "tok", a_.quiet);
      eval::EvaluationOptions o = options_;
      o.watch = [&](int64_t done, int64_t all) { return line(done, all); };
      io::write_file(a_.proof, eval::to_json(eval::prove_texts(subject_, texts, o)));
    }
    if (!a_.check_proof.empty()) {
      const eval::TextProofs proofs =
          eval::parse_text_proofs(io::read_file(a_.check_proof, kMaxProofs), a_.check_proof);
      results.push_back(
          measure("proof", "tok", a_.text, fmt::format("{} proofs", proofs.proofs.size()),
                  [&](const eval::EvaluationOptions& o) { return eval::check_texts(subject_, texts, proofs, o); }));
    }
  }

  template <class T>
  std::vector<T> first(std::vector<T> all) const {
    if (a_.limit > 0 && all.size() > static_cast<size_t>(a_.limit)) all.resize(static_cast<size_t>(a_.limit));
    return all;
  }

  template <class F>
  Result measure(const char* name, const char* unit, const std::vector<std::string>& files, std::string details, F f) {
    EvalLine line(name, unit, a_.quiet);
    eval::EvaluationOptions o = options_;
    o.watch = [&](int64_t done, int64_t all) { return line(done, all); };
    eval::Evaluation found = f(o);
    return {name, files, std::move(details), line.seconds(), std::move(found)};
  }

  std::string shots_text() const {
    if (a_.shots == 0) return "no examples shown";
    return fmt::format("{} example{} shown{}", a_.shots, a_.shots == 1 ? "" : "s",
                       a_.shots_seed ? fmt::format(", seed {}", *a_.shots_seed) : "");
  }

  // What stands before each question: the description, and examples with their answers.
  template <class Row, class Answer, class Read, class Same>
  std::vector<std::string> contexts(const std::vector<Row>& rows, const std::vector<Row>& all, Answer answer, Read read,
                                    Same same) const {
    const bool own = a_.shots_from.empty();
    const std::vector<Row> others = own || a_.shots == 0 ? std::vector<Row>() : read(a_.shots_from, fields_);
    const std::vector<Row>& examples = own ? all : others;
    eval::ShotSampler shots(a_.shots == 0 ? 0 : examples.size(), static_cast<size_t>(a_.shots), a_.shots_seed);
    std::vector<std::string> texts;
    for (const Row& row : rows) {
      std::string text = a_.description;
      const std::vector<size_t> shown =
          own ? shots.next([&](size_t i) { return same(examples[i], row); }) : shots.next();
      for (const size_t i : shown) text += examples[i].context + a_.delimiter + answer(examples[i]) + a_.shot_delimiter;
      texts.push_back(text + row.context);
    }
    return texts;
  }

  std::vector<eval::Choice> choices() const {
    using Row = data::ChoiceRow;
    const std::vector<Row> all = data::read_choices(a_.choices, fields_), rows = first(all);
    const std::vector<std::string> before = contexts(
        rows, all, [](const Row& r) { return r.choices[static_cast<size_t>(r.right)]; },
        [](const auto& files, const auto& fields) { return data::read_choices(files, fields); },
        [](const Row& a, const Row& b) {
          return a.context == b.context && a.choices == b.choices && a.right == b.right;
        });
    std::vector<eval::Choice> questions;
    for (size_t i = 0; i < rows.size(); ++i)
      questions.push_back({before[i], rows[i].choices, rows[i].right, rows[i].place});
    return questions;
  }

  std::vector<eval::Question> answers() const {
    using Row = data::AnswerRow;
    const std::vector<Row> all = data::read_answers(a_.answers, fields_), rows = first(all);
    const std::vector<std::string> before = contexts(
        rows, all, [](const Row& r) { return r.answers.front(); },
        [](const auto& files, const auto& fields) { return data::read_answers(files, fields); },
        [](const Row& a, const Row& b) { return a.context == b.context && a.answers == b.answers; });
    std::vector<eval::Question> questions;
    for (size_t i = 0; i < rows.size(); ++i) questions.push_back({before[i], rows[i].answers, rows[i].place});
    return questions;
  }

  const Arguments& a_;
  const Language& language_;
  eval::Subject subject_;
  eval::EvaluationOptions options_;
  data::QuestionFields fields_;
};

std::string json_number(double v) {
  return std::isfinite(v) ? fmt::format("{:.17g}", v) : "null";
}
std::string json_text(const std::string& text) {
  return detail::json_string(text::valid_utf8(text));
}

std::string json_of(const Result& r, bool samples) {
  std::string measures;
  for (const eval::Measure& m : r.found.measures)
    measures +=
        fmt::format("{}{}: {{\"value\": {}, \"error\": {}}}", measures.empty() ? "" : ", ", detail::json_string(m.name),
                    json_number(m.value), m.error ? json_number(*m.error) : "null");
  std::string all = fmt::format(
      "{{\"files\": {}, \"documents\": {}, \"tokens\": {}, \"seconds\": {:.6g}, \"details\": {}, \"measures\": {{{}}}",
      detail::json_list(r.files, json_text), r.found.documents, r.found.tokens, r.seconds, json_text(r.details),
      measures);
  if (samples)
    all += ", \"samples\": " + detail::json_list(r.found.samples, [](const eval::Sample& s) {
             std::string one =
                 fmt::format("\n{{\"values\": {}, \"log_probabilities\": {}", detail::json_list(s.values, json_number),
                             detail::json_list(s.log_probabilities, json_number));
             return one + fmt::format(", \"written\": {}}}", json_text(s.written));
           });
  return all + "}";
}

void tell(const Result& r) {
  const eval::Evaluation& e = r.found;
  std::string text = fmt::format("{}: {} document{}, {} tokens in {}; {}\n", r.name, e.documents,
                                 e.documents == 1 ? "" : "s", e.tokens, format_duration(r.seconds), r.details);
  size_t width = 0;
  for (const eval::Measure& m : e.measures) width = std::max(width, m.name.size());
  for (const eval::Measure& m : e.measures) {
    text += fmt::format("  {:<{}}  {:.6g}", m.name, width, m.value);
    if (m.error) text += fmt::format(" +- {:.4g}", *m.error);
    text += '\n';
  }
  std::fputs(text.c_str(), stdout);
}

int run(const Arguments& a) {
  if (a.text.empty() && a.choices.empty() && a.answers.empty())
    throw UsageError("nothing to evaluate on: name files by --text, --choices or --answers");
  for (const auto& [given, name] :
       {std::pair(&a.compare, "--compare"), std::pair(&a.proof, "--proof"), std::pair(&a.check_proof, "--check-proof")})
    if (!given->empty() && a.text.empty()) throw UsageError(fmt::format("{} reads texts: name them by --text", name));
  if (!a.shots_from.empty() && a.shots == 0) throw UsageError("--shots-from wants --shots, how many are shown");
  if (a.samples && a.json.empty()) throw UsageError("--samples go into the file that --json names");
  const StopOnSignal signals("this batch", /*or_pipe=*/true);
  const Language language = a.model.load();
  eval::Subject subject = Evaluator::subject_of(a, language);
  if (a.overlap > subject.context)
    throw UsageError(fmt::format("--overlap {} does not go with windows of {} tokens", a.overlap, subject.context));
  const int64_t context = subject.context;
  const int32_t prefix = subject.prefix;
  const std::vector<Result> results = Evaluator(a, language, std::move(subject)).run();
  for (const Result& r : results) tell(r);
  const auto judged = std::ranges::find(results, "proof", &Result::name);
  const int status = judged == results.end() || judged->found.value("accepted") == 1 ? kOk : kFailure;
  if (a.json.empty()) return status;
  std::string parts;
  for (const Result& r : results)
    parts += fmt::format("{}\n{}: {}", parts.empty() ? "" : ",", detail::json_string(r.name), json_of(r, a.samples));
  io::write_file(a.json,
                 fmt::format("{{\"model\": {}, \"version\": {}, \"device\": {}, \"dtype\": {}, \"context\": {}, "
                             "\"prefix\": {}, \"batch\": {}, \"shots\": {}, \"results\": {{{}\n}}}}\n",
                             json_text(a.model.path), json_text(machine_info().version),
                             json_text(to_string(language.model->device())),
                             json_text(std::string(name_of(language.model->token_embedding.weight.dtype()))), context,
                             prefix, a.batch, a.shots, parts));
  return status;
}

void add_options(CLI::App& c, Arguments& a) {
  a.model.add(c, true);
  const auto files = [&](const char* name, std::vector<std::string>& to, const char* what) {
    c.add_option(name, to, what)->type_name("FILE")->expected(1, -1);
  };
  const auto count = [&](const char* name, auto& to, const char* what, int64_t least, int64_t most) {
    return c.add_option(name, to, what)->type_name("N")->check(between(least, most));
  };
  constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
  files("--text", a.text, "Texts: their perplexity by word, byte and token. Of JSONL each row is a document");
  c.add_option("--text-field", a.text_field, "Of JSONL, the member that is the text")
      ->type_name("NAME")
      ->capture_default_str();
  c.add_option("--compare", a.compare, "Another model: how far this one's probabilities are from it on the texts")
      ->type_name("DIR");
  c.add_option("--proof", a.proof, "Write proofs of what was computed on the texts, 258 bytes for 32 tokens")
      ->type_name("FILE")
      ->check(writable_file());
  c.add_option("--check-proof", a.check_proof,
               "Whether another run that proved its work had this model (status 1: one proof is not accepted)")
      ->type_name("FILE");
  files("--choices", a.choices, "JSONL of questions with answers to choose among: acc, acc_norm, acc_bytes");
  files("--answers", a.answers, "JSONL of questions with an answer to write: exact_match");
  c.add_option("--field", a.fields,
               "Where in a row what stands: context, choices, answer, names (paths; context also a pattern with "
               "{paths}), first (the place told of the first choice); may come more than once")
      ->type_name("NAME=WHERE")
      ->allow_extra_args(false);
  c.add_option("--delimiter", a.delimiter, "Between question and answer; a space where not given")->type_name("TEXT");
  c.add_option("--description", a.description, "What stands before everything")->type_name("TEXT");
  count("--shots", a.shots, "Examples with their right answers that are shown before a question", 0, 10'000)
      ->capture_default_str();
  files("--shots-from", a.shots_from, "Where they come from; else the other questions of the same files");
  count("--shots-seed", a.shots_seed, "Drawn by this seed, as the harness draws them (1234 there); else the first", 0,
        kMany);
  c.add_option("--shot-delimiter", a.shot_delimiter, "Behind each of them; two line breaks where not given")
      ->type_name("TEXT");
  count("--tokens", a.match.tokens, "Of an answer at most", 1, kMany)->capture_default_str();
  c.add_option("--stop", a.match.stops,
               "Text that ends an answer, and is no part of it; two line breaks where not given")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  c.add_flag("--ignore-case", a.match.ignore_case, "Answers are compared in lower case");
  c.add_flag("--ignore-punctuation", a.match.ignore_punctuation, "And without ASCII's punctuation");
  c.add_flag("--ignore-digits", a.match.ignore_digits, "And without digits");
  c.add_flag("--trim", a.match.trim, "And without white space at their ends");
  count("--context", a.context, "Tokens that the model sees at most; 0: as many as it takes", 0, kMany)
      ->capture_default_str();
  count("--overlap", a.overlap, "Tokens that a window of a text shares at least with the one before", 1, kMany)
      ->capture_default_str();
  c.add_flag("--no-special-tokens", a.no_special, "Texts without the tokens that the tokenizer puts around them");
  count("--prefix", a.prefix, "The id before a text's first token; else beginning, else end of text", 0,
        std::numeric_limits<int32_t>::max());
  count("--limit", a.limit, "The first N documents of each kind alone; 0: all", 0, kMany)->capture_default_str();
  count("--batch", a.batch, "Texts at a time", 1, 65535)->capture_default_str();
  c.add_option("--json", a.json, "Write the results to this file, too")->type_name("FILE")->check(writable_file());
  c.add_flag("--samples", a.samples, "With what was found of each document");
  c.add_flag("--quiet", a.quiet, "No progress line");
}

}  // namespace

void add_eval(CLI::App& app, Body& body) {
  CLI::App* command = app.add_subcommand("eval", "Measure a model on texts and questions");
  auto a = std::make_shared<Arguments>();
  add_options(*command, *a);
  command->footer(
      "The measures and their names are lm-evaluation-harness's. Nothing is drawn: the same files give the same\n"
      "numbers.\n\n"
      "  strata eval --model Qwen2.5-0.5B --text wiki.txt\n"
      "  strata eval --model Qwen2.5-0.5B --choices arc.jsonl --shots 5 --field 'context=Question: {question}\n"
      "    Answer:' --field choices=choices.text --field names=choices.label --field answer=answerKey");
  command->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
