// strata eval: how good a model is on local files, by the measures of lm-evaluation-harness.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "apps/strata/signals.h"
#include "strata/eval/evaluate.h"
#include "strata/io/files.h"
#include "strata/train/machine.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  ModelArguments model;
  eval::EvaluationPlan plan;
  eval::SubjectOptions subject;
  std::vector<std::string> fields;
  std::string compare, json;
  std::optional<int64_t> prefix;
  bool no_special = false, quiet = false;
};

// The line of an evaluation: its part, speed, time left.
class EvalLine {
 public:
  explicit EvalLine(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~EvalLine() { clear(); }
  EvalLine(const EvalLine&) = delete;

  // False where somebody wants it to stop.
  bool operator()(std::string_view what, std::string_view unit, int64_t done, int64_t all) {
    const Clock::time_point now = Clock::now();
    if (what != what_) what_ = what, start_ = drawn_ = now;
    if (!quiet_ && now - drawn_ >= (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) {
      drawn_ = now;
      std::string line = text(unit, done, all);
      winsize size{};
      if (terminal_ && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        line.resize(std::min<size_t>(line.size(), size.ws_col - 1u));
      std::fputs((terminal_ ? "\r\x1b[K" + line : line + '\n').c_str(), stderr);
      std::fflush(stderr);
      open_ = terminal_;
    }
    return !StopOnSignal::stop_requested();
  }
  void clear() {
    if (std::exchange(open_, false)) std::fputs("\r\x1b[K", stderr);
  }

 private:
  std::string text(std::string_view unit, int64_t done, int64_t all) const {
    const auto d = static_cast<double>(done), a = static_cast<double>(all);
    std::string line = fmt::format("{:3.0f}%  {}  {} of {} {}", all > 0 ? 100 * d / a : 0, what_, format_count(d),
                                   format_count(a), unit);
    const double s = std::chrono::duration<double>(Clock::now() - start_).count();
    if (done > 0 && s > 0)
      line += fmt::format("  {} {}/s  {} left", format_count(d / s), unit, format_duration((a - d) / d * s));
    return line;
  }

  std::string what_;
  bool quiet_, terminal_, open_ = false;  // open: the terminal shows it
  Clock::time_point start_, drawn_;
};

void tell(const eval::EvaluationResult& r) {
  const eval::Evaluation& e = r.found;
  std::string text = fmt::format("{}: {} document{}, {} tokens in {:.3g} s; {}\n", r.name, e.documents,
                                 e.documents == 1 ? "" : "s", e.tokens, r.seconds, r.details);
  size_t width = 0;
  for (const eval::Measure& m : e.measures) width = std::max(width, m.name.size());
  for (const eval::Measure& m : e.measures) {
    text += fmt::format("  {:<{}}  {:.6g}", m.name, width, m.value);
    if (m.error) text += fmt::format(" +- {:.4g}", *m.error);
    text += '\n';
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

eval::Subject subject_of(const Arguments& a, const std::string& path, const Language& l) {
  if (l.model == nullptr)
    throw UsageError(
        fmt::format("'{}' writes answers to what it reads: evaluations want a model that continues texts", path));
  eval::SubjectOptions o = a.subject;
  o.special_tokens = !a.no_special;
  o.generation = l.options;
  o.batch = a.plan.batch;
  if (a.prefix) o.prefix = static_cast<int32_t>(*a.prefix);
  if (l.folder != nullptr) o = eval::with_folder(std::move(o), *l.folder);
  return eval::make_subject(l.model, l.tokenizer, o);
}

int run(const Arguments& a) {
  eval::EvaluationPlan plan = a.plan;
  if (plan.text.empty() && plan.choices.empty() && plan.answers.empty())
    throw UsageError("nothing to evaluate on: name files by --text, --choices or --answers");
  for (const auto& [given, name] : {std::pair(&a.compare, "--compare"), std::pair(&a.plan.proof, "--proof"),
                                    std::pair(&a.plan.check_proof, "--check-proof")})
    if (!given->empty() && plan.text.empty())
      throw UsageError(fmt::format("{} reads texts: name them by --text", name));
  if (!plan.shots_from.empty() && plan.shots == 0) throw UsageError("--shots-from wants --shots, how many are shown");
  if (plan.samples && a.json.empty()) throw UsageError("--samples go into the file that --json names");
  const StopOnSignal signals("this batch", /*or_pipe=*/true);
  const Language language = a.model.load();
  const eval::Subject subject = subject_of(a, a.model.path, language);
  if (plan.overlap > subject.context)
    throw UsageError(fmt::format("--overlap {} does not go with windows of {} tokens", plan.overlap, subject.context));
  for (const std::string& f : a.fields) data::set_field(plan.fields, f);

  std::optional<Language> other;
  std::optional<eval::EvaluationReference> reference;
  if (!a.compare.empty())
    reference = {a.compare, [&] {
                   other = a.model.beside(a.compare);
                   return subject_of(a, a.compare, *other);
                 }};
  EvalLine line(a.quiet);
  eval::EvaluationHooks hooks;
  hooks.watch = [&](std::string_view name, std::string_view unit, int64_t done, int64_t all) {
    return line(name, unit, done, all);
  };
  hooks.told = [&](const eval::EvaluationResult& r) {
    line.clear();
    tell(r);
  };
  eval::EvaluationReport report = eval::evaluate(subject, plan, reference, hooks);
  const auto judged = std::ranges::find(report.results, "proof", &eval::EvaluationResult::name);
  const int status = judged == report.results.end() || judged->found.value("accepted") == 1 ? kOk : kFailure;
  if (a.json.empty()) return status;
  report.model = a.model.path;
  report.version = machine_info().version;
  report.device = to_string(language.model->device());
  report.dtype = name_of(language.model->token_embedding.weight.dtype());
  io::write_file(a.json, to_json(report));
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
  files("--text", a.plan.text, "Texts: their perplexity by word, byte and token. Of JSONL each row is a document");
  c.add_option("--text-field", a.plan.text_field, "Of JSONL, the member that is the text")
      ->type_name("NAME")
      ->capture_default_str();
  c.add_option("--compare", a.compare, "Another model: how far this one's probabilities are from it on the texts")
      ->type_name("DIR");
  c.add_option("--proof", a.plan.proof, "Write proofs of what was computed on the texts, 258 bytes for 32 tokens")
      ->type_name("FILE")
      ->check(writable_file());
  c.add_option("--check-proof", a.plan.check_proof,
               "Whether another run that proved its work had this model (status 1: one proof is not accepted)")
      ->type_name("FILE");
  files("--choices", a.plan.choices, "JSONL of questions with answers to choose among: acc, acc_norm, acc_bytes");
  files("--answers", a.plan.answers, "JSONL of questions with an answer to write: exact_match");
  c.add_option("--field", a.fields,
               "Where in a row what stands: context, choices, answer, names (paths; context also a pattern with "
               "{paths}), first (the place told of the first choice); may come more than once")
      ->type_name("NAME=WHERE")
      ->allow_extra_args(false);
  c.add_option("--delimiter", a.plan.delimiter, "Between question and answer; a space where not given")
      ->type_name("TEXT");
  c.add_option("--description", a.plan.description, "What stands before everything")->type_name("TEXT");
  count("--shots", a.plan.shots, "Examples with their right answers that are shown before a question", 0, 10'000)
      ->capture_default_str();
  files("--shots-from", a.plan.shots_from, "Where they come from; else the other questions of the same files");
  count("--shots-seed", a.plan.shots_seed, "Drawn by this seed, as the harness draws them (1234 there); else the first",
        0, kMany);
  c.add_option("--shot-delimiter", a.plan.shot_delimiter, "Behind each of them; two line breaks where not given")
      ->type_name("TEXT");
  count("--tokens", a.plan.match.tokens, "Of an answer at most", 1, kMany)->capture_default_str();
  c.add_option("--stop", a.plan.match.stops,
               "Text that ends an answer, and is no part of it; two line breaks where not given")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  c.add_flag("--ignore-case", a.plan.match.ignore_case, "Answers are compared in lower case");
  c.add_flag("--ignore-punctuation", a.plan.match.ignore_punctuation, "And without ASCII's punctuation");
  c.add_flag("--ignore-digits", a.plan.match.ignore_digits, "And without digits");
  c.add_flag("--trim", a.plan.match.trim, "And without white space at their ends");
  count("--context", a.subject.context, "Tokens that the model sees at most; 0: as many as it takes", 0, kMany)
      ->capture_default_str();
  count("--overlap", a.plan.overlap, "Tokens that a window of a text shares at least with the one before", 1, kMany)
      ->capture_default_str();
  c.add_flag("--no-special-tokens", a.no_special, "Texts without the tokens that the tokenizer puts around them");
  count("--prefix", a.prefix, "The id before a text's first token; else beginning, else end of text", 0,
        std::numeric_limits<int32_t>::max());
  count("--limit", a.plan.limit, "The first N documents of each kind alone; 0: all", 0, kMany)->capture_default_str();
  count("--batch", a.plan.batch, "Texts at a time", 1, 65535)->capture_default_str();
  c.add_option("--json", a.json, "Write the results to this file, too")->type_name("FILE")->check(writable_file());
  c.add_flag("--samples", a.plan.samples, "With what was found of each document");
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
