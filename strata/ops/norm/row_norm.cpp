// The records of layer_norm, rms_norm and their gradients.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/cuda/magnitudes.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

struct Rows {
  int64_t rows = 1, n = 1;
};

Rows check_rows(const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias,
                std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  const int64_t k = normalized.size(), lead = x.dim() - k;
  bool fits = k >= 1 && lead >= 0;
  for (int64_t i = 0; fits && i < k; ++i) fits = x.shape()[lead + i] == normalized[i];
  check<ShapeError>(fits, op, "x is ", x, ", its last dimensions must be normalized_shape ", normalized);
  for (const Tensor* p : {&weight, &bias}) {
    if (!p->defined()) continue;
    const char* name = p == &weight ? "weight" : "bias";
    check<ShapeError>(p->shape() == normalized, op, name, " is ", *p, ", wanted ", normalized);
    check<DTypeError>(p->dtype() == x.dtype() || (p->dtype() == DType::f32 && is_reduced_floating(x.dtype())), op, name,
                      " is ", p->dtype(), ", x is ", x.dtype(), "; wanted the same, or f32 for f16 and bf16");
  }
  check<DTypeError>(!weight.defined() || !bias.defined() || weight.dtype() == bias.dtype(), op,
                    "weight and bias differ in dtype");
  Rows r;
  for (int64_t i = 0; i < x.dim(); ++i) (i < lead ? r.rows : r.n) *= x.shape()[i];
  return r;
}

Rows rows_of(const Tensor& x, const Shape& normalized) {
  Rows r;
  r.n = normalized.product();
  for (int64_t i = 0; i < x.dim() - normalized.size(); ++i) r.rows *= x.shape()[i];
  return r;
}

DType affine_dtype(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return weight.defined() ? weight.dtype() : bias.defined() ? bias.dtype() : x.dtype();
}

// The leading dimensions, with ones in place of the normalised ones.
TensorMeta statistic(const Tensor& x, const Shape& normalized) {
  Shape s = x.shape();
  for (int64_t i = x.dim() - normalized.size(); i < x.dim(); ++i) s[i] = 1;
  return {s, statistic_dtype(x.dtype()), x.device(), std::nullopt};
}

Dims last_dims(const Tensor& x, int64_t k) {
  Dims d;
  for (int64_t i = x.dim() - k; i < x.dim(); ++i) d.push_back(i);
  return d;
}

Tensor mean_keeping(const Tensor& x, const Dims& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(x.shape()[d]);
  return sum(x, dims, true) * (1 / n);
}

// Sum over all but the last k dimensions.
Tensor sum_leading(const Tensor& x, int64_t k) {
  Dims d;
  for (int64_t i = 0; i < x.dim() - k; ++i) d.push_back(i);
  return d.empty() ? x : sum(x, d, false);
}

double norm_cost_bytes(const Tensor& x, int64_t passes, const Shape& normalized) {
  return static_cast<double>(passes * x.nbytes() + 2 * normalized.product() * size_of(x.dtype()));
}

template <class On>
void run_forward(On on, bool rms, Tensor& y, void* mean, Tensor& rstd, const Tensor& x, const Shape& normalized,
                 const Tensor& weight, const Tensor& bias, double eps, const Tensor& residual = {},
                 void* sum = nullptr) {
  const Tensor xc = x.contiguous(), wc = packed(weight), bc = packed(bias), rc = packed(residual);
  const Rows r = rows_of(x, normalized);
  RowNorm c;
  c.dtype = x.dtype();
  c.affine = affine_dtype(x, weight, bias);
  c.rms = rms;
  c.rows = r.rows;
  c.n = r.n;
  c.eps = eps;
  c.x = xc.raw_data();
  c.weight = data_or_null(wc);
  c.bias = data_or_null(bc);
  c.residual = data_or_null(rc);
  c.sum = sum;
  c.y = y.raw_data();
  c.mean = mean;
  c.rstd = rstd.raw_data();
  if constexpr (on.cuda) {
    c.most = cuda::magnitudes_beside(y);
    row_norm_cuda(c);
  } else {
    row_norm_cpu(c);
  }
}

template <class On>
void run_backward(On on, bool rms, Tensor& gx, Tensor* gw, Tensor* gb, const Tensor& gy, const Tensor& x,
                  const Shape& normalized, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                  const Tensor& gsum) {
  const Tensor sc = packed(gsum);
  const Tensor gc = gy.contiguous(), xc = x.contiguous(), wc = packed(weight), mc = packed(mean),
               rc = rstd.contiguous();
  const Rows r = rows_of(x, normalized);
  RowNormBackward c;
  c.dtype = x.dtype();
  c.affine = gw ? gw->dtype() : x.dtype();
  c.rms = rms;
  c.rows = r.rows;
  c.n = r.n;
  c.grad_y = gc.raw_data();
  c.x = xc.raw_data();
  c.weight = data_or_null(wc);
  c.mean = data_or_null(mc);
  c.rstd = rc.raw_data();
  c.grad_sum = data_or_null(sc);
  c.grad_x = gx.raw_data();
  c.grad_weight = gw ? gw->raw_data() : nullptr;
  c.grad_bias = gb ? gb->raw_data() : nullptr;
  if constexpr (on.cuda) {
    c.most = cuda::magnitudes_beside(gx);
    row_norm_backward_cuda(c);
  } else {
    row_norm_backward_cpu(c);
  }
}

// ---- layer_norm --------------------------------------------------------------------------------------------------

using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Pair = std::tuple<Tensor, Tensor>;

Triple reference(bool rms, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias,
                 double eps) {
  const Rows r = rows_of(x, normalized);
  std::vector<double> y = x.to_vector<double>(), w, b, means, rstds;
  if (weight.defined()) w = weight.to_vector<double>();
  if (bias.defined()) b = bias.to_vector<double>();
  for (int64_t i = 0; i < r.rows; ++i) {
    double* row = y.data() + i * r.n;
    double mean = 0, var = 0;
    for (int64_t j = 0; j < r.n && !rms; ++j) mean += row[j] / static_cast<double>(r.n);
    for (int64_t j = 0; j < r.n; ++j) var += (row[j] - mean) * (row[j] - mean) / static_cast<double>(r.n);
    const double rstd = 1 / std::sqrt(var + eps);
    for (int64_t j = 0; j < r.n; ++j) {
      row[j] = (row[j] - mean) * rstd;
      if (!w.empty()) row[j] *= w[j];
      if (!b.empty()) row[j] += b[j];
    }
    means.push_back(mean);
    rstds.push_back(rstd);
  }
  const Shape s = statistic(x, normalized).shape;
  return Triple(from_span<double>(y, x.shape()), from_span<double>(means, s), from_span<double>(rstds, s));
}

const Op<Triple(const Tensor&, const Tensor&, const Shape&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
    layer_norm_backward_op{{
        .schema = "layer_norm_backward(Tensor gy, Tensor x, int[] normalized_shape, Tensor? weight, Tensor mean, "
                  "Tensor rstd, "
                  "Tensor? gsum=None) -> (Tensor gx, Tensor gweight, Tensor gbias)",
        .shard = "rows normalized_shape",
        .internal = true,
        .doc = "The gradients of layer_norm for x, weight and bias, from the gradient gy of its result and the mean "
               "and rstd "
               "that it saved; where gsum is given, it is added to gx. The weight's gradient is summed over the rows "
               "in f32 in a fixed order.",
        .infer =
            [](const Tensor& gy, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& mean,
               const Tensor& rstd, const Tensor& gsum) {
              check_rows(x, normalized, weight, {}, "layer_norm_backward");
              check<ShapeError>(gy.shape() == x.shape(), "layer_norm_backward", "gy is ", gy, ", x is ", x);
              check<DTypeError>(gy.dtype() == x.dtype(), "layer_norm_backward", "gy is ", gy.dtype(), ", x is ",
                                x.dtype());
              check<ShapeError>(!gsum.defined() || (gsum.shape() == x.shape() && gsum.dtype() == x.dtype()),
                                "layer_norm_backward", "gsum must be like x");
              const TensorMeta s = statistic(x, normalized);
              for (const Tensor* t : {&mean, &rstd})
                check<ShapeError>(t->shape() == s.shape && t->dtype() == s.dtype, "layer_norm_backward",
                                  "mean and rstd must be ", s.shape, " ", s.dtype, ", got ", *t);
              const TensorMeta w{normalized, affine_dtype(x, weight, {}), x.device(), std::nullopt};
              return std::array<TensorMeta, 3>{like(x), w, w};
            },
        .kernels = on_each_device([](auto on, Tensor& gx, Tensor& gw, Tensor& gb, const Tensor& gy, const Tensor& x,
                                     const Shape& normalized, const Tensor& weight, const Tensor& mean,
                                     const Tensor& rstd, const Tensor& gsum) {
          run_backward(on, false, gx, &gw, &gb, gy, x, normalized, weight, mean, rstd, gsum);
        }),
        .composed =
            [](const Tensor& gy, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& mean,
               const Tensor& rstd, const Tensor& gsum) {
              const Dims dims = last_dims(x, normalized.size());
              const Tensor xhat = add(x, mean, -1) * rstd, g = weight.defined() ? gy * weight : gy;
              Tensor gx = rstd * add(add(g, mean_keeping(g, dims), -1), xhat * mean_keeping(g * xhat, dims), -1);
              if (gsum.defined()) gx = gx + gsum;
              const DType affine = affine_dtype(x, weight, {});
              return Triple(gx.to(x.dtype()), sum_leading(gy * xhat, normalized.size()).to(affine),
                            sum_leading(gy, normalized.size()).to(affine));
            },
        .cost =
            [](const Tensor& gy, const Tensor&, const Shape& n, const Tensor&, const Tensor&, const Tensor&,
               const Tensor&) {
              return Cost{14.0 * gy.numel(), norm_cost_bytes(gy, 3, n)};
            },
        .samples =
            [](Samples& s) {
              const DType st = statistic_dtype(s.dtype());
              s.add(s.tensor({6, 5}), s.tensor({6, 5}), Shape{5}, s.tensor({5}), s.tensor({6, 1}, st),
                    s.uniform({6, 1}, 0.5, 2, st));
              s.add(s.tensor({2, 3, 20}), s.tensor({2, 3, 20}), Shape{3, 20}, std::nullopt, s.tensor({2, 1, 1}, st),
                    s.uniform({2, 1, 1}, 0.5, 2, st), s.tensor({2, 3, 20}));
              s.add(s.tensor({0, 5}), s.tensor({0, 5}), Shape{5}, s.tensor({5}), s.tensor({0, 1}, st),
                    s.tensor({0, 1}, st));
              // A row that the blocks of a cluster share.
              s.add(s.tensor({2, 8208}), s.tensor({2, 8208}), Shape{8208}, s.tensor({8208}), s.tensor({2, 1}, st),
                    s.uniform({2, 1}, 0.5, 2, st));
              s.invalid<ShapeError>("gy is", s.tensor({6, 4}), s.tensor({6, 5}), Shape{5}, s.tensor({5}),
                                    s.tensor({6, 1}, st), s.tensor({6, 1}, st));
              s.invalid<ShapeError>("mean and rstd", s.tensor({6, 5}), s.tensor({6, 5}), Shape{5}, s.tensor({5}),
                                    s.tensor({6}, st), s.tensor({6, 1}, st));
              if (s.benchmarking())
                s.bench(s.tensor({16384, 1024}), s.tensor({16384, 1024}), Shape{1024}, s.tensor({1024}),
                        s.tensor({16384, 1}, st), s.uniform({16384, 1}, 0.5, 2, st));
            },
    }};

// What other ops gave x as its gradient (the sum beside a residual branch): the kernel adds it, so it is taken from the
// pass, which gets it back within the new gradient. Nothing where it may not be taken or has another dtype.
Tensor taken_sum(Backward& b, const Tensor& x) {
  Tensor* const sum = b.needs(0) ? b.gathered(0) : nullptr;
  const bool fits = sum != nullptr && sum->dtype() == x.dtype() && sum->shape() == x.shape();
  return fits && sum->device() == b.gy(0).device() ? std::exchange(*sum, Tensor()) : Tensor();
}

// What reaches x through the saved statistics, where something differentiates these too.
Tensor through_statistics(Backward& b, const Tensor& x, int64_t n, Tensor gx, int mean_at, int rstd_at, bool rms) {
  const double inv = 1.0 / static_cast<double>(n);
  const auto put = [&](const Tensor& t) {
    gx = gx.defined() ? gx + t.to(gx.dtype()) : t.expand(x.shape()).to(x.dtype());
  };
  if (!rms && b.has_gy(mean_at)) put(b.gy(mean_at) * inv);
  if (b.has_gy(rstd_at)) {
    const Tensor& rstd = b.y(rstd_at);
    const Tensor d = rms ? x : add(x, b.y(mean_at), -1);
    put(d * (b.gy(rstd_at) * rstd * rstd * rstd * -inv));
  }
  return gx;
}

const Op<Triple(const Tensor&, const Shape&, const Tensor&, const Tensor&, double)> layer_norm_op{{
    .schema = "layer_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) "
              "-> (Tensor y, Tensor mean, Tensor rstd)",
    .shard = "rows normalized_shape",
    .shown = 1,
    .doc =
        "(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which must be normalized_shape; the "
        "variance has divisor n (Ba et al., arXiv:1607.06450). mean and rstd = 1 / sqrt(var + eps) are kept for the "
        "gradient, in f32 (f64 for f64), with ones in place of the normalised dimensions. weight and bias may be f32 "
        "where x is bf16 or f16. ShapeError when the shapes do not fit. The function layer_norm returns y alone.",
    .example = "Tensor y = layer_norm(from_span<float>(std::vector<float>{1, 3}, {1, 2}), {2}, {}, {}, 0.0); "
               "assert(y.select(1, 1).item() == 1);",
    .infer =
        [](const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias, double) {
          check_rows(x, normalized, weight, bias, "layer_norm");
          const TensorMeta s = statistic(x, normalized);
          return std::array<TensorMeta, 3>{like(x), s, s};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x,
                                 const Shape& normalized, const Tensor& weight, const Tensor& bias, double eps) {
      run_forward(on, false, y, mean.raw_data(), rstd, x, normalized, weight, bias, eps);
    }),
    .saves = "x weight mean rstd",
    .backward =
        [](Backward& b, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias, double) {
          Tensor gx;
          if (b.has_gy(0)) {
            auto [g, gw, gb] = layer_norm_backward_op(b.gy(0), x, normalized, weight, b.y(1), b.y(2), taken_sum(b, x));
            gx = g;
            if (weight.defined() && b.needs(1)) b.set(1, gw);
            if (bias.defined() && b.needs(2)) b.set(2, gb.to(bias.dtype()));
          }
          if (b.needs(0)) b.set(0, through_statistics(b, x, normalized.product(), gx, 1, 2, false));
        },
    .cost =
        [](const Tensor& x, const Shape& n, const Tensor&, const Tensor&, double) {
          return Cost{8.0 * x.numel(), norm_cost_bytes(x, 2, n)};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 5}), Shape{5}, s.tensor({5}), s.tensor({5}), 1e-5);
          s.add(s.tensor({2, 3, 20}), Shape{3, 20}, s.tensor({3, 20}), std::nullopt, 1e-3);
          s.add(s.tensor({7, 70}), Shape{70}).named("longer than a vector");
          s.add(s.uniform({4, 16}, 99, 101), Shape{16}, s.tensor({16}), s.tensor({16}))
              .not_differentiable()
              .named("large mean");
          s.add(s.tensor({0, 5}), Shape{5}, s.tensor({5}), s.tensor({5}));
          s.invalid<ShapeError>("normalized_shape", s.tensor({2, 5}), Shape{4});
          s.invalid<ShapeError>("normalized_shape", s.tensor({2, 5}), Shape{});
          s.invalid<ShapeError>("weight is", s.tensor({2, 5}), Shape{5}, s.tensor({4}));
          s.invalid<DTypeError>("floating", s.tensor({2, 5}, DType::i64), Shape{5});
          if (s.benchmarking()) s.bench(s.tensor({16384, 1024}), Shape{1024}, s.tensor({1024}), s.tensor({1024}));
        },
    .reference = [](const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias,
                    double eps) { return reference(false, x, normalized, weight, bias, eps); },
}};

// ---- rms_norm ----------------------------------------------------------------------------------------------------

const Op<Pair(const Tensor&, const Tensor&, const Shape&, const Tensor&, const Tensor&, const Tensor&)>
    rms_norm_backward_op{{
        .schema = "rms_norm_backward(Tensor gy, Tensor x, int[] normalized_shape, Tensor? weight, Tensor rstd, "
                  "Tensor? gsum=None) -> (Tensor gx, Tensor gweight)",
        .shard = "rows normalized_shape",
        .internal = true,
        .doc = "The gradients of rms_norm for x and weight, from the gradient gy of its result and the rstd that it "
               "saved. The "
               "weight's gradient is summed over the rows in f32 in a fixed order.",
        .infer =
            [](const Tensor& gy, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& rstd,
               const Tensor& gsum) {
              check_rows(x, normalized, weight, {}, "rms_norm_backward");
              check<ShapeError>(gy.shape() == x.shape(), "rms_norm_backward", "gy is ", gy, ", x is ", x);
              check<DTypeError>(gy.dtype() == x.dtype(), "rms_norm_backward", "gy is ", gy.dtype(), ", x is ",
                                x.dtype());
              check<ShapeError>(!gsum.defined() || (gsum.shape() == x.shape() && gsum.dtype() == x.dtype()),
                                "rms_norm_backward", "gsum must be like x");
              const TensorMeta s = statistic(x, normalized);
              check<ShapeError>(rstd.shape() == s.shape && rstd.dtype() == s.dtype, "rms_norm_backward",
                                "rstd must be ", s.shape, " ", s.dtype, ", got ", rstd);
              return std::array<TensorMeta, 2>{
                  like(x), TensorMeta{normalized, affine_dtype(x, weight, {}), x.device(), std::nullopt}};
            },
        .kernels =
            on_each_device([](auto on, Tensor& gx, Tensor& gw, const Tensor& gy, const Tensor& x,
                              const Shape& normalized, const Tensor& weight, const Tensor& rstd, const Tensor& gsum) {
              run_backward(on, true, gx, &gw, nullptr, gy, x, normalized, weight, {}, rstd, gsum);
            }),
        .composed =
            [](const Tensor& gy, const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& rstd,
               const Tensor& gsum) {
              const Dims dims = last_dims(x, normalized.size());
              const Tensor xhat = x * rstd, g = weight.defined() ? gy * weight : gy;
              Tensor gx = rstd * add(g, xhat * mean_keeping(g * xhat, dims), -1);
              if (gsum.defined()) gx = gx + gsum;
              return Pair(gx.to(x.dtype()), sum_leading(gy * xhat, normalized.size()).to(affine_dtype(x, weight, {})));
            },
        .cost =
            [](const Tensor& gy, const Tensor&, const Shape& n, const Tensor&, const Tensor&, const Tensor&) {
              return Cost{11.0 * gy.numel(), norm_cost_bytes(gy, 3, n)};
            },
        .samples =
            [](Samples& s) {
              const DType st = statistic_dtype(s.dtype());
              s.add(s.tensor({6, 5}), s.tensor({6, 5}), Shape{5}, s.tensor({5}), s.uniform({6, 1}, 0.5, 2, st));
              s.add(s.tensor({2, 3, 20}), s.tensor({2, 3, 20}), Shape{20}, std::nullopt,
                    s.uniform({2, 3, 1}, 0.5, 2, st), s.tensor({2, 3, 20}));
              // A row that the blocks of a cluster share.
              s.add(s.tensor({2, 8208}), s.tensor({2, 8208}), Shape{8208}, s.tensor({8208}),
                    s.uniform({2, 1}, 0.5, 2, st), s.tensor({2, 8208}));
              s.invalid<ShapeError>("gy is", s.tensor({6, 4}), s.tensor({6, 5}), Shape{5}, s.tensor({5}),
                                    s.tensor({6, 1}, st));
              if (s.benchmarking())
                s.bench(s.tensor({16384, 1024}), s.tensor({16384, 1024}), Shape{1024}, s.tensor({1024}),
                        s.uniform({16384, 1}, 0.5, 2, st));
            },
    }};

const Op<Pair(const Tensor&, const Shape&, const Tensor&, double)> rms_norm_op{{
    .schema =
        "rms_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, float eps=1e-06) -> (Tensor y, Tensor rstd)",
    .shard = "rows normalized_shape",
    .shown = 1,
    .doc =
        "x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which must be normalized_shape (Zhang and "
        "Sennrich, "
        "arXiv:1910.07467). rstd = 1 / sqrt(mean(x^2) + eps) is kept for the gradient, in f32 (f64 for f64). weight "
        "may "
        "be f32 where x is bf16 or f16. ShapeError when the shapes do not fit. The function rms_norm returns y alone.",
    .example = "Tensor y = rms_norm(from_span<float>(std::vector<float>{2, -2}, {1, 2}), {2}, {}, 0.0); "
               "assert(y.select(1, 1).item() == -1);",
    .infer =
        [](const Tensor& x, const Shape& normalized, const Tensor& weight, double) {
          check_rows(x, normalized, weight, {}, "rms_norm");
          return std::array<TensorMeta, 2>{like(x), statistic(x, normalized)};
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, Tensor& rstd, const Tensor& x, const Shape& normalized, const Tensor& weight,
           double eps) { run_forward(on, true, y, nullptr, rstd, x, normalized, weight, {}, eps); }),
    .saves = "x weight rstd",
    .backward =
        [](Backward& b, const Tensor& x, const Shape& normalized, const Tensor& weight, double) {
          Tensor gx;
          if (b.has_gy(0)) {
            auto [g, gw] = rms_norm_backward_op(b.gy(0), x, normalized, weight, b.y(1), taken_sum(b, x));
            gx = g;
            if (weight.defined() && b.needs(1)) b.set(1, gw);
          }
          if (b.needs(0)) b.set(0, through_statistics(b, x, normalized.product(), gx, -1, 1, true));
        },
    .cost =
        [](const Tensor& x, const Shape& n, const Tensor&, double) {
          return Cost{5.0 * x.numel(), norm_cost_bytes(x, 2, n)};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 5}), Shape{5}, s.tensor({5}), 1e-6);
          s.add(s.tensor({2, 3, 20}), Shape{3, 20}, s.tensor({3, 20}), 1e-3);
          s.add(s.tensor({7, 70}), Shape{70}).named("longer than a vector");
          s.add(s.tensor({0, 5}), Shape{5}, s.tensor({5}));
          s.invalid<ShapeError>("normalized_shape", s.tensor({2, 5}), Shape{4});
          s.invalid<ShapeError>("weight is", s.tensor({2, 5}), Shape{5}, s.tensor({4}));
          s.invalid<DTypeError>("floating", s.tensor({2, 5}, DType::i64), Shape{5});
          if (s.benchmarking()) s.bench(s.tensor({16384, 1024}), Shape{1024}, s.tensor({1024}));
        },
    .reference =
        [](const Tensor& x, const Shape& normalized, const Tensor& weight, double eps) {
          auto [y, mean, rstd] = reference(true, x, normalized, weight, {}, eps);
          return Pair(y, rstd);
        },
}};

// ---- residual connections ------------------------------------------------------------------------------------------

void check_residual(const Tensor& x, const Tensor& residual, std::string_view op) {
  check<ShapeError>(residual.shape() == x.shape(), op, "x is ", x, ", residual is ", residual);
  check<DTypeError>(residual.dtype() == x.dtype(), op, "x is ", x.dtype(), ", residual is ", residual.dtype());
}

using Quadruple = std::tuple<Tensor, Tensor, Tensor, Tensor>;

const Op<Quadruple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double)> add_layer_norm_op{{
    .schema = "add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias, float eps=1e-05) "
              "-> (Tensor y, Tensor sum, Tensor mean, Tensor rstd)",
    .shard = "... n!, ... n!, n!, n! -> ... n!, ... n!, ... s!, ... s!",
    .shown = 2,
    .doc = "sum = x + residual and y = layer_norm(sum) over the last dimension, in one pass over memory: a transformer "
           "block's "
           "residual connection and the norm behind it. What is normalised is the sum before it is rounded. ShapeError "
           "unless "
           "x and residual have one shape and weight and bias fit its last dimension.",
    .infer =
        [](const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double) {
          check_residual(x, residual, "add_layer_norm");
          check(weight.defined() && bias.defined(), "add_layer_norm", "needs a weight and a bias");
          check_rows(x, weight.shape(), weight, bias, "add_layer_norm");
          check<ShapeError>(weight.dim() == 1, "add_layer_norm", "weight must have one dimension, got ", weight);
          const TensorMeta s = statistic(x, weight.shape());
          return std::array<TensorMeta, 4>{like(x), like(x), s, s};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Tensor& total, Tensor& mean, Tensor& rstd, const Tensor& x,
                                 const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
      run_forward(on, false, y, mean.raw_data(), rstd, x, weight.shape(), weight, bias, eps, residual,
                  total.raw_data());
    }),
    .saves = "weight sum mean rstd",
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, const Tensor& weight, const Tensor&, double) {
          const Tensor total = b.y(1);
          Tensor gx = b.has_gy(1) ? b.gy(1) : Tensor();
          if (b.has_gy(0)) {
            auto [g, gw, gb] = layer_norm_backward_op(b.gy(0), total, weight.shape(), weight, b.y(2), b.y(3), gx);
            gx = g;
            b.set(2, gw);
            b.set(3, gb);
          }
          gx = through_statistics(b, total, weight.numel(), gx, 2, 3, false);
          b.set(0, gx);
          b.set(1, gx);
        },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor& weight, const Tensor&, double) {
          return Cost{9.0 * x.numel(), norm_cost_bytes(x, 4, weight.shape())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 5}), s.tensor({6, 5}), s.tensor({5}), s.tensor({5}), 1e-5);
          s.add(s.tensor({2, 3, 40}), s.tensor({2, 3, 40}), s.tensor({40}), s.tensor({40}), 1e-3);
          s.invalid<ShapeError>("residual is", s.tensor({6, 5}), s.tensor({6, 4}), s.tensor({5}), s.tensor({5}));
          s.invalid<ShapeError>("normalized_shape", s.tensor({6, 5}), s.tensor({6, 5}), s.tensor({4}), s.tensor({4}));
          if (s.benchmarking())
            s.bench(s.tensor({16384, 1024}), s.tensor({16384, 1024}), s.tensor({1024}), s.tensor({1024}));
        },
    .reference =
        [](const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
          const Tensor total = x + residual;
          auto [y, mean, rstd] = reference(false, total, weight.shape(), weight, bias, eps);
          return Quadruple(y, total, mean, rstd);
        },
}};

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, double)> add_rms_norm_op{{
    .schema = "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps=1e-06) -> (Tensor y, Tensor sum, "
              "Tensor rstd)",
    .shard = "... n!, ... n!, n! -> ... n!, ... n!, ... s!",
    .shown = 2,
    .doc = "sum = x + residual and y = rms_norm(sum) over the last dimension, in one pass over memory: a transformer "
           "block's "
           "residual connection and the norm behind it. What is normalised is the sum before it is rounded. ShapeError "
           "unless "
           "x and residual have one shape and weight fits its last dimension.",
    .infer =
        [](const Tensor& x, const Tensor& residual, const Tensor& weight, double) {
          check_residual(x, residual, "add_rms_norm");
          check(weight.defined(), "add_rms_norm", "needs a weight");
          check_rows(x, weight.shape(), weight, {}, "add_rms_norm");
          check<ShapeError>(weight.dim() == 1, "add_rms_norm", "weight must have one dimension, got ", weight);
          return std::array<TensorMeta, 3>{like(x), like(x), statistic(x, weight.shape())};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Tensor& total, Tensor& rstd, const Tensor& x,
                                 const Tensor& residual, const Tensor& weight, double eps) {
      run_forward(on, true, y, nullptr, rstd, x, weight.shape(), weight, {}, eps, residual, total.raw_data());
    }),
    .saves = "weight sum rstd",
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, const Tensor& weight, double) {
          const Tensor total = b.y(1);
          Tensor gx = b.has_gy(1) ? b.gy(1) : Tensor();
          if (b.has_gy(0)) {
            auto [g, gw] = rms_norm_backward_op(b.gy(0), total, weight.shape(), weight, b.y(2), gx);
            gx = g;
            b.set(2, gw);
          }
          gx = through_statistics(b, total, weight.numel(), gx, -1, 2, true);
          b.set(0, gx);
          b.set(1, gx);
        },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor& weight, double) {
          return Cost{6.0 * x.numel(), norm_cost_bytes(x, 4, weight.shape())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 5}), s.tensor({6, 5}), s.tensor({5}), 1e-6);
          s.add(s.tensor({2, 3, 40}), s.tensor({2, 3, 40}), s.tensor({40}), 1e-3);
          s.invalid<ShapeError>("residual is", s.tensor({6, 5}), s.tensor({6, 4}), s.tensor({5}));
          if (s.benchmarking()) s.bench(s.tensor({16384, 1024}), s.tensor({16384, 1024}), s.tensor({1024}));
        },
    .reference =
        [](const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
          const Tensor total = x + residual;
          auto [y, mean, rstd] = reference(true, total, weight.shape(), weight, {}, eps);
          return Triple(y, total, rstd);
        },
}};

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return std::get<0>(layer_norm_op(x, normalized_shape, weight, bias, eps));
}
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps) {
  return std::get<0>(rms_norm_op(x, normalized_shape, weight, eps));
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                          const Tensor& bias, double eps) {
  auto [y, total, mean, rstd] = add_layer_norm_op(x, residual, weight, bias, eps);
  return {y, total};
}
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  auto [y, total, rstd] = add_rms_norm_op(x, residual, weight, eps);
  return {y, total};
}

}  // namespace strata
