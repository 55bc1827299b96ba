// What embedding layers do to their table beside looking into it.

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

void check_table(std::string_view op, const Tensor& weight, const Tensor& indices) {
  check<ShapeError>(weight.dim() == 2, op, "weight must be [V, D], got ", weight);
  check<DTypeError>(is_floating(weight.dtype()), op, "needs a floating weight, got ", weight);
  check<DTypeError>(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, op,
                    "needs i64 or i32 indices, got ", indices);
}
Tensor flat(const Tensor& indices) {
  return indices.reshape({indices.numel()}).to(DType::i64);
}

const Op<Tensor(const Tensor&, const Tensor&)> rows_by_frequency_op{{
    .schema = "rows_by_frequency(Tensor weight, Tensor indices) -> Tensor",
    .shard = "whole",
    .doc = "weight [V, D] itself, as a view, whose gradient has row v divided by how often v is among indices: what "
           "embedding and embedding_bag read where gradients are to be scaled by frequency. ShapeError, DTypeError.",
    .example = "Tensor table = ones({3, 2}).set_requires_grad(), ids = full({4}, 1);\n"
               "embedding(ids, rows_by_frequency(table, ids)).sum().backward();\n"
               "assert(table.grad().sum().item() == 2);  // not 8: row 1 was asked for four times",
    .view =
        [](const Tensor& weight, const Tensor& indices) {
          check_table("rows_by_frequency", weight, indices);
          return alias(weight, weight.shape(), weight.strides(), weight.storage_offset());
        },
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& weight, const Tensor& indices) {
          const int64_t rows = weight.size(0);
          const Tensor at = flat(indices);  // what is outside is counted behind the last row
          const Tensor inside = logical_and(ge(at, zeros_like(at)), lt(at, full_like(at, rows)));
          const Tensor counts = narrow(bincount(where(inside, at, full_like(at, rows)), {}, rows + 1), 0, 0, rows);
          const Tensor shares = reciprocal(clamp_min(counts, 1).to(statistic_dtype(weight.dtype())));
          b.set(0, b.gy() * unsqueeze(shares, 1).to(b.gy().dtype()));
        },
    .samples =
        [](Samples& s) {
          // The gradient is not that of what is computed.
          s.add(s.tensor({5, 3}), s.integers({2, 4}, 0, 5)).not_differentiable();
          s.add(transpose(s.tensor({2, 4}), 0, 1), s.integers({3}, 0, 4, DType::i32))
              .named("strided")
              .not_differentiable();
          s.invalid<ShapeError>("[V, D]", s.tensor({5}), s.integers({2}, 0, 5));
          s.invalid<DTypeError>("indices", s.tensor({5, 2}), s.tensor({2}, DType::f32));
        },
    .reference = [](const Tensor& weight, const Tensor&) -> Tensor { return naive::Array(weight); },
}};

using Rows = std::tuple<Tensor, Tensor>;

Rows rows_within(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type) {
  check_table("renormed_rows", weight, indices);
  check(max_norm >= 0, "renormed_rows", "max_norm must not be negative, got ", max_norm);
  const Tensor rows = unique(flat(indices)).values, found = index_select(weight.detach(), 0, rows);
  if (rows.numel() == 0) return Rows(rows, found);
  const Tensor size = norm(found, norm_type, {1}, true);
  const Tensor factor = where(gt(size, full_like(size, max_norm)), reciprocal(size + 1e-7) * max_norm, ones_like(size));
  return Rows(rows, found * factor);
}

const Op<Rows(const Tensor&, const Tensor&, double, double)> renormed_rows_op{{
    .schema = "renormed_rows(Tensor weight, Tensor indices, float max_norm, float norm_type=2.0) -> (Tensor rows, "
              "Tensor values)",
    .shard = "whole",
    .doc = "Which rows of weight [V, D] indices name, each once and in ascending order, and these rows, scaled down "
           "to max_norm where their norm_type-norm is above it: what embedding_renorm writes into the table. Not "
           "differentiable. ShapeError, DTypeError, ValueError, IndexError.",
    .example = "Tensor table = full({2, 1}, 4.0); embedding_renorm(table, zeros({1}, DType::i64), 1);\n"
               "assert(std::abs(table.to_vector<float>()[0] - 1) < 1e-6 && table.to_vector<float>()[1] == 4);",
    .dynamic = {.everywhere = rows_within},
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 3}), s.integers({2, 4}, 0, 5), 1.5);
          s.add(s.tensor({4, 3}), s.integers({3}, 0, 4, DType::i32), 0.7, 1.0).named("sums");
          s.invalid<ShapeError>("[V, D]", s.tensor({5}), s.integers({2}, 0, 5), 1.0);
          s.invalid<ValueError>("negative", s.tensor({5, 2}), s.integers({2}, 0, 5), -1.0);
          s.invalid<DTypeError>("indices", s.tensor({5, 2}), s.tensor({2}, DType::f32), 1.0);
        },
    .reference =
        [](const Tensor& weight, const Tensor& indices, double max_norm, double norm_type) {
          const naive::Array w(weight);
          const std::vector<int64_t> named = flat(indices).to_vector<int64_t>();
          const std::set<int64_t> rows(named.begin(), named.end());
          std::vector<double> values;
          for (const int64_t row : rows) {
            double sum = 0;
            for (int64_t j = 0; j < weight.size(1); ++j) sum += std::pow(std::abs(w[{row, j}]), norm_type);
            const double size = std::pow(sum, 1 / norm_type);
            for (int64_t j = 0; j < weight.size(1); ++j)
              values.push_back(w[{row, j}] * (size > max_norm ? max_norm / (size + 1e-7) : 1));
          }
          const auto n = static_cast<int64_t>(rows.size());
          return Rows(from_span<int64_t>(std::vector<int64_t>(rows.begin(), rows.end()), {n}),
                      from_span<double>(values, {n, weight.size(1)}));
        },
}};

}  // namespace

Tensor rows_by_frequency(const Tensor& weight, const Tensor& indices) {
  return rows_by_frequency_op(weight, indices);
}
std::tuple<Tensor, Tensor> renormed_rows(const Tensor& weight, const Tensor& indices, double max_norm,
                                         double norm_type) {
  return renormed_rows_op(weight, indices, max_norm, norm_type);
}
void embedding_renorm(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type) {
  const auto [rows, values] = renormed_rows(weight, indices, max_norm, norm_type);
  Tensor table = weight.detach();
  table.index_put_({rows}, values);
}

}  // namespace strata
