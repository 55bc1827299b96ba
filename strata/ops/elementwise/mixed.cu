// Sums and products of mixed dtypes on a CUDA device: as many elements at a time as 16 bytes of the widest hold.

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/elementwise/mixed_kernel.h"

namespace strata {
namespace {

// Operands are widened to f32 here or, if integers, by the call.
struct AddScaled {
  float alpha;
  __device__ float operator()(float a, float b) const { return a + alpha * b; }
};
struct Multiply {
  __device__ float operator()(float a, float b) const { return a * b; }
};

template <class F>
void mixed(std::string_view op, Tensor& y, const Tensor& a, const Tensor& b, F f) {
  const auto run = [&]<class B>() { cuda::elementwise<float, float, B>(op, y, f, a, b); };
  switch (b.dtype()) {
    case DType::f32:
      return run.template operator()<float>();
    case DType::bf16:
      return run.template operator()<BFloat16>();
    case DType::f16:
      return run.template operator()<Half>();
    case DType::boolean:
      return run.template operator()<bool>();
    case DType::u8:
      return run.template operator()<uint8_t>();
    case DType::i8:
      return run.template operator()<int8_t>();
    case DType::i16:
      return run.template operator()<int16_t>();
    case DType::i32:
      return run.template operator()<int32_t>();
    default:
      return run.template operator()<int64_t>();
  }
}

}  // namespace

void add_mixed_cuda(Tensor& y, const Tensor& a, const Tensor& b, float alpha) {
  mixed("add_mixed", y, a, b, AddScaled{alpha});
}
void mul_mixed_cuda(Tensor& y, const Tensor& a, const Tensor& b) {
  mixed("mul_mixed", y, a, b, Multiply{});
}
void mul_narrow_cuda(Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.dtype() == DType::bf16)
    cuda::elementwise<BFloat16, float, float>("mul_narrow", y, Multiply{}, a, b);
  else
    cuda::elementwise<Half, float, float>("mul_narrow", y, Multiply{}, a, b);
}

}  // namespace strata
