// Different slices of a tensor, and runs of equal ones.

#include <algorithm>
#include <numeric>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/runs_kernel.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Triple = std::tuple<Tensor, Tensor, Tensor>;

// Rows of [count, length] elements on the host: their order, and which are equal. NaN stands last and equals nothing.
class Rows {
 public:
  Rows(const Tensor& x, int64_t dim)
      : host_(contiguous(to(x.dim() == 0 ? reshape(x, {1, 1}) : transpose(x, 0, dim), Device::cpu()))),
        count_(host_.shape()[0]),
        length_(count_ == 0 ? 0 : host_.numel() / count_) {}

  /// The rows' numbers in order, and the first of each group of equal neighbours.
  void group() {
    dispatch_all(host_.dtype(), "unique", [&]<class T>() {
      using C = compute_t<T>;
      const T* rows = host_.data<T>();
      const auto less = [](C a, C b) { return a < b || (b != b && a == a); };
      order.resize(static_cast<size_t>(count_));
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return std::lexicographical_compare(
            rows + a * length_, rows + (a + 1) * length_, rows + b * length_, rows + (b + 1) * length_,
            [&](const T& p, const T& q) { return less(static_cast<C>(p), static_cast<C>(q)); });
      });
      for (size_t i = 0; i < order.size(); ++i) {
        const T* row = rows + order[i] * length_;
        const bool same =
            i > 0 && std::equal(row, row + length_, rows + order[i - 1] * length_,
                                [](const T& p, const T& q) { return static_cast<C>(p) == static_cast<C>(q); });
        if (!same) starts.push_back(static_cast<int64_t>(i));
      }
    });
  }

  std::vector<int64_t> order, starts;

 private:
  Tensor host_;
  int64_t count_, length_;
};

Tensor on(const Tensor& x, const std::vector<int64_t>& values) {
  return to(from_span<int64_t>(values, {static_cast<int64_t>(values.size())}), x.device());
}

// The first slice of each group along dim, which group each slice is in, and how many are in it.
Triple groups(const Tensor& x, int64_t dim, bool return_inverse, bool return_counts) {
  Rows rows(x, dim);
  rows.group();
  const size_t n = rows.order.size(), found = rows.starts.size();
  std::vector<int64_t> first, inverse(return_inverse ? n : 0), counts;
  for (size_t g = 0; g < found; ++g) {
    const auto begin = static_cast<size_t>(rows.starts[g]),
               end = g + 1 < found ? static_cast<size_t>(rows.starts[g + 1]) : n;
    first.push_back(rows.order[begin]);
    if (return_counts) counts.push_back(static_cast<int64_t>(end - begin));
    for (size_t i = begin; return_inverse && i < end; ++i)
      inverse[static_cast<size_t>(rows.order[i])] = static_cast<int64_t>(g);
  }
  return {index_select(x.dim() == 0 ? reshape(x, {1}) : x, dim, on(x, first)), on(x, inverse), on(x, counts)};
}

// Runs of equal neighbours with a few passes over all slices, on the device where they are.
Triple runs(const Tensor& whole, int64_t dim, bool return_inverse, bool return_counts) {
  const DeviceScope there(whole.device());
  const Tensor x = whole.dim() == 0 ? reshape(whole, {1}) : whole;
  const int64_t n = x.shape()[dim];
  const Tensor none = empty({0}, DType::i64);
  if (n == 0) return {clone(x), none, none};
  if (n == 1)
    return {clone(x), return_inverse ? full({1}, 0, DType::i64) : none,
            return_counts ? full({1}, 1, DType::i64) : none};
  // A slice begins a run where an element of it differs from the one before.
  Tensor begins = ne(slice(x, dim, 1, n), slice(x, dim, 0, n - 1));
  if (x.dim() > 1) begins = any(reshape(transpose(begins, 0, dim), {n - 1, x.numel() / n}), {1});
#ifdef STRATA_WITH_CUDA
  if (x.device().is_cuda()) {
    const Runs r = runs_cuda(begins, return_inverse, return_counts);
    return {index_select(x, dim, r.starts), r.numbers, r.lengths};
  }
#endif
  begins = cat({full({1}, true, DType::boolean), begins}, 0);
  const Tensor starts = reshape(nonzero(begins), {-1});
  const auto counts = [&] { return cat({slice(starts, 0, 1, starts.numel()), full({1}, n)}, 0) - starts; };
  return {index_select(x, dim, starts), return_inverse ? cumsum(begins, 0) - 1 : none, return_counts ? counts() : none};
}

Cost group_cost(const Tensor& x) {
  return {20.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
}

// What the references do: each slice compared with the ones found so far (the last of them, for runs).
Triple found_by_hand(const Tensor& x, int64_t dim, bool ordered, bool return_inverse, bool return_counts) {
  const naive::Array all(x.dim() == 0 ? Shape{1} : x.shape(), x.to_vector<double>());
  dim = naive::from_front(dim, x.dim());
  std::vector<std::vector<double>> slices(static_cast<size_t>(all.shape()[dim])), found;
  naive::each(all.shape(), [&](const Dims& place) { slices[static_cast<size_t>(place[dim])].push_back(all[place]); });
  std::vector<double> inverse, counts;
  if (ordered) {
    found = slices;
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    counts.resize(found.size());
  }
  for (const auto& slice : slices) {
    if (!ordered && (found.empty() || found.back() != slice)) {
      found.push_back(slice);
      counts.push_back(0);
    }
    const size_t at =
        ordered ? static_cast<size_t>(std::find(found.begin(), found.end(), slice) - found.begin()) : found.size() - 1;
    inverse.push_back(static_cast<double>(at));
    ++counts[at];
  }
  Shape shape = all.shape();
  shape[dim] = static_cast<int64_t>(found.size());
  naive::Array values(shape);
  std::vector<size_t> next(found.size());
  naive::each(shape, [&](const Dims& place) {
    const auto i = static_cast<size_t>(place[dim]);
    values[place] = found[i][next[i]++];
  });
  const auto list = [](std::vector<double> v, bool wanted) {
    if (!wanted) v.clear();
    return Tensor(naive::Array(Shape{static_cast<int64_t>(v.size())}, v));
  };
  return {values, list(inverse, return_inverse), list(counts, return_counts)};
}

const Op<Triple(const Tensor&, int64_t, bool, bool)> unique_dim_op{{
    .schema = "unique_dim(Tensor x, int dim, bool return_inverse=false, bool return_counts=false) -> (Tensor values, "
              "Tensor inverse, Tensor counts)",
    .shard = "whole",
    .doc =
        "The different slices of x along dim in ascending (lexicographic) order; which of them each slice is; how "
        "often each occurs: unique(x, dim). What was not asked for is an empty tensor. A slice with NaN equals none. "
        "Worked out on the host. Not differentiable.",
    .example = "Tensor x = from_span<float>(std::vector<float>{2, 1, 0, 5, 2, 1}, {3, 2}); "
               "assert(unique_dim(x, 0).values.to_vector<float>() == std::vector<float>({0, 5, 2, 1}));",
    .dynamic = {.everywhere =
                    [](const Tensor& x, int64_t dim, bool return_inverse, bool return_counts) {
                      return groups(x, wrap_dim(dim, x.dim(), "unique_dim"), return_inverse, return_counts);
                    }},
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, bool, bool) { return group_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.integers({6, 2}, 0, 2, s.dtype()), 0, true, true).not_differentiable();
          s.add(s.integers({2, 5, 2}, 0, 2, s.dtype()), -2, true, false).not_differentiable();
          s.add(s.integers({7}, 0, 3, s.dtype()), 0, false, true).not_differentiable();
          s.add(s.tensor({0, 3}), 0, true, true).not_differentiable();
          s.add(s.tensor({}), 0).not_differentiable();
          s.invalid<IndexError>("out of range", s.tensor({3}), 1);
        },
    .reference = [](const Tensor& x, int64_t dim, bool return_inverse,
                    bool return_counts) { return found_by_hand(x, dim, true, return_inverse, return_counts); },
}};

const Op<Triple(const Tensor&, bool, bool, std::optional<int64_t>)> unique_consecutive_op{{
    .schema = "unique_consecutive(Tensor x, bool return_inverse=false, bool return_counts=false, int? dim=None) -> "
              "(Tensor values, Tensor inverse, Tensor counts)",
    .shard = "whole",
    .doc = "The first of each run of equal slices along dim (of equal elements of the flattened x without one); which "
           "run each is in (without dim of x's shape); how long each is. What was not asked for is an empty tensor. A "
           "slice with NaN equals none. Not differentiable.",
    .example = "Tensor x = from_span<int64_t>(std::vector<int64_t>{3, 3, 1, 3}, {4}); "
               "assert(unique_consecutive(x).values.to_vector<int64_t>() == std::vector<int64_t>({3, 1, 3}));",
    .dynamic = {.everywhere =
                    [](const Tensor& x, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
                      if (dim)
                        return runs(x, wrap_dim(*dim, x.dim(), "unique_consecutive"), return_inverse, return_counts);
                      if (x.device().is_cpu()) return element_runs_cpu(x, return_inverse, return_counts);
                      Triple all = runs(reshape(x, {x.numel()}), 0, return_inverse, return_counts);
                      if (return_inverse) std::get<1>(all) = reshape(std::get<1>(all), x.shape());
                      return all;
                    }},
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, bool, bool, std::optional<int64_t>) { return group_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 4}, 0, 2, s.dtype()), true, true).not_differentiable();
          s.add(s.integers({6, 2}, 0, 2, s.dtype()), true, true, 0).not_differentiable();
          s.add(s.integers({2, 7}, 0, 2, s.dtype()), false, true, -1).not_differentiable();
          s.add(s.integers({5, 3, 2}, 0, 2, s.dtype()), true, true, 1).not_differentiable().named("middle");
          s.add(s.integers({601}, 0, 2, s.dtype()), true, true).not_differentiable().named("many runs");
          if (is_floating(s.dtype())) {
            const Tensor x = s.integers({4, 3}, 0, 2, s.dtype());
            x.slice(0, 1, 3).fill_(NAN);
            s.add(x, true, true).not_differentiable().named("NaN");
            s.add(x, true, true, 0).not_differentiable().named("slices with NaN");
          }
          s.add(s.integers({1, 3}, 0, 2, s.dtype()), true, true, 0).not_differentiable().named("one slice");
          s.add(s.tensor({3, 0}), true, true, 0).not_differentiable().named("slices of nothing");
          s.add(s.tensor({0, 3}), true, true, 0).not_differentiable().named("no slices");
          s.add(s.tensor({0}), true).not_differentiable();
          s.add(s.tensor({}), true, true).not_differentiable();
          s.invalid<IndexError>("out of range", s.tensor({3}), false, false, 1);
        },
    .reference =
        [](const Tensor& x, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
          if (dim) return found_by_hand(x, *dim, false, return_inverse, return_counts);
          const naive::Array flat(Shape{x.numel()}, x.to_vector<double>());
          Triple all = found_by_hand(flat, 0, false, return_inverse, return_counts);
          if (return_inverse) std::get<1>(all) = naive::Array(x.shape(), std::get<1>(all).to_vector<double>());
          return all;
        },
}};

UniqueResult named(Triple all) {
  return {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
}

}  // namespace

UniqueResult unique_dim(const Tensor& x, int64_t dim, bool return_inverse, bool return_counts) {
  return named(unique_dim_op(x, dim, return_inverse, return_counts));
}
UniqueResult unique_consecutive(const Tensor& x, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  return named(unique_consecutive_op(x, return_inverse, return_counts, dim));
}

}  // namespace strata
