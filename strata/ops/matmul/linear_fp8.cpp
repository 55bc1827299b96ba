// The records of linear layers in fp8, and their way under autocast's fp8 policy.

#include "strata/ops/matmul/linear_fp8.h"

#include <tuple>
#include <utility>

#include "strata/core/autocast_fp8.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/op_call.h"
#include "strata/core/samples.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/magnitudes.h"
#include "strata/ops/matmul/fp8_reference_inl.h"
#include "strata/ops/matmul/linear_fp8_way.h"
#include "strata/ops/matmul/scaled_inl.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr DTypeSet kTaken = dtype_bit(DType::f32) | dtype_bit(DType::bf16) | dtype_bit(DType::f16);
constexpr int64_t kUnit = 16;  // of sizes, for the tensor cores' loads

bool taken(DType t) {
  return (kTaken & dtype_bit(t)) != 0;
}
int64_t padded(int64_t rows) {
  return (rows + kUnit - 1) / kUnit * kUnit;
}
bool by_row(std::string_view op, const std::string& scaling) {
  check(scaling == "tensor" || scaling == "row", op, "the scaling is \"tensor\" or \"row\", got \"", scaling, "\"");
  return scaling == "row";
}
Fp8 format_of(std::string_view op, const std::string& name) {
  check(name == "e4m3" || name == "e5m2", op, "a format is \"e4m3\" or \"e5m2\", got \"", name, "\"");
  return name == "e4m3" ? kE4m3 : kE5m2;
}
// The product of all sizes but the last, which may be 0.
int64_t rows_of(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.size(d);
  return rows;
}
Tensor as_matrix(const Tensor& t) {
  return contiguous(t).view({rows_of(t), t.shape().back()});
}

// Writes what of `to` is defined.
template <class On>
void codes_kernel(On on, const Fp8CodesOf& to, const Tensor& x) {
  if (x.numel() == 0) {
    for (const Tensor& scale : {to.scale, to.scale_t})
      if (scale.defined()) fill_elements(scale, 1);
    if (to.codes_t.defined()) fill_elements(to.codes_t, 0);
    return;
  }
  if constexpr (on.cuda)
    fp8_codes_cuda(to, contiguous(x));
  else
    fp8_codes_cpu(to, contiguous(x));
}

// ---- fp8_codes ----

using CodesSignature = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Tensor&, const std::string&, const std::string&,
                                                                  bool, bool);

std::array<TensorMeta, 4> codes_infer(const Tensor& x, const std::string& format, const std::string& scaling,
                                      bool lying, bool transposed) {
  constexpr std::string_view op = "fp8_codes";
  format_of(op, format);
  const bool rows = by_row(op, scaling);
  check<DTypeError>(taken(x.dtype()), op, "takes f32, bf16 and f16, got ", x);
  check<ShapeError>(x.dim() == 2 && x.size(1) % kUnit == 0, op, "wants x [m, k] with k a multiple of 16, got ", x);
  const int64_t m = x.size(0), k = x.size(1);
  const auto meta = [&](const Shape& s, DType t) { return TensorMeta{s, t, x.device(), std::nullopt}; };
  const auto scale = [&](bool wanted, int64_t n) {
    return meta(!wanted ? Shape{0} : rows ? Shape{n, 1} : Shape{1}, DType::f32);
  };
  return {meta(lying ? Shape{m, k} : Shape{0}, DType::u8), scale(lying, m),
          meta(transposed ? Shape{k, padded(m)} : Shape{0}, DType::u8), scale(transposed, k)};
}

const Op<CodesSignature> fp8_codes_op{{
    .schema = "fp8_codes(Tensor x, str format=\"e4m3\", str scaling=\"tensor\", bool lying=true, bool transposed=true) "
              "-> (Tensor codes, Tensor scale, Tensor codes_t, Tensor scale_t)",
    .shard = "whole",
    .doc =
        "The fp8 codes (u8) of x [m, k] (k a multiple of 16) as it lies, [m, k], and transposed, [k, m rounded up to "
        "16] with zeros at the end, as fp8 products want their operands. Codes are those of x / scale, rounded to "
        "nearest even. A scale is the least power of two that leaves nothing past the format's largest number: one for "
        "all (scaling \"tensor\", f32 [1]), or one for each row of codes and one for each row of codes_t (\"row\", "
        "[m, 1] and [k, 1]). It is 1 for zeros, and NaN, as are all codes under it, where a number is not finite. With "
        "lying or transposed false those results are empty. Formats: https://arxiv.org/abs/2209.05433. Not "
        "differentiable.",
    .example =
        "auto x = fp8_codes(full({2, 16}, 896.0)); assert(x.scale.item() == 2 && x.codes_t.shape() == Shape({16, "
        "16}));",
    .infer = codes_infer,
    .kernels =
        on_each_device([](auto on, Tensor& codes, Tensor& scale, Tensor& codes_t, Tensor& scale_t, const Tensor& x,
                          const std::string& format, const std::string& scaling, bool lying, bool transposed) {
          Fp8CodesOf to{{}, {}, {}, {}, format_of("fp8_codes", format), scaling == "row"};
          if (lying) to.codes = codes, to.scale = scale;
          if (transposed) to.codes_t = codes_t, to.scale_t = scale_t;
          if (lying || transposed) codes_kernel(on, to, x);
        }),
    .dtypes = kTaken,
    .cost =
        [](const Tensor& x, const std::string&, const std::string&, bool lying, bool transposed) {
          return Cost{2.0 * x.numel(), static_cast<double>(2 * x.nbytes() + (lying + transposed) * x.numel())};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const Tensor& x, const char* format = "e4m3", const char* scaling = "tensor",
                               bool lying = true, bool transposed = true) -> Sample& {
            return s.add(x, format, scaling, lying, transposed).not_differentiable();
          };
          add(s.tensor({5, 32}));
          add(s.uniform({37, 48}, -1e-3, 1e-3), "e5m2");
          add(s.tensor({130, 144}), "e4m3", "row").named("a scale for each row");
          add(s.uniform({33, 272}, -900, 900), "e5m2", "row").named("a scale for each row, e5m2");
          add(s.tensor({300, 160})).named("more than a tile");
          add(s.tensor({40, 32}), "e4m3", "tensor", true, false).named("as it lies");
          add(s.tensor({40, 32}), "e4m3", "row", true, false).named("as it lies, by row");
          add(s.tensor({40, 32}), "e4m3", "tensor", false, true).named("transposed");
          add(s.tensor({40, 32}), "e4m3", "row", false, true).named("transposed, by row");
          add(s.tensor({4, 16}), "e4m3", "row", false, false).named("nothing");
          add(s.tensor({48, 20}).t()).named("strided");
          add(full({3, 16}, 0, s.dtype())).named("zeros");
          add(full({3, 16}, 0, s.dtype()), "e5m2", "row").named("zeros, by row");
          add(full({20, 16}, INFINITY, s.dtype())).named("infinite");
          add(full({20, 16}, NAN, s.dtype()), "e5m2", "row").named("not numbers");
          add(s.tensor({0, 32})).named("no rows");
          add(s.tensor({0, 32}), "e4m3", "row").named("no rows, by row");
          s.invalid<ShapeError>("k a multiple of 16", s.tensor({4, 20}));
          s.invalid<ShapeError>("wants x [m, k]", s.tensor({16}));
          s.invalid<ValueError>("a format is", s.tensor({4, 16}), "fp8");
          s.invalid<ValueError>("the scaling is", s.tensor({4, 16}), "e4m3", "block");
          s.invalid<DTypeError>("takes f32", full({4, 16}, 1, DType::i32));
          if (s.benchmarking()) {
            s.bench(s.tensor({2048, 1024}));
            s.bench(s.tensor({2048, 1024}), "e5m2", "row");
          }
        },
    .reference = fp8_reference::codes,
}};

Fp8Matrix codes_of(const Tensor& x, const std::string& format, const std::string& scaling, bool lying,
                   bool transposed) {
  Fp8Matrix m;
  std::tie(m.codes, m.scale, m.codes_t, m.scale_t) = fp8_codes_op(x, format, scaling, lying, transposed);
  return m;
}

// ---- the gradient ----

using BackwardSignature = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                     const Tensor&, const std::string&, DType);

std::array<TensorMeta, 2> backward_infer(const Tensor& gy, const Tensor& wt, const Tensor& scale_wt, const Tensor& xt,
                                         const Tensor& scale_xt, const std::string& scaling, DType weight_dtype) {
  constexpr std::string_view op = "linear_fp8_backward";
  const bool rows = by_row(op, scaling);
  check<DTypeError>(taken(gy.dtype()) && taken(weight_dtype), op, "takes f32, bf16 and f16, got ", gy, " and ",
                    weight_dtype);
  check<ShapeError>(gy.dim() == 2 && gy.size(1) % kUnit == 0, op, "wants gy [m, out] with out a multiple of 16, got ",
                    gy);
  const auto check_codes = [&](const Tensor& t, const Tensor& scale, int64_t cols, std::string_view name) {
    check<ShapeError>(t.dim() == 2 && t.size(1) == cols && t.size(0) % kUnit == 0 && scale.defined() &&
                          scale.shape() == (rows ? Shape{t.size(0), 1} : Shape{1}),
                      op, name, " is ", t, " with scales ", scale, ", wants [in, ", cols, "] and ",
                      rows ? "[in, 1]" : "[1]");
    check<DTypeError>(t.dtype() == DType::u8 && scale.dtype() == DType::f32, op, name, " is ", t, " with scales ",
                      scale, ", wants u8 and f32");
  };
  const int64_t m = gy.size(0), n = gy.size(1);
  if (wt.defined()) check_codes(wt, scale_wt, n, "w_codes_t");
  if (xt.defined()) check_codes(xt, scale_xt, padded(m), "x_codes_t");
  const auto meta = [&](const Shape& s, DType t) { return TensorMeta{s, t, gy.device(), std::nullopt}; };
  return {meta(wt.defined() ? Shape{m, wt.size(0)} : Shape{0}, gy.dtype()),
          meta(xt.defined() ? Shape{n, xt.size(0)} : Shape{0}, weight_dtype)};
}

template <class On>
void backward_kernel(On on, Tensor& gx, Tensor& gweight, const Tensor& gy, const Tensor& wt, const Tensor& scale_wt,
                     const Tensor& xt, const Tensor& scale_xt, const std::string& scaling, DType) {
  const Fp8Matrix g = codes_of(gy, "e5m2", scaling, wt.defined(), xt.defined());
  if (wt.defined()) products::fp8_product(on, gx, {g.codes, wt.t(), g.scale, scale_wt.t(), kE5m2, kE4m3}, {});
  if (xt.defined()) products::fp8_product(on, gweight, {g.codes_t, xt.t(), g.scale_t, scale_xt.t(), kE5m2, kE4m3}, {});
}

const Op<BackwardSignature> linear_fp8_backward_op{{
    .schema = "linear_fp8_backward(Tensor gy, Tensor? w_codes_t, Tensor? w_scale_t, Tensor? x_codes_t, Tensor? "
              "x_scale_t, str scaling=\"tensor\", DType weight_dtype=f32) -> (Tensor gx, Tensor gweight)",
    .shard = "whole",
    .internal = true,
    .doc = "The gradients of linear_fp8 for x [m, in] and weight [out, in] from that of its result, gy [m, out], which "
           "becomes e5m2: gx = gy weight and gweight = gy^T x with the transposed codes of fp8_codes, in [in, out] and "
           "[in, m rounded up to 16]. What has no codes is empty.",
    .infer = backward_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { backward_kernel(on, all...); }),
    .dtypes = kTaken,
    .cost =
        [](const Tensor& gy, const Tensor& wt, const Tensor&, const Tensor& xt, const Tensor&, const std::string&,
           DType t) {
          const auto m = static_cast<double>(gy.size(0)), n = static_cast<double>(gy.size(1)),
                     in = static_cast<double>(wt.defined()   ? wt.size(0)
                                              : xt.defined() ? xt.size(0)
                                                             : 0);
          return Cost{2 * m * n * in * (wt.defined() + xt.defined()),
                      2 * static_cast<double>(gy.nbytes()) + 4 * m * n +
                          (wt.defined() ? in * (n + m * size_of(gy.dtype())) : 0) +
                          (xt.defined() ? in * (m + n * size_of(t)) : 0)};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](int64_t m, int64_t n, int64_t k, const char* scaling, bool to_x, bool to_weight,
                               DType weight) -> Sample& {
            const Fp8Matrix w = fp8_codes(s.uniform({n, k}, -1, 1), "e4m3", scaling, false, true),
                            x = fp8_codes(s.uniform({m, k}, -1, 1), "e4m3", scaling, false, true);
            const Tensor none;
            return s
                .add(s.uniform({m, n}, -1, 1), to_x ? w.codes_t : none, to_x ? w.scale_t : none,
                     to_weight ? x.codes_t : none, to_weight ? x.scale_t : none, scaling, weight)
                .not_differentiable();
          };
          add(5, 32, 16, "tensor", true, true, DType::f32);
          add(37, 48, 64, "row", true, true, s.dtype()).named("a scale for each row");
          add(20, 16, 32, "tensor", true, false, DType::f32).named("for x");
          add(20, 16, 32, "row", false, true, DType::bf16).named("for the weight");
          add(0, 16, 32, "tensor", true, true, DType::f32).named("no rows");
          add(64, 96, 128, "tensor", true, true, s.dtype()).named("medium");
          const Fp8Matrix w = fp8_codes(s.tensor({32, 16}));
          s.invalid<ShapeError>("w_codes_t is", s.tensor({4, 48}), w.codes_t, w.scale_t, std::nullopt, std::nullopt);
          s.invalid<ShapeError>("out a multiple", s.tensor({4, 20}), w.codes_t, w.scale_t, std::nullopt, std::nullopt);
          if (s.benchmarking()) {
            const Fp8Matrix big = fp8_codes(s.tensor({1024, 1024}));
            s.bench(s.tensor({1024, 1024}), big.codes_t, big.scale_t, big.codes_t, big.scale_t);
          }
        },
    .reference = fp8_reference::backward,
    .tolerance = 64,
    .tolerance_reason =
        "Hopper's tensor cores add products of fp8 with about 14 bits, and hand the sums on to f32 by and by",
}};

// ---- the product ----

using CodedSignature = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                          const Tensor&, const Tensor&, const Tensor&,
                                                          const std::string&, bool, bool);

void check_layer(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check<DTypeError>(taken(x.dtype()) && taken(weight.dtype()), op, "takes f32, bf16 and f16, got ", x, " and ", weight);
  check<ShapeError>(x.dim() > 0 && weight.dim() == 2 && x.shape().back() == weight.size(1), op, "x is ", x,
                    " and weight is ", weight, ", wants [.., in] and [out, in]");
  check<ShapeError>(weight.size(0) % kUnit == 0 && weight.size(1) % kUnit == 0, op, "weight is ", weight,
                    ", wants both sizes multiples of 16");
  if (!bias.defined()) return;
  check<DTypeError>(bias.dtype() == x.dtype(), op, "bias is ", bias, ", wants x's dtype ", x.dtype());
  check<ShapeError>(bias.shape() == Shape{weight.size(0)}, op, "bias is ", bias, ", wants [", weight.size(0), "]");
}

std::array<TensorMeta, 3> coded_infer(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& w,
                                      const Tensor& scale_w, const Tensor& wt, const Tensor& scale_wt,
                                      const std::string& scaling, bool keeps, bool) {
  constexpr std::string_view op = "linear_fp8_coded";
  const bool rows = by_row(op, scaling);
  check_layer(op, x, weight, bias);
  const auto scales = [&](int64_t n) { return rows ? Shape{n, 1} : Shape{1}; };
  check<ShapeError>(w.shape() == weight.shape() && scale_w.shape() == scales(w.size(0)), op, "w_codes is ", w,
                    " with scales ", scale_w, ", wants the weight's shape ", weight.shape(), " and ",
                    rows ? "[out, 1]" : "[1]");
  check<DTypeError>(w.dtype() == DType::u8 && scale_w.dtype() == DType::f32, op, "w_codes is ", w, " with scales ",
                    scale_w, ", wants u8 and f32");
  // What backward reads must be there.
  check(keeps || !grad_enabled() || !weight.requires_grad(), op, "keeps is false, but the weight wants a gradient");
  check(!grad_enabled() || !x.requires_grad() || (wt.defined() && scale_wt.defined()), op,
        "x wants a gradient: it takes w_codes_t and w_scale_t");
  if (wt.defined() && scale_wt.defined())
    check<ShapeError>(
        wt.shape() == Shape{weight.size(1), weight.size(0)} && scale_wt.shape() == scales(weight.size(1)) &&
            wt.dtype() == DType::u8 && scale_wt.dtype() == DType::f32,
        op, "w_codes_t is ", wt, " with scales ", scale_wt, ", wants codes [in, out] and ", rows ? "[in, 1]" : "[1]");
  Shape y = x.shape();
  y[y.size() - 1] = weight.size(0);
  const int64_t in = weight.size(1), m = rows_of(x);
  const auto meta = [&](const Shape& s, DType t) { return TensorMeta{s, t, x.device(), std::nullopt}; };
  return {meta(y, x.dtype()), meta(keeps ? Shape{in, padded(m)} : Shape{0}, DType::u8),
          meta(!keeps ? Shape{0}
               : rows ? Shape{in, 1}
                      : Shape{1},
               DType::f32)};
}

template <class On>
void coded_kernel(On on, Tensor& y, Tensor& xt, Tensor& scale_xt, const Tensor& x, const Tensor& weight,
                  const Tensor& bias, const Tensor& w, const Tensor& scale_w, const Tensor&, const Tensor&,
                  const std::string& scaling, bool keeps, bool) {
  const Tensor rows = as_matrix(x);
  const bool many = scaling == "row";
  Fp8CodesOf to{products::make(rows.shape(), DType::u8, x),
                products::make(many ? Shape{rows.size(0), 1} : Shape{1}, DType::f32, x),
                {},
                {},
                kE4m3,
                many};
  if (keeps) to.codes_t = xt, to.scale_t = scale_xt;
  codes_kernel(on, to, rows);
  if (y.numel() == 0) return;
  Tensor out = y.view({y.numel() / y.shape().back(), y.shape().back()});
  products::fp8_product(on, out, {to.codes, w.t(), to.scale, scale_w.t(), kE4m3, kE4m3, true}, bias);
}

const Op<CodedSignature> linear_fp8_coded_op{{
    .schema = "linear_fp8_coded(Tensor x, Tensor weight, Tensor? bias, Tensor w_codes, Tensor w_scale, Tensor? "
              "w_codes_t, Tensor? w_scale_t, str scaling=\"tensor\", bool keeps=true, bool low_gradient=false) -> "
              "(Tensor y, Tensor x_codes_t, Tensor x_scale_t)",
    .shard = "whole",
    .internal = true,
    .doc = "linear_fp8 with the weight's codes (fp8_codes) given: of the weight itself only shape and dtype are read. "
           "With keeps the transposed codes of x, which the weight's gradient needs, are results, else empty. With "
           "low_gradient the weight's gradient has x's dtype, not the weight's.",
    .infer = coded_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { coded_kernel(on, all...); }),
    .saves = "w_codes_t:x w_scale_t:x x_codes_t x_scale_t",
    .backward =
        [](Backward& bw, const Tensor& x, const Tensor& weight, const Tensor&, const Tensor&, const Tensor&,
           const Tensor& wt, const Tensor& scale_wt, const std::string& scaling, bool, bool low_gradient) {
          if (grad_enabled()) throw AutogradError("linear_fp8", "its gradient cannot be differentiated");
          if (!bw.has_gy(0)) return;
          const Tensor gy = as_matrix(bw.gy(0)), none;
          if (bw.needs(0) || bw.needs(1)) {
            const bool to_x = bw.needs(0), to_weight = bw.needs(1);
            const DType dtype = low_gradient ? x.dtype() : bw.takes_f32(1) ? DType::f32 : weight.dtype();
            auto [gx, gweight] =
                linear_fp8_backward_op(gy, to_x ? wt : none, to_x ? scale_wt : none, to_weight ? bw.y(1) : none,
                                       to_weight ? bw.y(2) : none, scaling, dtype);
            if (to_x) bw.set(0, gx.view(x.shape()));
            if (to_weight) bw.set(1, std::move(gweight));
          }
          if (bw.needs(2)) bw.set(2, gy.sum({0}));
        },
    .dtypes = kTaken,
    .cost =
        [](const Tensor& x, const Tensor& weight, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
           const Tensor&, const std::string&, bool keeps, bool) {
          const auto n = static_cast<double>(x.numel()), out = static_cast<double>(weight.size(0));
          const double y = weight.size(1) == 0 ? 0 : n / static_cast<double>(weight.size(1)) * out;
          return Cost{2 * n * out, 2 * static_cast<double>(x.nbytes()) + (keeps ? 3 : 2) * n +
                                       static_cast<double>(weight.numel()) + y * size_of(x.dtype())};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const Tensor& x, int64_t out, bool bias, const char* scaling, bool keeps) -> Sample& {
            const Tensor weight = s.uniform({out, x.shape().back()}, -1, 1);
            const Fp8Matrix w = fp8_codes(weight, "e4m3", scaling);
            return s
                .add(x, weight, bias ? s.tensor({out}) : Tensor(), w.codes, w.scale, w.codes_t, w.scale_t, scaling,
                     keeps)
                .not_differentiable();
          };
          add(s.tensor({5, 32}), 16, true, "tensor", true);
          add(s.tensor({2, 19, 48}), 64, false, "row", true).named("a scale for each row");
          add(s.tensor({33, 64}), 48, true, "row", false).named("keeps nothing");
          add(s.tensor({32}), 16, true, "tensor", true).named("a vector");
          add(s.tensor({0, 32}), 16, true, "tensor", true).named("no rows");
          add(s.tensor({4, 0}), 16, true, "tensor", true).named("empty sum");
          add(s.tensor({2, 3, 0}), 16, false, "row", true).named("empty sum, by row");
          const Tensor weight = s.tensor({16, 32});
          const Fp8Matrix w = fp8_codes(weight);
          s.invalid<ShapeError>("w_codes is", s.tensor({4, 32}), weight, std::nullopt, w.codes_t, w.scale, w.codes_t,
                                w.scale_t);
          s.invalid<DTypeError>("wants u8 and f32", s.tensor({4, 32}), weight, std::nullopt, weight, w.scale, w.codes_t,
                                w.scale_t);
        },
    .reference = fp8_reference::coded,
    .tolerance = 64,
    .tolerance_reason = "Hopper's tensor cores add products of fp8 with about 14 bits",
}};

const detail::CaptureAnswer captures(cuda::capturing);

detail::Fp8Codes weight_codes(const Tensor& weight, const std::string& scaling) {
  const NoGrad guard;
  if (scaling == "tensor") cuda::want_magnitudes(weight);
  const Fp8Matrix w = codes_of(weight.detach(), "e4m3", scaling, true, true);
  return {w.codes, w.scale, w.codes_t, w.scale_t};
}

Tensor product_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const std::string& scaling,
                  bool low_gradient) {
  const detail::Fp8Codes w = detail::fp8_weight_codes(weight, scaling, weight_codes);
  const bool keeps = grad_enabled() && weight.requires_grad();
  return std::get<0>(linear_fp8_coded_op(x, weight, bias, w[0], w[1], w[2], w[3], scaling, keeps, low_gradient));
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&)> linear_fp8_op{{
    .schema = "linear_fp8(Tensor x, Tensor weight, Tensor? bias=None, str scaling=\"tensor\") -> Tensor",
    .doc =
        "linear(x, weight, bias) with the product in fp8: x [.., in] and weight [out, in], both sizes multiples of 16, "
        "become e4m3 codes with the scales of fp8_codes, sums run in f32 (on a Hopper card with about 14 bits), and "
        "the "
        "result is rounded once to x's dtype, which bias has too. weight may have another floating dtype. The "
        "gradients "
        "are products of the gradient's e5m2 codes with the e4m3 codes of weight and x, as if rounding were the "
        "identity; of x only codes are kept. They cannot be differentiated again. What autocast's fp8 policy calls for "
        "linear. https://arxiv.org/abs/2209.05433.",
    .example = "Tensor y = linear_fp8(full({2, 16}, 3.0), full({32, 16}, 0.5)); assert(y.shape() == Shape({2, 32}) && "
               "y.select(0, 0).to_vector<float>()[0] == 24);",
    .composed =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias, const std::string& scaling) {
          by_row("linear_fp8", scaling);
          check_layer("linear_fp8", x, weight, bias);
          return product_of(x, weight, bias, scaling, false);
        },
    .dtypes = kTaken,
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          s.add(s.tensor({5, 32}), s.tensor({16, 32}), s.tensor({16})).not_differentiable();
          s.add(s.tensor({2, 19, 48}), s.tensor({64, 48}), none, "row").named("by row").not_differentiable();
          s.add(s.tensor({32}), s.uniform({16, 32}, -1, 1, DType::f32)).named("a vector").not_differentiable();
          s.add(transpose(s.tensor({3, 2, 16}), 0, 1), s.tensor({16, 32}).t(), slice(s.tensor({64}), 0, 0, 64, 2))
              .named("strided")
              .not_differentiable();
          s.add(s.tensor({0, 32}), s.tensor({16, 32}), s.tensor({16})).named("no rows").not_differentiable();
          s.add(s.tensor({64, 96}), s.tensor({128, 96}), s.tensor({128})).named("medium").not_differentiable();
          s.add(full({4, 16}, 0, s.dtype()), s.tensor({16, 16}), s.tensor({16})).named("zeros").not_differentiable();
          s.invalid<ShapeError>("multiples of 16", s.tensor({4, 3}), s.tensor({5, 3}));
          s.invalid<ShapeError>("wants [.., in]", s.tensor({4, 32}), s.tensor({16, 16}));
          s.invalid<ShapeError>("bias is", s.tensor({4, 32}), s.tensor({16, 32}), s.tensor({32}));
          s.invalid<ValueError>("the scaling is", s.tensor({4, 32}), s.tensor({16, 32}), none, "block");
          if (s.benchmarking()) {
            s.bench(s.tensor({2048, 256}), s.tensor({1024, 256}), s.tensor({1024}));
            s.bench(s.tensor({4096, 512}), s.tensor({2048, 512}), s.tensor({2048}));
          }
        },
    .reference = fp8_reference::linear,
    .tolerance = 64,
    .tolerance_reason = "Hopper's tensor cores add products of fp8 with about 14 bits",
}};

}  // namespace

bool detail::linear_fp8_way(ArgsAt at, const Results& into) {
  const auto& x = *static_cast<const Tensor*>(at[0]);
  const auto& weight = *static_cast<const Tensor*>(at[1]);
  const auto& bias = *static_cast<const Tensor*>(at[2]);
  if (x.dim() < 2 || !linear_may_be_fp8(weight) || !taken(x.dtype()) || x.shape().back() != weight.size(1))
    return false;
  if (bias.defined() && (!taken(bias.dtype()) || bias.shape() != Shape{weight.size(0)})) return false;
  const AutocastSettings now = autocast_settings();
  // The bias first: see CallPath::call_unusual.
  const Tensor low_bias = autocast_tensor(bias, Autocast::low, now.dtype);
  into[0] =
      product_of(autocast_tensor(x, Autocast::low, now.dtype), weight, low_bias, now.fp8->scaling, now.low_gradients);
  return true;
}

bool detail::linear_may_be_fp8(const Tensor& weight) {
  return weight.dim() == 2 && weight.numel() > 0 && weight.size(0) % kUnit == 0 && weight.size(1) % kUnit == 0 &&
         taken(weight.dtype()) && may_be_fp8(weight);
}

Fp8Matrix fp8_codes(const Tensor& x, const std::string& format, const std::string& scaling, bool lying,
                    bool transposed) {
  return codes_of(x, format, scaling, lying, transposed);
}
Tensor linear_fp8(const Tensor& x, const Tensor& weight, const Tensor& bias, const std::string& scaling) {
  return linear_fp8_op(x, weight, bias, scaling);
}

}  // namespace strata
