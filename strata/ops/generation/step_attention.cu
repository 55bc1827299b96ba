// Attention of one query a text that turns what it reads and writes the cache, on a CUDA device.

#include "strata/core/device.h"
#include "strata/ops/generation/decode_attention_launch.cuh"
#include "strata/ops/generation/step_attention_cuda.h"

namespace strata::generation {

bool step_attention_cuda(Tensor& y, Tensor& k, Tensor& v, const StepAttention& s) {
  const Tensor &packed = s.packed, &cos = s.cos, &sin = s.sin;
  if (!is_reduced_floating(k.dtype()) || packed.dtype() != k.dtype() || cos.dtype() != DType::f32 || y.numel() == 0 ||
      k.size(2) >= INT32_MAX)
    return false;
  const int64_t d = k.size(3), per_piece = 16 / size_of(k.dtype()), pairs = cos.size(1);
  const auto fits = [&](const Tensor& t) {
    const Strides& at = t.strides();
    return at[3] == 1 && at[0] % per_piece == 0 && at[1] % per_piece == 0 && at[2] % per_piece == 0 &&
           cuda::aligned16(t.raw_data());
  };
  if (d % per_piece != 0 || d > 32 * per_piece || pairs % per_piece != 0 || !fits(k) || !fits(v) ||
      !packed.is_contiguous() || !cuda::aligned16(packed.raw_data()) || !cos.is_contiguous() || !sin.is_contiguous() ||
      !s.starts.is_contiguous() || (s.counts.defined() && !s.counts.is_contiguous()))
    return false;
  const auto rows = [](const Tensor& t) {
    return DecodeRows{t.raw_data(), t.strides()[0], t.strides()[1], t.strides()[2]};
  };
  DecodeCall c{};
  c.kv_heads = static_cast<int>(k.size(1)), c.d = c.dv = static_cast<int>(d);
  c.heads = static_cast<int>(packed.size(2) / d) - 2 * c.kv_heads, c.group = c.heads / c.kv_heads;
  c.q = {packed.raw_data(), packed.size(2), d, 0}, c.k = rows(k), c.v = rows(v);
  c.y = y.raw_data(), c.k_to = k.raw_data(), c.v_to = v.raw_data();
  c.places = static_cast<const int64_t*>(s.starts.raw_data());
  c.counts = s.counts.defined() ? static_cast<const int64_t*>(s.counts.raw_data()) : nullptr;
  c.cos = static_cast<const float*>(cos.raw_data()), c.sin = static_cast<const float*>(sin.raw_data());
  c.pairs = static_cast<int>(pairs), c.capacity = static_cast<int>(k.size(2)), c.window = static_cast<int>(s.window);
  c.scale = static_cast<float>(s.scale), c.soft_cap = static_cast<float>(s.soft_cap);
  const cuda::DeviceScope here(k.device().index);
  k.dtype() == DType::bf16 ? decode::by_size<true, BFloat16>(c, k.size(0)) : decode::by_size<true, Half>(c, k.size(0));
  return true;
}

}  // namespace strata::generation
