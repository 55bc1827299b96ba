// Attention of one query a text to the keys and values of a cache, on a CUDA device.

#include "strata/ops/generation/decode_attention_cuda.h"
#include "strata/ops/generation/decode_attention_launch.cuh"

namespace strata::generation {

bool decode_attention_cuda(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& places,
                           const DecodeOptions& o) {
  const bool floats = q.dtype() == DType::bf16 || q.dtype() == DType::f16 || q.dtype() == DType::f32;
  if (!floats || q.size(2) != 1 || y.numel() == 0 || k.size(2) >= INT32_MAX) return false;
  const int64_t per_piece = 16 / size_of(q.dtype());
  const auto fits = [&](const Tensor& t) {
    const Strides& s = t.strides();
    return t.size(3) % per_piece == 0 && t.size(3) > 0 && t.size(3) <= 32 * per_piece && s[3] == 1 &&
           s[0] % per_piece == 0 && s[1] % per_piece == 0 && (t.size(2) == 1 || s[2] % per_piece == 0) &&
           cuda::aligned16(t.raw_data());
  };
  if (!fits(q) || !fits(k) || !fits(v)) return false;
  const auto rows = [](const Tensor& t) {
    return DecodeRows{t.raw_data(), t.strides()[0], t.strides()[1], t.strides()[2]};
  };
  const Tensor at = places.contiguous(), sinks = o.sinks.defined() ? o.sinks.to(DType::f32).contiguous() : o.sinks;
  DecodeCall c{};
  c.q = rows(q), c.k = rows(k), c.v = rows(v);
  c.y = y.raw_data();
  c.places = static_cast<const int64_t*>(at.raw_data());
  c.sinks = sinks.defined() ? static_cast<const float*>(sinks.raw_data()) : nullptr;
  c.heads = static_cast<int>(q.size(1)), c.kv_heads = static_cast<int>(k.size(1)), c.group = c.heads / c.kv_heads;
  c.d = static_cast<int>(q.size(3)), c.dv = static_cast<int>(v.size(3));
  c.capacity = static_cast<int>(k.size(2)), c.window = static_cast<int>(o.window);
  c.scale = static_cast<float>(o.scale), c.soft_cap = static_cast<float>(o.soft_cap);
  dispatch_floats(q.dtype(), "cache_attention", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) decode::by_size<false, T>(c, q.size(0));
  });
  return true;
}

}  // namespace strata::generation
