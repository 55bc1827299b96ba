// The record of drawing tokens.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "strata/ops/factory/factory.h"
#include "strata/ops/generation/generation_records_inl.h"

namespace strata {
namespace {
using generation::ids;
using generation::number;
using generation::numbers;

using Drawn = std::tuple<Tensor, Tensor>;
constexpr std::string_view kName = "sample_tokens";

TokenFilters filters_of(const Tensor& temperature, const Tensor& top_k, const Tensor& top_p, const Tensor& min_p,
                        const Tensor& typical_p) {
  return {temperature, top_k, top_p, min_p, typical_p};
}

void check_filters(const TokenFilters& f, const Tensor& x) {
  const int64_t rows = x.size(0);
  generation::check_parameter(f.temperature, "temperature", rows, DType::f32, x, kName);
  generation::check_parameter(f.top_k, "top_k", rows, DType::i64, x, kName);
  generation::check_parameter(f.top_p, "top_p", rows, DType::f32, x, kName);
  generation::check_parameter(f.min_p, "min_p", rows, DType::f32, x, kName);
  generation::check_parameter(f.typical_p, "typical_p", rows, DType::f32, x, kName);
}

void sample(auto on, Tensor& token, Tensor& logprob, const Tensor& logits, const Tensor& seeds, const Tensor& positions,
            const TokenFilters& f, int64_t vocab) {
  const Tensor x = logits.contiguous(), seed = seeds.contiguous(), position = positions.contiguous();
  Tensor held[5];
  const generation::SampleArgs a{generation::per_row<float>(f.temperature, held[0]),
                                 generation::per_row<float>(f.top_p, held[1]),
                                 generation::per_row<float>(f.min_p, held[2]),
                                 generation::per_row<float>(f.typical_p, held[3]),
                                 generation::per_row<int64_t>(f.top_k, held[4]),
                                 generation::elements<int64_t>(seed),
                                 generation::elements<int64_t>(position),
                                 x.size(0),
                                 x.size(1),
                                 vocab > 0 ? vocab : x.size(1)};
  if constexpr (on.cuda)
    generation::sample_tokens_cuda(x.dtype(), x.raw_data(), a, generation::elements<int64_t>(token),
                                   generation::elements<float>(logprob));
  else
    generation::sample_tokens_cpu(x.dtype(), x.raw_data(), a, generation::elements<int64_t>(token),
                                  generation::elements<float>(logprob));
}

// ---- in double precision, by sorting

struct Candidate {
  int64_t id;
  double logit, p;
};
using Candidates = std::vector<Candidate>;

void normalise(Candidates& c) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Candidate& e : c) most = std::max(most, e.logit);
  for (Candidate& e : c) sum += e.p = e.logit == most ? 1 : std::exp(e.logit - most);
  for (Candidate& e : c) e.p /= sum;
}

double value(const Tensor& t, int64_t row, double off) {
  if (!t.defined()) return off;
  const std::vector<double> v = t.to_vector<double>();
  return v[t.dim() == 0 ? 0 : static_cast<size_t>(row)];
}

void apply_filters(Candidates& c, const TokenFilters& f, int64_t row) {
  const auto k = static_cast<int64_t>(value(f.top_k, row, 0));
  if (k > 0 && k < static_cast<int64_t>(c.size())) {
    const double least = c[static_cast<size_t>(k) - 1].logit;
    std::erase_if(c, [&](const Candidate& e) { return e.logit < least; });
    normalise(c);
  }
  if (const double top_p = value(f.top_p, row, 1); top_p < 1) {
    double before = 0;
    size_t keep = 0;
    while (keep < c.size() && (keep == 0 || before < top_p)) before += c[keep++].p;
    c.resize(keep);
    normalise(c);
  }
  if (const double min_p = value(f.min_p, row, 0); min_p > 0) {
    const double least = min_p * c.front().p;
    std::erase_if(c, [&](const Candidate& e) { return e.p < least; });
    normalise(c);
  }
  if (const double mass = value(f.typical_p, row, 1); mass < 1) {
    double entropy = 0;
    for (const Candidate& e : c) entropy -= e.p > 0 ? e.p * std::log(e.p) : 0;
    const auto distance = [&](const Candidate& e) { return std::abs(-std::log(e.p) - entropy); };
    Candidates near = c;
    std::stable_sort(near.begin(), near.end(),
                     [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
    double sum = 0;
    size_t last = 0;
    for (const Candidate& e : near) last += (sum += e.p) < mass;
    const double furthest = distance(near[std::min(last, near.size() - 1)]);
    std::erase_if(c, [&](const Candidate& e) { return distance(e) > furthest; });
    normalise(c);
  }
}

Drawn sample_by_sorting(const Tensor& logits, const Tensor& seeds, const Tensor& positions, const TokenFilters& f,
                        int64_t vocab) {
  const std::vector<double> x = logits.to_vector<double>();
  const std::vector<int64_t> seed = seeds.to_vector<int64_t>(), position = positions.to_vector<int64_t>();
  const int64_t columns = logits.size(1);
  std::vector<int64_t> tokens;
  std::vector<double> logprobs;
  for (int64_t b = 0; b < logits.size(0); ++b) {
    Candidates all, c;
    for (int64_t i = 0; i < columns; ++i)
      if (const double v = x[static_cast<size_t>(b * columns + i)]; !std::isnan(v)) all.push_back({i, v, 0});
    normalise(all);
    const double temperature = value(f.temperature, b, 1);
    for (const Candidate& e : all)
      if (vocab == 0 || e.id < vocab) c.push_back({e.id, temperature > 0 ? e.logit / temperature : e.logit, 0});
    std::stable_sort(c.begin(), c.end(), [](const Candidate& m, const Candidate& n) { return m.logit > n.logit; });
    normalise(c);
    size_t at = 0;
    if (temperature > 0) {
      apply_filters(c, f, b);
      const auto bits = philox({static_cast<uint64_t>(seed[static_cast<size_t>(b)]), 0},
                               static_cast<uint64_t>(position[static_cast<size_t>(b)]));
      double point = uniform_f64(bits[0], bits[1]);
      while (at + 1 < c.size() && point >= c[at].p) point -= c[at++].p;
    }
    tokens.push_back(c[at].id);
    for (const Candidate& e : all)
      if (e.id == c[at].id) logprobs.push_back(std::log(e.p));
  }
  const Shape rows{logits.size(0)};
  return {from_span<int64_t>(tokens, rows), from_span<double>(logprobs, rows)};
}

void add_samples(Samples& s) {
  const auto none = std::nullopt;
  const Tensor three = ids({1, 2, 3});
  s.add(s.tensor({3, 17}), three, ids({0, 7, 1000}));
  s.add(s.tensor({3, 17}), three, three, number(0)).named("greedy");
  s.add(s.tensor({3, 300}), three, three, numbers({0.5F, 1, 3}), ids({0, 5, 40})).named("top_k");
  s.add(s.tensor({3, 300}), three, three, number(0.8F), none, numbers({0.1F, 0.9F, 1})).named("top_p");
  s.add(s.tensor({3, 300}), three, three, none, none, none, numbers({0, 0.05F, 1})).named("min_p");
  s.add(s.tensor({3, 300}), three, three, none, none, none, none, numbers({0.2F, 0.9F, 1})).named("typical_p");
  s.add(s.tensor({3, 1000}), three, ids({5, 6, -1}), number(1.5F), ids({200, 0, 30}), number(0.9F), number(0.02F),
        number(0.8F), 700)
      .named("all of them");
  s.add(s.tensor({2, 2100}), ids({8, 9}), ids({1, 1}), none, none, none, none, none, 1).named("one id");
  s.add(s.tensor({0, 5}), ids({}), ids({})).named("no rows");
  const Tensor x = s.tensor({2, 5}), two = ids({1, 2});
  s.invalid<ShapeError>("[B, V]", s.tensor({5}), two, two);
  s.invalid<ShapeError>("V from 1", s.tensor({2, 0}), two, two);
  s.invalid<DTypeError>("f16, bf16 or f32", s.tensor({2, 5}, DType::f64), two, two);
  s.invalid<ShapeError>("seeds is", x, ids({1}), two);
  s.invalid<DTypeError>("positions must be", x, two, numbers({1, 2}));
  s.invalid<ShapeError>("top_k is", x, two, two, none, ids({1, 2, 3}));
  s.invalid<ValueError>("vocab", x, two, two, none, none, none, none, none, 6);
  s.invalid<ValueError>("vocab", x, two, two, none, none, none, none, none, -1);
  s.invalid<ValueError>("temperature", x, two, two, number(-1));
  s.invalid<ValueError>("top_k", x, two, two, none, ids({3, -3}));
  s.invalid<ValueError>("top_p", x, two, two, none, none, number(0));
  s.invalid<ValueError>("min_p", x, two, two, none, none, none, numbers({0, 1.5F}));
  s.invalid<ValueError>("typical_p", x, two, two, none, none, none, none, number(std::nanf("")));
  s.invalid<ValueError>("all be NaN", full_like(x, std::numeric_limits<double>::quiet_NaN()), two, two);
  if (s.benchmarking())
    s.bench(s.tensor({8, 128256}), s.integers({8}, 0, 100), s.integers({8}, 0, 100), number(0.8F), none, number(0.95F));
}

const Op<Drawn(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
               const Tensor&, int64_t)>
    sample_tokens_op{{
        .schema = "sample_tokens(Tensor logits, Tensor seeds, Tensor positions, Tensor? temperature=None, Tensor? "
                  "top_k=None, Tensor? top_p=None, Tensor? min_p=None, Tensor? typical_p=None, int vocab=0) -> "
                  "(Tensor ids, Tensor logprobs)",
        .doc = "A token of each row of logits [B, V] (f16, bf16, f32): ids i64 [B], and the logarithm of each one's "
               "probability under softmax(logits), f32 [B], over all V and before temperature and filters. Only ids "
               "below vocab are drawn (0: all). The parameters are f32 (top_k: i64) [B], or [] for all rows, and come "
               "in this order, each among what the earlier ones left: logits are divided by temperature (0 takes the "
               "likeliest token, of equal ones the smallest id); top_k keeps the k likeliest and what ties with the "
               "last of them (0 is off); top_p the likeliest that together have this probability (Holtzman et al., "
               "arXiv:1904.09751; 1 is off), equal ones in the order of their ids; min_p those at least this share as "
               "likely as the likeliest (Nguyen et al., arXiv:2407.01082); typical_p those nearest to the entropy that "
               "together have this probability (Meister et al., arXiv:2202.00666; 1 is off). Row b's number is "
               "philox() of seeds[b] at positions[b] (i64 [B]), so a request draws the same tokens in any batch. NaN "
               "is never drawn; where every logit is minus infinity all are equally likely. Weights are integers of "
               "some 40 bits, found digit by digit: no sort, and results depend on no order of summation. ShapeError, "
               "DTypeError; ValueError for parameters out of range and rows of nothing but NaN, which a CUDA device "
               "tells later. Not differentiable.",
        .example = "auto [id, logprob] = sample_tokens(zeros({1, 4}), zeros({1}, DType::i64), zeros({1}, DType::i64)); "
                   "assert(std::abs(logprob.item() - std::log(0.25)) < 1e-6);",
        .infer =
            [](const Tensor& x, const Tensor& seeds, const Tensor& positions, const Tensor& temperature,
               const Tensor& top_k, const Tensor& top_p, const Tensor& min_p, const Tensor& typical_p, int64_t vocab) {
              generation::check_logits(x, kName);
              generation::check_rows(seeds, "seeds", x.size(0), DType::i64, x, kName);
              generation::check_rows(positions, "positions", x.size(0), DType::i64, x, kName);
              check_filters(filters_of(temperature, top_k, top_p, min_p, typical_p), x);
              check(vocab >= 0 && vocab <= x.size(1), kName, "vocab must be from 0 to the ", x.size(1),
                    " columns of logits, got ", vocab);
              const TensorMeta rows = like(x).with_shape({x.size(0)});
              return std::array{rows.with_dtype(DType::i64), rows.with_dtype(DType::f32)};
            },
        .kernels = on_each_device([](auto on, Tensor& token, Tensor& logprob, const Tensor& x, const Tensor& seeds,
                                     const Tensor& positions, const Tensor& temperature, const Tensor& top_k,
                                     const Tensor& top_p, const Tensor& min_p, const Tensor& typical_p, int64_t vocab) {
          sample(on, token, logprob, x, seeds, positions, filters_of(temperature, top_k, top_p, min_p, typical_p),
                 vocab);
        }),
        .dtypes = generation::kLogits,
        .cost =
            [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
               const Tensor&, const Tensor&, int64_t) {
              return Cost{4.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes() + 28 * x.size(0))};
            },
        .samples = add_samples,
        .reference =
            [](const Tensor& x, const Tensor& seeds, const Tensor& positions, const Tensor& temperature,
               const Tensor& top_k, const Tensor& top_p, const Tensor& min_p, const Tensor& typical_p, int64_t vocab) {
              return sample_by_sorting(x, seeds, positions, filters_of(temperature, top_k, top_p, min_p, typical_p),
                                       vocab);
            },
    }};

}  // namespace

std::tuple<Tensor, Tensor> sample_tokens(const Tensor& logits, const Tensor& seeds, const Tensor& positions,
                                         const TokenFilters& f, int64_t vocab) {
  return sample_tokens_op(logits, seeds, positions, f.temperature, f.top_k, f.top_p, f.min_p, f.typical_p, vocab);
}

}  // namespace strata
