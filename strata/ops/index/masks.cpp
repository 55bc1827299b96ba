// Masks, classes and counts.

#include <algorithm>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

Tensor zeros_as(const Tensor& g, const Shape& shape) {
  Tensor z = empty(like(g).with_shape(shape));
  return z.zero_();
}

// ---- masks ----

void check_mask(const Tensor& mask, std::string_view op) {
  check<DTypeError>(mask.dtype() == DType::boolean, op, "the mask must be bool, got ", mask);
}

const Op<Tensor(const Tensor&, const Tensor&, Scalar)> masked_fill_op{{
    .schema = "masked_fill(Tensor x, Tensor mask, Scalar value) -> Tensor",
    .shard = "elementwise",
    .doc = "x with value where the bool mask is true; x and mask broadcast.",
    .example = "Tensor y = masked_fill(ones({2}), full({2}, true), 3); assert(y.to_vector<float>() == "
               "std::vector<float>({3, 3}));",
    .infer =
        [](const Tensor& x, const Tensor& mask, Scalar) {
          check_mask(mask, "masked_fill");
          return laid_like(x, mask);
        },
    .kernels = {.cpu = masked_fill_cpu, .cuda = STRATA_CUDA_KERNEL(masked_fill_cuda)},
    .saves = "mask",
    .backward = [](Backward& b, const Tensor&, const Tensor& mask, Scalar) { b.set(0, masked_fill(b.gy(), mask, 0)); },
    .inplace = true,
    .adapt = Adapt::broadcast,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& mask, Scalar) {
          return Cost{0, static_cast<double>(2 * x.nbytes() + mask.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.boolean({3, 5}), Scalar(2));
          s.add(s.tensor({2, 3, 3}), s.boolean({3, 3}), Scalar(1));
          s.add(s.tensor({3}), s.boolean({2, 1}), Scalar(0));
          s.add(s.tensor({0}), s.boolean({1}), Scalar(0));
          s.invalid<DTypeError>("must be bool", s.tensor({3}), s.integers({3}, 0, 2), Scalar(1));
          s.invalid<ShapeError>("do not broadcast", s.tensor({3}), s.boolean({2}), Scalar(1));
          if (s.benchmarking()) s.bench(s.tensor({4096, 1024}), s.boolean({4096, 1024}), Scalar(1));
        },
    .reference =
        [](const Tensor& x, const Tensor& mask, Scalar value) {
          Array y(x);
          const Array m(mask);
          for (int64_t i = 0; i < y.size(); ++i)
            if (m.flat(i) != 0) y.flat(i) = x.dtype() == DType::boolean ? value.to_bool() : value.to_double();
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&)> masked_select_op{{
    .schema = "masked_select(Tensor x, Tensor mask) -> Tensor",
    .shard = "whole",
    .doc = "The elements of x where the bool mask is true, 1-D, in row-major order; x and mask broadcast.",
    .dynamic = on_each_device([](auto on, const Tensor& x, const Tensor& mask) {
      check_mask(mask, "masked_select");
      if constexpr (on.cuda) return masked_select_cuda(x, mask);
      Tensor y = empty(like(x).with_shape({count_nonzero(mask)}));
      masked_select_into(y, x, mask);
      return y;
    }),
    .saves = "mask",
    .backward = [](Backward& b, const Tensor& x,
                   const Tensor& mask) { b.set(0, masked_scatter(zeros_as(b.gy(), x.shape()), mask, b.gy())); },
    .adapt = Adapt::broadcast,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& mask) {
          return Cost{0, static_cast<double>(2 * x.nbytes() + mask.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.boolean({3, 5}));
          s.add(s.tensor({3, 5}), s.boolean({5}));
          s.add(s.tensor({0, 5}), s.boolean({5}));
          s.add(s.tensor({5000}), s.boolean({5000})).not_differentiable();
          s.invalid<DTypeError>("must be bool", s.tensor({3}), s.integers({3}, 0, 2));
        },
    .reference =
        [](const Tensor& x, const Tensor& mask) {
          const Array v(x), m(mask);
          std::vector<double> taken;
          for (int64_t i = 0; i < v.size(); ++i)
            if (m.flat(i) != 0) taken.push_back(v.flat(i));
          return Tensor(Array(Shape{static_cast<int64_t>(taken.size())}, taken));
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> masked_scatter_op{{
    .schema = "masked_scatter(Tensor x, Tensor mask, Tensor source) -> Tensor",
    .shard = "whole",
    .inplace_by_copy = true,
    .doc = "x with the elements where the bool mask (of x's shape) is true replaced by those of source, in row-major "
           "order. "
           "ShapeError when source has too few.",
    .infer =
        [](const Tensor& x, const Tensor& mask, const Tensor& source) {
          check_mask(mask, "masked_scatter");
          check<ShapeError>(mask.shape() == x.shape(), "masked_scatter", "the mask is ", mask, ", x is ", x);
          check<DTypeError>(source.dtype() == x.dtype(), "masked_scatter", "source is ", source, ", x is ", x);
          return like(x);
        },
    .kernels = {.cpu = masked_scatter_cpu, .cuda = STRATA_CUDA_KERNEL(masked_scatter_cuda)},
    .saves = "mask",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& mask, const Tensor& source) {
          if (b.needs(0)) b.set(0, masked_fill(b.gy(), mask, 0));
          if (!b.needs(2)) return;
          const Tensor used = masked_select(b.gy(), mask);
          const Tensor rest = zeros_as(b.gy(), {source.numel() - used.numel()});
          b.set(2, reshape(cat({used, rest}), source.shape()));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& mask, const Tensor&) {
          return Cost{0, static_cast<double>(3 * x.nbytes() + mask.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.boolean({3, 5}), s.tensor({16}));
          s.add(s.tensor({4}), s.boolean({4}), s.tensor({2, 2}));
          s.invalid<ShapeError>("has 1 elements", s.tensor({3}), s.integers({3}, 1, 2, DType::boolean), s.tensor({1}));
          s.invalid<ShapeError>("the mask is", s.tensor({3}), s.boolean({2}), s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, const Tensor& mask, const Tensor& source) {
          Array y(x);
          const Array m(mask), from(source);
          int64_t next = 0;
          for (int64_t i = 0; i < y.size(); ++i)
            if (m.flat(i) != 0) y.flat(i) = from.flat(next++);
          return Tensor(y);
        },
}};

Tensor positions(const Tensor& x) {
  Tensor y = empty({{count_nonzero(x), x.dim()}, DType::i64, x.device(), std::nullopt});
  nonzero_into(y, x);
  return y;
}

const Op<Tensor(const Tensor&)> nonzero_op{{
    .schema = "nonzero(Tensor x) -> Tensor",
    .shard = "whole",
    .doc = "Positions of the elements that are not 0: [count, x.dim()] i64, in row-major order.",
    .example = "assert(nonzero(arange(3)).to_vector<int64_t>() == std::vector<int64_t>({1, 2}));",
    .dynamic = {.cpu = positions, .cuda = STRATA_CUDA_KERNEL(nonzero_cuda)},
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x) {
          return Cost{0, static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 5}, 0, 2, s.dtype()));
          s.add(s.integers({}, 0, 2, s.dtype()));
          s.add(s.tensor({0, 3}));
          s.add(s.integers({3, 2000}, 0, 2, s.dtype())).named("several blocks");
        },
    .reference =
        [](const Tensor& x) {
          const Array v(x);
          std::vector<double> places;
          int64_t count = 0;
          naive::each(x.shape(), [&](const Dims& p) {
            if (v[p] == 0) return;
            places.insert(places.end(), p.begin(), p.end());
            ++count;
          });
          return Tensor(Array(Shape{count, x.dim()}, places));
        },
}};

// ---- classes and counts ----

const Op<Tensor(const Tensor&, int64_t)> one_hot_op{{
    .schema = "one_hot(Tensor x, int num_classes) -> Tensor",
    .shard = "... -> ... c!",
    .doc = "[..., num_classes] i64 with a 1 at the place that each element of x names, zeros elsewhere. The function "
           "one_hot "
           "works num_classes out when it is -1.",
    .example = "assert(one_hot(arange(2), 3).to_vector<int64_t>() == std::vector<int64_t>({1, 0, 0, 0, 1, 0}));",
    .infer =
        [](const Tensor& x, int64_t num_classes) {
          check<DTypeError>(is_integral(x.dtype()), "one_hot", "needs integers, got ", x);
          check(num_classes >= 0, "one_hot", "num_classes must not be negative, got ", num_classes);
          Shape shape = x.shape();
          shape.push_back(num_classes);
          return TensorMeta{shape, DType::i64, x.device(), std::nullopt};
        },
    .kernels = {.cpu = one_hot_cpu, .cuda = STRATA_CUDA_KERNEL(one_hot_cuda)},
    .dtypes = kInts,
    .cost =
        [](const Tensor& x, int64_t num_classes) {
          return Cost{0, 8.0 * static_cast<double>(x.numel() * num_classes)};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({2, 3}, 0, 4, s.dtype()), 4);
          s.add(s.integers({0}, 0, 4, s.dtype()), 2);
          s.invalid<IndexError>("class 4", s.integers({2}, 4, 5, s.dtype()), 4);
          s.invalid<DTypeError>("integers", s.tensor({2}, DType::f32), 4);
        },
    .reference =
        [](const Tensor& x, int64_t num_classes) {
          const Array v(x);
          Array y(Shape{x.numel(), num_classes});
          for (int64_t i = 0; i < v.size(); ++i) y[{i, static_cast<int64_t>(v.flat(i))}] = 1;
          Shape shape = x.shape();
          shape.push_back(num_classes);
          return Tensor(Array(shape, Tensor(y).to_vector<double>()));
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> bincount_op{{
    .schema = "bincount(Tensor x, Tensor? weights=None, int minlength=0) -> Tensor",
    .shard = "whole",
    .doc = "How often each of 0, 1, ... occurs in the 1-D, non-negative x (i64; values below 2^60), or with weights "
           "the sum of those (f32 "
           "for f32, "
           "else f64). At least minlength bins. Not differentiable.",
    .dynamic = on_each_device([](auto on, const Tensor& x, const Tensor& weights, int64_t minlength) {
      check<DTypeError>(is_integral(x.dtype()), "bincount", "needs integers, got ", x);
      check<ShapeError>(x.dim() == 1, "bincount", "needs a 1-D tensor, got ", x);
      check<ShapeError>(!weights.defined() || weights.shape() == x.shape(), "bincount",
                        "weights do not have the shape of x: ", weights, " and ", x);
      check(minlength >= 0, "bincount", "minlength must not be negative, got ", minlength);
      if constexpr (on.cuda)
        return bincount_cuda(x, weights, minlength);
      else
        return bincount_cpu(x, weights, minlength);
    }),
    .dtypes = kInts,
    .cost =
        [](const Tensor& x, const Tensor&, int64_t) {
          return Cost{static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({20}, 0, 6, s.dtype()));
          s.add(s.integers({20}, 0, 6, s.dtype()), s.tensor({20}, DType::f32), 9).not_differentiable();
          s.add(s.integers({0}, 0, 6, s.dtype()));
          s.invalid<ValueError>("negative", s.integers({3}, -3, -1), std::nullopt, 0);
          s.invalid<ValueError>("below 2^60", from_span<int64_t>(std::vector<int64_t>{1, INT64_MAX}, {2}));
          s.invalid<ShapeError>("1-D", s.integers({3, 2}, 0, 3), std::nullopt, 0);
          s.invalid<ShapeError>("weights", s.integers({3}, 0, 3), s.tensor({2}, DType::f32), 0);
        },
    .reference =
        [](const Tensor& x, const Tensor& weights, int64_t minlength) {
          const Array v(x), w = weights.defined() ? Array(weights) : Array(x.shape(), 1);
          std::vector<double> bins(static_cast<size_t>(minlength));
          for (int64_t i = 0; i < v.size(); ++i) {
            const auto at = static_cast<size_t>(v.flat(i));
            if (at >= bins.size()) bins.resize(at + 1);
            bins[at] += w.flat(i);
          }
          return Tensor(Array(Shape{static_cast<int64_t>(bins.size())}, bins));
        },
}};

}  // namespace

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  return masked_fill_op(x, mask, value);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  check<ShapeError>(value.dim() == 0, "masked_fill", "value must be a number or 0-dim, got ", value);
  check_mask(mask, "masked_fill");
  const Tensor v = to(value, x.dtype());
  return where(mask, v.device() == x.device() ? v : to(v, x.device()), x);
}
Tensor& masked_fill_(Tensor& x, const Tensor& mask, Scalar value) {
  return masked_fill_op.inplace(x, mask, value);
}
Tensor masked_select(const Tensor& x, const Tensor& mask) {
  return masked_select_op(x, mask);
}
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  return masked_scatter_op(x, expand(mask, x.shape()), to(source, x.dtype()));
}
Tensor nonzero(const Tensor& x) {
  return nonzero_op(x);
}
Tensor one_hot(const Tensor& x, int64_t num_classes) {
  if (num_classes == -1) {
    check<DTypeError>(is_integral(x.dtype()), "one_hot", "needs integers, got ", x);
    check<ShapeError>(x.numel() > 0, "one_hot", "num_classes cannot be worked out from an empty tensor");
    const Tensor i64 = to(contiguous(to(x, DType::i64)), Device::cpu());
    num_classes = *std::max_element(i64.data<int64_t>(), i64.data<int64_t>() + i64.numel()) + 1;
  }
  return one_hot_op(x, num_classes);
}
Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  return bincount_op(x, weights, minlength);
}

}  // namespace strata
