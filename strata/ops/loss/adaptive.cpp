#include "strata/ops/loss/adaptive.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOfTargets = "adaptive_log_softmax", kOfAll = "adaptive_log_prob",
                           kBest = "adaptive_predict";

// How many clusters there are.
int64_t clusters(std::string_view op, const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails,
                 const Dims& cutoffs) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating x, got ", x);
  check<ShapeError>(x.dim() == 1 || x.dim() == 2, op, "x is [N, features] or [features], got ", x);
  const int64_t n = cutoffs.size() - 1, features = x.size(-1);
  check(n >= 1 && cutoffs[0] > 0, op, "cutoffs are two or more positive numbers, got ", cutoffs);
  for (int i = 0; i < n; ++i) check(cutoffs[i] < cutoffs[i + 1], op, "cutoffs must ascend, got ", cutoffs);
  check(cutoffs.back() < int64_t{1} << 62, op, "there are no ", cutoffs.back(), " classes");
  check<ShapeError>(head.shape() == Shape({cutoffs[0] + n, features}), op, "the head is [", cutoffs[0] + n, ", ",
                    features, "], got ", head);
  check<ShapeError>(!bias.defined() || bias.shape() == Shape({cutoffs[0] + n}), op, "the head's bias is [",
                    cutoffs[0] + n, "], got ", bias.defined() ? bias.shape() : Shape());
  check<ShapeError>(static_cast<int64_t>(tails.size()) == 2 * n, op, n, " clusters have ", 2 * n,
                    " tensors in tails, got ", tails.size());
  for (int i = 0; i < n; ++i) {
    const size_t at = 2 * static_cast<size_t>(i);
    const Tensor &down = tails[at], &up = tails[at + 1];
    check<ShapeError>(
        down.dim() == 2 && down.size(1) == features && up.shape() == Shape({cutoffs[i + 1] - cutoffs[i], down.size(0)}),
        op, "cluster ", i, " wants [features, ", features, "] and [", cutoffs[i + 1] - cutoffs[i], ", features], got ",
        down, " and ", up);
  }
  return n;
}

Tensor cluster_logs(const Tensor& x, const TensorList& tails, int64_t i) {
  return log_softmax(linear(linear(x, tails[static_cast<size_t>(2 * i)]), tails[static_cast<size_t>(2 * i + 1)]), 1);
}
// The rows for which `mask` [N] holds. Nobody knows on the meta device: all, whose results have no more elements.
Tensor rows_of(const Tensor& mask) {
  if (!mask.is_meta()) return nonzero(mask).squeeze(1);
  const DeviceScope there(mask.device());
  return arange(0, mask.size(0), 1, DType::i64);
}

Tensor of_targets(const Tensor& x, const Tensor& target, const Tensor& head, const Tensor& bias,
                  const TensorList& tails, const Dims& cutoffs) {
  const int64_t n = clusters(kOfTargets, x, head, bias, tails, cutoffs);
  check<DTypeError>(is_integral(target.dtype()), kOfTargets, "the target needs an integer dtype, got ", target);
  check<ShapeError>(target.dim() == x.dim() - 1 && (target.dim() == 0 || target.size(0) == x.size(0)), kOfTargets,
                    "a target for each row of x is wanted, got ", target, " and ", x);
  if (x.dim() == 1) return of_targets(unsqueeze(x, 0), target.reshape({1}), head, bias, tails, cutoffs).reshape({});
  const Tensor wanted = target.to(DType::i64);
  if (wanted.numel() > 0 && !wanted.is_meta()) {
    const auto least = amin(wanted).item<int64_t>(), largest = amax(wanted).item<int64_t>();
    check(least >= 0 && largest < cutoffs.back(), kOfTargets, "Target values should be in [0, ", cutoffs.back() - 1,
          "], but values in range [", least, ", ", largest, "] were found.");
  }
  Tensor cluster = zeros_like(wanted);  // 0 for the head's own classes
  for (int i = 0; i < n; ++i) cluster = cluster + (wanted >= cutoffs[i]).to(DType::i64);
  const Tensor place = where(cluster == 0, wanted, cluster + (cutoffs[0] - 1));
  Tensor y = gather(log_softmax(linear(x, head, bias), 1), 1, unsqueeze(place, 1)).squeeze(1);
  for (int i = 0; i < n; ++i) {
    const Tensor rows = rows_of(cluster == i + 1);
    if (rows.numel() == 0) continue;
    const Tensor inside = index_select(wanted, 0, rows) - cutoffs[i];
    const Tensor logs = cluster_logs(index_select(x, 0, rows), tails, i);
    y = index_add(y, 0, rows, gather(logs, 1, unsqueeze(inside, 1)).squeeze(1));
  }
  return y;
}

Tensor of_all(const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails, const Dims& cutoffs) {
  const int64_t n = clusters(kOfAll, x, head, bias, tails, cutoffs);
  if (x.dim() == 1) return of_all(unsqueeze(x, 0), head, bias, tails, cutoffs).squeeze(0);
  const Tensor logs = log_softmax(linear(x, head, bias), 1);
  TensorList parts{logs.narrow(1, 0, cutoffs[0])};
  for (int64_t i = 0; i < n; ++i) parts.push_back(cluster_logs(x, tails, i) + logs.narrow(1, cutoffs[0] + i, 1));
  return cat(parts, 1);
}

Tensor best(const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails, const Dims& cutoffs) {
  clusters(kBest, x, head, bias, tails, cutoffs);
  if (x.dim() == 1) return best(unsqueeze(x, 0), head, bias, tails, cutoffs).squeeze(0);
  const NoGrad guard;
  const Tensor first = argmax(linear(x, head, bias), 1), rows = rows_of(first >= cutoffs[0]);
  if (rows.numel() == 0) return first;
  const Tensor found = argmax(of_all(index_select(x, 0, rows), head, bias, tails, cutoffs), 1);
  return index_add(first, 0, rows, found - index_select(first, 0, rows));
}

// ---- by loops ----

using Row = std::vector<double>;

Row times(const Tensor& matrix, const Tensor& bias, const Row& x) {
  const naive::Array m(matrix);
  Row y;
  for (int64_t i = 0; i < matrix.size(0); ++i) {
    double sum = bias.defined() ? naive::Array(bias).flat(i) : 0;
    for (int64_t j = 0; j < matrix.size(1); ++j) sum += m.flat(i * matrix.size(1) + j) * x[static_cast<size_t>(j)];
    y.push_back(sum);
  }
  return y;
}
Row logs_of(Row x) {
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  for (double& v : x) v -= std::log(sum);
  return x;
}
// Of each row of x, the log-probabilities of all classes; and the class that is predicted.
std::vector<Row> all_by_loops(const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails,
                              const Dims& cutoffs, std::vector<double>* predicted = nullptr) {
  const naive::Array values(x);
  const int64_t d = x.size(-1);
  std::vector<Row> all;
  for (int64_t at = 0; at < values.size(); at += d) {
    Row row;
    for (int64_t j = 0; j < d; ++j) row.push_back(values.flat(at + j));
    const Row first = logs_of(times(head, bias, row));
    Row y(first.begin(), first.begin() + cutoffs[0]);
    for (size_t i = 0; 2 * i < tails.size(); ++i)
      for (const double v : logs_of(times(tails[2 * i + 1], {}, times(tails[2 * i], {}, row))))
        y.push_back(v + first[static_cast<size_t>(cutoffs[0]) + i]);
    const auto largest = [](const Row& r) { return std::max_element(r.begin(), r.end()) - r.begin(); };
    if (predicted) predicted->push_back(static_cast<double>(largest(first) < cutoffs[0] ? largest(first) : largest(y)));
    all.push_back(y);
  }
  return all;
}

// ---- records ----

struct Layers {
  Tensor head, bias;
  TensorList tails;
  Dims cutoffs;
  Layers(Samples& s, int64_t d, const Dims& ends) : cutoffs(ends) {
    const int64_t n = ends.size() - 1;
    head = s.tensor({ends[0] + n, d});
    bias = s.tensor({ends[0] + n});
    for (int i = 0; i < n; ++i) {
      tails.push_back(s.tensor({2 + i, d}));
      tails.push_back(s.tensor({ends[i + 1] - ends[i], 2 + i}));
    }
  }
};
constexpr DTypeSet kWide = dtype_bit(DType::f32) | dtype_bit(DType::f64);

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const TensorList&, const Dims&)>
    of_targets_op{{
        .schema = "adaptive_log_softmax(Tensor x, Tensor target, Tensor head, Tensor? head_bias, Tensor[] tails, int[] "
                  "cutoffs) -> Tensor",
        .doc =
            "The log-probabilities of the targets under a softmax over classes sorted from frequent to rare (Grave et "
            "al., arXiv:1609.04309): x [N, d] and target [N], or [d] and one. head [cutoffs[0] + clusters, d] scores "
            "the first cutoffs[0] classes and the clusters of the others; cluster i, the classes from cutoffs[i] to "
            "cutoffs[i + 1], scores the features tails[2 i] [features, d] with tails[2 i + 1] [classes, features], for "
            "the rows whose target is in it. The last cutoff is the number of classes. ShapeError, DTypeError; "
            "ValueError for cutoffs that do not ascend and targets outside the classes.",
        .example = "Tensor y = adaptive_log_softmax(zeros({2, 3}), full({2}, 4, DType::i64), zeros({3, 3}), {},\n"
                   "                                {zeros({1, 3}), zeros({4, 1})}, Dims{2, 6});\n"
                   "assert(std::abs(y.sum().item() + 2 * std::log(12)) < 1e-5);",
        .composed = of_targets,
        .dtypes = kWide,
        .samples =
            [](Samples& s) {
              const Layers one(s, 5, {3, 7}), many(s, 4, {2, 5, 6, 11});
              const auto none = std::nullopt;
              // Every cluster, and the head.
              const Tensor spread = arange(0, 8, 1, DType::i64) * 3 % 11;
              s.add(s.tensor({6, 5}), s.integers({6}, 0, 7), one.head, one.bias, one.tails, one.cutoffs);
              s.add(s.tensor({4, 8}).t(), spread, many.head, none, many.tails, many.cutoffs).named("strided, no bias");
              s.add(s.tensor({4}), s.integers({}, 6, 11), many.head, many.bias, many.tails, many.cutoffs).named("one");
              s.add(s.tensor({3, 5}), zeros({3}, DType::i64), one.head, none, one.tails, one.cutoffs)
                  .named("the head alone");
              const Tensor x = s.tensor({2, 5}), t = zeros({2}, DType::i64);
              s.invalid<ShapeError>("the head is [4, 5]", x, t, s.tensor({3, 5}), none, one.tails, one.cutoffs);
              s.invalid<ShapeError>("bias", x, t, one.head, s.tensor({3}), one.tails, one.cutoffs);
              s.invalid<ShapeError>("2 tensors in tails", x, t, one.head, none, TensorList{}, one.cutoffs);
              s.invalid<ShapeError>("cluster 0 wants", x, t, one.head, none,
                                    TensorList{s.tensor({2, 5}), s.tensor({3, 2})}, one.cutoffs);
              s.invalid<ShapeError>("for each row", x, zeros({3}, DType::i64), one.head, none, one.tails, one.cutoffs);
              s.invalid<ShapeError>("[N, features]", s.tensor({2, 2, 5}), t, one.head, none, one.tails, one.cutoffs);
              s.invalid<ValueError>("ascend", x, t, one.head, none, one.tails, Dims{3, 3});
              s.invalid<ValueError>("two or more", x, t, one.head, none, one.tails, Dims{3});
              s.invalid<ValueError>("in [0, 6]", x, t + 7, one.head, none, one.tails, one.cutoffs);
              s.invalid<DTypeError>("integer", x, s.tensor({2}), one.head, none, one.tails, one.cutoffs);
            },
        .reference =
            [](const Tensor& x, const Tensor& target, const Tensor& head, const Tensor& bias, const TensorList& tails,
               const Dims& cutoffs) {
              const std::vector<Row> all = all_by_loops(x, head, bias, tails, cutoffs);
              const std::vector<int64_t> wanted = target.to_vector<int64_t>();
              Row y;
              for (size_t i = 0; i < wanted.size(); ++i) y.push_back(all[i][static_cast<size_t>(wanted[i])]);
              return from_span<double>(y, target.shape());
            },
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const TensorList&, const Dims&)> of_all_op{{
    .schema = "adaptive_log_prob(Tensor x, Tensor head, Tensor? head_bias, Tensor[] tails, int[] cutoffs) -> Tensor",
    .doc = "The log-probabilities of all classes, [N, classes] for x [N, d] or [classes] for [d], of "
           "adaptive_log_softmax's model. ShapeError, DTypeError, ValueError.",
    .example = "Tensor y = adaptive_log_prob(ones({2, 3}), ones({3, 3}), {}, {ones({1, 3}), ones({4, 1})}, Dims{2, 6});"
               "\nassert(y.shape() == Shape({2, 6}) && std::abs(exp(y).sum().item() - 2) < 1e-5);",
    .composed = of_all,
    .dtypes = kWide,
    .samples =
        [](Samples& s) {
          const Layers one(s, 5, {3, 7}), many(s, 4, {2, 5, 6, 11});
          s.add(s.tensor({6, 5}), one.head, one.bias, one.tails, one.cutoffs);
          s.add(s.tensor({4, 8}).t(), many.head, std::nullopt, many.tails, many.cutoffs).named("strided, no bias");
          s.add(s.tensor({4}), many.head, many.bias, many.tails, many.cutoffs).named("one");
          s.invalid<ShapeError>("the head is [4, 5]", s.tensor({2, 5}), s.tensor({3, 5}), std::nullopt, one.tails,
                                one.cutoffs);
          s.invalid<DTypeError>("floating", s.tensor({2, 5}, DType::i32), one.head, one.bias, one.tails, one.cutoffs);
        },
    .reference =
        [](const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails, const Dims& cutoffs) {
          Row y;
          for (const Row& row : all_by_loops(x, head, bias, tails, cutoffs)) y.insert(y.end(), row.begin(), row.end());
          Shape shape = x.shape();
          shape[shape.size() - 1] = cutoffs.back();
          return from_span<double>(y, shape);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const TensorList&, const Dims&)> best_op{{
    .schema = "adaptive_predict(Tensor x, Tensor head, Tensor? head_bias, Tensor[] tails, int[] cutoffs) -> Tensor",
    .doc =
        "The class that adaptive_log_softmax's model predicts for each row, i64: the head's favourite, or where that "
        "is a cluster the most probable of all classes. ShapeError, DTypeError, ValueError.",
    .example = "Tensor y = adaptive_predict(ones({2, 3}), ones({3, 3}), {}, {ones({1, 3}), ones({4, 1})}, Dims{2, 6});"
               "\nassert(y.shape() == Shape({2}) && y.sum().item() == 0);",
    .composed = best,
    .dtypes = kWide,
    .samples =
        [](Samples& s) {
          const Layers one(s, 5, {3, 7}), many(s, 4, {2, 5, 6, 11});
          s.add(s.distinct({6, 5}), one.head, one.bias, one.tails, one.cutoffs).not_differentiable();
          s.add(s.distinct({4, 8}).t(), many.head, std::nullopt, many.tails, many.cutoffs).not_differentiable();
          s.add(s.distinct({4}), many.head, many.bias, many.tails, many.cutoffs).named("one").not_differentiable();
          s.invalid<ValueError>("ascend", s.tensor({2, 5}), one.head, one.bias, one.tails, Dims{3, 2});
        },
    .reference =
        [](const Tensor& x, const Tensor& head, const Tensor& bias, const TensorList& tails, const Dims& cutoffs) {
          std::vector<double> y;
          all_by_loops(x, head, bias, tails, cutoffs, &y);
          Shape shape;
          if (x.dim() == 2) shape.push_back(x.size(0));
          return from_span<double>(y, shape).to(DType::i64);
        },
}};

}  // namespace

Tensor adaptive_log_softmax(const Tensor& x, const Tensor& target, const Tensor& head, const Tensor& head_bias,
                            const TensorList& tails, const Dims& cutoffs) {
  return of_targets_op(x, target, head, head_bias, tails, cutoffs);
}
Tensor adaptive_log_prob(const Tensor& x, const Tensor& head, const Tensor& head_bias, const TensorList& tails,
                         const Dims& cutoffs) {
  return of_all_op(x, head, head_bias, tails, cutoffs);
}
Tensor adaptive_predict(const Tensor& x, const Tensor& head, const Tensor& head_bias, const TensorList& tails,
                        const Dims& cutoffs) {
  return best_op(x, head, head_bias, tails, cutoffs);
}

}  // namespace strata
