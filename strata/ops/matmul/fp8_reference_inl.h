#pragma once
// References of linear layers in fp8, in double: the nearest of all codes' numbers, and sums one after the other.

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/fp8.h"

namespace strata::fp8_reference {

// A matrix in rows, in double.
struct Rows {
  int64_t m = 0, k = 0;
  std::vector<double> v;
  double& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * k + c)]; }
  double at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * k + c)]; }
};
inline Rows rows_of(const Tensor& t) {
  const int64_t k = t.shape().back();
  int64_t m = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) m *= t.size(d);
  return {m, k, t.to(DType::f64).contiguous().to_vector<double>()};
}
inline Rows transposed(const Rows& x) {
  Rows y{x.k, x.m, std::vector<double>(x.v.size())};
  for (int64_t r = 0; r < x.m; ++r)
    for (int64_t c = 0; c < x.k; ++c) y.at(c, r) = x.at(r, c);
  return y;
}
inline Fp8 format_of(const std::string& name) {
  return name == "e4m3" ? kE4m3 : kE5m2;
}

// The scale of numbers up to `most`, by trying.
inline double scale_of(double most, Fp8 f) {
  if (!std::isfinite(most)) return std::numeric_limits<double>::quiet_NaN();
  if (most == 0) return 1;
  int power = -126;
  while (most > fp8_value(f.largest, f) * std::ldexp(1.0, power)) ++power;
  return std::ldexp(1.0, power);
}
// One for each row of x; by_row false: the same for all.
inline std::vector<double> scales_of(const Rows& x, Fp8 f, bool by_row) {
  std::vector<double> most(static_cast<size_t>(x.m), 0.0), scale;
  double all = 0;
  const auto larger = [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b; };
  for (int64_t r = 0; r < x.m; ++r)
    for (int64_t c = 0; c < x.k; ++c) {
      double& own = most[static_cast<size_t>(r)];
      own = larger(own, std::fabs(x.at(r, c)));
      all = larger(all, std::fabs(x.at(r, c)));
    }
  for (const double own : most) scale.push_back(scale_of(by_row ? own : all, f));
  return scale;
}
inline uint8_t code_of(double v, Fp8 f) {
  if (std::isnan(v)) return 0x7f;
  const double a = std::fabs(v);
  int best = 0;
  for (int c = 0; c <= f.largest; ++c) {
    const double now = std::fabs(fp8_value(static_cast<uint8_t>(c), f) - a),
                 then = std::fabs(fp8_value(static_cast<uint8_t>(best), f) - a);
    if (now < then || (now == then && c % 2 == 0)) best = c;
  }
  return static_cast<uint8_t>(best | (std::signbit(v) ? 0x80 : 0));
}

// Codes and scales as results of fp8_codes; `columns` wide.
inline std::tuple<Tensor, Tensor> coded_rows(const Rows& x, Fp8 f, bool by_row, int64_t columns) {
  const std::vector<double> scale = scales_of(x, f, by_row);
  std::vector<uint8_t> codes(static_cast<size_t>(x.m * columns));
  for (int64_t r = 0; r < x.m; ++r)
    for (int64_t c = 0; c < x.k; ++c)
      codes[static_cast<size_t>(r * columns + c)] = code_of(x.at(r, c) / scale[static_cast<size_t>(r)], f);
  std::vector<float> narrow(scale.begin(), scale.end());
  if (!by_row) narrow = {x.v.empty() ? 1.0f : narrow[0]};
  if (by_row && x.v.empty()) narrow.assign(static_cast<size_t>(x.m), 1.0f);
  const Shape shape = by_row ? Shape{x.m, 1} : Shape{1};
  return {from_span<uint8_t>(codes, {x.m, columns}), from_span<float>(narrow, shape)};
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor> codes(const Tensor& x, const std::string& format,
                                                        const std::string& scaling, bool lying, bool transpose) {
  const Rows rows = rows_of(x);
  const Fp8 f = format_of(format);
  const Tensor none = empty({{0}, DType::u8, Device::cpu(), std::nullopt}), no_scale = zeros({0});
  std::tuple<Tensor, Tensor> a{none, no_scale}, b{none, no_scale};
  if (lying) a = coded_rows(rows, f, scaling == "row", rows.k);
  if (transpose) b = coded_rows(transposed(rows), f, scaling == "row", (rows.m + 15) / 16 * 16);
  return {std::get<0>(a), std::get<1>(a), std::get<0>(b), std::get<1>(b)};
}

// What numbers become by their codes.
inline Rows rounded(const Rows& x, Fp8 f, bool by_row) {
  Rows y = x;
  const std::vector<double> scale = scales_of(x, f, by_row);
  for (int64_t r = 0; r < x.m; ++r)
    for (int64_t c = 0; c < x.k; ++c)
      y.at(r, c) = fp8_value(code_of(x.at(r, c) / scale[static_cast<size_t>(r)], f), f) * scale[static_cast<size_t>(r)];
  return y;
}
// The numbers of codes [rows, columns], of which the first `columns` count.
inline Rows decoded(const Tensor& codes, const Tensor& scale, int64_t columns) {
  const std::vector<double> s = scale.to(DType::f64).contiguous().to_vector<double>();
  const Rows raw = rows_of(codes);
  Rows y{codes.size(0), columns, std::vector<double>(static_cast<size_t>(codes.size(0) * columns))};
  for (int64_t r = 0; r < y.m; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y.at(r, c) = fp8_value(static_cast<uint8_t>(raw.at(r, c)), kE4m3) * s[s.size() == 1 ? 0 : static_cast<size_t>(r)];
  return y;
}
// a b^T + bias.
inline Tensor product(const Rows& a, const Rows& b, const Tensor& bias, Shape shape) {
  const std::vector<double> more = bias.defined() ? rows_of(bias).v : std::vector<double>();
  std::vector<double> y;
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t j = 0; j < b.m; ++j) {
      double sum = more.empty() ? 0 : more[static_cast<size_t>(j)];
      for (int64_t l = 0; l < a.k; ++l) sum += a.at(i, l) * b.at(j, l);
      y.push_back(sum);
    }
  return from_span<double>(y, shape);
}

inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const std::string& scaling) {
  Shape shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  const bool by_row = scaling == "row";
  return product(rounded(rows_of(x), kE4m3, by_row), rounded(rows_of(weight), kE4m3, by_row), bias, shape);
}

inline std::tuple<Tensor, Tensor, Tensor> coded(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                const Tensor& w, const Tensor& scale_w, const Tensor&, const Tensor&,
                                                const std::string& scaling, bool keeps, bool) {
  Shape shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  const Rows rows = rows_of(x);
  const auto [lying, scale, xt, scale_xt] =
      codes(from_span<double>(rows.v, {rows.m, rows.k}), "e4m3", scaling, true, keeps);
  return {product(rounded(rows, kE4m3, scaling == "row"), decoded(w, scale_w, w.size(1)), bias, shape), xt, scale_xt};
}

inline std::tuple<Tensor, Tensor> backward(const Tensor& gy, const Tensor& wt, const Tensor& scale_wt, const Tensor& xt,
                                           const Tensor& scale_xt, const std::string& scaling, DType) {
  const Rows g = rows_of(gy), gt = transposed(g);
  const bool by_row = scaling == "row";
  const Tensor none = zeros({0}, DType::f64);
  return {wt.defined() ? product(rounded(g, kE5m2, by_row), decoded(wt, scale_wt, g.k), {}, {g.m, wt.size(0)}) : none,
          xt.defined() ? product(rounded(gt, kE5m2, by_row), decoded(xt, scale_xt, g.m), {}, {g.k, xt.size(0)}) : none};
}

}  // namespace strata::fp8_reference
