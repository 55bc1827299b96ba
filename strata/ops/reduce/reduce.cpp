#include "strata/ops/reduce/reduce.h"

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

uint32_t dim_mask(const Dims& dims, int64_t rank, std::string_view op) {
  if (dims.empty()) return ~0u;
  uint32_t mask = 0;
  for (int64_t d : dims) {
    d = wrap_dim(d, rank, op);
    check(!(mask >> d & 1), op, "dims ", dims, " lists dimension ", d, " twice");
    mask |= 1u << d;
  }
  return mask;
}

Shape reduced_shape(const Shape& s, uint32_t mask, bool keepdim) {
  Shape r;
  for (int i = 0; i < s.size(); ++i) {
    if (!(mask >> i & 1)) r.push_back(s[i]);
    else if (keepdim) r.push_back(1);
  }
  return r;
}

const Op<Tensor(const Tensor&, const Dims&, bool)> sum_op{{
    .schema = "sum(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .doc = "Sum over dims, or over everything. Integers and bool sum in i64; bf16 and f16 accumulate in f32.",
    .infer = [](const Tensor& x, const Dims& dims, bool keepdim) {
      const TensorMeta m = like(x).with_shape(reduced_shape(x.shape(), dim_mask(dims, x.dim(), "sum"), keepdim));
      return is_floating(x.dtype()) ? m : m.with_dtype(DType::i64);
    },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Dims& dims, bool) {
      // Kept dimensions first, reduced last, then row sums.
      const uint32_t mask = dim_mask(dims, x.dim(), "sum");
      Dims order;
      int64_t inner = 1;
      for (int i = 0; i < x.dim(); ++i)
        if (!(mask >> i & 1)) order.push_back(i);
      for (int i = 0; i < x.dim(); ++i)
        if (mask >> i & 1) {
          order.push_back(i);
          inner *= x.shape()[i];
        }
      const Tensor rows = contiguous(permute(x, order));
      const int64_t outer = y.numel();
      dispatch_all(x.dtype(), "sum", [&]<class T>() {
        const T* p = rows.data<T>();
        using C = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;
        using R = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
        R* o = y.data<R>();
        for (int64_t i = 0; i < outer; ++i) {
          C acc = 0;
          for (int64_t j = 0; j < inner; ++j) acc += static_cast<C>(p[i * inner + j]);
          o[i] = static_cast<R>(acc);
        }
      });
    }},
    .backward = [](Backward& b, const Tensor& x, const Dims& dims, bool keepdim) {
      Tensor g = b.gy();
      if (!keepdim) g = view(g, reduced_shape(x.shape(), dim_mask(dims, x.dim(), "sum"), true));
      b.set(0, expand(g, x.shape()));
    },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&, bool) {
      return Cost{static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({3, 5}));
      s.add(s.tensor({3, 5, 2}), Dims{0, -1}, true);
      s.add(s.tensor({0, 5}), Dims{0});
      s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1});
      s.invalid<ValueError>("twice", s.tensor({3, 2}), Dims{0, 0});
    },
}};

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) { return sum_op(x, dims, keepdim); }
Tensor Tensor::sum() const { return strata::sum(*this); }
Tensor Tensor::sum(const Dims& dims, bool keepdim) const { return strata::sum(*this, dims, keepdim); }

}  // namespace strata
