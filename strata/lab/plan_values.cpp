#include "strata/lab/plan_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/samples.h"
#include "strata/lab/compare.h"
#include "strata/lab/value_json.h"

namespace strata::lab {
namespace {

// Benchmark samples are large and repeat themselves: this much tells what they look like.
constexpr int64_t kSeen = 1 << 18;

Tensor beginning(const Tensor& t) {
  if (t.numel() <= kSeen || !t.is_contiguous()) return t;
  return alias(t, {kSeen}, {1}, 0);
}

bool symmetric_positive(const Tensor& t, const std::vector<double>& v) {
  const int64_t n = t.dim() >= 2 ? t.shape().back() : 0;
  if (n < 2 || t.shape()[t.dim() - 2] != n || static_cast<int64_t>(v.size()) != t.numel()) return false;
  bool diagonal = true;
  for (size_t m = 0; m < v.size(); m += static_cast<size_t>(n * n))
    for (int64_t i = 0; i < n; ++i) {
      if (v[m + static_cast<size_t>(i * n + i)] <= 0) return false;
      for (int64_t j = 0; j < i; ++j) {
        const double below = v[m + static_cast<size_t>(i * n + j)], above = v[m + static_cast<size_t>(j * n + i)];
        if (std::abs(below - above) > 1e-3 * std::abs(below)) return false;
        diagonal = diagonal && below == 0;
      }
    }
  return !diagonal;
}

// Whether every row is in the order that `less` says, and some row is not all the same.
template <class Less>
bool in_order(const std::vector<double>& v, size_t row, Less less) {
  bool differs = false;
  for (size_t r = 0; r < v.size(); r += row)
    for (size_t i = 1; i < row; ++i) {
      if (less(v[r + i], v[r + i - 1])) return false;
      differs = differs || v[r + i] != v[r + i - 1];
    }
  return differs;
}

Tensor from_doubles(const std::vector<double>& v, const Shape& shape, DType dtype) {
  Tensor t = empty({shape, dtype, Device::cpu(), std::nullopt});
  dispatch_all(dtype, "contents", [&]<class T>() {
    T* p = t.data<T>();
    for (size_t i = 0; i < v.size(); ++i) p[i] = static_cast<T>(Scalar(v[i]).template to<T>());
  });
  return t;
}

}  // namespace

Contents Contents::like(const Tensor& t) {
  Contents c;
  if (t.numel() == 0) return c;
  const std::vector<double> v = values(beginning(t));
  c.low = std::numeric_limits<double>::max();
  c.high = -c.low;
  for (const double x : v) {
    if (!std::isfinite(x)) continue;
    c.low = std::min(c.low, x);
    c.high = std::max(c.high, x);
  }
  if (c.low > c.high) c.low = c.high = 0;
  // The largest numbers of a dtype, which some samples have, are not what other sizes are about.
  const double most = is_floating(t.dtype()) ? 1e4 : 0x1p52;
  c.low = std::clamp(c.low, -most, most);
  c.high = std::clamp(c.high, -most, most);
  if (t.dtype() == DType::boolean) return c;
  // A few numbers are in some order by chance.
  const size_t row =
      t.dim() > 0 && static_cast<int64_t>(v.size()) == t.numel() ? static_cast<size_t>(t.shape().back()) : 0;
  if (is_floating(t.dtype()) && symmetric_positive(t, v)) {
    c.kind = positive;
  } else if ((row > 4 || (row > 2 && v.front() == 0)) && in_order(v, row, std::less<>())) {
    c.kind = ascending;
  } else if (row > 4 && in_order(v, row, std::greater<>())) {
    c.kind = descending;
  }
  return c;
}

Contents Contents::grown(double factor) const {
  Contents c = *this;
  if (kind == tiled || kind == positive || low < 0) return c;
  if (kind == uniform && low < high) {
    c.high = std::max(low, std::floor((high + 1) * factor) - 1);
  } else {
    c.high = std::max(std::min(low, 1.0), std::floor(high * factor));
    if (low == high) c.low = c.high;
  }
  return c;
}

Contents Contents::from_the_front() const {
  Contents c = *this;
  if (kind != uniform || low >= 0) return c;
  c.high = std::max(high, -low - 1);
  c.low = 0;
  return c;
}

Tensor Contents::make(const Shape& shape, DType dtype, bool bounds) const {
  if (kind == tiled) return lab::tiled(of, shape);
  Samples samples(dtype);
  if (kind == spread) {
    int64_t list = 1;
    for (int64_t d = 0; d < std::min<int64_t>(dims, shape.size()); ++d) list *= shape[shape.size() - 1 - d];
    const auto step = static_cast<int64_t>((high - low + 1) / static_cast<double>(std::max<int64_t>(list, 1)));
    std::vector<double> v = values(samples.integers(shape, 0, std::max<int64_t>(step, 1), DType::i64));
    for (size_t i = 0; i < v.size(); ++i) v[i] += low + static_cast<double>(static_cast<int64_t>(i) % list * step);
    return from_doubles(v, shape, dtype);
  }
  const bool whole = is_integral(dtype, true);
  const Tensor t = whole ? samples.integers(shape, static_cast<int64_t>(low), static_cast<int64_t>(high) + 1, dtype)
                         : samples.uniform(shape, low, high, dtype);
  const bool square = shape.size() >= 2 && shape.back() == shape[shape.size() - 2];
  if (t.numel() == 0 || t.dim() == 0 || (kind == positive && !square)) return t;
  if (kind == uniform && !(bounds && whole)) return t;
  std::vector<double> v = values(t);
  if (kind == uniform) {
    v.front() = std::floor(high);
    v.back() = std::floor(low);
    return from_doubles(v, shape, dtype);
  }
  const auto row = static_cast<size_t>(shape.back());
  for (size_t r = 0; r < v.size(); r += row) {
    const std::span<double> one(v.data() + r, row);
    if (kind == positive) continue;
    one.front() = low;
    one.back() = high;
    if (kind == ascending) {
      std::sort(one.begin(), one.end());
    } else {
      std::sort(one.begin(), one.end(), std::greater<>());
    }
  }
  if (kind == positive) {
    // Small symmetric numbers beside a diagonal of ones.
    for (size_t m = 0; m < v.size(); m += row * row)
      for (size_t i = 0; i < row; ++i)
        for (size_t j = 0; j <= i; ++j) {
          const double unit = (v[m + i * row + j] - low) / std::max(high - low, 1e-9) - 0.5;
          v[m + i * row + j] = v[m + j * row + i] = i == j ? 1 + 0.5 * (unit + 0.5) : unit / static_cast<double>(row);
        }
  }
  return from_doubles(v, shape, dtype);
}

nlohmann::ordered_json Contents::json() const {
  static constexpr const char* kNames[] = {"uniform", "ascending", "descending", "positive", "tiled", "spread"};
  if (kind == tiled) return {{"kind", kNames[kind]}, {"of", tensor_json(of)}};
  if (kind == spread) return {{"kind", kNames[kind]}, {"low", low}, {"high", high}, {"dims", dims}};
  return {{"kind", kNames[kind]}, {"low", low}, {"high", high}};
}

}  // namespace strata::lab
