// Records of sums, means, products, variances, norms and logic.

#include "strata/ops/reduce/reduce.h"

#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/reduce_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using ReduceOp = Op<Tensor(const Tensor&, const Dims&, bool)>;

Cost reduce_cost(const Tensor& x, double flops = 1) {
  return {flops * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}
Cost plain_cost(const Tensor& x, const Dims&, bool) {
  return reduce_cost(x);
}

TensorMeta reduced_meta(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op) {
  return like(x).with_shape(reduced_shape(x.shape(), dim_mask(dims, x.dim(), op), keepdim));
}
TensorMeta floating_meta(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x, "; convert with .to(DType::f32)");
  return reduced_meta(x, dims, keepdim, op);
}

// A result (or its gradient) spread over x's shape again.
Tensor spread(const Tensor& r, const Tensor& x, const Dims& dims, bool keepdim) {
  return expand(keepdim ? r : view(r, reduced_shape(x.shape(), dim_mask(dims, x.dim(), "expand"), true)), x.shape());
}
double count_of(const Tensor& x, const Dims& dims) {
  return static_cast<double>(reduced_count(x.shape(), dim_mask(dims, x.dim(), "mean")));
}
// A buffer with y's elements in the type that sums accumulate in.
Tensor accumulator(const Tensor& y) {
  return empty(like(y).with_dtype(statistic_dtype(y.dtype())));
}

void samples_reduce(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({}));
  s.add(s.tensor({3, 5, 2}), Dims{0, -1}, true);
  s.add(s.tensor({3, 37}), Dims{1});
  s.add(s.tensor({37, 3}), Dims{0});
  s.add(s.tensor({2, 9, 5}), Dims{1}, true);
  s.add(s.tensor({4, 7}).t(), Dims{0}).named("transposed");
  s.add(permute(s.tensor({2, 3, 4}), {2, 0, 1})).named("turned");
  s.add(s.tensor({5, 0}), Dims{0});
  s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1});
  s.invalid<ValueError>("twice", s.tensor({3, 2}), Dims{0, 0});
}
void bench_reduce(Samples& s) {
  if (!s.benchmarking()) return;
  s.bench(s.tensor({2048, 1024}), Dims{0});
  s.bench(s.tensor({4096, 4096}), Dims{1});
  s.bench(s.tensor({4096, 4096}));
}
void samples_sum(Samples& s) {
  samples_reduce(s);
  s.add(s.tensor({0, 5}), Dims{0});
  s.add(s.tensor({0}));
  bench_reduce(s);
}

const ReduceOp sum_op{{
    .schema = "sum(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims sum",
    .doc = "Sum over dims, or over everything. Integers and bool sum in i64; bf16 and f16 accumulate in f32. 0 for no "
           "elements.",
    .example = "assert(sum(ones({2, 3}), {1}).to_vector<float>() == std::vector<float>({3, 3}));",
    .infer =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          const TensorMeta m = reduced_meta(x, dims, keepdim, "sum");
          return is_floating(x.dtype()) ? m : m.with_dtype(DType::i64);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      reduce(on, Reduction::sum, y, x, dim_mask(dims, x.dim(), "sum"));
    }),
    .backward = [](Backward& b, const Tensor& x, const Dims& dims,
                   bool keepdim) { b.set(0, spread(b.gy(), x, dims, keepdim)); },
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost = plain_cost,
    .samples = samples_sum,
    .reference = by_loops::reduced<by_loops::sum_of>,
}};

const ReduceOp mean_op{{
    .schema = "mean(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims avg",
    .doc = "Mean over dims, or over everything; NaN for no elements. DTypeError for integers.",
    .infer = [](const Tensor& x, const Dims& dims, bool keepdim) { return floating_meta(x, dims, keepdim, "mean"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      reduce(on, Reduction::mean, y, x, dim_mask(dims, x.dim(), "mean"));
    }),
    .backward = [](Backward& b, const Tensor& x, const Dims& dims,
                   bool keepdim) { b.set(0, spread(b.gy() / count_of(x, dims), x, dims, keepdim)); },
    .cost = plain_cost,
    .samples =
        [](Samples& s) {
          samples_reduce(s);
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
          bench_reduce(s);
        },
    .reference = by_loops::reduced<by_loops::mean_of>,
}};

// ---- prod ----

extern const ReduceOp prod_op;
// Each factor's gradient is that of the product times all other factors. Zeros are counted apart, so that nothing is
// divided by them; where gradients of gradients are wanted they stay factors.
void prod_backward(Backward& b, const Tensor& x, const Dims& dims, bool keepdim) {
  if (b.gy().numel() == x.numel()) return b.set(0, reshape(b.gy(), x.shape()));  // no other factors
  const auto over = [&](const Tensor& t) { return sum(t, dims, true); };
  const Tensor g = keepdim ? b.gy() : reshape(b.gy(), reduced_shape(x.shape(), dim_mask(dims, x.dim(), "prod"), true));
  const Tensor zero = x == 0, safe = where(zero, Scalar(1), x), zeros = over(zero);
  const Tensor rest = g * prod_op(safe, dims, true), one = where(zeros == 1, rest, Scalar(0));
  Tensor of_zero = one, of_others = where(zeros == 0, rest, Scalar(0));
  if (grad_enabled()) {
    const Tensor kept = where(zero, x, Scalar(0)), factor = over(kept);
    of_zero = of_zero + where(zeros == 2, rest, Scalar(0)) * (factor - kept);
    of_others = of_others + one * factor;
  }
  b.set(0, where(zero, of_zero, of_others / safe).to(x.dtype()));
}

const ReduceOp prod_op{{
    .schema = "prod(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "Product over dims, or over everything. Integers and bool multiply in i64. 1 for no elements.",
    .infer =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          const TensorMeta m = reduced_meta(x, dims, keepdim, "prod");
          return is_floating(x.dtype()) ? m : m.with_dtype(DType::i64);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      reduce(on, Reduction::prod, y, x, dim_mask(dims, x.dim(), "prod"));
    }),
    .saves = "x",
    .backward = prod_backward,
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost = plain_cost,
    .samples =
        [](Samples& s) {
          samples_reduce(s);
          s.add(s.tensor({0}));
          const Tensor x = s.tensor({2, 3});
          x.select(1, 1).fill_(0);
          s.add(x, Dims{1}).named("one zero");
          const Tensor twice = s.tensor({3, 4});
          twice.slice(0, 0, 2).slice(1, 1, 2).fill_(0);
          s.add(twice, Dims{0}, true).named("two zeros");
          s.add(twice).named("two zeros in all");
        },
    .reference = by_loops::reduced<by_loops::product_of>,
}};

// ---- variance ----

using VarOp = Op<Tensor(const Tensor&, const Dims&, double, bool)>;

TensorMeta infer_var(const Tensor& x, const Dims& dims, double, bool keepdim) {
  return floating_meta(x, dims, keepdim, "var");
}
Cost var_cost(const Tensor& x, const Dims&, double, bool) {
  return reduce_cost(x, 4);
}
void samples_var(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({3, 5, 2}), Dims{0, -1}, 0.0, true);
  s.add(s.tensor({3, 37}), Dims{1});
  s.add(s.tensor({37, 3}), Dims{0}, 2.0);
  s.add(s.tensor({4, 7}).t(), Dims{1}).named("transposed");
  s.add(s.tensor({300, 3}), Dims{0}).named("long columns").not_differentiable();
  s.add(s.tensor({8200})).named("long").not_differentiable();
  s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), Dims{1});
}
double freedom(const Tensor& x, const Dims& dims, double correction) {
  return std::max(0.0, count_of(x, dims) - correction);
}

// Two passes: the mean, then the squares around it. A card needs one.
template <class On>
void variance(On on, Tensor& y, const Tensor& x, const Dims& dims, double correction, bool root) {
  const uint32_t mask = dim_mask(dims, x.dim(), "var");
  const double over = freedom(x, dims, correction);
  if constexpr (on.cuda) {
    variance_cuda(y, {}, x, mask, over, root);
  } else {
    const Tensor squares = accumulator(y), middle = accumulator(y);
    reduce(on, Reduction::mean, middle, x, mask);
    reduce(on, Reduction::squared_deviations, squares, x, mask, middle);
    const Tensor v = squares / over;
    y.copy_(root ? sqrt(v) : v);
  }
}
Tensor deviations(const Tensor& x, const Dims& dims) {
  return x - mean(x, dims, true);
}

const VarOp var_op{{
    .schema = "var(Tensor x, int[] dims=[], float correction=1, bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "Sum of squared differences from the mean over dims, divided by the number of elements less correction (NaN "
           "where "
           "that leaves nothing). DTypeError for integers.",
    .infer = infer_var,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, double correction, bool) {
      variance(on, y, x, dims, correction, false);
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& dims, double correction, bool keepdim) {
          b.set(0, spread(b.gy() * (2 / freedom(x, dims, correction)), x, dims, keepdim) * deviations(x, dims));
        },
    .cost = var_cost,
    .samples = samples_var,
    .reference = by_loops::variance,
}};

const VarOp std_op{{
    .schema = "std(Tensor x, int[] dims=[], float correction=1, bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "The square root of var. Where it is 0, so is the gradient.",
    .infer = infer_var,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, double correction, bool) {
      variance(on, y, x, dims, correction, true);
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& dims, double correction, bool keepdim) {
          const Tensor g = where(b.y() == 0, 0, b.gy() / (b.y() * freedom(x, dims, correction)));
          b.set(0, spread(g, x, dims, keepdim) * deviations(x, dims));
        },
    .cost = var_cost,
    .samples = samples_var,
    .reference = by_loops::deviation,
}};

// ---- norm ----

using NormOp = Op<Tensor(const Tensor&, double, const Dims&, bool)>;

const NormOp norm_op{{
    .schema = "norm(Tensor x, float p=2, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "(sum |x|^p)^(1/p) over dims; the largest |x| for p = inf, the smallest for -inf, the count of non-zeros "
           "for 0. Where the "
           "norm is 0, so is the gradient; at inf equal elements share it. DTypeError for integers.",
    .infer =
        [](const Tensor& x, double p, const Dims& dims, bool keepdim) {
          const TensorMeta m = floating_meta(x, dims, keepdim, "norm");
          if (std::isinf(p) || p < 0)
            check<ShapeError>(m.shape.product() == 0 || count_of(x, dims) > 0, "norm", "no elements to choose from in ",
                              x, " over dims ", dims);
          return m;
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double p, const Dims& dims, bool) {
      const uint32_t mask = dim_mask(dims, x.dim(), "norm");
      if (p == 0) return reduce(on, Reduction::count_nonzero_float, y, x, mask);
      if (p == 1) return reduce(on, Reduction::sum_abs, y, x, mask);
      if (std::isinf(p)) return reduce(on, p > 0 ? Reduction::max_abs : Reduction::min_abs, y, x, mask);
      if constexpr (on.cuda) {
        norm_cuda(y, x, mask, p);
      } else {
        const Tensor total = accumulator(y);
        reduce(on, p == 2 ? Reduction::sum_squares : Reduction::sum_powers, total, x, mask, {}, p);
        y.copy_(p == 2 ? sqrt(total) : pow(total, 1 / p));
      }
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, double p, const Dims& dims, bool keepdim) {
          if (p == 0) return b.set(0, zeros_like(x));
          if (p == 2 && !is_reduced_floating(x.dtype())) {
            const Tensor none = b.y() == 0, factor = where(none, 0, b.gy() / where(none, 1, b.y()));
            return b.set(0, x * spread(factor, x, dims, keepdim));
          }
          const Tensor g = spread(b.gy(), x, dims, keepdim);
          if (p == 1) return b.set(0, g * sign(x));
          if (std::isinf(p)) {
            const Tensor hit = eq(abs(x), spread(b.y(), x, dims, keepdim)).to(x.dtype());
            return b.set(0, g * sign(x) * hit / sum(hit, dims, true));
          }
          // 0 where the norm is, and where x is: as few functions of all elements as that takes.
          const Tensor size = where(b.y() == 0, Scalar(INFINITY), b.y());
          const Tensor share = x / spread(size, x, dims, keepdim);
          if (p == 2) return b.set(0, g * share);
          const Tensor slope = copysign(pow(abs(share), p - 1), share);
          b.set(0, g * (p > 1 ? slope : where(share == 0, 0, slope)));
        },
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, double, const Dims&, bool) { return reduce_cost(x, 2); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({3, 5}), 1.0, Dims{1}).not_differentiable();
          s.add(s.off_grid({3, 5}), 1.0, Dims{0});
          s.add(s.off_grid({3, 5}), 3.0, Dims{1}, true);
          s.add(s.off_grid({3, 5}), 1.5, Dims{1});
          s.add(s.off_grid({3, 5}), 0.5, Dims{0});
          s.add(s.distinct({3, 5}), HUGE_VAL, Dims{0});
          s.add(s.distinct({3, 5}) + 3, -HUGE_VAL, Dims{1});
          s.add(s.off_grid({3, 5}), 0.0);
          s.add(s.tensor({37, 3, 2}), 2.0, Dims{0});
          s.add(s.off_grid({4, 7}).t(), 2.0, Dims{1}).named("transposed");
          s.add(s.tensor({8200})).named("long").not_differentiable();
          s.add(s.tensor({0}));
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}));
        },
    .reference = by_loops::norm,
}};

// ---- logsumexp ----

const ReduceOp logsumexp_op{{
    .schema = "logsumexp(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "log(sum(exp(x))) over dims, with the largest element taken out first so that nothing overflows. -inf for "
           "no elements.",
    .infer = [](const Tensor& x, const Dims& dims,
                bool keepdim) { return floating_meta(x, dims, keepdim, "logsumexp"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      const uint32_t mask = dim_mask(dims, x.dim(), "logsumexp");
      reduce(on, Reduction::max, y, x, mask);
      const DType wide = statistic_dtype(y.dtype());
      const Tensor largest = y.to(wide), shift = where(isinf(largest), 0, largest), total = accumulator(y);
      reduce(on, Reduction::sum_exp, total, x, mask, shift);
      y.copy_(log(total) + shift);
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& dims, bool keepdim) {
          b.set(0, spread(b.gy(), x, dims, keepdim) * exp(x - spread(b.y(), x, dims, keepdim)));
        },
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Dims&, bool) { return reduce_cost(x, 10); },
    .samples =
        [](Samples& s) {
          samples_reduce(s);
          s.add(s.uniform({3, 5}, 80, 200), Dims{1}).named("large");
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), Dims{1});
        },
    .reference = by_loops::reduced<by_loops::log_sum_exp_of>,
}};

// ---- logic ----

// Whether elements are 0 a card asks where it reads them.
template <class On>
void reduce_truth(On on, Reduction what, const Tensor& y, const Tensor& x, uint32_t mask) {
  reduce(on, what, y, on.cuda ? x : to(x, DType::boolean), mask);
}

TensorMeta infer_bool(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op) {
  return reduced_meta(x, dims, keepdim, op).with_dtype(DType::boolean);
}
void samples_logic(Samples& s) {
  s.add(s.integers({3, 5}, 0, 2, s.dtype())).not_differentiable();
  s.add(s.integers({3, 5}, 0, 2, s.dtype()), Dims{0}).not_differentiable();
  s.add(s.integers({3, 37}, 0, 2, s.dtype()), Dims{1}).not_differentiable();
  s.add(s.integers({4, 7}, 0, 2, s.dtype()).t(), Dims{1}).named("transposed").not_differentiable();
  s.add(s.integers({8200}, 0, 2, s.dtype())).named("long").not_differentiable();
  s.add(s.tensor({0, 3}), Dims{0}).not_differentiable();
}

const ReduceOp any_op{{
    .schema = "any(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "Whether any element over dims differs from 0; false for no elements.",
    .infer = [](const Tensor& x, const Dims& dims, bool keepdim) { return infer_bool(x, dims, keepdim, "any"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      reduce_truth(on, Reduction::any, y, x, dim_mask(dims, x.dim(), "any"));
    }),
    .dtypes = kAllTypes,
    .cost = plain_cost,
    .samples =
        [](Samples& s) {
          samples_logic(s);
          s.add(s.integers({3, 5}, 0, 2, s.dtype()), Dims{1}, true).not_differentiable();
        },
    .reference = by_loops::reduced<by_loops::any_of>,
}};

const ReduceOp all_op{{
    .schema = "all(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "Whether all elements over dims differ from 0; true for no elements.",
    .infer = [](const Tensor& x, const Dims& dims, bool keepdim) { return infer_bool(x, dims, keepdim, "all"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      reduce_truth(on, Reduction::all, y, x, dim_mask(dims, x.dim(), "all"));
    }),
    .dtypes = kAllTypes,
    .cost = plain_cost,
    .samples =
        [](Samples& s) {
          samples_logic(s);
          s.add(s.integers({3, 5}, 0, 2, s.dtype()), Dims{1}, true).not_differentiable();
        },
    .reference = by_loops::reduced<by_loops::all_of>,
}};

using CountOp = Op<Tensor(const Tensor&, const Dims&)>;
const CountOp count_nonzero_op{{
    .schema = "count_nonzero(Tensor x, int[] dims=[]) -> Tensor",
    .shard = "reduce dims sum",
    .doc = "How many elements over dims differ from 0; i64.",
    .infer = [](const Tensor& x,
                const Dims& dims) { return reduced_meta(x, dims, false, "count_nonzero").with_dtype(DType::i64); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims) {
      reduce_truth(on, Reduction::count, y, x, dim_mask(dims, x.dim(), "count_nonzero"));
    }),
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&) { return reduce_cost(x); },
    .samples = samples_logic,
    .reference = [](const Tensor& x,
                    const Dims& dims) { return by_loops::reduced<by_loops::count_of_nonzero>(x, dims, false); },
}};

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return sum_op(x, dims, keepdim);
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  return mean_op(x, dims, keepdim);
}
Tensor prod(const Tensor& x) {
  return prod_op(x, Dims(), false);
}
Tensor prod(const Tensor& x, int64_t dim, bool keepdim) {
  return prod_op(x, Dims{dim}, keepdim);
}
Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return var_op(x, dims, correction, keepdim);
}
Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return std_op(x, dims, correction, keepdim);
}
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  return norm_op(x, p, dims, keepdim);
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  return logsumexp_op(x, dims, keepdim);
}
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  return any_op(x, dims, keepdim);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  return all_op(x, dims, keepdim);
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  return count_nonzero_op(x, dims);
}

Tensor Tensor::any() const {
  return strata::any(*this);
}
Tensor Tensor::all() const {
  return strata::all(*this);
}
Tensor Tensor::sum() const {
  return strata::sum(*this);
}
Tensor Tensor::sum(const Dims& dims, bool keepdim) const {
  return strata::sum(*this, dims, keepdim);
}
Tensor Tensor::mean() const {
  return strata::mean(*this);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
  return strata::mean(*this, dims, keepdim);
}

}  // namespace strata
