#include <algorithm>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/loops.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/kernels.h"

namespace strata {
namespace {

constexpr int64_t kBlock = 512;  // elements of a buffer: 4 buffers of 8 bytes an element fit in any L1 cache
constexpr int kMostInputs = 3;
constexpr int64_t kStreamBytes = int64_t{32} << 20;

DType compute_type(DType t) { return is_reduced_floating(t) ? DType::f32 : t; }

template <class T>
void gather(void* to, const char* from, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(static_cast<T*>(to) + i, from + i * stride, sizeof(T));
}
template <class T>
void scatter(char* to, int64_t stride, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, static_cast<const T*>(from) + i, sizeof(T));
}
void gather(int64_t size, void* to, const char* from, int64_t stride, int64_t n) {
  switch (size) {
    case 1: return gather<uint8_t>(to, from, stride, n);
    case 2: return gather<uint16_t>(to, from, stride, n);
    case 4: return gather<uint32_t>(to, from, stride, n);
    default: return gather<uint64_t>(to, from, stride, n);
  }
}
void scatter(int64_t size, char* to, int64_t stride, const void* from, int64_t n) {
  switch (size) {
    case 1: return scatter<uint8_t>(to, stride, from, n);
    case 2: return scatter<uint16_t>(to, stride, from, n);
    case 4: return scatter<uint32_t>(to, stride, from, n);
    default: return scatter<uint64_t>(to, stride, from, n);
  }
}

// Reads n elements of dtype t, `stride` bytes apart, into a dense buffer of its compute type.
void load(void* to, DType t, const char* from, int64_t stride, int64_t n) {
  const int64_t size = size_of(t);
  alignas(64) uint16_t half[kBlock];
  const void* dense = from;
  if (stride != size) {
    void* into = is_reduced_floating(t) ? half : to;
    gather(size, into, from, stride, n);
    dense = into;
  }
  if (t == DType::bf16) converters().bf16_to_f32(static_cast<float*>(to), dense, n);
  else if (t == DType::f16) converters().f16_to_f32(static_cast<float*>(to), dense, n);
}

void store(char* to, DType t, int64_t stride, const void* from, int64_t n) {
  const int64_t size = size_of(t);
  alignas(64) uint16_t half[kBlock];
  if (is_reduced_floating(t)) {
    void* into = stride == size ? static_cast<void*>(to) : half;
    if (t == DType::bf16) converters().f32_to_bf16(into, static_cast<const float*>(from), n);
    else converters().f32_to_f16(into, static_cast<const float*>(from), n);
    if (stride == size) return;
    from = half;
  }
  scatter(size, to, stride, from, n);
}

struct Run {
  DenseMap f;
  const MapParams* params;
  int inputs;
  DType types[kMostInputs + 1];  // the result's, then the inputs'

  void operator()(char** p, const int64_t* strides, int64_t n) const {
    bool direct[kMostInputs + 1];
    bool all = true;
    for (int k = 0; k <= inputs; ++k) {
      direct[k] = strides[k] == size_of(types[k]) && !is_reduced_floating(types[k]);
      all = all && direct[k];
    }
    const void* in[kMostInputs] = {};
    if (all) {
      for (int k = 0; k < inputs; ++k) in[k] = p[k + 1];
      f(p[0], in, n, *params);
      return;
    }
    alignas(64) char buffer[kMostInputs + 1][kBlock * 8];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      for (int k = 0; k < inputs; ++k) {
        const char* from = p[k + 1] + i * strides[k + 1];
        if (direct[k + 1]) {
          in[k] = from;
        } else {
          in[k] = buffer[k + 1];
          if (strides[k + 1] != 0 || i == 0) load(buffer[k + 1], types[k + 1], from, strides[k + 1], m);
        }
      }
      char* to = p[0] + i * strides[0];
      void* out = direct[0] ? static_cast<void*>(to) : buffer[0];
      f(out, in, m, *params);
      if (!direct[0]) store(to, types[0], strides[0], buffer[0], m);
    }
  }
};

template <size_t N>
void run(const Run& r, const std::array<const Tensor*, N>& ts) {
  for_each_strided(ts[0]->shape(), ts, kGrain, r);
}

// Reading elements after they were written would give nonsense: x.add_(x.t()).
bool clashes(const Tensor& y, const Tensor& x) {
  return x.storage() == y.storage() && !(x.strides() == y.strides() && x.storage_offset() == y.storage_offset() && x.dtype() == y.dtype());
}

}  // namespace

void map(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params) {
  const int n = static_cast<int>(in.size());
  const DType type = compute_type(in.begin()[n - 1]->dtype());
  DenseMap dense = type == DType::f32 ? simd_map(f) : nullptr;
  if (!dense) dense = scalar_map(f, type);
  if (!dense) throw DTypeError("map", cat("no elementwise kernel ", static_cast<int>(f), " for ", type));

  // Past the caches, reading the lines that will be overwritten would cost a third of the traffic.
  MapParams constants = params;
  constants.stream = y.is_contiguous() && y.nbytes() >= kStreamBytes;
  Run r{dense, &constants, n, {y.dtype()}};
  bool plain = y.is_contiguous() && y.numel() <= kGrain && !is_reduced_floating(y.dtype());
  bool clash = false;
  const void* at[kMostInputs] = {};
  for (int k = 0; k < n; ++k) {
    const Tensor& x = *in.begin()[k];
    r.types[k + 1] = x.dtype();
    plain = plain && x.is_contiguous() && !is_reduced_floating(x.dtype());
    clash = clash || clashes(y, x);
    at[k] = x.raw_data();
  }
  if (plain && !clash) {
    if (y.numel() > 0) dense(y.raw_data(), at, y.numel(), constants);
    return;
  }
  Tensor copies[kMostInputs];
  for (int k = 0; k < n; ++k) copies[k] = clash && clashes(y, *in.begin()[k]) ? clone(*in.begin()[k]) : *in.begin()[k];
  if (n == 1) run(r, std::array<const Tensor*, 2>{&y, &copies[0]});
  else if (n == 2) run(r, std::array<const Tensor*, 3>{&y, &copies[0], &copies[1]});
  else run(r, std::array<const Tensor*, 4>{&y, &copies[0], &copies[1], &copies[2]});
}

}  // namespace strata
