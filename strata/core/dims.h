#pragma once
// Dims: a short list of int64 kept inline (no heap). Shapes, strides, dim lists and index lists are Dims.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// The largest rank of a tensor.
inline constexpr int kMaxDims = 8;

/// Throws ShapeError: a list of `n` sizes exceeds kMaxDims.
[[noreturn]] void throw_too_many_dims(int64_t n);

/// Up to kMaxDims numbers with a vector's interface. Longer lists throw ShapeError; indices are not checked.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> v) : Dims(std::span<const int64_t>(v.begin(), v.size())) {}
  Dims(std::span<const int64_t> v) {
    if (v.size() > kMaxDims) throw_too_many_dims(static_cast<int64_t>(v.size()));
    n_ = static_cast<int>(v.size());
    std::copy(v.begin(), v.end(), d_);
  }
  Dims(const std::vector<int64_t>& v) : Dims(std::span<const int64_t>(v)) {}
  /// `n` times `value`.
  static Dims filled(int n, int64_t value) {
    Dims r;
    if (n > kMaxDims) throw_too_many_dims(n);
    r.n_ = n;
    std::fill(r.d_, r.d_ + n, value);
    return r;
  }

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t& operator[](int64_t i) { return d_[i]; }
  int64_t operator[](int64_t i) const { return d_[i]; }
  int64_t back() const { return d_[n_ - 1]; }
  int64_t* begin() { return d_; }
  int64_t* end() { return d_ + n_; }
  const int64_t* begin() const { return d_; }
  const int64_t* end() const { return d_ + n_; }
  const int64_t* data() const { return d_; }

  void push_back(int64_t v) {
    if (n_ == kMaxDims) throw_too_many_dims(n_ + 1);
    d_[n_++] = v;
  }
  void insert(int64_t pos, int64_t v) {
    push_back(v);
    std::rotate(d_ + pos, d_ + n_ - 1, d_ + n_);
  }
  void erase(int64_t pos) {
    std::copy(d_ + pos + 1, d_ + n_, d_ + pos);
    --n_;
  }
  void resize(int n, int64_t fill = 0) {
    if (n > kMaxDims) throw_too_many_dims(n);
    for (int i = n_; i < n; ++i) d_[i] = fill;
    n_ = n;
  }
  /// Product of the entries; 1 for an empty list.
  int64_t product() const {
    int64_t p = 1;
    for (int i = 0; i < n_; ++i) p *= d_[i];
    return p;
  }
  bool contains(int64_t v) const { return std::find(begin(), end(), v) != end(); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  operator std::span<const int64_t>() const { return {d_, static_cast<size_t>(n_)}; }
  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  int64_t d_[kMaxDims];
  int n_ = 0;
};

/// Sizes, one for each dimension.
using Shape = Dims;
/// Elements from one index to the next, for each dimension.
using Strides = Dims;

/// "[2, 3, 4]".
std::string to_string(const Dims& d);
/// Row-major strides, in elements, of a contiguous tensor of this shape.
Strides contiguous_strides(const Shape& s);

}  // namespace strata
