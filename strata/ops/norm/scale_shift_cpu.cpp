#include "strata/ops/norm/scale_shift_kernel.h"

#include "strata/core/channels_last.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/norm/scale_shift_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void scale_shift_cpu(Tensor& y, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  if (x.numel() == 0) return;
  const int64_t channels = x.size(1), size = size_of(x.dtype());
  const Tensor a = scale.contiguous(), b = shift.contiguous();
  const bool last = lies_channels_last(x) && lies_channels_last(y);
  const Tensor from = last ? x : x.contiguous(), to = last || y.is_contiguous() ? y : empty(like(y));
  const auto* in = static_cast<const char*>(from.raw_data());
  auto* out = static_cast<char*>(to.raw_data());
  if (last) {
    parallel_for(0, x.numel() / channels, std::max<int64_t>(1, 16384 / channels), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) STRATA_VEC_CALL(scale_each)
      (x.dtype(), in + i * channels * size, out + i * channels * size, channels, a.raw_data(), b.raw_data());
    });
    return;
  }
  const int64_t rows = x.size(0) * channels, inner = x.numel() / rows;
  if (inner == 1) {  // [N, C]
    parallel_for(0, x.size(0), std::max<int64_t>(1, 16384 / channels), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) STRATA_VEC_CALL(scale_each)
      (x.dtype(), in + i * channels * size, out + i * channels * size, channels, a.raw_data(), b.raw_data());
    });
  } else {
    const auto number = [](const Tensor& t, int64_t i) {
      return t.dtype() == DType::f64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
    };
    parallel_for(0, rows, std::max<int64_t>(1, 16384 / inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) STRATA_VEC_CALL(scale_run)
      (x.dtype(), in + i * inner * size, out + i * inner * size, inner, number(a, i % channels),
       number(b, i % channels));
    });
  }
  if (!to.same_as(y)) copy_elements(y, to);
}

}  // namespace strata
