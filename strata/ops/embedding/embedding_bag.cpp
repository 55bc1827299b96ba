// The records of embedding bags: sums, means and maxima of rows of a table.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/embedding/embedding_bag_kernel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
using Padding = std::optional<int64_t>;

constexpr std::string_view kOp = "embedding_bag";

int64_t wrap_padding(Padding padding, int64_t rows) {
  if (!padding) return -1;
  check<IndexError>(*padding >= -rows && *padding < rows, kOp, "padding_idx ", *padding,
                    " is out of range for a table of ", rows, " rows");
  return *padding < 0 ? *padding + rows : *padding;
}

void check_bags(const Tensor& indices, const Tensor& offsets, const Tensor& weights, DType dtype, bool mean) {
  check<DTypeError>(indices.dtype() == DType::i64 && offsets.dtype() == DType::i64, kOp,
                    "needs i64 indices and offsets, got ", indices, " and ", offsets);
  check<ShapeError>(indices.dim() == 1 && offsets.dim() == 1 && offsets.size(0) >= 1, kOp, "indices are ", indices,
                    " and offsets ", offsets, ", wanted [n] and [bags + 1]");
  check<DTypeError>(is_floating(dtype), kOp, "needs a floating table, got ", dtype);
  if (!weights.defined()) return;
  check<ShapeError>(weights.shape() == indices.shape(), kOp, "per_sample_weights are ", weights, ", indices ", indices);
  check<DTypeError>(weights.dtype() == dtype, kOp, "per_sample_weights are ", weights, ", wanted ", dtype);
  check(!mean, kOp, "per_sample_weights go with mode sum alone");
}

// What the kernels see; `keep` holds what had to be copied.
BagCall describe_call(const Tensor& indices, const Tensor& offsets, const Tensor& weights, DType dtype, bool mean,
                      std::vector<Tensor>& keep) {
  const auto raw = [&](const Tensor& t) -> const void* {
    if (!t.defined()) return nullptr;
    keep.push_back(t.contiguous());
    return keep.back().raw_data();
  };
  BagCall c;
  c.dtype = dtype;
  c.n = indices.numel(), c.bags = offsets.numel() - 1;
  c.mean = mean;
  c.indices = static_cast<const int64_t*>(raw(indices)), c.offsets = static_cast<const int64_t*>(raw(offsets));
  c.scale = raw(weights);
  return c;
}

// Made where they belong: what comes from the host would be waited for.
Tensor filled(const Shape& shape, DType dtype, Device device, int64_t value) {
  Tensor t = empty({shape, dtype, device, std::nullopt});
  return t.fill_(value);
}
// 0, step, .. (n - 1) step.
Tensor multiples(int64_t n, int64_t step, Device device) {
  return cumsum(filled({n}, DType::i64, device, step), 0) - step;
}

// The gradient for per_sample_weights [n]: g [bags, D] times the table's row, for each position.
Tensor weights_gradient(const Tensor& g, const Tensor& indices, const Tensor& table, const Tensor& offsets,
                        int64_t padding) {
  const Tensor ends = offsets.narrow(0, 1, offsets.size(0) - 1);
  const Tensor bag = searchsorted(ends, multiples(indices.size(0), 1, indices.device()), true);
  const Tensor dots = sum(index_select(g, 0, bag) * embedding(indices, table), {1});
  return padding < 0 ? dots : dots * (indices != padding).to(dots.dtype());
}

using SumSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, Padding);
using BackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, bool, Padding);

// Public ops that the rules below call.
Tensor bag_sum(const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights, bool mean,
               Padding padding);
Tensor bag_backward(const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights, int64_t rows,
                    bool mean, Padding padding);

template <void (*run)(const BagCall&)>
void sum_kernel(Tensor& y, const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights,
                bool mean, Padding padding) {
  std::vector<Tensor> keep{table.contiguous()};
  BagCall c = describe_call(indices, offsets, weights, table.dtype(), mean, keep);
  c.rows = table.size(0), c.width = table.size(1), c.padding = wrap_padding(padding, c.rows);
  c.weight = keep[0].raw_data();
  c.y = y.raw_data();
  run(c);
}

template <void (*run)(const BagCall&)>
void max_kernel(Tensor& y, Tensor& best, const Tensor& indices, const Tensor& table, const Tensor& offsets,
                Padding padding) {
  std::vector<Tensor> keep{table.contiguous()};
  BagCall c = describe_call(indices, offsets, {}, table.dtype(), false, keep);
  c.rows = table.size(0), c.width = table.size(1), c.padding = wrap_padding(padding, c.rows);
  c.weight = keep[0].raw_data();
  c.y = y.raw_data();
  c.best = static_cast<int64_t*>(best.raw_data());
  run(c);
}

void on_cpu(const BagCall& c, const Tensor&) {
  bag_backward_cpu(c);
}
template <void (*run)(const BagCall&, const Tensor&)>
void backward_kernel(Tensor& gw, const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights,
                     int64_t rows, bool mean, Padding padding) {
  std::vector<Tensor> keep{g.contiguous()};
  BagCall c = describe_call(indices, offsets, weights, g.dtype(), mean, keep);
  c.rows = rows, c.width = g.size(1), c.padding = wrap_padding(padding, rows);
  c.grad_y = keep[0].raw_data();
  c.grad_weight = gw.raw_data();
  run(c, indices.contiguous());
}

Tensor offsets_of(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return from_span<int64_t>(v, {n});
}

// How many positions of each bag count.
std::vector<int64_t> bag_counts(const Tensor& indices, const Tensor& offsets, int64_t padding) {
  const std::vector<int64_t> at = indices.to_vector<int64_t>(), from = offsets.to_vector<int64_t>();
  std::vector<int64_t> counts;
  for (size_t b = 0; b + 1 < from.size(); ++b) {
    counts.push_back(0);
    for (int64_t i = from[b]; i < from[b + 1]; ++i) counts.back() += at[i] != padding;
  }
  return counts;
}
// Calls f(bag, row, factor) for each position that counts.
template <class F>
void for_positions(const Tensor& indices, const Tensor& offsets, const Tensor& weights, bool mean, int64_t padding,
                   F&& f) {
  const std::vector<int64_t> at = indices.to_vector<int64_t>(), from = offsets.to_vector<int64_t>(),
                             counts = bag_counts(indices, offsets, padding);
  const std::vector<double> w = weights.defined() ? weights.to_vector<double>() : std::vector<double>();
  for (size_t b = 0; b < counts.size(); ++b)
    for (int64_t i = from[b]; i < from[b + 1]; ++i)
      if (at[i] != padding) f(b, at[i], (w.empty() ? 1 : w[i]) / static_cast<double>(mean ? counts[b] : 1));
}

const Op<BackwardSignature> embedding_bag_backward_op{{
    .schema = "embedding_bag_backward(Tensor g, Tensor indices, Tensor offsets, Tensor? per_sample_weights, int rows, "
              "bool mean=false, int? padding_idx=None) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "The gradient of embedding_bag_sum for its table of `rows` rows: row v is the sum of the rows of g of the "
           "bags that hold index v, each times what the index counts there, added in f32 in the order of the positions "
           "(on CUDA in parts, each in that order; the same bits in every call and for any number of threads).",
    .infer =
        [](const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights, int64_t rows,
           bool mean, Padding padding) {
          check_bags(indices, offsets, weights, g.dtype(), mean);
          check<ShapeError>(g.dim() == 2 && g.size(0) == offsets.size(0) - 1, "embedding_bag_backward", "g is ", g,
                            ", wanted [", offsets.size(0) - 1, ", D]");
          check(rows >= 0, "embedding_bag_backward", "rows must not be negative, got ", rows);
          wrap_padding(padding, rows);
          return like(g).with_shape({rows, g.size(1)});
        },
    .kernels = {.cpu = backward_kernel<on_cpu>, .cuda = STRATA_CUDA_KERNEL(backward_kernel<bag_backward_cuda>)},
    .saves = "g:per_sample_weights indices offsets per_sample_weights:g",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights,
           int64_t rows, bool mean, Padding padding) {
          if (b.needs(0)) b.set(0, bag_sum(indices, b.gy(), offsets, weights, mean, padding));
          if (b.needs(3)) b.set(3, weights_gradient(g, indices, b.gy(), offsets, wrap_padding(padding, rows)));
        },
    .cost =
        [](const Tensor& g, const Tensor& indices, const Tensor&, const Tensor&, int64_t rows, bool, Padding) {
          const auto row = static_cast<double>(g.size(1) * size_of(g.dtype()));
          return Cost{2.0 * static_cast<double>(indices.numel() * g.size(1)),
                      static_cast<double>(g.nbytes() + indices.nbytes()) + static_cast<double>(rows) * row};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.integers({7}, 0, 4), offsets_of({0, 2, 2, 7}), std::nullopt, 4);
          s.add(s.tensor({3, 20}), s.integers({7}, 0, 4), offsets_of({0, 3, 5, 7}), std::nullopt, 5, true, 1)
              .named("means, padding");
          s.add(s.tensor({2, 3}), s.integers({6}, 0, 4), offsets_of({0, 4, 6}), s.tensor({6}), 4).named("weighted");
          s.invalid<ShapeError>("g is", s.tensor({3, 5}), s.integers({7}, 0, 4), offsets_of({0, 7}), std::nullopt, 4);
          s.invalid<IndexError>("out of range", s.tensor({1, 5}), s.integers({2}, 7, 9), offsets_of({0, 2}),
                                std::nullopt, 4);
          if (s.benchmarking()) {
            std::vector<int64_t> from;
            for (int64_t i = 0; i <= 8192; ++i) from.push_back(32 * i);
            s.bench(s.tensor({8192, 128}), s.integers({262144}, 0, 100000), offsets_of(from), std::nullopt, 100000);
          }
        },
    .reference =
        [](const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights, int64_t rows,
           bool mean, Padding padding) {
          const std::vector<double> from = g.to_vector<double>();
          const int64_t d = g.size(1);
          std::vector<double> w(static_cast<size_t>(rows * d));
          for_positions(indices, offsets, weights, mean, wrap_padding(padding, rows),
                        [&](size_t bag, int64_t row, double factor) {
                          for (int64_t j = 0; j < d; ++j) w[row * d + j] += factor * from[bag * d + j];
                        });
          return from_span<double>(w, {rows, d});
        },
}};

const Op<SumSignature> embedding_bag_sum_op{{
    .schema = "embedding_bag_sum(Tensor indices, Tensor weight, Tensor offsets, Tensor? per_sample_weights=None, bool "
              "mean=false, int? padding_idx=None) -> Tensor",
    .shard = "whole",
    .doc =
        "The sum, or the mean, of the rows of weight [V, D] that each bag names: bag b holds the indices (i64 [n]) at "
        "positions offsets[b] to offsets[b + 1] - 1, offsets (i64 [bags + 1]) rising from 0 to n. "
        "per_sample_weights [n] multiply the rows of a sum. Positions with index padding_idx count nothing. An empty "
        "bag gives zeros. embedding_bag is the friendlier form.",
    .infer =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights, bool mean,
           Padding padding) {
          check_bags(indices, offsets, weights, table.dtype(), mean);
          check<ShapeError>(table.dim() == 2, kOp, "weight must be [V, D], got ", table);
          wrap_padding(padding, table.size(0));
          return like(table).with_shape({offsets.size(0) - 1, table.size(1)});
        },
    .kernels = {.cpu = sum_kernel<bag_sum_cpu>, .cuda = STRATA_CUDA_KERNEL(sum_kernel<bag_sum_cuda>)},
    .saves = "indices weight:per_sample_weights offsets per_sample_weights:weight",
    .backward =
        [](Backward& b, const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights,
           bool mean, Padding padding) {
          const int64_t rows = table.shape()[0];
          if (b.needs(1)) b.set(1, bag_backward(b.gy(), indices, offsets, weights, rows, mean, padding));
          if (b.needs(3)) b.set(3, weights_gradient(b.gy(), indices, table, offsets, wrap_padding(padding, rows)));
        },
    .cost =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor&, bool, Padding) {
          const auto row = static_cast<double>(table.size(1) * size_of(table.dtype()));
          return Cost{
              2.0 * static_cast<double>(indices.numel() * table.size(1)),
              static_cast<double>(indices.numel() + offsets.numel()) * row + static_cast<double>(indices.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({7}, 0, 4), s.tensor({4, 5}), offsets_of({0, 2, 2, 7}));
          s.add(s.integers({7}, 0, 4), s.tensor({5, 20}), offsets_of({0, 3, 5, 7}), std::nullopt, true, -4)
              .named("means, padding");
          s.add(s.integers({6}, 0, 4), s.tensor({4, 3}), offsets_of({0, 4, 6}), s.tensor({6})).named("weighted");
          s.add(s.integers({6}, 0, 4), s.tensor({4, 3}), offsets_of({0, 4, 6}), s.tensor({6}), false, 1)
              .named("weighted, padding");
          s.add(s.integers({0}, 0, 4), s.tensor({4, 3}), offsets_of({0, 0, 0}), std::nullopt, true).named("no indices");
          s.invalid<ValueError>("must begin with 0", s.integers({3}, 0, 4), s.tensor({4, 3}), offsets_of({1, 3}));
          s.invalid<ValueError>("must not fall", s.integers({3}, 0, 4), s.tensor({4, 3}), offsets_of({0, 2, 1, 3}));
          s.invalid<ValueError>("must end with", s.integers({3}, 0, 4), s.tensor({4, 3}), offsets_of({0, 2}));
          s.invalid<IndexError>("out of range", s.integers({2}, 5, 6), s.tensor({5, 3}), offsets_of({0, 2}));
          s.invalid<IndexError>("padding_idx", s.integers({2}, 0, 3), s.tensor({5, 3}), offsets_of({0, 2}),
                                std::nullopt, false, 5);
          s.invalid<ValueError>("mode sum", s.integers({2}, 0, 3), s.tensor({5, 3}), offsets_of({0, 2}), s.tensor({2}),
                                true);
          s.invalid<ShapeError>("per_sample_weights", s.integers({2}, 0, 3), s.tensor({5, 3}), offsets_of({0, 2}),
                                s.tensor({3}));
          if (s.benchmarking()) {
            std::vector<int64_t> from;
            for (int64_t i = 0; i <= 8192; ++i) from.push_back(32 * i);
            s.bench(s.integers({262144}, 0, 100000), s.tensor({100000, 128}), offsets_of(from));
          }
        },
    .reference =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights, bool mean,
           Padding padding) {
          const std::vector<double> from = table.to_vector<double>();
          const int64_t d = table.size(1), bags = offsets.size(0) - 1;
          std::vector<double> y(static_cast<size_t>(bags * d));
          for_positions(indices, offsets, weights, mean, wrap_padding(padding, table.size(0)),
                        [&](size_t bag, int64_t row, double factor) {
                          for (int64_t j = 0; j < d; ++j) y[bag * d + j] += factor * from[row * d + j];
                        });
          return from_span<double>(y, {bags, d});
        },
}};

const Op<Pair(const Tensor&, const Tensor&, const Tensor&, Padding)> embedding_bag_max_op{{
    .schema = "embedding_bag_max(Tensor indices, Tensor weight, Tensor offsets, int? padding_idx=None) -> (Tensor "
              "values, Tensor rows)",
    .shard = "whole",
    .doc = "The largest elements, column by column, of the rows of weight that each bag names, bags as in "
           "embedding_bag_sum, and the rows they come from. NaN wins; of equal elements the first. An empty bag gives "
           "0 and row -1.",
    .infer =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, Padding padding) {
          check_bags(indices, offsets, {}, table.dtype(), false);
          check<ShapeError>(table.dim() == 2, kOp, "weight must be [V, D], got ", table);
          wrap_padding(padding, table.size(0));
          const TensorMeta y = like(table).with_shape({offsets.size(0) - 1, table.size(1)});
          return std::array<TensorMeta, 2>{y, y.with_dtype(DType::i64)};
        },
    .kernels = {.cpu = max_kernel<bag_max_cpu>, .cuda = STRATA_CUDA_KERNEL(max_kernel<bag_max_cuda>)},
    .saves = "rows",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& table, const Tensor&, Padding) {
          // Summed in f32, rounded once.
          const DType type = b.gy(0).dtype();
          const Tensor g = b.gy(0).to(statistic_dtype(type)), rows = b.y(1);
          const Tensor none = filled(table.shape(), g.dtype(), g.device(), 0);
          const Tensor sums =
              table.shape()[0] == 0 ? none : scatter_add(none, 0, clamp_min(rows, 0), g * (rows >= 0).to(g.dtype()));
          b.set(1, sums.to(type));
        },
    .cost =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, Padding) {
          const auto row = static_cast<double>(table.size(1) * size_of(table.dtype()));
          return Cost{static_cast<double>(indices.numel() * table.size(1)),
                      static_cast<double>(indices.numel() + offsets.numel()) * row +
                          static_cast<double>(indices.nbytes() + offsets.numel() * table.size(1) * 8)};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({7}, 0, 6), s.distinct({6, 5}), offsets_of({0, 2, 2, 7}));
          s.add(s.integers({7}, 0, 4), s.distinct({4, 20}), offsets_of({0, 3, 7}), -1).named("padding");
          s.invalid<ValueError>("must begin with 0", s.integers({3}, 0, 4), s.tensor({4, 3}), offsets_of({1, 3}));
          s.invalid<IndexError>("out of range", s.integers({2}, 5, 6), s.tensor({5, 3}), offsets_of({0, 2}));
        },
    .reference =
        [](const Tensor& indices, const Tensor& table, const Tensor& offsets, Padding padding) {
          const std::vector<double> from = table.to_vector<double>();
          const int64_t d = table.size(1), bags = offsets.size(0) - 1;
          std::vector<double> y(static_cast<size_t>(bags * d));
          std::vector<int64_t> at(y.size(), -1);
          for_positions(indices, offsets, {}, false, wrap_padding(padding, table.size(0)),
                        [&](size_t bag, int64_t row, double) {
                          for (int64_t j = 0; j < d; ++j)
                            if (at[bag * d + j] < 0 || from[row * d + j] > y[bag * d + j])
                              y[bag * d + j] = from[row * d + j], at[bag * d + j] = row;
                        });
          return Pair(from_span<double>(y, {bags, d}), from_span<int64_t>(at, {bags, d}));
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&, const Tensor&, bool, Padding)>
    embedding_bag_op{{
        .schema = "embedding_bag(Tensor indices, Tensor weight, Tensor? offsets=None, str mode=\"mean\", Tensor? "
                  "per_sample_weights=None, bool include_last_offset=false, int? padding_idx=None) -> Tensor",
        .doc = "Rows of weight [V, D] taken together bag by bag: mode is mean, sum or max. indices (integers) are "
               "[bags, n], "
               "or one bag after the other with offsets (integers), where each begins; with include_last_offset a last "
               "offset "
               "says where the last one ends. per_sample_weights, of indices' shape, multiply the rows of a sum. "
               "Positions with index padding_idx count nothing, and that row gets no gradient. An empty bag gives "
               "zeros. ValueError for offsets that do not rise from 0, IndexError for an index outside the table.",
        .example = "Tensor w = from_span<float>(std::vector<float>{1, 2, 3, 4}, {2, 2}); "
                   "Tensor y = embedding_bag(from_span<int64_t>(std::vector<int64_t>{0, 1}, {1, 2}), w); "
                   "assert(y.to_vector<float>() == std::vector<float>({2, 3}));",
        .composed =
            [](const Tensor& indices, const Tensor& table, const Tensor& offsets, const std::string& mode,
               const Tensor& weights, bool include_last_offset, Padding padding) {
              for (const Tensor* t : {&indices, &offsets})
                if (t->defined())
                  check<DTypeError>(!is_floating(t->dtype()) && t->dtype() != DType::boolean, kOp,
                                    "needs integer indices and offsets, got ", t->dtype());
              check(mode == "mean" || mode == "sum" || mode == "max", kOp, "mode '", mode,
                    "' must be mean, sum or max");
              check(!weights.defined() || mode == "sum", kOp, "per_sample_weights go with mode sum alone, got '", mode,
                    "'");
              check<ShapeError>(indices.dim() == (offsets.defined() ? 1 : 2), kOp, "indices are ", indices,
                                ", wanted [bags, n] without offsets and [n] with them");
              check<ShapeError>(!weights.defined() || weights.shape() == indices.shape(), kOp,
                                "per_sample_weights are ", weights, ", indices ", indices);
              Tensor from = offsets.defined() ? offsets.to(DType::i64) : offsets;
              if (!from.defined()) {
                from = multiples(indices.size(0) + 1, indices.size(1), indices.device());
              } else {
                check<ShapeError>(from.dim() == 1 && from.size(0) >= (include_last_offset ? 1 : 0), kOp, "offsets are ",
                                  from, ", wanted one dimension");
                if (!include_last_offset)
                  from = cat({from, filled({1}, from.dtype(), from.device(), indices.size(0))}, 0);
              }
              const Tensor flat = indices.to(DType::i64).reshape({indices.numel()});
              if (mode == "max") return std::get<0>(embedding_bag_max_op(flat, table, from, padding));
              return embedding_bag_sum_op(flat, table, from,
                                          weights.defined() ? weights.reshape({weights.numel()}) : weights,
                                          mode == "mean", padding);
            },
        .samples =
            [](Samples& s) {
              s.add(s.integers({3, 2}, 0, 5), s.tensor({5, 3}));
              s.add(s.integers({6}, 0, 5), s.tensor({5, 3}), offsets_of({0, 1, 4}), "sum", s.tensor({6}))
                  .named("weighted sums");
              s.add(s.integers({6}, 0, 5), s.distinct({5, 3}), offsets_of({0, 1, 6}), "max", std::nullopt, true)
                  .named("maxima, the last offset given");
              s.add(s.integers({6}, 0, 5), s.tensor({5, 3}), offsets_of({0, 3}), "mean", std::nullopt, false, 2)
                  .named("padding");
              s.add(s.integers({6}, 0, 5, DType::i32), s.tensor({5, 3}), offsets_of({0, 3}).to(DType::i32), "sum")
                  .named("i32");
              s.invalid<ValueError>("mode", s.integers({3, 2}, 0, 5), s.tensor({5, 3}), std::nullopt, "median");
              s.invalid<ShapeError>("without offsets", s.integers({3}, 0, 5), s.tensor({5, 3}));
              s.invalid<ValueError>("mode sum", s.integers({3, 2}, 0, 5), s.tensor({5, 3}), std::nullopt, "mean",
                                    s.tensor({3, 2}));
            },
        .reference =
            [](const Tensor& indices, const Tensor& table, const Tensor& offsets, const std::string& mode,
               const Tensor& weights, bool include_last_offset, Padding padding) {
              const std::vector<int64_t> at = indices.to(DType::i64).to_vector<int64_t>();
              const std::vector<double> rows = table.to_vector<double>();
              const std::vector<double> w =
                  weights.defined() ? weights.to_vector<double>() : std::vector<double>(at.size(), 1.0);
              std::vector<int64_t> starts;
              if (offsets.defined()) {
                starts = offsets.to(DType::i64).to_vector<int64_t>();
                if (!include_last_offset) starts.push_back(indices.size(0));
              } else {
                for (int64_t b = 0; b <= indices.size(0); ++b) starts.push_back(b * indices.size(1));
              }
              const int64_t d = table.size(1), skip = wrap_padding(padding, table.size(0));
              std::vector<double> y;
              for (size_t b = 0; b + 1 < starts.size(); ++b)
                for (int64_t j = 0; j < d; ++j) {
                  double sum = 0, most = -INFINITY;
                  int64_t count = 0;
                  for (int64_t i = starts[b]; i < starts[b + 1]; ++i) {
                    const auto k = static_cast<size_t>(i);
                    if (at[k] == skip) continue;
                    const double v = rows[static_cast<size_t>(at[k] * d + j)];
                    sum += w[k] * v;
                    most = std::max(most, v);
                    ++count;
                  }
                  y.push_back(count == 0      ? 0
                              : mode == "max" ? most
                              : mode == "sum" ? sum
                                              : sum / static_cast<double>(count));
                }
              return from_span<double>(y, {static_cast<int64_t>(starts.size()) - 1, d});
            },
    }};

Tensor bag_sum(const Tensor& indices, const Tensor& table, const Tensor& offsets, const Tensor& weights, bool mean,
               Padding padding) {
  return embedding_bag_sum_op(indices, table, offsets, weights, mean, padding);
}
Tensor bag_backward(const Tensor& g, const Tensor& indices, const Tensor& offsets, const Tensor& weights, int64_t rows,
                    bool mean, Padding padding) {
  return embedding_bag_backward_op(g, indices, offsets, weights, rows, mean, padding);
}

}  // namespace

Tensor embedding_bag(const Tensor& indices, const Tensor& weight, const Tensor& offsets, const std::string& mode,
                     const Tensor& per_sample_weights, bool include_last_offset, std::optional<int64_t> padding_idx) {
  return embedding_bag_op(indices, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx);
}

}  // namespace strata
