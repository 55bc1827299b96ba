// The records of what changes logits before a token is drawn.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/ops/copy/copy.h"
#include "strata/ops/generation/generation_records_inl.h"

namespace strata {
namespace {
using generation::ids;
using generation::number;
using generation::numbers;

constexpr float kNever = -std::numeric_limits<float>::infinity();

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

// ---- penalise_logits

constexpr std::string_view kPenalise = "penalise_logits";

void penalise(auto on, Tensor& y, const Tensor& logits, const Tensor& history, const Tensor& lengths,
              const Tensor& prompts, const Tensor& repetition, const Tensor& frequency, const Tensor& presence) {
  const Tensor x = logits.to(DType::f32).contiguous(), h = history.contiguous(), length = lengths.contiguous(),
               prompt = prompts.contiguous();
  Tensor held[3];
  const generation::PenaltyArgs a{generation::elements<int64_t>(h),
                                  generation::elements<int64_t>(length),
                                  generation::elements<int64_t>(prompt),
                                  generation::per_row<float>(repetition, held[0]),
                                  generation::per_row<float>(frequency, held[1]),
                                  generation::per_row<float>(presence, held[2]),
                                  x.size(0),
                                  x.size(1),
                                  h.size(1)};
  if constexpr (on.cuda) {
    const Tensor seen = empty({x.shape(), DType::i32, x.device(), std::nullopt});
    generation::penalise_logits_cuda(a, generation::elements<float>(x), generation::elements<float>(y),
                                     reinterpret_cast<uint32_t*>(generation::elements<int32_t>(seen)));
  } else {
    generation::penalise_logits_cpu(a, generation::elements<float>(x), generation::elements<float>(y));
  }
}

double parameter(const Tensor& t, int64_t row, double off) {
  if (!t.defined()) return off;
  const std::vector<double> v = t.to_vector<double>();
  return v[t.dim() == 0 ? 0 : at(row)];
}

// A token's logit changes step by step: at its first place, at its first behind the prompt, at each behind it.
Tensor penalise_by_loops(const Tensor& logits, const Tensor& history, const Tensor& lengths, const Tensor& prompts,
                         const Tensor& repetition, const Tensor& frequency, const Tensor& presence) {
  std::vector<double> y = logits.to_vector<double>();
  const std::vector<int64_t> h = history.to_vector<int64_t>(), length = lengths.to_vector<int64_t>(),
                             prompt = prompts.to_vector<int64_t>();
  const int64_t places = history.size(1);
  for (int64_t b = 0; b < logits.size(0); ++b) {
    const auto token = h.begin() + b * places;
    const auto end = token + std::clamp<int64_t>(length[at(b)], 0, places),
               written = std::min(end, token + std::clamp<int64_t>(prompt[at(b)], 0, places));
    for (auto t = token; t < end; ++t) {
      double& v = y[at(b * logits.size(1) + *t)];
      if (std::find(token, t, *t) == t) {
        const double r = parameter(repetition, b, 1);
        v = v < 0 ? v * r : v / r;
      }
    }
    for (auto t = written; t < end; ++t) {
      double& v = y[at(b * logits.size(1) + *t)];
      if (std::find(written, t, *t) == t) v -= parameter(presence, b, 0);
      v -= parameter(frequency, b, 0);
    }
  }
  return from_span<double>(y, logits.shape());
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&)>
    penalise_logits_op{{
        .schema = "penalise_logits(Tensor logits, Tensor history, Tensor lengths, Tensor prompts, Tensor? "
                  "repetition=None, Tensor? frequency=None, Tensor? presence=None) -> Tensor",
        .doc = "logits [B, V] (f16, bf16, f32) in f32, under penalties (f32 [B], or [] for all rows) for the tokens "
               "that row b of history [B, T] (i64) has in its first lengths[b] places; the first prompts[b] of them "
               "(i64 [B]) are the prompt. Logits of all these tokens are divided by repetition, negative ones "
               "multiplied (Keskar et al., arXiv:1909.05858). Then, of those behind the prompt, frequency times how "
               "often they stand there, and presence, are taken off. IndexError for a token that is not among V; "
               "ShapeError, DTypeError. Not differentiable.",
        .example = "Tensor y = penalise_logits(ones({1, 3}), full({1, 1}, 2), full({1}, 1), full({1}, 1), "
                   "{.repetition = full({}, 2.0)}); "
                   "assert(y.to_vector<float>() == std::vector<float>({1, 1, 0.5}));",
        .infer =
            [](const Tensor& x, const Tensor& history, const Tensor& lengths, const Tensor& prompts,
               const Tensor& repetition, const Tensor& frequency, const Tensor& presence) {
              generation::check_logits(x, kPenalise);
              const int64_t rows = x.size(0);
              check<DTypeError>(history.dtype() == DType::i64, kPenalise, "history must be i64, got ", history);
              check<ShapeError>(history.dim() == 2 && history.size(0) == rows, kPenalise, "history is ", history,
                                ", wanted [", rows, ", T]");
              check<DeviceError>(history.device() == x.device(), kPenalise, "history is on ", history.device(),
                                 ", logits on ", x.device());
              generation::check_rows(lengths, "lengths", rows, DType::i64, x, kPenalise);
              generation::check_rows(prompts, "prompts", rows, DType::i64, x, kPenalise);
              generation::check_parameter(repetition, "repetition", rows, DType::f32, x, kPenalise);
              generation::check_parameter(frequency, "frequency", rows, DType::f32, x, kPenalise);
              generation::check_parameter(presence, "presence", rows, DType::f32, x, kPenalise);
              return like(x).with_shape(x.shape()).with_dtype(DType::f32);
            },
        .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& history, const Tensor& lengths,
                                     const Tensor& prompts, const Tensor& repetition, const Tensor& frequency,
                                     const Tensor& presence) {
          penalise(on, y, x, history, lengths, prompts, repetition, frequency, presence);
        }),
        .dtypes = generation::kLogits,
        .cost =
            [](const Tensor& x, const Tensor& history, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
               const Tensor&) {
              return Cost{static_cast<double>(x.numel()),
                          static_cast<double>(x.nbytes() + 4 * x.numel() + history.nbytes())};
            },
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              s.add(s.tensor({3, 9}), s.integers({3, 20}, 0, 9), ids({20, 0, 7}), ids({5, 0, 7}), number(1.3F),
                    number(0.4F), number(0.7F));
              s.add(s.tensor({2, 300}), s.integers({2, 40}, 0, 300), ids({40, 13}), ids({0, 60}), numbers({0.8F, 2}),
                    none, numbers({-1, 1}))
                  .named("one for each row");
              s.add(s.tensor({2, 5}), s.integers({2, 3}, 0, 5), ids({3, 2}), ids({1, 1})).named("none");
              s.add(s.tensor({2, 5}), s.integers({2, 0}, 0, 5), ids({0, 0}), ids({0, 0}), number(2))
                  .named("no history");
              s.add(s.tensor({0, 5}), s.integers({0, 3}, 0, 5), ids({}), ids({})).named("no rows");
              const Tensor x = s.tensor({2, 5}), h = s.integers({2, 3}, 0, 5), two = ids({3, 3});
              s.invalid<IndexError>("not among 5 logits", x, s.integers({2, 3}, 5, 6), two, two);
              s.invalid<IndexError>("not among 5 logits", x, s.integers({2, 3}, -2, -1), two, two);
              s.invalid<ShapeError>("history is", x, s.integers({3, 2}, 0, 5), two, two);
              s.invalid<DTypeError>("history must be i64", x, s.integers({2, 3}, 0, 5, DType::i32), two, two);
              s.invalid<ShapeError>("lengths is", x, h, ids({3}), two);
              s.invalid<ShapeError>("repetition is", x, h, two, two, numbers({1, 2, 3}));
              s.invalid<DTypeError>("f16, bf16 or f32", s.tensor({2, 5}, DType::f64), h, two, two);
              if (s.benchmarking())
                s.bench(s.tensor({8, 128256}), s.integers({8, 4096}, 0, 128256), s.integers({8}, 4096, 4097),
                        s.integers({8}, 100, 200), number(1.1F), number(0.1F), number(0.1F));
            },
        .reference = penalise_by_loops,
    }};

// ---- bias_logits

constexpr std::string_view kBias = "bias_logits";

void bias(auto on, Tensor& y, const Tensor& x, const Tensor& which, const Tensor& values, const Tensor& counts,
          const Tensor& limits) {
  if (y.raw_data() != x.raw_data()) copy_elements(y, x);
  const Tensor id = which.contiguous(), v = values.contiguous(),
               count = counts.defined() ? counts.contiguous() : counts,
               limit = limits.defined() ? limits.contiguous() : limits;
  Tensor to = y.is_contiguous() ? y : y.contiguous();
  const int64_t n = id.size(-1);
  const generation::BiasArgs a{generation::elements<int64_t>(id),
                               count.defined() ? generation::elements<int64_t>(count) : nullptr,
                               count.defined() ? generation::elements<int64_t>(limit) : nullptr,
                               generation::elements<float>(v),
                               x.size(0),
                               x.size(1),
                               n,
                               id.dim() == 1 ? 0 : n};
  if constexpr (on.cuda)
    generation::bias_logits_cuda(a, generation::elements<float>(to));
  else
    generation::bias_logits_cpu(a, generation::elements<float>(to));
  if (to.raw_data() != y.raw_data()) copy_elements(y, to);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> bias_logits_op{{
    .schema = "bias_logits(Tensor logits, Tensor ids, Tensor values, Tensor? counts=None, Tensor? limits=None) -> "
              "Tensor",
    .doc = "logits [B, V] (f16, bf16, f32) in f32, with values (f32, [N] or for each row [B, N]) added at ids (i64, of "
           "the same shape); a negative id stands for none. Minus infinity forbids an id. With counts and limits "
           "(i64 [B]) only in rows where counts[b] < limits[b]: a minimum length forbids, until it is reached, the "
           "ids that end a text. IndexError for an id that is not among V; ShapeError, DTypeError. Not differentiable.",
    .example = "Tensor y = bias_logits(zeros({1, 3}), full({1}, 1), full({1}, 5.0)); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 5, 0}));",
    .infer =
        [](const Tensor& x, const Tensor& which, const Tensor& values, const Tensor& counts, const Tensor& limits) {
          generation::check_logits(x, kBias);
          const int64_t rows = x.size(0);
          check<DTypeError>(which.dtype() == DType::i64 && values.dtype() == DType::f32, kBias,
                            "needs ids of i64 and values of f32, got ", which, " and ", values);
          check<ShapeError>(which.dim() == 1 || (which.dim() == 2 && which.size(0) == rows), kBias, "ids are ", which,
                            ", wanted [N] or [", rows, ", N]");
          check<ShapeError>(values.shape() == which.shape(), kBias, "values are ", values, ", ids are ", which);
          for (const Tensor* t : {&which, &values})
            check<DeviceError>(t->device() == x.device(), kBias, "ids and values must be on ", x.device(), ", got ",
                               t->device());
          check(counts.defined() == limits.defined(), kBias, "takes counts and limits together");
          if (counts.defined()) {
            generation::check_rows(counts, "counts", rows, DType::i64, x, kBias);
            generation::check_rows(limits, "limits", rows, DType::i64, x, kBias);
          }
          return like(x).with_shape(x.shape()).with_dtype(DType::f32);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& which, const Tensor& values,
                                 const Tensor& counts,
                                 const Tensor& limits) { bias(on, y, x, which, values, counts, limits); }),
    .dtypes = generation::kLogits,
    .cost =
        [](const Tensor& x, const Tensor& which, const Tensor& values, const Tensor&, const Tensor&) {
          return Cost{static_cast<double>(which.numel()),
                      static_cast<double>(x.nbytes() + 4 * x.numel() + which.nbytes() + values.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 9}), ids({8, -1, 0, 8}), numbers({1, 2, -3, 0.5F}));
          s.add(s.tensor({2, 300}), s.integers({2, 4}, -1, 300), s.tensor({2, 4}, DType::f32)).named("for each row");
          s.add(s.tensor({2, 9}), ids({3}), numbers({4}), ids({4, 5}), ids({5, 5})).named("until a limit");
          s.add(s.tensor({2, 9}), ids({}), numbers({})).named("none");
          s.add(s.tensor({0, 9}), ids({1}), numbers({1})).named("no rows");
          const Tensor x = s.tensor({2, 5});
          s.invalid<IndexError>("not among 5 logits", x, ids({5}), numbers({1}));
          s.invalid<ShapeError>("values are", x, ids({4}), numbers({1, 2}));
          s.invalid<ShapeError>("wanted [N]", x, s.integers({3, 1}, 0, 5), s.tensor({3, 1}, DType::f32));
          s.invalid<DTypeError>("ids of i64", x, numbers({1}), numbers({1}));
          s.invalid<ValueError>("together", x, ids({4}), numbers({1}), ids({1, 1}));
          s.invalid<ShapeError>("limits is", x, ids({4}), numbers({1}), ids({1, 1}), ids({1}));
          if (s.benchmarking())
            s.bench(s.tensor({8, 128256}), s.integers({8, 64}, 0, 128256), s.tensor({8, 64}, DType::f32));
        },
    .reference =
        [](const Tensor& x, const Tensor& which, const Tensor& values, const Tensor& counts, const Tensor& limits) {
          std::vector<double> y = x.to_vector<double>();
          const std::vector<double> v = values.to_vector<double>();
          const std::vector<int64_t> id = which.to_vector<int64_t>();
          const int64_t n = which.size(-1);
          for (int64_t b = 0; b < x.size(0); ++b)
            for (int64_t j = 0; j < n; ++j) {
              const size_t from = at(which.dim() == 1 ? j : b * n + j);
              if (counts.defined() && counts.to_vector<int64_t>()[at(b)] >= limits.to_vector<int64_t>()[at(b)])
                continue;
              if (id[from] >= 0) y[at(b * x.size(1) + id[from])] += v[from];
            }
          return from_span<double>(y, x.shape());
        },
}};

}  // namespace

Tensor penalise_logits(const Tensor& logits, const Tensor& history, const Tensor& lengths, const Tensor& prompts,
                       const TokenPenalties& p) {
  return penalise_logits_op(logits, history, lengths, prompts, p.repetition, p.frequency, p.presence);
}
Tensor bias_logits(const Tensor& logits, const Tensor& ids, const Tensor& values, const Tensor& counts,
                   const Tensor& limits) {
  return bias_logits_op(logits, ids, values, counts, limits);
}

}  // namespace strata
