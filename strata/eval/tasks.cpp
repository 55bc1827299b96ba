#include "strata/eval/tasks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata::eval {
namespace {

bool blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Parts between runs of white space, those at the ends included: what the harness counts as words.
int64_t words(std::string_view text) {
  int64_t n = 1;
  for (size_t i = 0; i < text.size(); ++i) n += blank(text[i]) && (i == 0 || !blank(text[i - 1]));
  return n;
}

int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// A mean of numbers, with its standard error.
Measure mean(std::string name, const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double m = sum / n;
  for (const double v : values) squares += (v - m) * (v - m);
  return {std::move(name), m,
          values.size() > 1 ? std::optional(std::sqrt(squares / (n - 1)) / std::sqrt(n)) : std::nullopt};
}

std::string plain(std::string text, const MatchOptions& o) {
  std::string out;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), digit = c >= '0' && c <= '9';
    if (o.ignore_digits && digit) continue;
    if (o.ignore_punctuation && c > ' ' && c < 0x7F && !letter && !digit) continue;
    out += o.ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (!o.trim) return out;
  size_t from = 0, to = out.size();
  while (from < to && blank(out[from])) ++from;
  while (to > from && blank(out[to - 1])) --to;
  return out.substr(from, to - from);
}

// All tokens of a window as one row, and the position of the first that is asked for.
std::pair<Tensor, int64_t> tokens_of(const LikelihoodRequest& window, const Subject& subject) {
  std::vector<int64_t> ids(window.context.begin(), window.context.end());
  ids.insert(ids.end(), window.continuation.begin(), window.continuation.end() - 1);
  const auto size = static_cast<int64_t>(ids.size());
  return {from_span<int64_t>(ids, {1, size}).to(subject.device),
          size - static_cast<int64_t>(window.continuation.size())};
}

Tensor log_probabilities(const Subject& subject, const LikelihoodRequest& window) {
  const auto [tokens, first] = tokens_of(window, subject);
  const Tensor logits = subject.logits(tokens);
  return log_softmax(logits.select(0, 0).narrow(0, first, tokens.size(1) - first).to(DType::f32), 1);
}

}  // namespace

double Evaluation::value(std::string_view name) const {
  for (const Measure& m : measures)
    if (m.name == name) return m.value;
  throw ValueError("Evaluation", cat("there is no measure '", name, "'"));
}

Evaluation perplexity(const Subject& subject, const std::vector<std::string>& texts, const EvaluationOptions& options) {
  Evaluation result;
  std::vector<LikelihoodRequest> windows;
  int64_t all_words = 0, bytes = 0;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = subject.encode(text);
    for (LikelihoodRequest& w : rolling_windows(ids, subject, options.overlap)) windows.push_back(std::move(w));
    result.tokens += static_cast<int64_t>(ids.size());
    all_words += words(text);
    bytes += static_cast<int64_t>(text.size());
    ++result.documents;
  }
  check(result.tokens > 0, "perplexity", "the texts have no tokens");
  double sum = 0;
  for (const Likelihood& l : log_likelihoods(subject, windows, options.batch)) sum += l.log_probability;
  const double per_byte = -sum / static_cast<double>(bytes), per_token = -sum / static_cast<double>(result.tokens);
  result.measures = {{"word_perplexity", std::exp(-sum / static_cast<double>(all_words))},
                     {"byte_perplexity", std::exp(per_byte)},
                     {"bits_per_byte", per_byte / std::log(2.0)},
                     {"token_perplexity", std::exp(per_token)},
                     {"loss", per_token}};
  return result;
}

Evaluation divergence(const Subject& subject, const Subject& reference, const std::vector<std::string>& texts,
                      const EvaluationOptions& options) {
  constexpr const char* kOp = "divergence";
  check(std::min(subject.context, reference.context) > 0, kOp, "a model has no context");
  // Windows that both can read.
  const Subject& shorter = subject.context <= reference.context ? subject : reference;
  Evaluation result;
  std::vector<double> all, same;
  double loss = 0, reference_loss = 0;
  const NoGrad guard;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = subject.encode(text);
    check(ids == reference.encode(text), kOp, "the two tokenizers make different tokens of '", text.substr(0, 40), "'");
    ++result.documents;
    for (const LikelihoodRequest& window : rolling_windows(ids, shorter, options.overlap)) {
      const Tensor p = log_probabilities(reference, window).to(Device::cpu());
      const Tensor q = log_probabilities(subject, window).to(Device::cpu());
      check(p.shape() == q.shape(), kOp, "the reference has ", p.size(1), " logits, the model ", q.size(1));
      const Tensor pd = p.to(DType::f64), qd = q.to(DType::f64);
      // A token that the reference rules out adds nothing, whatever the model thinks of it.
      const Tensor terms = where(exp(pd) == 0.0, zeros_like(pd), exp(pd) * (pd - qd));
      for (const double v : sum(terms, {1}).to_vector<double>()) all.push_back(std::max(v, 0.0));
      const std::vector<int64_t> a = argmax(p, 1).to_vector<int64_t>(), b = argmax(q, 1).to_vector<int64_t>();
      for (size_t i = 0; i < a.size(); ++i) same.push_back(a[i] == b[i]);
      const auto width = static_cast<size_t>(p.size(1));
      const std::vector<float> pv = p.to_vector<float>(), qv = q.to_vector<float>();
      for (size_t i = 0; i < window.continuation.size(); ++i) {
        const auto id = static_cast<size_t>(window.continuation[i]);
        check<IndexError>(id < width, kOp, "token ", window.continuation[i], " is not among the ",
                          static_cast<int64_t>(width), " logits");
        reference_loss -= static_cast<double>(pv[i * width + id]);
        loss -= static_cast<double>(qv[i * width + id]);
      }
    }
  }
  check(!all.empty(), kOp, "the texts have no tokens");
  result.tokens = static_cast<int64_t>(all.size());
  const auto n = static_cast<double>(all.size());
  result.measures = {mean("kl", all),
                     {"kl_max", *std::max_element(all.begin(), all.end())},
                     mean("same_top", same),
                     {"token_perplexity", std::exp(loss / n)},
                     {"reference_perplexity", std::exp(reference_loss / n)}};
  return result;
}

Evaluation multiple_choice(const Subject& subject, const std::vector<Choice>& questions, const std::string& delimiter,
                           const EvaluationOptions& options) {
  constexpr const char* kOp = "multiple_choice";
  check(!questions.empty(), kOp, "there are no questions");
  std::vector<LikelihoodRequest> requests;
  Evaluation result{.documents = static_cast<int64_t>(questions.size()), .tokens = 0, .measures = {}};
  for (size_t i = 0; i < questions.size(); ++i) {
    const Choice& q = questions[i];
    const auto count = static_cast<int64_t>(q.answers.size());
    check(q.right >= 0 && q.right < count, kOp, "question ", static_cast<int64_t>(i), " has ", count,
          " answers, the right one is number ", q.right);
    for (const std::string& answer : q.answers) {
      check(!answer.empty(), kOp, "question ", static_cast<int64_t>(i), " has an empty answer");
      requests.push_back(encode_pair(subject, q.context, delimiter + answer));
      result.tokens += static_cast<int64_t>(requests.back().continuation.size());
    }
  }
  const std::vector<Likelihood> found = log_likelihoods(subject, requests, options.batch);
  std::vector<double> acc, norm, bytes;
  size_t at = 0;
  for (const Choice& q : questions) {
    const auto best = [&](auto&& length) {
      size_t k = 0;
      double highest = -INFINITY;
      for (size_t j = 0; j < q.answers.size(); ++j) {
        const double score = found[at + j].log_probability / static_cast<double>(length(q.answers[j]));
        if (score > highest) highest = score, k = j;
      }
      return static_cast<int64_t>(k) == q.right ? 1.0 : 0.0;
    };
    acc.push_back(best([](const std::string&) { return int64_t{1}; }));
    norm.push_back(best([](const std::string& a) { return code_points(a); }));
    bytes.push_back(best([](const std::string& a) { return static_cast<int64_t>(a.size()); }));
    at += q.answers.size();
  }
  result.measures = {mean("acc", acc), mean("acc_norm", norm), mean("acc_bytes", bytes)};
  return result;
}

Evaluation exact_match(const Subject& subject, const std::vector<Question>& questions, const MatchOptions& options) {
  constexpr const char* kOp = "exact_match";
  check(static_cast<bool>(subject.generate), kOp, "this model writes no text");
  check(!questions.empty(), kOp, "there are no questions");
  const int64_t room = subject.context - options.tokens;
  check(options.tokens > 0 && room > 0, kOp, "with ", options.tokens, " tokens to write nothing of a prompt fits the ",
        "model's context of ", subject.context);
  Evaluation result{.documents = static_cast<int64_t>(questions.size()), .tokens = 0, .measures = {}};
  std::vector<double> right;
  for (const Question& q : questions) {
    std::vector<int32_t> ids = subject.encode(q.prompt);
    if (ids.empty()) ids.push_back(subject.prefix);
    if (static_cast<int64_t>(ids.size()) > room) ids.erase(ids.begin(), ids.end() - room);
    const std::string written = subject.generate(ids, options.tokens, options.stops);
    result.tokens += static_cast<int64_t>(subject.encode_plain(written).size());
    const std::string mine = plain(written, options);
    right.push_back(std::any_of(q.answers.begin(), q.answers.end(),
                                [&](const std::string& a) { return plain(a, options) == mine; }));
  }
  result.measures = {mean("exact_match", right)};
  return result;
}

}  // namespace strata::eval
