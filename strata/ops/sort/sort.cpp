#include "strata/ops/sort/sort.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
using Metas = std::array<TensorMeta, 2>;

Metas value_and_place(const TensorMeta& m) {
  return {m, m.with_dtype(DType::i64)};
}

Cost sort_cost(const Tensor& x, double comparisons) {
  return {static_cast<double>(x.numel()) * comparisons, static_cast<double>(2 * x.nbytes() + 8 * x.numel())};
}
double log_length(const Tensor& x, int64_t dim) {
  return x.dim() == 0 ? 1 : std::log2(1.0 + static_cast<double>(x.shape()[wrap_dim(dim, x.dim(), "sort")]));
}

// The gradient of picking elements along dim: back to where they came from (each place once).
Tensor put_back(const Tensor& g, const Tensor& x, int64_t dim, const Tensor& places) {
  Tensor zero = empty(like(g).with_shape(x.shape()));
  zero.zero_();
  return scatter(zero, dim, places, g);
}

// The places of a row's elements in order: by value, NaN above all, equal ones as they stand (or stood, descending).
std::vector<size_t> order_of(const std::vector<double>& row, bool descending) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    const double a = row[descending ? j : i], b = row[descending ? i : j];
    return a < b || (b != b && a == a);
  });
  return order;
}
// Elements skip ... skip + take - 1 of each row in order, and their places; one alone keeps its dimension or not.
Pair ordered_by_hand(const Tensor& x, int64_t dim, bool descending, int64_t skip, int64_t take, bool keepdim) {
  dim = naive::from_front(dim, x.dim());
  const naive::Array all(x);
  Shape shape = x.shape();
  if (!shape.empty()) shape[dim] = take;
  naive::Array values(shape), places(shape);
  naive::rows(all, dim, [&](const std::vector<double>& row, const Dims& place) {
    const std::vector<size_t> order = order_of(row, descending);
    for (int64_t i = 0; i < take; ++i) {
      const size_t at = order[static_cast<size_t>(skip + i)];
      values[naive::moved(place, dim, i)] = row[at];
      places[naive::moved(place, dim, i)] = static_cast<double>(at);
    }
  });
  if (!keepdim && !shape.empty()) shape.erase(dim);
  return {naive::Array(shape, Tensor(values).to_vector<double>()),
          naive::Array(shape, Tensor(places).to_vector<double>())};
}
int64_t length_of(const Tensor& x, int64_t dim) {
  return x.dim() == 0 ? 1 : x.shape()[naive::from_front(dim, x.dim())];
}

const Op<Pair(const Tensor&, int64_t, bool)> sort_op{{
    .schema = "sort(Tensor x, int dim=-1, bool descending=false) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The elements of each row along dim in order, and where they came from (i64). Stable; NaN counts as the "
           "largest.",
    .example = "auto [v, i] = sort(from_span<float>(std::vector<float>{3, 1, 2}, {3})); "
               "assert(i.to_vector<int64_t>() == std::vector<int64_t>({1, 2, 0}));",
    .infer =
        [](const Tensor& x, int64_t dim, bool) {
          wrap_dim(dim, x.dim(), "sort");
          return value_and_place(like(x));
        },
    .kernels = {.cpu = sort_cpu, .cuda = STRATA_CUDA_KERNEL(sort_cuda)},
    .saves = "indices",
    .backward = [](Backward& b, const Tensor& x, int64_t dim, bool) { b.set(0, put_back(b.gy(0), x, dim, b.y(1))); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t dim, bool) { return sort_cost(x, log_length(x, dim)); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5}));
          s.add(s.distinct({4, 3}), 0, true);
          s.add(s.tensor({2, 3, 4}), 1).not_differentiable();
          s.add(s.tensor({0, 3}), 0);
          s.add(s.tensor({}));
          // Longer than what a block sorts: alone, and several together.
          for (const bool descending : {false, true}) s.add(s.tensor({4500}), 0, descending).not_differentiable();
          s.add(s.tensor({3, 4200})).not_differentiable();
          s.invalid<IndexError>("out of range", s.tensor({3}), 1);
          if (s.benchmarking()) s.bench(s.tensor({256, 4096}));
        },
    .reference = [](const Tensor& x, int64_t dim,
                    bool descending) { return ordered_by_hand(x, dim, descending, 0, length_of(x, dim), true); },
}};

const Op<Tensor(const Tensor&, int64_t, bool)> argsort_op{{
    .schema = "argsort(Tensor x, int dim=-1, bool descending=false) -> Tensor",
    .doc = "Where the elements of each row along dim, in order, come from (i64). Stable; NaN counts as the largest.",
    .composed =
        [](const Tensor& x, int64_t dim, bool descending) {
          NoGrad guard;
          return std::get<1>(sort(x, dim, descending));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t dim, bool) { return sort_cost(x, log_length(x, dim)); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5})).not_differentiable();
          s.add(s.tensor({4, 3}), 0, true).not_differentiable();
          s.invalid<IndexError>("out of range", s.tensor({3}), 1);
        },
    .reference =
        [](const Tensor& x, int64_t dim, bool descending) {
          return std::get<1>(ordered_by_hand(x, dim, descending, 0, length_of(x, dim), true));
        },
}};

Tensor values_by_hand(const Tensor& x, int64_t dim, bool descending) {
  return std::get<0>(ordered_by_hand(x, dim, descending, 0, length_of(x, dim), true));
}
Cost values_cost(const Tensor& x, int64_t dim) {
  return {static_cast<double>(x.numel()) * log_length(x, dim), static_cast<double>(2 * x.nbytes())};
}

const Op<Tensor(const Tensor&, int64_t, bool)> sort_values_op{{
    .schema = "sort_values(Tensor x, int dim, bool descending) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "The elements of each row along dim in order; NaN counts as the largest.",
    .infer =
        [](const Tensor& x, int64_t dim, bool) {
          wrap_dim(dim, x.dim(), "sort_values");
          return like(x);
        },
    .kernels = {.cpu = sort_values_cpu, .cuda = STRATA_CUDA_KERNEL(sort_values_cuda)},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, int64_t dim,
                   bool descending) { b.set(0, put_back(b.gy(), x, dim, argsort(x, dim, descending))); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t dim, bool) { return values_cost(x, dim); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5}), -1, false);
          s.add(s.distinct({4, 3}), 0, true);
          s.add(s.tensor({2, 3, 4}), 1, false).not_differentiable();
          s.add(s.tensor({0, 3}), 0, false);
          s.add(s.tensor({}), 0, false);
          // As a block sorts them by few and by many threads, alone, and several together.
          for (const int64_t length : {200, 1500, 3000, 5000, 9000})
            s.add(s.tensor({length}), 0, length == 1500).not_differentiable();
          for (const bool descending : {false, true}) s.add(s.tensor({3, 8200}), 1, descending).not_differentiable();
          s.invalid<IndexError>("out of range", s.tensor({3}), 1, false);
        },
    .reference = values_by_hand,
}};

const Op<Tensor(const Tensor&)> msort_op{{
    .schema = "msort(Tensor x) -> Tensor",
    .doc = "The elements along the first dimension in order; NaN counts as the largest.",
    .example = "assert(msort(-arange(3)).to_vector<int64_t>() == std::vector<int64_t>({-2, -1, 0}));",
    .composed = [](const Tensor& x) { return sort_values(x, 0); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x) { return values_cost(x, 0); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({5, 3}));
          s.add(s.distinct({7}));
          s.add(s.tensor({}));
          s.add(s.tensor({0, 3}));
        },
    .reference = [](const Tensor& x) { return values_by_hand(x, 0, false); },
}};

const Op<Pair(const Tensor&, int64_t, int64_t, bool)> topk_op{{
    .schema = "topk(Tensor x, int k, int dim=-1, bool largest=true) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The k largest (or smallest) elements along dim, best first, and where they came from (i64). Of equal "
           "elements the "
           "earlier comes first; NaN counts as the largest.",
    .example = "auto [v, i] = topk(arange(5), 2); assert(v.to_vector<int64_t>() == std::vector<int64_t>({4, 3}));",
    .infer =
        [](const Tensor& x, int64_t k, int64_t dim, bool) {
          dim = wrap_dim(dim, x.dim(), "topk");
          const int64_t n = x.dim() == 0 ? 1 : x.shape()[dim];
          check(k >= 0 && k <= n, "topk", "k must be between 0 and the size ", n, " of dimension ", dim, ", got ", k);
          check(x.dim() > 0 || k == 1, "topk", "k must be 1 for a 0-dim tensor, got ", k);
          TensorMeta m = like(x);
          if (x.dim() > 0) m.shape[dim] = k;
          return value_and_place(m);
        },
    .kernels = {.cpu = topk_cpu, .cuda = STRATA_CUDA_KERNEL(topk_cuda)},
    .saves = "indices",
    .backward = [](Backward& b, const Tensor& x, int64_t, int64_t dim,
                   bool) { b.set(0, put_back(b.gy(0), x, dim, b.y(1))); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, int64_t, bool) { return sort_cost(x, 2); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5}), 2);
          s.add(s.distinct({5, 3}), 3, 0, false);
          s.add(s.distinct({100}), 1);
          s.add(s.tensor({2, 3}), 0);
          s.add(s.tensor({}), 1);
          s.invalid<ValueError>("between 0 and the size 3", s.tensor({3}), 4);
          s.invalid<IndexError>("out of range", s.tensor({3}), 1, 1);
          if (s.benchmarking()) s.bench(s.tensor({64, 50000}), 50);
        },
    .reference = [](const Tensor& x, int64_t k, int64_t dim,
                    bool largest) { return ordered_by_hand(x, dim, largest, 0, k, true); },
}};

const Op<Pair(const Tensor&, int64_t, int64_t, bool)> kthvalue_op{{
    .schema = "kthvalue(Tensor x, int k, int dim=-1, bool keepdim=false) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The k-th smallest element along dim (1 for the smallest) and where it came from (i64). NaN counts as the "
           "largest.",
    .infer =
        [](const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
          dim = wrap_dim(dim, x.dim(), "kthvalue");
          const int64_t n = x.dim() == 0 ? 1 : x.shape()[dim];
          check(k >= 1 && k <= n, "kthvalue", "k must be between 1 and the size ", n, " of dimension ", dim, ", got ",
                k);
          TensorMeta m = like(x);
          if (x.dim() > 0 && keepdim) m.shape[dim] = 1;
          if (x.dim() > 0 && !keepdim) m.shape.erase(dim);
          return value_and_place(m);
        },
    .kernels = {.cpu = kthvalue_cpu, .cuda = STRATA_CUDA_KERNEL(kthvalue_cuda)},
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& x, int64_t, int64_t dim, bool keepdim) {
          const bool kept = keepdim || x.dim() == 0;
          b.set(0, put_back(kept ? b.gy(0) : unsqueeze(b.gy(0), wrap_dim(dim, x.dim(), "kthvalue")), x, dim,
                            kept ? b.y(1) : unsqueeze(b.y(1), wrap_dim(dim, x.dim(), "kthvalue"))));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, int64_t, bool) { return sort_cost(x, 2); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5}), 2);
          s.add(s.distinct({5, 3}), 5, 0, true);
          s.add(s.distinct({2, 3, 4}), 1, 1);
          // Rows that a block keeps, of few and many elements a thread, and longer ones; distinct ones and ties.
          s.add(s.tensor({2, 700}), 30).not_differentiable();
          s.add(s.integers({2, 1300}, 0, 9, s.dtype()), 900).not_differentiable();
          s.add(s.tensor({2, 9000}), 8999).not_differentiable();
          s.add(s.integers({9000, 2}, 0, 9, s.dtype()), 1234, 0).not_differentiable();
          s.invalid<ValueError>("between 1 and the size 3", s.tensor({3}), 0);
        },
    .reference = [](const Tensor& x, int64_t k, int64_t dim,
                    bool keepdim) { return ordered_by_hand(x, dim, false, k - 1, 1, keepdim); },
}};

const Op<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, bool, bool)> unique_op{{
    .schema = "unique(Tensor x, bool return_inverse=false, bool return_counts=false) -> (Tensor values, Tensor "
              "inverse, Tensor counts)",
    .shard = "whole",
    .doc = "The different values of x in ascending order, 1-D; where each element of x is among them (x's shape); how "
           "often each "
           "occurs. What was not asked for is an empty tensor. Every NaN counts as different. Not differentiable.",
    .example = "assert(unique(full({3}, 2)).values.to_vector<int64_t>() == std::vector<int64_t>({2}));",
    .dynamic = {.cpu = unique_cpu, .cuda = STRATA_CUDA_KERNEL(unique_cuda)},
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, bool, bool) { return sort_cost(x, std::log2(2.0 + static_cast<double>(x.numel()))); },
    .samples =
        [](Samples& s) {
          s.add(s.integers({4, 5}, 0, 4, s.dtype()), true, true).not_differentiable();
          s.add(s.integers({7}, 0, 3, s.dtype())).not_differentiable();
          s.add(s.tensor({0}), true, true).not_differentiable();
        },
    .reference =
        [](const Tensor& x, bool return_inverse, bool return_counts) {
          const std::vector<double> all = x.to_vector<double>();
          std::map<double, double> counts;
          for (const double v : all) ++counts[v];
          std::vector<double> values, often, inverse;
          for (const auto& [v, n] : counts) {
            values.push_back(v);
            if (return_counts) often.push_back(n);
          }
          for (const double v : all)
            if (return_inverse) inverse.push_back(static_cast<double>(std::distance(counts.begin(), counts.find(v))));
          const auto list = [](const std::vector<double>& v) {
            return Tensor(naive::Array(Shape{static_cast<int64_t>(v.size())}, v));
          };
          return std::tuple(list(values), Tensor(naive::Array(return_inverse ? x.shape() : Shape{0}, inverse)),
                            list(often));
        },
}};

// What is not in order is none of an answer to compare with.
void check_ascending(const naive::Array& table) {
  const int64_t n = table.dim() == 0 ? 1 : table.shape().back();
  for (int64_t i = 1; i < table.size(); ++i)
    check(i % n == 0 || table.flat(i - 1) <= table.flat(i), "searchsorted", "sorted is not in order");
}

// The processor's kernel counts in i64.
void searchsorted_on_cpu(Tensor& y, const Tensor& sorted, const Tensor& values, bool right, bool out_int32) {
  if (!out_int32) return searchsorted_cpu(y, sorted, values, right);
  Tensor wide = empty(like(y).with_dtype(DType::i64));
  searchsorted_cpu(wide, sorted, values, right);
  copy_elements(y, wide);
}

const Op<Tensor(const Tensor&, const Tensor&, bool, bool)> searchsorted_op{{
    .schema = "searchsorted(Tensor sorted, Tensor values, bool right=false, bool out_int32=false) -> Tensor",
    .shard = "... n!, ... m -> ... m",
    .doc = "For each value the number of elements of sorted (ascending along its last dimension) that are below it, or "
           "with "
           "right not above it (i64, or i32 with out_int32). sorted is 1-D, or agrees with values in all dimensions "
           "but the last. One dtype.",
    .example = "assert(searchsorted(arange(5), full({1}, 2)).item() == 2);",
    .infer =
        [](const Tensor& sorted, const Tensor& values, bool, bool out_int32) {
          check<ShapeError>(sorted.dim() >= 1, "searchsorted", "sorted needs a dimension, got ", sorted);
          check<DTypeError>(sorted.dtype() == values.dtype(), "searchsorted", "values are ", values, ", sorted is ",
                            sorted, ": they must have one dtype");
          bool fits = sorted.dim() == 1 || sorted.dim() == values.dim();
          for (int d = 0; fits && sorted.dim() > 1 && d + 1 < sorted.dim(); ++d)
            fits = sorted.shape()[d] == values.shape()[d];
          check<ShapeError>(fits, "searchsorted", "values are ", values, ", sorted is ", sorted,
                            ": they must agree in all dimensions but the last, or sorted be 1-D");
          return like(values).with_dtype(out_int32 ? DType::i32 : DType::i64);
        },
    .kernels = {.cpu = searchsorted_on_cpu, .cuda = STRATA_CUDA_KERNEL(searchsorted_cuda)},
    .dtypes = kAllTypes,
    .cost = [](const Tensor& sorted, const Tensor& values, bool,
               bool) { return sort_cost(values, log_length(sorted, -1)); },
    .samples =
        [](Samples& s) {
          const auto ascending = [&](const Shape& shape) { return std::get<0>(sort(s.tensor(shape))); };
          s.add(ascending({7}), s.tensor({2, 3})).not_differentiable();
          s.add(ascending({2, 5}), s.tensor({2, 3}), true).not_differentiable();
          s.add(ascending({0}), s.tensor({3})).not_differentiable();
          s.add(ascending({7}), s.tensor({}), true, true).not_differentiable();
          s.add(ascending({2, 130}), s.tensor({2, 1}), true).not_differentiable().named("few of many");
          s.add(ascending({70}), s.tensor({})).not_differentiable().named("one of many");
          s.invalid<ShapeError>("must agree", ascending({2, 5}), s.tensor({3, 3}));
          s.invalid<ShapeError>("needs a dimension", s.tensor({}), s.tensor({3}));
        },
    .reference =
        [](const Tensor& sorted, const Tensor& values, bool right, bool) {
          const naive::Array table(sorted);
          naive::Array y(values);
          check_ascending(table);
          const int64_t n = sorted.shape().back(), m = sorted.dim() == 1 ? 1 : values.shape().back();
          for (int64_t i = 0; i < y.size(); ++i) {
            const double v = y.flat(i);
            int64_t below = 0;
            for (int64_t k = 0; k < n; ++k) {
              const double t = table.flat((sorted.dim() == 1 ? 0 : i / m * n) + k);
              below += t < v || (right && t == v) ? 1 : 0;
            }
            y.flat(i) = static_cast<double>(below);
          }
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, bool, bool)> bucketize_op{{
    .schema = "bucketize(Tensor x, Tensor boundaries, bool out_int32=false, bool right=false) -> Tensor",
    .doc = "For each element the number of ascending 1-D boundaries that are below it, or with right not above it: the "
           "part in which it lies (i64, or i32 with out_int32). Both are compared in their common dtype.",
    .example = "assert(bucketize(full({1}, 1.5), arange(4)).item() == 2);",
    .composed =
        [](const Tensor& x, const Tensor& boundaries, bool out_int32, bool right) {
          check<ShapeError>(boundaries.dim() == 1, "bucketize", "boundaries must be 1-D, got ", boundaries);
          const DType common = result_type(x, boundaries);
          return searchsorted_op(to(boundaries, common), to(x, common), right, out_int32);
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor& boundaries, bool,
               bool) { return sort_cost(x, log_length(boundaries, -1)); },
    .samples =
        [](Samples& s) {
          const Tensor boundaries = std::get<0>(sort(s.tensor({7})));
          s.add(s.tensor({2, 3}), boundaries).not_differentiable();
          s.add(s.tensor({2, 3}), boundaries, true, true).not_differentiable();
          s.add(s.tensor({}), boundaries).not_differentiable();
          s.invalid<ShapeError>("1-D", s.tensor({3}), s.tensor({2, 2}));
        },
    .reference =
        [](const Tensor& x, const Tensor& boundaries, bool, bool right) {
          const naive::Array table(boundaries);
          naive::Array y(x);
          check_ascending(table);
          for (int64_t i = 0; i < y.size(); ++i) {
            int64_t below = 0;
            for (int64_t k = 0; k < table.size(); ++k)
              below += table.flat(k) < y.flat(i) || (right && table.flat(k) == y.flat(i)) ? 1 : 0;
            y.flat(i) = static_cast<double>(below);
          }
          return Tensor(y);
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  return sort_op(x, dim, descending);
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
  return argsort_op(x, dim, descending);
}
Tensor sort_values(const Tensor& x, int64_t dim, bool descending) {
  // A gradient wants the places, which it would have to sort for once more.
  if (grad_enabled() && x.requires_grad()) return std::get<0>(sort(x, dim, descending));
  return sort_values_op(x, dim, descending);
}
Tensor msort(const Tensor& x) {
  return msort_op(x);
}
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  return topk_op(x, k, dim, largest);
}
std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  return kthvalue_op(x, k, dim, keepdim);
}
UniqueResult unique(const Tensor& x, bool return_inverse, bool return_counts) {
  const auto [values, inverse, counts] = unique_op(x, return_inverse, return_counts);
  return {values, inverse, counts};
}
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right, bool out_int32) {
  return searchsorted_op(sorted, values, right, out_int32);
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize_op(x, boundaries, out_int32, right);
}

}  // namespace strata
