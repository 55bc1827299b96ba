#include "strata/eval/tasks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/eval/batches_inl.h"
#include "strata/eval/blanks_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata::eval {
namespace {

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
  out.resize(without_blanks(out));
  size_t from = 0;
  while (const size_t n = blank_at(std::string_view(out).substr(from))) from += n;
  return out.substr(from);
}

// An error's text without who threw it.
std::string said(const Error& e) {
  const std::string text = e.what();
  return e.op().empty() ? text : text.substr(e.op().size() + 2);
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
  std::vector<size_t> documents;  // of each window
  int64_t words = 0, bytes = 0;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = subject.encode(text);
    for (LikelihoodRequest& w : rolling_windows(ids, subject, options.overlap)) {
      windows.push_back(std::move(w));
      documents.push_back(static_cast<size_t>(result.documents));
    }
    result.tokens += static_cast<int64_t>(ids.size());
    words += count_words(text);
    bytes += static_cast<int64_t>(text.size());
    ++result.documents;
  }
  check(result.tokens > 0, "perplexity", "the texts have no tokens");
  result.samples.assign(texts.size(), {.log_probabilities = {0}});
  double sum = 0;
  const std::vector<Likelihood> found = log_likelihoods(subject, windows, options.batch, options.watch);
  for (size_t i = 0; i < found.size(); ++i) {
    sum += found[i].log_probability;
    result.samples[documents[i]].log_probabilities[0] += found[i].log_probability;
  }
  const double per_byte = -sum / static_cast<double>(bytes), per_token = -sum / static_cast<double>(result.tokens);
  result.measures = {{"word_perplexity", std::exp(-sum / static_cast<double>(words))},
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
  std::vector<LikelihoodRequest> windows;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = subject.encode(text);
    check(ids == reference.encode(text), kOp, "the two tokenizers make different tokens of '", text.substr(0, 40), "'");
    for (LikelihoodRequest& w : rolling_windows(ids, shorter, options.overlap)) windows.push_back(std::move(w));
    ++result.documents;
  }
  std::vector<double> all, same;
  double loss = 0, reference_loss = 0;
  const NoGrad guard;
  const Device device = reference.device;
  for_each_pass(kOp, windows, shorter.context, shorter.prefix, options.batch, options.watch, [&](const Pass& pass) {
    const Tensor hidden = subject.hidden(pass.tokens.to(subject.device));
    const Tensor reference_hidden = reference.hidden(pass.tokens.to(device));
    const std::vector<Stretch> own = stretches(pass, subject.device), others = stretches(pass, device);
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor x = logits_at(kOp, subject, hidden, pass, own[i]).to(device);
      const Tensor y = logits_at(kOp, reference, reference_hidden, pass, others[i]);
      check(x.size(1) == y.size(1), kOp, "the reference has ", y.size(1), " logits, the model ", x.size(1));
      const Tensor q = log_softmax(x.to(DType::f64), 1), log_p = log_softmax(y.to(DType::f64), 1), p = exp(log_p);
      // A token that the reference rules out adds nothing, whatever the model thinks of it.
      const Tensor terms = where(p == 0.0, zeros_like(p), p * (log_p - q));
      for (const double v : sum(terms, {1}).to_vector<double>()) all.push_back(std::max(v, 0.0));
      for (const double v : (argmax(x, 1) == argmax(y, 1)).to(DType::f64).to_vector<double>()) same.push_back(v);
      loss += nll_loss(q, others[i].targets, {}, -100, "sum").item();
      reference_loss += nll_loss(log_p, others[i].targets, {}, -100, "sum").item();
    }
  });
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
  Evaluation result{.documents = static_cast<int64_t>(questions.size())};
  for (size_t i = 0; i < questions.size(); ++i) {
    const Choice& q = questions[i];
    const std::string place = !q.place.empty() ? q.place : cat("question ", static_cast<int64_t>(i));
    const auto count = static_cast<int64_t>(q.answers.size());
    check(q.right >= 0 && q.right < count, kOp, place, " has ", count, " answers, the right one is number ", q.right);
    for (const std::string& answer : q.answers) {
      check(!answer.empty(), kOp, place, " has an empty answer");
      try {
        requests.push_back(encode_pair(subject, q.context, delimiter + answer));
      } catch (const ValueError& e) {
        throw ValueError(kOp, cat(place, ": ", said(e)));
      }
      const auto length = static_cast<int64_t>(requests.back().continuation.size());
      check(length <= subject.context, kOp, place, " has an answer of ", length, " tokens, more than the context of ",
            subject.context);
      result.tokens += length;
    }
  }
  const std::vector<Likelihood> found = log_likelihoods(subject, requests, options.batch, options.watch);
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
    Sample sample{.values = {acc.back(), norm.back(), bytes.back()}};
    for (size_t j = 0; j < q.answers.size(); ++j) sample.log_probabilities.push_back(found[at + j].log_probability);
    result.samples.push_back(std::move(sample));
    at += q.answers.size();
  }
  result.measures = {mean("acc", acc), mean("acc_norm", norm), mean("acc_bytes", bytes)};
  return result;
}

Evaluation exact_match(const Subject& subject, const std::vector<Question>& questions, const MatchOptions& options,
                       const Watch& watch) {
  constexpr const char* kOp = "exact_match";
  check(static_cast<bool>(subject.generate), kOp, "this model writes no text");
  check(!questions.empty(), kOp, "there are no questions");
  const int64_t room = subject.context - options.tokens;
  check(options.tokens > 0 && room > 0, kOp, "with ", options.tokens, " tokens to write nothing of a prompt fits the ",
        "model's context of ", subject.context);
  Evaluation result{.documents = static_cast<int64_t>(questions.size())};
  std::vector<std::vector<int32_t>> prompts;
  for (const Question& q : questions) {
    std::vector<int32_t> ids;
    try {
      ids = subject.encode(q.prompt);
    } catch (const ValueError& e) {  // a tokenizer without an unknown token
      throw ValueError(
          kOp, cat(q.place.empty() ? cat("question ", static_cast<int64_t>(prompts.size())) : q.place, ": ", said(e)));
    }
    if (ids.empty()) ids.push_back(subject.prefix);
    if (static_cast<int64_t>(ids.size()) > room) ids.erase(ids.begin(), ids.end() - room);
    prompts.push_back(std::move(ids));
  }
  int64_t done = 0;
  bool stopped = false;
  const Watch inner = [&](int64_t now, int64_t all) {
    done = now;
    stopped = watch && !watch(now, all);
    return !stopped;
  };
  const std::vector<std::string> written = subject.generate(prompts, options.tokens, options.stops, inner);
  check(!stopped, "", "stopped after ", done, " of ", result.documents, " documents");
  check(written.size() == questions.size(), kOp, "the model wrote ", static_cast<int64_t>(written.size()),
        " texts for ", result.documents, " prompts");
  std::vector<double> right;
  for (size_t i = 0; i < written.size(); ++i) {
    result.tokens += static_cast<int64_t>(subject.encode_plain(written[i]).size());
    const std::string mine = plain(written[i], options);
    right.push_back(
        std::ranges::any_of(questions[i].answers, [&](const std::string& a) { return plain(a, options) == mine; }));
    result.samples.push_back({.values = {right.back()}, .written = written[i]});
  }
  result.measures = {mean("exact_match", right)};
  return result;
}

}  // namespace strata::eval
