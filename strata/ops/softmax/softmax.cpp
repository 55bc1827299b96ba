#include "strata/ops/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax_kernel.h"

namespace strata {
namespace {

struct Split {
  int64_t outer = 1, n = 1, inner = 1;
};

Split split(const Tensor& x, int64_t dim) {
  Split s;
  if (x.dim() == 0) return s;
  dim = wrap_dim(dim, x.dim(), "softmax");
  for (int64_t i = 0; i < x.dim(); ++i) (i < dim ? s.outer : i == dim ? s.n : s.inner) *= x.shape()[i];
  return s;
}

TensorMeta infer_forward(const Tensor& x, int64_t dim, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  wrap_dim(dim, x.dim(), op);
  return like(x);
}

TensorMeta infer_backward(const Tensor& gy, const Tensor& y, int64_t dim, std::string_view op) {
  check<ShapeError>(gy.shape() == y.shape(), op, "gy is ", gy, ", y is ", y);
  check<DTypeError>(gy.dtype() == y.dtype(), op, "gy is ", gy.dtype(), ", y is ", y.dtype());
  return infer_forward(y, dim, op);
}

// With the kernel on raw memory of one device.
template <bool kLog, auto run>
void forward(Tensor& y, const Tensor& x, int64_t dim) {
  const Split s = split(x, dim);
  run(x.dtype(), kLog, x.contiguous().raw_data(), y.raw_data(), s.outer, s.n, s.inner);
}

template <bool kLog, auto run>
void backward(Tensor& gx, const Tensor& gy, const Tensor& y, int64_t dim) {
  const Split s = split(y, dim);
  run(y.dtype(), kLog, gy.contiguous().raw_data(), y.contiguous().raw_data(), gx.raw_data(), s.outer, s.n, s.inner);
}

Cost forward_cost(const Tensor& x, int64_t) {
  return {5.0 * x.numel(), 2.0 * x.nbytes()};
}
Cost backward_cost(const Tensor& gy, const Tensor&, int64_t) {
  return {4.0 * gy.numel(), 3.0 * gy.nbytes()};
}

void forward_samples(Samples& s) {
  s.add(s.tensor({3, 5}), -1);
  s.add(s.tensor({2, 70}), 1).named("longer than a vector");
  s.add(s.tensor({2, 3, 4}), 1).named("middle dim");
  s.add(s.tensor({4, 3, 19}), 0).named("first dim");
  s.add(s.uniform({2, 8}, 50, 60), -1).named("large values");
  s.add(s.tensor({1}), 0);
  s.add(s.tensor({}), 0).named("0-dim");
  s.add(s.tensor({0, 4}), 1).named("no rows");
  s.add(s.tensor({4, 0}), 1).named("empty rows");
  s.invalid<IndexError>("out of range", s.tensor({2, 3}), 2);
  s.invalid<DTypeError>("floating", s.tensor({2, 3}, DType::i32), 1);
  if (s.benchmarking()) s.bench(s.tensor({4096, 8192}), -1);
}

// The result that the gradient is computed from: probabilities, or their logarithms.
template <bool kLog>
void backward_samples(Samples& s) {
  const auto y = [&](const Shape& shape) { return kLog ? s.uniform(shape, -4, -0.1) : s.uniform(shape, 0.01, 0.2); };
  s.add(s.tensor({3, 5}), y({3, 5}), -1);
  s.add(s.tensor({2, 3, 40}), y({2, 3, 40}), 1).named("middle dim");
  s.add(s.tensor({2, 70}), y({2, 70}), 1).named("longer than a vector");
  s.add(s.tensor({0, 4}), y({0, 4}), 1).named("no rows");
  s.invalid<ShapeError>("gy is", s.tensor({2, 3}), s.tensor({3, 2}), 1);
  s.invalid<IndexError>("out of range", s.tensor({2, 3}), s.tensor({2, 3}), 2);
  if (s.benchmarking()) s.bench(s.tensor({4096, 8192}), y({4096, 8192}), -1);
}

Tensor sum_along(const Tensor& x, int64_t dim) {
  return x.dim() == 0 ? x : sum(x, Dims{dim}, true);
}

// Calls body(p, stride) for each run of n elements along dim; p indexes a row-major copy.
template <class F>
void for_runs(const Tensor& x, int64_t dim, F&& body) {
  const Split s = split(x, dim);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) body(o * s.n * s.inner + i, s.inner, s.n);
}

template <bool kLog>
Tensor reference_forward(const Tensor& x, int64_t dim) {
  std::vector<double> v = x.to_vector<double>();
  for_runs(x, dim, [&](int64_t at, int64_t stride, int64_t n) {
    double top = -INFINITY, total = 0;
    for (int64_t k = 0; k < n; ++k) top = std::max(top, v[at + k * stride]);
    for (int64_t k = 0; k < n; ++k) total += std::exp(v[at + k * stride] - top);
    for (int64_t k = 0; k < n; ++k) {
      const double d = v[at + k * stride] - top;
      v[at + k * stride] = kLog ? d - std::log(total) : std::exp(d) / total;
    }
  });
  return from_span<double>(v, x.shape());
}

template <bool kLog>
Tensor reference_backward(const Tensor& gy, const Tensor& y, int64_t dim) {
  std::vector<double> g = gy.to_vector<double>();
  const std::vector<double> v = y.to_vector<double>();
  for_runs(y, dim, [&](int64_t at, int64_t stride, int64_t n) {
    double total = 0;
    for (int64_t k = at; k < at + n * stride; k += stride) total += kLog ? g[k] : g[k] * v[k];
    for (int64_t k = at; k < at + n * stride; k += stride)
      g[k] = kLog ? g[k] - std::exp(v[k]) * total : v[k] * (g[k] - total);
  });
  return from_span<double>(g, y.shape());
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> softmax_backward_op{{
    .schema = "softmax_backward(Tensor gy, Tensor y, int dim) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "The gradient of softmax from its result y and that result's gradient gy: y * (gy - sum(gy * y)), the sum "
           "along "
           "dim. ShapeError unless gy and y have one shape.",
    .infer = [](const Tensor& gy, const Tensor& y,
                int64_t dim) { return infer_backward(gy, y, dim, "softmax_backward"); },
    .kernels = {.cpu = backward<false, softmax_backward_cpu>,
                .cuda = STRATA_CUDA_KERNEL(backward<false, softmax_backward_cuda>)},
    .saves = "gy y",
    .backward =
        [](Backward& b, const Tensor& gy, const Tensor& y, int64_t dim) {
          const Tensor& g = b.gy();
          if (b.needs(0)) b.set(0, softmax_backward(g, y, dim));
          if (b.needs(1)) b.set(1, add(g * add(gy, sum_along(gy * y, dim), -1), sum_along(g * y, dim) * gy, -1));
        },
    .cost = backward_cost,
    .samples = backward_samples<false>,
    .reference = reference_backward<false>,
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> log_softmax_backward_op{{
    .schema = "log_softmax_backward(Tensor gy, Tensor y, int dim) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc =
        "The gradient of log_softmax from its result y and that result's gradient gy: gy - exp(y) * sum(gy), the sum "
        "along dim. ShapeError unless gy and y have one shape.",
    .infer = [](const Tensor& gy, const Tensor& y,
                int64_t dim) { return infer_backward(gy, y, dim, "log_softmax_backward"); },
    .kernels = {.cpu = backward<true, softmax_backward_cpu>,
                .cuda = STRATA_CUDA_KERNEL(backward<true, softmax_backward_cuda>)},
    .saves = "gy y",
    .backward =
        [](Backward& b, const Tensor& gy, const Tensor& y, int64_t dim) {
          const Tensor& g = b.gy();
          const Tensor p = y.exp();
          if (b.needs(0)) b.set(0, add(g, sum_along(g * p, dim), -1));
          if (b.needs(1)) b.set(1, -(g * p * sum_along(gy, dim)));
        },
    .cost = backward_cost,
    .samples = backward_samples<true>,
    .reference = reference_backward<true>,
}};

const Op<Tensor(const Tensor&, int64_t)> softmax_op{{
    .schema = "softmax(Tensor x, int dim) -> Tensor",
    .shard = "along dim",
    .doc =
        "exp(x) divided by its sum along dim, with the maximum subtracted first so that large values do not overflow. "
        "The result has x's shape and dtype. IndexError when dim is out of range, DTypeError unless x is floating.",
    .example = "Tensor p = softmax(from_span<float>(std::vector<float>{0, 0, 0, 0}, {2, 2}), -1); "
               "assert(p.select(0, 0).select(0, 1).item() == 0.5);",
    .infer = [](const Tensor& x, int64_t dim) { return infer_forward(x, dim, "softmax"); },
    .kernels = {.cpu = forward<false, softmax_forward_cpu>,
                .cuda = STRATA_CUDA_KERNEL(forward<false, softmax_forward_cuda>)},
    .saves = "result",
    .backward = [](Backward& b, const Tensor&, int64_t dim) { b.set(0, softmax_backward(b.gy(), b.y(), dim)); },
    .autocast = Autocast::full,
    .cost = forward_cost,
    .samples = forward_samples,
    .reference = reference_forward<false>,
}};

const Op<Tensor(const Tensor&, int64_t)> log_softmax_op{{
    .schema = "log_softmax(Tensor x, int dim) -> Tensor",
    .shard = "along dim",
    .doc = "The logarithm of softmax along dim, computed as x - logsumexp(x), which keeps the digits that the "
           "logarithm of "
           "a tiny softmax would lose. IndexError when dim is out of range, DTypeError unless x is floating.",
    .example = "Tensor y = log_softmax(from_span<float>(std::vector<float>{1000, 0}, {2}), 0); "
               "assert(y.select(0, 1).item() == -1000);",
    .infer = [](const Tensor& x, int64_t dim) { return infer_forward(x, dim, "log_softmax"); },
    .kernels = {.cpu = forward<true, softmax_forward_cpu>,
                .cuda = STRATA_CUDA_KERNEL(forward<true, softmax_forward_cuda>)},
    .saves = "result",
    .backward = [](Backward& b, const Tensor&, int64_t dim) { b.set(0, log_softmax_backward(b.gy(), b.y(), dim)); },
    .autocast = Autocast::full,
    .cost = forward_cost,
    .samples = forward_samples,
    .reference = reference_forward<true>,
}};

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) {
  return softmax_op(x, dim);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  return log_softmax_op(x, dim);
}
Tensor softmax_backward(const Tensor& gy, const Tensor& y, int64_t dim) {
  return softmax_backward_op(gy, y, dim);
}
Tensor log_softmax_backward(const Tensor& gy, const Tensor& y, int64_t dim) {
  return log_softmax_backward_op(gy, y, dim);
}
Tensor Tensor::softmax(int64_t dim) const {
  return strata::softmax(*this, dim);
}

}  // namespace strata
