#pragma once
// How a CUDA device orders elements: as unsigned integers of their width whose order is that of the values, NaN last.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata::sort_detail {

enum class Kind : int { natural, integer, floating };

// How elements of a dtype become keys.
struct Order {
  Kind kind;
  uint64_t infinity;  // its bits, for floating dtypes
};
inline Order order_of(DType t) {
  switch (t) {
    case DType::f16:
      return {Kind::floating, 0x7c00};
    case DType::bf16:
      return {Kind::floating, 0x7f80};
    case DType::f32:
      return {Kind::floating, 0x7f800000};
    case DType::f64:
      return {Kind::floating, 0x7ff0000000000000};
    default:
      return {t == DType::u8 || t == DType::boolean ? Kind::natural : Kind::integer, 0};
  }
}

// All NaNs get the largest key; zeros of both signs get one.
template <class B>
__device__ __forceinline__ B key_of(B bits, Order order) {
  constexpr B sign = static_cast<B>(B(1) << (8 * sizeof(B) - 1));
  if (order.kind == Kind::natural) return bits;
  if (order.kind == Kind::integer) return bits ^ sign;
  const B magnitude = bits & static_cast<B>(~sign);
  if (magnitude > static_cast<B>(order.infinity)) return static_cast<B>(~B(0));
  if (magnitude == 0) return sign;
  return bits & sign ? static_cast<B>(~bits) : static_cast<B>(bits | sign);
}

// The other way round; false where several values have the key: zeros and NaNs.
template <class B>
__device__ __forceinline__ bool value_of(B key, Order order, B& bits) {
  constexpr B sign = static_cast<B>(B(1) << (8 * sizeof(B) - 1));
  if (order.kind == Kind::natural) {
    bits = key;
  } else if (order.kind == Kind::integer) {
    bits = static_cast<B>(key ^ sign);
  } else {
    if (key == sign || key == static_cast<B>(~B(0))) return false;
    bits = static_cast<B>(key & sign ? key ^ sign : ~key);
  }
  return true;
}

// Keys that say all of their elements, for what is sorted without places: -0 stands below 0, and NaN, in the order of
// their bits, above all; those with a sign, whose keys would be the smallest, go round to the top.
template <class B>
struct WholeKeys {
  static constexpr B kSign = static_cast<B>(B(1) << (8 * sizeof(B) - 1));
  Kind kind;
  B round;  // how many NaN have a sign

  explicit WholeKeys(Order order)
      : kind(order.kind),
        round(order.kind == Kind::floating ? static_cast<B>(kSign - 1 - static_cast<B>(order.infinity)) : B(0)) {}
  __host__ __device__ __forceinline__ B key(B bits) const {
    if (kind == Kind::natural) return bits;
    if (kind == Kind::integer) return static_cast<B>(bits ^ kSign);
    return static_cast<B>((bits & kSign ? static_cast<B>(~bits) : static_cast<B>(bits | kSign)) - round);
  }
  __device__ __forceinline__ B value(B key) const {
    if (kind == Kind::natural) return key;
    if (kind == Kind::integer) return static_cast<B>(key ^ kSign);
    key = static_cast<B>(key + round);
    return key & kSign ? static_cast<B>(key ^ kSign) : static_cast<B>(~key);
  }
};

constexpr int64_t kWholeRow = int64_t{1} << 21;   // elements of a row that is sorted alone
constexpr int64_t kTogether = int64_t{1} << 30;   // elements that are sorted together
constexpr int64_t kNarrow = int64_t{UINT32_MAX};  // elements whose places fit in 32 bits

// Whether the results are dense rows themselves, so that kernels write them where they belong.
inline bool lies_as_rows(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim) {
  return (x.dim() == 0 || dim == x.dim() - 1) && values.is_contiguous() && indices.is_contiguous() &&
         values.raw_data() != x.raw_data();
}
// From rows of results to where the op wants them.
inline void place(Tensor& to, const Tensor& from, const Tensor& x, int64_t dim) {
  if (x.dim() == 0) return copy_elements(to, reshape(from, to.shape()));
  const Tensor t = transpose(from, dim, -1);
  copy_elements(to, to.shape() == t.shape() ? t : reshape(t, to.shape()));
}

inline Tensor make(const Shape& shape, DType t, const Tensor& x) {
  return empty({shape, t, x.device(), std::nullopt});
}
inline int bits_for(int64_t values) {
  int bits = 0;
  while (bits < 63 && (values - 1) >> bits != 0) ++bits;
  return bits;
}

}  // namespace strata::sort_detail
