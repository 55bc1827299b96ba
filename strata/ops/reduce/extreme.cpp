// Records of maxima and minima, their positions, and of scans.

#include "strata/core/dispatch.h"
#include "strata/core/layout.h"
#include "strata/core/loops.h"
#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/recurrence_kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/reduce/reduce_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using ExtremeOp = Op<Tensor(const Tensor&, const Dims&, bool)>;
using Pair = std::tuple<Tensor, Tensor>;
using PairOp = Op<Pair(const Tensor&, int64_t, bool)>;
using ArgOp = Op<Tensor(const Tensor&, std::optional<int64_t>, bool)>;
using ScanOp = Op<Tensor(const Tensor&, int64_t, bool)>;
using ScanPairOp = Op<Pair(const Tensor&, int64_t)>;

Cost read_cost(const Tensor& x) {
  return {static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}

uint32_t one_dim(const Tensor& x, int64_t dim, std::string_view op) {
  dim = wrap_dim(dim, x.dim(), op);
  return x.dim() == 0 ? ~0u : 1u << dim;
}
void check_some(const Tensor& x, uint32_t mask, std::string_view op) {
  check<ShapeError>(reduced_count(x.shape(), mask) > 0, op, "no elements to choose from in ", x);
}

// ---- amax, amin: equal elements share the gradient ----

template <bool Largest>
ExtremeOp::Record extreme(std::string_view schema, std::string_view doc) {
  return {
      .schema = schema,
      .shard = "reduce dims",
      .doc = doc,
      .infer =
          [](const Tensor& x, const Dims& dims, bool keepdim) {
            const uint32_t mask = dim_mask(dims, x.dim(), Largest ? "amax" : "amin");
            check_some(x, mask, Largest ? "amax" : "amin");
            return like(x).with_shape(reduced_shape(x.shape(), mask, keepdim));
          },
      .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
        reduce(on, Largest ? Reduction::max : Reduction::min, y, x, dim_mask(dims, x.dim(), "amax"));
      }),
      .saves = "x result",
      .backward =
          [](Backward& b, const Tensor& x, const Dims& dims, bool keepdim) {
            const Shape kept = reduced_shape(x.shape(), dim_mask(dims, x.dim(), "amax"), true);
            const Tensor hit = eq(x, view(b.y(), kept)).to(x.dtype());
            b.set(0, view(b.gy(), kept) / sum(hit, dims, true) * hit);
          },
      .dtypes = kAllTypes,
      .cost = [](const Tensor& x, const Dims&, bool) { return read_cost(x); },
      .samples =
          [](Samples& s) {
            s.add(s.distinct({3, 5}));
            s.add(s.distinct({3, 5}), Dims{0});
            s.add(s.distinct({3, 5, 2}), Dims{0, 2}, true);
            s.add(s.distinct({3, 37}), Dims{-1});
            s.add(s.distinct({}));
            s.add(s.tensor({0, 3}), Dims{1});
            s.invalid<ShapeError>("no elements", s.tensor({0, 3}), Dims{0});
            s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1});
            if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), Dims{1});
          },
      .reference = by_loops::reduced < Largest ? by_loops::largest_of : by_loops::smallest_of >,
  };
}
const ExtremeOp amax_op{
    extreme<true>("amax(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
                  "Largest element over dims, or of all; NaN wins. Equal elements share the gradient. "
                  "ShapeError for no elements.")};
const ExtremeOp amin_op{
    extreme<false>("amin(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
                   "Smallest element over dims, or of all; NaN wins. Equal elements share the gradient. "
                   "ShapeError for no elements.")};

// ---- picking along a dimension ----

// indices may differ from the long tensor in that dimension only.
void check_along(const Shape& wide, const Tensor& indices, const Tensor& values, int64_t dim, std::string_view op) {
  check<DTypeError>(indices.dtype() == DType::i64, op, "indices must be i64, got ", indices);
  dim = wrap_dim(dim, wide.size(), op);
  bool fits = indices.dim() == wide.size();
  for (int i = 0; fits && i < wide.size(); ++i) fits = i == dim || indices.shape()[i] == wide[i];
  check<ShapeError>(fits, op, "indices ", indices, " do not fit a tensor of shape ", wide, " along dim ", dim,
                    "; values are ", values);
}
// Calls f(position in the long tensor, position in the short one) for every element of the short tensor [outer, m,
// inner], whose indices count along the middle dimension n of the long one.
template <class F>
void along(const Tensor& indices, const Tensor& wide, int64_t dim, F f) {
  const Tensor index = contiguous(indices);
  const int64_t* at = index.data<int64_t>();
  int64_t inner = 1;
  for (int64_t i = dim + 1; i < wide.dim(); ++i) inner *= wide.shape()[i];
  const int64_t n = wide.dim() == 0 ? 1 : wide.shape()[dim], m = indices.dim() == 0 ? 1 : indices.shape()[dim];
  const int64_t outer = indices.numel() / std::max<int64_t>(1, m * inner);
  for (int64_t o = 0, i = 0; o < outer; ++o) {
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t j = 0; j < inner; ++j, ++i) {
        if (at[i] < 0 || at[i] >= n) [[unlikely]]
          throw IndexError("pick_along", cat("index ", at[i], " is out of range for dimension ", dim, " of ", wide));
        f((o * n + at[i]) * inner + j, i);
      }
    }
  }
}

using AlongOp = Op<Tensor(const Tensor&, const Tensor&, const Shape&, int64_t)>;
extern const AlongOp put_along_op;

const AlongOp pick_along_op{{
    .schema = "pick_along(Tensor x, Tensor indices, int[] shape, int dim) -> Tensor",
    .shard = "whole",
    .doc = "The elements of x (of the given shape) at `indices` along dim: what max and cummax select. indices has x's "
           "rank.",
    .infer =
        [](const Tensor& x, const Tensor& indices, const Shape& shape, int64_t dim) {
          check<ShapeError>(x.shape() == shape, "pick_along", "x is ", x, ", not of shape ", shape);
          check_along(shape, indices, x, dim, "pick_along");
          return like(x).with_shape(indices.shape());
        },
    .kernels =
        on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& indices, const Shape&, int64_t dim) {
          if constexpr (on.cuda) return pick_along_cuda(y, x, indices, wrap_dim(dim, x.dim(), "pick_along"));
          const Tensor from = contiguous(x);
          dispatch_bytes(x.dtype(), [&]<class T>() {
            const T* p = static_cast<const T*>(from.raw_data());
            T* o = static_cast<T*>(y.raw_data());
            along(indices, x, wrap_dim(dim, x.dim(), "pick_along"), [&](int64_t wide, int64_t i) { o[i] = p[wide]; });
          });
        }),
    .saves = "indices",
    .backward = [](Backward& b, const Tensor&, const Tensor& indices, const Shape& shape,
                   int64_t dim) { b.set(0, put_along_op(b.gy(), indices, shape, dim)); },
    .cost =
        [](const Tensor&, const Tensor& i, const Shape&, int64_t) {
          return Cost{0, static_cast<double>(2 * i.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.integers({3, 2}, 0, 5), Shape{3, 5}, 1);
          s.add(s.tensor({3, 5}), s.integers({1, 5}, 0, 3), Shape{3, 5}, 0);
          s.invalid<ShapeError>("do not fit", s.tensor({3, 5}), s.integers({3}, 0, 3), Shape{3, 5}, 0);
          s.invalid<IndexError>("out of range", s.tensor({3, 5}), s.integers({3, 1}, 5, 6), Shape{3, 5}, 1);
        },
    .reference = by_loops::picked,
}};

const AlongOp put_along_op{{
    .schema = "put_along(Tensor g, Tensor indices, int[] shape, int dim) -> Tensor",
    .shard = "whole",
    .doc = "g added into zeros of the given shape at `indices` along dim: the gradient of pick_along.",
    .infer =
        [](const Tensor& g, const Tensor& indices, const Shape& shape, int64_t dim) {
          check<DTypeError>(is_floating(g.dtype()), "put_along", "needs a floating dtype, got ", g);
          check<ShapeError>(g.shape() == indices.shape(), "put_along", "g is ", g, ", but indices are ", indices);
          check_along(shape, indices, g, dim, "put_along");
          return like(g).with_shape(shape);
        },
    .kernels =
        on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& indices, const Shape&, int64_t dim) {
          if constexpr (on.cuda) return put_along_cuda(y, g, indices, wrap_dim(dim, y.dim(), "put_along"));
          y.zero_();
          const Tensor from = contiguous(g);
          dispatch_floats(g.dtype(), "put_along", [&]<class T>() {
            using A = compute_t<T>;
            const T* p = from.data<T>();
            T* o = y.data<T>();
            along(indices, y, wrap_dim(dim, y.dim(), "put_along"), [&](int64_t wide, int64_t i) {
              o[wide] = static_cast<T>(static_cast<A>(o[wide]) + static_cast<A>(p[i]));
            });
          });
        }),
    .saves = "indices",
    .backward = [](Backward& b, const Tensor&, const Tensor& indices, const Shape& shape,
                   int64_t dim) { b.set(0, pick_along_op(b.gy(), indices, shape, dim)); },
    .cost =
        [](const Tensor& g, const Tensor&, const Shape& shape, int64_t) {
          return Cost{static_cast<double>(g.numel()),
                      static_cast<double>(g.nbytes() + shape.product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 1}), s.integers({3, 1}, 0, 5), Shape{3, 5}, 1);
          s.invalid<ShapeError>("but indices are", s.tensor({3, 5}), s.integers({3}, 0, 3), Shape{3, 5}, 0);
          s.invalid<DTypeError>("floating", s.tensor({3, 1}, DType::i64), s.integers({3, 1}, 0, 5), Shape{3, 5}, 1);
        },
    .reference = by_loops::put,
}};

// For each element the place along dim of the first of its run of equal neighbours.
Tensor firsts_of_runs(const Tensor& indices, int64_t dim) {
  const int64_t n = indices.size(dim);
  if (n < 2) return zeros_like(indices);
  const Tensor places = cumsum(ones_like(indices), dim).narrow(dim, 0, n - 1);
  const Tensor begins = zeros_like(indices);
  begins.narrow(dim, 1, n - 1)
      .copy_(where(ne(indices.narrow(dim, 1, n - 1), indices.narrow(dim, 0, n - 1)), places, 0));
  return cummax(begins, dim).first;
}

// A card adds up runs as a scan does.
const Op<Tensor(const Tensor&, const Tensor&, int64_t)> put_runs_op{{
    .schema = "put_runs(Tensor g, Tensor indices, int dim) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc =
        "The sums of g over runs of equal neighbours in indices along dim, at each run's first element; elsewhere 0: "
        "the gradient of cummax, whose indices name the first of their run.",
    .infer =
        [](const Tensor& g, const Tensor& indices, int64_t dim) {
          check<DTypeError>(is_floating(g.dtype()), "put_runs", "needs a floating dtype, got ", g);
          check<ShapeError>(g.shape() == indices.shape(), "put_runs", "g is ", g, ", but indices are ", indices);
          check_along(g.shape(), indices, g, dim, "put_runs");
          return laid_like(g);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL([](Tensor& y, const Tensor& g, const Tensor& indices, int64_t dim) {
                  put_runs_cuda(y, g, indices, wrap_dim(dim, g.dim(), "put_runs"));
                })},
    .composed =
        [](const Tensor& g, const Tensor& indices, int64_t dim) {
          const Tensor wide = is_reduced_floating(g.dtype()) ? g.to(DType::f32) : g;  // sums are rounded once
          return put_along_op(wide, firsts_of_runs(indices, dim), g.shape(), dim).to(g.dtype());
        },
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& indices, int64_t dim) {
          b.set(0, pick_along_op(b.gy(), firsts_of_runs(indices, dim), indices.shape(), dim));
        },
    .cost =
        [](const Tensor& g, const Tensor& indices, int64_t) {
          return Cost{static_cast<double>(g.numel()), 2.0 * g.nbytes() + indices.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const auto runs = [&](const Tensor& x, int64_t dim) { return cummax(x, dim).second; };
          s.add(s.tensor({3, 5}), runs(s.tensor({3, 5}), 1), 1);
          s.add(s.tensor({2, 40, 3}), runs(s.tensor({2, 40, 3}), -2), -2).named("lines side by side");
          s.add(s.tensor({2, 300}), runs(s.tensor({2, 300}), 1), 1).named("long rows");
          s.add(s.tensor({7, 4}).t(), runs(s.tensor({7, 4}).t(), 1), 1).named("turned");
          s.add(s.tensor({0, 4}), s.integers({0, 4}, 0, 1), 1).named("empty");
          s.invalid<ShapeError>("but indices are", s.tensor({3, 5}), s.integers({3}, 0, 3), 0);
          s.invalid<DTypeError>("floating", s.tensor({3, 1}, DType::i64), s.integers({3, 1}, 0, 1), 1);
        },
    .reference =
        [](const Tensor& g, const Tensor& indices, int64_t dim) {
          const Tensor from = g.transpose(dim, -1).contiguous(), runs = indices.transpose(dim, -1).contiguous();
          const auto values = from.to_vector<double>();
          const auto of = runs.to_vector<int64_t>();
          std::vector<double> sums(values.size());
          const auto n = static_cast<size_t>(g.size(dim));
          for (size_t i = 0, first = 0; i < values.size(); ++i) {
            if (i % n == 0 || of[i] != of[i - 1]) first = i;
            sums[first] += values[i];
          }
          return from_span<double>(sums, from.shape()).transpose(dim, -1);
        },
}};

// ---- max, min with positions ----

template <bool Largest>
PairOp::Record extreme_at(std::string_view schema, std::string_view doc) {
  return {
      .schema = schema,
      .shard = "along dim",
      .doc = doc,
      .infer =
          [](const Tensor& x, int64_t dim, bool keepdim) {
            const uint32_t mask = one_dim(x, dim, Largest ? "max" : "min");
            check_some(x, mask, Largest ? "max" : "min");
            const TensorMeta m = like(x).with_shape(reduced_shape(x.shape(), mask, keepdim));
            return std::array<TensorMeta, 2>{m, m.with_dtype(DType::i64)};
          },
      .kernels = on_each_device([](auto on, Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool) {
        reduce_index(on, Largest, values, indices, x, one_dim(x, dim, "max"));
      }),
      .saves = "indices",
      .backward =
          [](Backward& b, const Tensor& x, int64_t dim, bool) {
            const Shape kept = reduced_shape(x.shape(), one_dim(x, dim, "max"), true);
            if (b.has_gy(0)) b.set(0, put_along_op(view(b.gy(0), kept), view(b.y(1), kept), x.shape(), dim));
          },
      .dtypes = kAllTypes,
      .cost = [](const Tensor& x, int64_t, bool) { return read_cost(x); },
      .samples =
          [](Samples& s) {
            s.add(s.distinct({3, 5}), 0);
            s.add(s.distinct({3, 5, 2}), 1, true);
            s.add(s.distinct({3, 37}), -1);
            s.add(s.distinct({}), 0);
            s.invalid<ShapeError>("no elements", s.tensor({0, 3}), 0);
            s.invalid<IndexError>("out of range", s.tensor({3}), 1);
          },
      .reference = by_loops::extreme_at<Largest>,
  };
}
const PairOp max_op{
    extreme_at<true>("max_dim(Tensor x, int dim, bool keepdim=false) -> (Tensor values, Tensor indices)",
                     "Largest elements along dim and where each first occurs (i64); max(x, dim). NaN wins. The "
                     "gradient goes to that element. ShapeError for no elements.")};
const PairOp min_op{
    extreme_at<false>("min_dim(Tensor x, int dim, bool keepdim=false) -> (Tensor values, Tensor indices)",
                      "Smallest elements along dim and where each first occurs (i64); min(x, dim). NaN wins. The "
                      "gradient goes to that element. ShapeError for no elements.")};

template <bool Largest>
ArgOp::Record position(std::string_view schema, std::string_view doc) {
  return {
      .schema = schema,
      .shard = "along dim",
      .doc = doc,
      .infer =
          [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
            const uint32_t mask = dim ? one_dim(x, *dim, Largest ? "argmax" : "argmin") : ~0u;
            check_some(x, mask, Largest ? "argmax" : "argmin");
            return like(x).with_shape(reduced_shape(x.shape(), mask, keepdim)).with_dtype(DType::i64);
          },
      .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, std::optional<int64_t> dim, bool) {
        reduce_index(on, Largest, {}, y, x, dim ? one_dim(x, *dim, "argmax") : ~0u);
      }),
      .dtypes = kAllTypes,
      .cost = [](const Tensor& x, std::optional<int64_t>, bool) { return read_cost(x); },
      .samples =
          [](Samples& s) {
            s.add(s.distinct({3, 5})).not_differentiable();
            s.add(s.distinct({3, 5}), 0).not_differentiable();
            s.add(s.distinct({3, 37}), -1, true).not_differentiable();
            s.add(s.integers({40}, 0, 2, s.dtype())).named("ties: the first wins").not_differentiable();
            s.invalid<ShapeError>("no elements", s.tensor({0}));
          },
      .reference = by_loops::position<Largest>,
  };
}
const ArgOp argmax_op{
    position<true>("argmax(Tensor x, int? dim=None, bool keepdim=false) -> Tensor",
                   "Position (i64) of the first largest element along dim, or in row-major order of all; NaN wins. "
                   "ShapeError for no elements.")};
const ArgOp argmin_op{
    position<false>("argmin(Tensor x, int? dim=None, bool keepdim=false) -> Tensor",
                    "Position (i64) of the first smallest element along dim, or in row-major order of all; NaN "
                    "wins. ShapeError for no elements.")};

// ---- scans ----

TensorMeta infer_scan(const Tensor& x, int64_t dim, std::string_view op) {
  wrap_dim(dim, x.dim(), op);
  return is_floating(x.dtype()) ? laid_like(x) : laid_like(x).with_dtype(DType::i64);
}
void samples_scan(Samples& s) {
  s.add(s.tensor({9, 11}).t(), 0).named("lies across");
  s.add(s.tensor({9, 11}).t(), 1).named("lies across, its columns");
  s.add(s.tensor({3, 17, 4}).permute({2, 0, 1}), 1).named("turned");
  s.add(expand(unsqueeze(s.tensor({3, 2}).t(), -1), {2, 3, 4}), 2).named("repeated");
  s.add(s.tensor({3, 1, 4, 1}).permute({2, 1, 0, 3}), 0).named("turned, ones between");
  s.add(expand(unsqueeze(s.tensor({4, 3}).t(), 2), {3, 4, 5}), 2).named("repeated, lies across");
  s.add(s.tensor({3, 5}), 0);
  s.add(s.tensor({3, 5}), 1);
  s.add(s.tensor({2, 7, 3}), -2);
  s.add(s.tensor({}), 0);
  s.add(s.tensor({0, 3}), 0);
  s.invalid<IndexError>("out of range", s.tensor({3}), 1);
}

extern const ScanOp cumsum_op;
const ScanOp cumsum_op{{
    .schema = "cumsum(Tensor x, int dim, bool reverse=false) -> Tensor",
    .shard = "along dim",
    .inplace_by_copy = true,
    .doc = "Sums of the elements up to each along dim, or with reverse from each to the end. Integers and bool in i64.",
    .example = "assert(cumsum(ones({3}), 0).to_vector<float>() == std::vector<float>({1, 2, 3}));",
    .infer = [](const Tensor& x, int64_t dim, bool) { return infer_scan(x, dim, "cumsum"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim, bool reverse) {
      scan(on, Reduction::sum, y, {}, x, wrap_dim(dim, x.dim(), "cumsum"), reverse);
    }),
    .backward = [](Backward& b, const Tensor&, int64_t dim,
                   bool reverse) { b.set(0, cumsum_op(b.gy(), dim, !reverse)); },
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, bool) {
          return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          samples_scan(s);
          s.add(s.tensor({3, 5}), 1, true);
        },
    .reference = by_loops::running_sum,
}};

using CumprodOp = Op<Tensor(const Tensor&, int64_t)>;
const CumprodOp cumprod_op{{
    .schema = "cumprod(Tensor x, int dim) -> Tensor",
    .shard = "along dim",
    .inplace_by_copy = true,
    .doc = "Products of the elements up to each along dim. Integers and bool in i64.",
    .infer = [](const Tensor& x, int64_t dim) { return infer_scan(x, dim, "cumprod"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim) {
      scan(on, Reduction::prod, y, {}, x, wrap_dim(dim, x.dim(), "cumprod"));
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim) {
          if (x.dim() == 0) return b.set(0, b.gy());
          // What element k multiplies: the product before it, and of the terms from it on their own later factors.
          const Tensor before = detail::shifted(b.y(), dim, 1), after = detail::linear_recurrence(x, b.gy(), dim, true);
          b.set(0, before * after);
        },
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t) {
          return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          samples_scan(s);
          const Tensor x = s.tensor({4, 3});
          x.slice(0, 1, 2).fill_(0);
          s.add(x, 0).named("one zero");
          const Tensor twice = s.tensor({2, 6});
          twice.slice(1, 1, 4, 2).fill_(0);
          s.add(twice, 1).named("two zeros");
        },
    .reference = by_loops::running_product,
}};

template <bool Largest>
ScanPairOp::Record running(std::string_view schema, std::string_view doc) {
  return {
      .schema = schema,
      .shard = "along dim",
      .doc = doc,
      .infer =
          [](const Tensor& x, int64_t dim) {
            wrap_dim(dim, x.dim(), Largest ? "cummax" : "cummin");
            return std::array<TensorMeta, 2>{laid_like(x), laid_like(x).with_dtype(DType::i64)};
          },
      .kernels = on_each_device([](auto on, Tensor& values, Tensor& indices, const Tensor& x, int64_t dim) {
        scan(on, Largest ? Reduction::max : Reduction::min, values, indices, x, wrap_dim(dim, x.dim(), "cummax"));
      }),
      .saves = "indices",
      .backward =
          [](Backward& b, const Tensor& x, int64_t dim) {
            if (!b.has_gy(0)) return;
            b.set(0, x.device().is_cuda() ? put_runs_op(b.gy(0), b.y(1), dim)
                                          : put_along_op(b.gy(0), b.y(1), x.shape(), dim));
          },
      .dtypes = kAllTypes,
      .cost =
          [](const Tensor& x, int64_t) {
            return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
          },
      .samples =
          [](Samples& s) {
            s.add(s.distinct({3, 5}), 0);
            s.add(s.distinct({2, 7, 3}), -2);
            s.add(s.distinct({9, 11}).t(), 0).named("lies across");
            s.add(s.distinct({3, 7, 4}).permute({2, 0, 1}), 1).named("turned");
            s.invalid<IndexError>("out of range", s.tensor({3}), 1);
          },
      .reference = by_loops::running_extreme<Largest>,
  };
}
const ScanPairOp cummax_op{
    running<true>("cummax(Tensor x, int dim) -> (Tensor values, Tensor indices)",
                  "Largest element up to each along dim, and where it last occurs (i64); NaN wins.")};
const ScanPairOp cummin_op{
    running<false>("cummin(Tensor x, int dim) -> (Tensor values, Tensor indices)",
                   "Smallest element up to each along dim, and where it last occurs (i64); NaN wins.")};

std::pair<Tensor, Tensor> paired(Pair p) {
  return {std::move(std::get<0>(p)), std::move(std::get<1>(p))};
}

}  // namespace

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return amax_op(x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return amin_op(x, dims, keepdim);
}
Tensor max(const Tensor& x) {
  return amax_op(x, Dims(), false);
}
Tensor min(const Tensor& x) {
  return amin_op(x, Dims(), false);
}
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim) {
  return paired(max_op(x, dim, keepdim));
}
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim) {
  return paired(min_op(x, dim, keepdim));
}
Tensor max(const Tensor& a, const Tensor& b) {
  return maximum(a, b);
}
Tensor min(const Tensor& a, const Tensor& b) {
  return minimum(a, b);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return argmax_op(x, dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return argmin_op(x, dim, keepdim);
}
Tensor cumsum(const Tensor& x, int64_t dim) {
  return cumsum_op(x, dim, false);
}
Tensor cumprod(const Tensor& x, int64_t dim) {
  return cumprod_op(x, dim);
}
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) {
  return paired(cummax_op(x, dim));
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) {
  return paired(cummin_op(x, dim));
}

Tensor Tensor::argmax(int64_t dim, bool keepdim) const {
  return strata::argmax(*this, dim, keepdim);
}
Tensor Tensor::max() const {
  return strata::max(*this);
}
Tensor Tensor::min() const {
  return strata::min(*this);
}

}  // namespace strata
