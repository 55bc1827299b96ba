#include "strata/optim/storage_cpu.h"

#include <bit>

#include "strata/optim/rounding_inl.h"

namespace strata::optim {
namespace {

template <class T>
void widen(const T* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

void narrow_stochastically(const float* from, BFloat16* to, int64_t at, int64_t n, const Rounding& r) {
  std::array<uint32_t, kRandomElements> random{};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = (at + i) % kRandomElements;
    if (i == 0 || place == 0) random = philox({.seed = r.key}, static_cast<uint64_t>((at + i) / kRandomElements));
    const uint32_t word = random[static_cast<size_t>(place)];
    to[i].bits = stochastic_bf16(std::bit_cast<uint32_t>(from[i]), (r.remix ? remixed(word) : word) >> r.shift);
  }
}

}  // namespace

const float* widened(const void* array, DType dtype, int64_t at, int64_t n, float* buffer) {
  if (dtype == DType::f32) return static_cast<const float*>(array) + at;
  if (dtype == DType::bf16) {
    widen(static_cast<const BFloat16*>(array) + at, n, buffer);
  } else {
    widen(static_cast<const Half*>(array) + at, n, buffer);
  }
  return buffer;
}

float* writable(void* array, DType dtype, int64_t at, float* buffer) {
  return dtype == DType::f32 ? static_cast<float*>(array) + at : buffer;
}

void narrow(const float* from, void* array, DType dtype, int64_t at, int64_t n, const Rounding& rounding) {
  if (dtype == DType::f32) return;
  if (dtype == DType::f16) {
    Half* to = static_cast<Half*>(array) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = Half(from[i]);
  } else if (rounding.stochastic) {
    narrow_stochastically(from, static_cast<BFloat16*>(array) + at, at, n, rounding);
  } else {
    BFloat16* to = static_cast<BFloat16*>(array) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = BFloat16(from[i]);
  }
}

}  // namespace strata::optim
