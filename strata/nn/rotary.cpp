#include "strata/nn/rotary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>

#include "strata/core/node.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"

namespace strata::nn {
namespace {

using Scaling = RotarySpec::Scaling;

// Of texts of `length` positions: what the frequencies of a spec depend on.
int64_t regime(const RotarySpec& spec, int64_t length) {
  if (spec.scaling == Scaling::dynamic) return std::max(length, spec.context);
  return spec.scaling == Scaling::longrope && length > spec.original_context ? 1 : 0;
}

// The pair that turns so many times over the original context, as a real number.
double pair_of(const RotarySpec& spec, double turns) {
  return static_cast<double>(spec.dims) *
         std::log(static_cast<double>(spec.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(spec.base));
}

void yarn(const RotarySpec& spec, std::vector<double>& frequencies) {
  double low = pair_of(spec, spec.beta_fast), high = pair_of(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.dims - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= divided / spec.factor + (1 - divided);
  }
}

void llama3(const RotarySpec& spec, std::vector<double>& frequencies) {
  const double context = static_cast<double>(spec.original_context);
  for (double& f : frequencies) {
    const double turns = context * f / (2 * std::numbers::pi);  // over the original context
    const double kept = std::clamp((turns - spec.low_frequency) / (spec.high_frequency - spec.low_frequency), 0.0, 1.0);
    f = (1 - kept) * f / spec.factor + kept * f;
  }
}

}  // namespace

std::vector<double> rotary_frequencies(const RotarySpec& spec, int64_t length) {
  const auto dims = static_cast<double>(spec.dims);
  double base = spec.base;
  if (spec.scaling == Scaling::dynamic) {
    const double ratio = static_cast<double>(std::max(length, spec.context)) / static_cast<double>(spec.context);
    base *= std::pow(spec.factor * ratio - (spec.factor - 1), dims / (dims - 2));
  }
  std::vector<double> frequencies(static_cast<size_t>(spec.dims / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / dims);
  switch (spec.scaling) {
    case Scaling::none:
    case Scaling::dynamic:
      break;
    case Scaling::linear:
      for (double& f : frequencies) f /= spec.factor;
      break;
    case Scaling::llama3:
      llama3(spec, frequencies);
      break;
    case Scaling::yarn:
      yarn(spec, frequencies);
      break;
    case Scaling::longrope: {
      const auto& factors = length > spec.original_context ? spec.long_factors : spec.short_factors;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors.at(i);
      break;
    }
  }
  return frequencies;
}

struct RotaryTables::State {
  RotarySpec spec;
  std::mutex mutex;
  Tensor cos, sin;  // of the regime, device and dtype that were last asked for
  int64_t regime = -1;
};

RotaryTables::RotaryTables(const RotarySpec& spec) : state_(std::make_shared<State>()) {
  constexpr const char* op = "RotaryTables";
  const auto pairs = static_cast<size_t>(spec.dims / 2);
  check(spec.dims > 0 && spec.dims % 2 == 0, op, "rotary positions turn pairs, but dims is ", spec.dims);
  check(spec.base > 0 && std::isfinite(spec.base), op, "base is ", spec.base);
  check(spec.factor > 0 && std::isfinite(spec.factor), op, "factor is ", spec.factor);
  check(spec.scaling != Scaling::dynamic || (spec.context > 0 && spec.dims > 2 && spec.factor >= 1), op,
        "dynamic scaling wants a context, more than one pair, and a factor of at least 1");
  check(spec.original_context > 0 || spec.scaling == Scaling::none || spec.scaling == Scaling::linear ||
            spec.scaling == Scaling::dynamic,
        op, "this scaling wants original_context, which is ", spec.original_context);
  check(spec.scaling != Scaling::llama3 || spec.high_frequency > spec.low_frequency, op,
        "high_frequency is not above low_frequency");
  check(spec.scaling != Scaling::yarn || (spec.beta_fast > 0 && spec.beta_slow > 0 && spec.base != 1), op,
        "yarn wants positive beta_fast and beta_slow, and a base that is not 1");
  if (spec.scaling == Scaling::longrope)
    for (const auto* factors : {&spec.short_factors, &spec.long_factors})
      check(factors->size() == pairs && std::ranges::all_of(*factors, [](double f) { return f > 0; }), op,
            "longrope wants ", pairs, " positive short_factors and long_factors, got ", factors->size());
  state_->spec = spec;
}

Turns RotaryTables::rows(int64_t first, int64_t count, int64_t length, const Tensor& like) const {
  const RotarySpec& spec = state_->spec;
  const DType dtype = statistic_dtype(like.dtype());
  const int64_t wanted = regime(spec, length);
  const std::lock_guard lock(state_->mutex);
  Tensor &cos = state_->cos, &sin = state_->sin;
  if (!cos.defined() || cos.size(0) < first + count || state_->regime != wanted || cos.dtype() != dtype ||
      !(cos.device() == like.device())) {
    const NoGrad guard;
    // A text that grows by a token at a time gets new tables a few times only.
    const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(first + count)));
    const std::vector<double> frequencies = rotary_frequencies(spec, length);
    const auto pairs = static_cast<int64_t>(frequencies.size());
    std::vector<double> c(static_cast<size_t>(rows * pairs)), s(c.size());
    for (int64_t t = 0, at = 0; t < rows; ++t)
      for (const double f : frequencies) {
        c[static_cast<size_t>(at)] = std::cos(static_cast<double>(t) * f) * spec.attention_factor;
        s[static_cast<size_t>(at++)] = std::sin(static_cast<double>(t) * f) * spec.attention_factor;
      }
    cos = from_span<double>(c, {rows, pairs}).to(dtype).to(like.device());
    sin = from_span<double>(s, {rows, pairs}).to(dtype).to(like.device());
    state_->regime = wanted;
  }
  return {cos.narrow(0, first, count), sin.narrow(0, first, count), spec.interleaved};
}

Turns RotaryTables::at(const Tensor& positions, int64_t length, const Tensor& like) const {
  const Turns all = rows(0, length, length, like);
  const Tensor flat = positions.reshape({-1});
  return {index_select(all.cos, 0, flat), index_select(all.sin, 0, flat), all.interleaved};
}

}  // namespace strata::nn
