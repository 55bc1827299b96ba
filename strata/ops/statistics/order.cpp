// Medians, modes and extremes.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/statistics/order_inl.h"
#include "strata/ops/statistics/statistics.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;
using Pair = std::tuple<Tensor, Tensor>;
using WholeOp = Op<Tensor(const Tensor&)>;
using AlongOp = Op<Pair(const Tensor&, int64_t, bool)>;

Tensor true_where_nan(const Tensor& x) {
  return is_floating(x.dtype()) ? isnan(x) : full_like(x, false, DType::boolean);
}

// The places, of size 1 along dim, of the elements that `choose` finds; then the elements themselves, differentiably.
template <class F>
Pair pick(const Tensor& x, int64_t dim, bool keepdim, std::string_view op, F choose) {
  dim = wrap_dim(dim, x.dim(), op);
  const Tensor row = as_row(x);
  check<ShapeError>(row.shape()[dim] > 0, op, "no elements to choose from along dimension ", dim, " of ", x);
  Tensor at;
  {
    NoGrad guard;
    at = choose(row.detach(), dim);
  }
  const Tensor values = gather(row, dim, at);
  const bool drop = !keepdim || x.dim() == 0;
  return {drop ? squeeze(values, dim) : values, drop ? squeeze(at, dim) : at};
}

// A place for each row along dim, which keeps size 1 (a 0-dim x its shape).
TensorMeta place_infer(const Tensor& x, int64_t dim, std::string_view op) {
  Shape shape = x.shape();
  dim = wrap_dim(dim, x.dim(), op);
  check<ShapeError>(x.dim() == 0 || shape[dim] > 0, op, "no elements to choose from along dimension ", dim, " of ", x);
  if (x.dim() > 0) shape[dim] = 1;
  return like(x).with_shape(shape).with_dtype(DType::i64);
}
// The same where no kernel is: calls choose(rows, dim, n) with at least one dimension and dim from the front.
template <class F>
Tensor place_composed(const Tensor& x, int64_t dim, std::string_view op, F choose) {
  const Shape shape = place_infer(x, dim, op).shape;
  const Tensor rows = x.dim() == 0 ? reshape(x, {1}) : x;
  dim = wrap_dim(dim, rows.dim(), op);
  return reshape(choose(rows, dim, rows.shape()[dim]), shape);
}

Tensor median_place_reference(const Tensor& x, int64_t dim, bool skip_nan) {
  const Array all(x);
  std::vector<double> places;
  naive::rows(all, naive::from_front(dim, x.dim()), [&](const std::vector<double>& row, const Dims&) {
    std::vector<size_t> order(row.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return row[a] < row[b] || (row[a] == row[a] && row[b] != row[b]); });
    const auto numbers = static_cast<size_t>(std::count_if(row.begin(), row.end(), [](double v) { return v == v; }));
    const bool is_nan = numbers == 0 || (!skip_nan && numbers < row.size());
    places.push_back(static_cast<double>(order[is_nan ? numbers : (numbers - 1) / 2]));
  });
  return Array(place_infer(x, dim, "median_place").shape, places);
}
// Where the median of each row is. `skip_nan`: of what is not NaN; else a NaN is it.
const Op<Tensor(const Tensor&, int64_t, bool)> median_place_op{{
    .schema = "median_place(Tensor x, int dim, bool skip_nan) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "Where the lower median of each row along dim is (i64), which has size 1 there: with skip_nan of what is "
           "not NaN, else the first NaN.",
    .infer = [](const Tensor& x, int64_t dim, bool) { return place_infer(x, dim, "median_place"); },
    .kernels = {.cpu = median_place_cpu, .cuda = STRATA_CUDA_KERNEL(median_place_cuda)},
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, int64_t, bool) { return sort_cost(x); },
    .samples =
        [](Samples& s) {
          for (const bool skip_nan : {false, true}) {
            s.add(s.distinct({3, 5}), 1, skip_nan).not_differentiable();
            s.add(s.distinct({4, 2, 3}), 0, skip_nan).not_differentiable();
            s.add(s.distinct({301}), 0, skip_nan).not_differentiable();
            s.add(s.distinct({2, 5}), -1, skip_nan).not_differentiable();
            s.add(s.tensor({}), 0, skip_nan).not_differentiable();
            // Rows that a block keeps, of few and many elements a thread, and longer ones; distinct ones and ties.
            s.add(s.tensor({3, 700}), 1, skip_nan).not_differentiable();
            s.add(s.integers({2, 1300}, 0, 9, s.dtype()), 1, skip_nan).not_differentiable();
            s.add(s.tensor({2, 9000}), 1, skip_nan).not_differentiable();
            s.add(s.integers({9000}, 0, 9, s.dtype()), 0, skip_nan).not_differentiable();
          }
          s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0, false);
          s.invalid<IndexError>("out of range", s.tensor({3}), 1, true);
        },
    .reference = median_place_reference,
}};

// An element of each row along dim and its place.
std::array<TensorMeta, 2> along_infer(const Tensor& x, int64_t dim, bool keepdim, std::string_view op) {
  Shape shape = place_infer(x, dim, op).shape;
  if (x.dim() > 0 && !keepdim) shape.erase(wrap_dim(dim, x.dim(), op));
  const TensorMeta m = like(x).with_shape(shape);
  return {m, m.with_dtype(DType::i64)};
}

TensorMeta infer_whole(const Tensor& x, std::string_view op) {
  check<ShapeError>(x.numel() > 0 || is_floating(x.dtype()), op, "no elements to choose from in ", x);
  return like(x).with_shape({});
}
void median_into(auto on, Tensor& y, const Tensor& x, bool skip_nan) {
  if (x.numel() == 0) return fill_elements(y, NAN);
  if constexpr (on.cuda)
    median_cuda(y, x, skip_nan);
  else
    median_cpu(y, x, skip_nan);
}
// All elements that are as large share it; where it is NaN, the NaN do.
void backward_whole(Backward& b, const Tensor& x) {
  const Tensor y = b.y();
  const Tensor hit = logical_or(eq(x, y), logical_and(true_where_nan(x), true_where_nan(y))).to(b.gy().dtype());
  b.set(0, b.gy() / clamp_min(sum(hit), 1) * hit);
}

double lower_median(std::vector<double> row, bool skip_nan) {
  std::vector<double> numbers;
  for (const double v : row)
    if (v == v) numbers.push_back(v);
  if (numbers.empty() || (!skip_nan && numbers.size() < row.size())) return NAN;
  std::sort(numbers.begin(), numbers.end());
  return numbers[(numbers.size() - 1) / 2];
}
template <bool SkipNan>
Tensor median_reference(const Tensor& x) {
  return Array(Shape{}, {lower_median(x.to_vector<double>(), SkipNan)});
}
// f(row) gives the value, a median, or with `last` one whose last place is wanted.
template <class F>
Pair reference_along(const Tensor& x, int64_t dim, bool keepdim, bool last, F f) {
  const Array all(x);
  std::vector<double> values, places;
  Shape shape = x.shape();
  dim = naive::from_front(dim, x.dim());
  naive::rows(all, dim, [&](const std::vector<double>& row, const Dims&) {
    const double v = f(row);
    // Of equal elements the one that stands at the median's place when they keep their order.
    int64_t at = -1, below = 0, numbers = 0, equal = 0;
    for (const double e : row) {
      below += e < v ? 1 : 0;
      numbers += e == e ? 1 : 0;
    }
    const int64_t wanted = last ? INT64_MAX : v != v ? 0 : (numbers - 1) / 2 - below;
    for (size_t i = 0; i < row.size(); ++i)
      if ((row[i] == v || (v != v && row[i] != row[i])) && equal++ <= wanted) at = static_cast<int64_t>(i);
    values.push_back(v);
    places.push_back(static_cast<double>(at));
  });
  if (!shape.empty()) shape[dim] = 1;
  if (!shape.empty() && !keepdim) shape.erase(dim);
  return {Array(shape, values), Array(shape, places)};
}
template <bool SkipNan>
Pair median_along_reference(const Tensor& x, int64_t dim, bool keepdim) {
  return reference_along(x, dim, keepdim, false,
                         [](const std::vector<double>& row) { return lower_median(row, SkipNan); });
}

void samples_whole(Samples& s) {
  s.add(s.distinct({3, 5}));
  s.add(s.distinct({4}));
  s.add(s.tensor({}));
  s.add(with_nan(s)).named("NaN").not_differentiable();
  s.add(s.tensor({5000})).named("more than a block keeps").not_differentiable();
  if (is_floating(s.dtype())) {
    const Tensor x = s.tensor({9000});
    x.slice(0, 4000, 4001).fill_(NAN);
    s.add(x).named("several blocks, NaN").not_differentiable();
    s.add(s.tensor({0})).not_differentiable();
  }
  s.invalid<ShapeError>("no elements", s.integers({0}, 0, 1));
}
void samples_along(Samples& s) {
  s.add(s.distinct({3, 5}), 1);
  s.add(s.distinct({4, 3}), 0, true);
  s.add(s.distinct({2, 3, 4}), -2);
  s.add(s.tensor({}), 0);
  s.add(s.tensor({0, 3}), 1);
  s.add(with_nan(s), 1).named("NaN").not_differentiable();
  s.add(s.tensor({2, 4100}), 1).not_differentiable();
  s.add(s.integers({2100, 2}, 0, 9, s.dtype()), 0).not_differentiable();
  s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0);
  s.invalid<IndexError>("out of range", s.tensor({3}), 1);
}

#ifdef STRATA_WITH_CUDA
template <bool SkipNan>
void median_along_card(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool) {
  median_dim_cuda(values, indices, x, dim, SkipNan);
}
#endif

const WholeOp median_op{{
    .schema = "median(Tensor x) -> Tensor",
    .shard = "whole",
    .doc = "The lower median of all elements; NaN where one is NaN, or of no floating elements. Equal elements share "
           "the gradient.",
    .example = "assert(median(arange(4)).item() == 1);",
    .infer = [](const Tensor& x) { return infer_whole(x, "median"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) { median_into(on, y, x, false); }),
    .saves = "x result",
    .backward = backward_whole,
    .dtypes = kFloats | kInts,
    .cost = sort_cost,
    .samples = samples_whole,
    .reference = median_reference<false>,
}};
const WholeOp nanmedian_op{{
    .schema = "nanmedian(Tensor x) -> Tensor",
    .shard = "whole",
    .doc = "The lower median of the elements that are not NaN; NaN where there are none. Equal elements share the "
           "gradient.",
    .example = "Tensor x = arange(4, DType::f32); x.slice(0, 0, 1).fill_(NAN); assert(nanmedian(x).item() == 2);",
    .infer = [](const Tensor& x) { return infer_whole(x, "nanmedian"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) { median_into(on, y, x, true); }),
    .saves = "x result",
    .backward = backward_whole,
    .dtypes = kFloats | kInts,
    .cost = sort_cost,
    .samples = samples_whole,
    .reference = median_reference<true>,
}};
const AlongOp median_dim_op{{
    .schema = "median_dim(Tensor x, int dim, bool keepdim=false) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The lower medians along dim and where they are (i64); median(x, dim). NaN wins. The gradient goes to that "
           "element. ShapeError for no elements.",
    .example = "auto [v, i] = median(arange(6).view({2, 3}), 1); "
               "assert(v.to_vector<int64_t>() == std::vector<int64_t>({1, 4}) && i.to_vector<int64_t>()[0] == 1);",
    .infer = [](const Tensor& x, int64_t dim, bool keepdim) { return along_infer(x, dim, keepdim, "median_dim"); },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(median_along_card<false>)},
    .composed =
        [](const Tensor& x, int64_t dim, bool keepdim) {
          return pick(x, dim, keepdim, "median_dim",
                      [](const Tensor& row, int64_t d) { return median_place_op(row, d, false); });
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, int64_t, bool) { return sort_cost(x); },
    .samples = samples_along,
    .reference = median_along_reference<false>,
}};
const AlongOp nanmedian_dim_op{{
    .schema = "nanmedian_dim(Tensor x, int dim, bool keepdim=false) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The lower medians along dim of the elements that are not NaN (NaN where there are none) and where they are "
           "(i64); nanmedian(x, dim). The gradient goes to that element. ShapeError for no elements.",
    .example = "auto [v, i] = nanmedian(full({2, 3}, NAN), 1); assert(std::isnan(v.to_vector<float>()[1]));",
    .infer = [](const Tensor& x, int64_t dim, bool keepdim) { return along_infer(x, dim, keepdim, "nanmedian_dim"); },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(median_along_card<true>)},
    .composed =
        [](const Tensor& x, int64_t dim, bool keepdim) {
          return pick(x, dim, keepdim, "nanmedian_dim",
                      [](const Tensor& row, int64_t d) { return median_place_op(row, d, true); });
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, int64_t, bool) { return sort_cost(x); },
    .samples = samples_along,
    .reference = median_along_reference<true>,
}};

// ---- mode

// In order, equal elements stand in a row: the end of the longest run, the first of several.
Tensor mode_place_composed(const Tensor& all, int64_t along) {
  return place_composed(all, along, "mode_place", [](const Tensor& x, int64_t dim, int64_t n) -> Tensor {
    const auto [values, order] = sort(transpose(x, dim, -1), -1);
    const DeviceScope there(x.device());
    const Tensor at = expand(arange(n), values.shape());
    Tensor begin = zeros_like(order);
    if (n > 1)
      slice(begin, -1, 1, n)
          .copy_(where(ne(slice(values, -1, 1, n), slice(values, -1, 0, n - 1)), slice(at, -1, 1, n), 0));
    const Tensor run = at - cummax(begin, -1).first;
    return transpose(gather(order, -1, argmax(run, -1, true)), dim, -1);
  });
}
const Op<Tensor(const Tensor&, int64_t)> mode_place_op{{
    .schema = "mode_place(Tensor x, int dim) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "The last place (i64) of the commonest element of each row along dim, of several the smallest; size 1 "
           "there.",
    .infer = [](const Tensor& x, int64_t dim) { return place_infer(x, dim, "mode_place"); },
    .kernels = on_each_device([](auto on, Tensor& at, const Tensor& x, int64_t dim) {
      if constexpr (!on.cuda)
        mode_place_cpu(at, x, dim);
      else if (sorts_for_mode(x.dim() == 0 ? 1 : x.shape()[wrap_dim(dim, x.dim(), "mode_place")]))
        mode_place_cuda(at, x, dim);
      else
        copy_elements(at, mode_place_composed(x, dim));
    }),
    .composed = mode_place_composed,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t) { return sort_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 7}, 0, 3, s.dtype()), 1).not_differentiable();
          s.add(s.integers({600, 2}, 0, 2, s.dtype()), 0).not_differentiable();
          s.add(s.integers({2, 6}, 0, 2, s.dtype()), -1).not_differentiable();
          s.add(s.tensor({}), 0).not_differentiable();
          // Rows that a block sorts, of few and many elements a thread, and a longer one.
          for (const int64_t n : {150, 1200, 4200}) s.add(s.integers({1, n}, 0, 60, s.dtype()), 1).not_differentiable();
          s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0);
          s.invalid<IndexError>("out of range", s.tensor({3}), 1);
        },
}};

Pair mode_composed(const Tensor& x, int64_t dim, bool keepdim) {
  return pick(x, dim, keepdim, "mode", [](const Tensor& row, int64_t d) { return mode_place_op(row, d); });
}
#ifdef STRATA_WITH_CUDA
void mode_along_card(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool keepdim) {
  if (sorts_for_mode(x.dim() == 0 ? 1 : x.shape()[wrap_dim(dim, x.dim(), "mode")]))
    return mode_cuda(values, indices, x, dim);
  const auto [v, at] = mode_composed(x, dim, keepdim);
  copy_elements(values, v);
  copy_elements(indices, at);
}
#endif

const AlongOp mode_op{{
    .schema = "mode(Tensor x, int dim=-1, bool keepdim=false) -> (Tensor values, Tensor indices)",
    .shard = "along dim",
    .doc = "The commonest value along dim (the smallest of several) and the last place where it is (i64). The gradient "
           "goes to that element. ShapeError for no elements.",
    .example = "auto [v, i] = mode(from_span<int64_t>(std::vector<int64_t>{3, 1, 3}, {3})); "
               "assert(v.item() == 3 && i.item() == 2);",
    .infer = [](const Tensor& x, int64_t dim, bool keepdim) { return along_infer(x, dim, keepdim, "mode"); },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(mode_along_card)},
    .composed = mode_composed,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, bool) { return sort_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 7}, 0, 3, s.dtype())).not_differentiable();
          s.add(s.integers({6, 2}, 0, 2, s.dtype()), 0, true).not_differentiable();
          s.add(s.integers({200, 2}, 0, 9, s.dtype()), 0).not_differentiable();
          s.add(s.integers({1, 4100}, 0, 60, s.dtype()), 1).not_differentiable();
          s.add(s.distinct({2, 3}), 1);
          s.add(s.tensor({}), 0);
          s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0);
        },
    .reference =
        [](const Tensor& x, int64_t dim, bool keepdim) {
          return reference_along(x, dim, keepdim, true, [](const std::vector<double>& row) {
            std::map<double, int> counts;
            for (const double v : row) ++counts[v];
            const auto best = std::max_element(counts.begin(), counts.end(),
                                               [](const auto& a, const auto& b) { return a.second < b.second; });
            return best->first;
          });
        },
}};

// ---- extremes

uint32_t aminmax_mask(const Tensor& x, std::optional<int64_t> dim) {
  return dim_mask(dim ? Dims{*dim} : Dims(), x.dim(), "aminmax");
}
// kExtremes: extremes_cpu or extremes_cuda.
template <auto kExtremes>
void aminmax_kernel(Tensor& low, Tensor& high, const Tensor& x, std::optional<int64_t> dim, bool) {
  kExtremes(low, high, x, aminmax_mask(x, dim));
}

const Op<Pair(const Tensor&, std::optional<int64_t>, bool)> aminmax_op{{
    .schema = "aminmax(Tensor x, int? dim=None, bool keepdim=false) -> (Tensor min, Tensor max)",
    .shard = "along dim",
    .doc = "The smallest and the largest element along dim, or of all; NaN wins. Equal elements share the gradient. "
           "ShapeError for no elements.",
    .example = "auto [low, high] = aminmax(arange(3)); assert(low.item() == 0 && high.item() == 2);",
    .infer =
        [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
          const uint32_t mask = aminmax_mask(x, dim);
          check<ShapeError>(reduced_count(x.shape(), mask) > 0, "aminmax", "no elements to choose from in ", x);
          const TensorMeta m = like(x).with_shape(reduced_shape(x.shape(), mask, keepdim));
          return std::array<TensorMeta, 2>{m, m};
        },
    .kernels = {.cpu = aminmax_kernel<extremes_cpu>, .cuda = STRATA_CUDA_KERNEL(aminmax_kernel<extremes_cuda>)},
    .composed =
        [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
          const Dims dims = dim ? Dims{*dim} : Dims();
          return Pair(amin(x, dims, keepdim), amax(x, dims, keepdim));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, std::optional<int64_t>, bool) {
          return Cost{2.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({3, 5}));
          s.add(s.distinct({3, 5}), 0, true);
          s.add(s.distinct({2, 3, 4}), -1);
          s.add(s.distinct({4, 7}).t(), 0).named("transposed");
          s.add(s.tensor({8200})).named("long").not_differentiable();
          if (!is_floating(s.dtype())) s.add(s.tensor({70001})).named("stretches");
          s.add(s.tensor({}), 0);
          s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0);
        },
    .reference =
        [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
          const Dims dims = dim ? Dims{*dim} : Dims();
          const auto extreme = [&](auto better) {
            return naive::reduced(Array(x), dims, keepdim, [&](const std::vector<double>& v) {
              double best = v[0];
              for (const double e : v) best = better(e, best) || e != e ? e : best;
              return best;
            });
          };
          return Pair(extreme([](double a, double b) { return a < b; }),
                      extreme([](double a, double b) { return a > b; }));
        },
}};

}  // namespace

Tensor median(const Tensor& x) {
  return median_op(x);
}
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim) {
  return median_dim_op(x, dim, keepdim);
}
Tensor nanmedian(const Tensor& x) {
  return nanmedian_op(x);
}
std::tuple<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, bool keepdim) {
  return nanmedian_dim_op(x, dim, keepdim);
}
std::tuple<Tensor, Tensor> mode(const Tensor& x, int64_t dim, bool keepdim) {
  return mode_op(x, dim, keepdim);
}
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return aminmax_op(x, dim, keepdim);
}

}  // namespace strata
