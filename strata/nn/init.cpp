#include "strata/nn/init.h"

#include <cmath>
#include <numbers>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"

namespace strata::nn::init {
namespace {

// value(numbers) turns one counter block into up to 4 elements; element i comes from block i / kPerBlock.
template <int kPerBlock, class Value>
Tensor fill(Tensor t, Generator& generator, Value value) {
  if (t.is_meta() || t.numel() == 0) return t;
  const int64_t n = t.numel(), blocks = (n + kPerBlock - 1) / kPerBlock;
  const RngKey key = generator.next(static_cast<uint64_t>(blocks));
  Tensor values = empty({t.shape(), DType::f32, Device::cpu(), std::nullopt});
  float* out = values.data<float>();
  parallel_for(0, blocks, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float four[4];
      value(philox(key, static_cast<uint64_t>(b)), four);
      for (int64_t i = 0; i < kPerBlock && b * kPerBlock + i < n; ++i) out[b * kPerBlock + i] = four[i];
    }
  });
  NoGrad guard;
  t.copy_(values);
  return t;
}

// Two normal numbers from two uniform ones (Box and Muller 1958).
void normal_pair(uint32_t a, uint32_t b, double mean, double std, float* out) {
  const double radius = std::sqrt(-2 * std::log(1.0 - uniform_f32(a)));
  const double angle = 2 * std::numbers::pi * uniform_f32(b);
  out[0] = static_cast<float>(mean + std * radius * std::cos(angle));
  out[1] = static_cast<float>(mean + std * radius * std::sin(angle));
}

double leaky_gain(double a) { return std::sqrt(2 / (1 + a * a)); }

}  // namespace

Tensor uniform_(Tensor t, double low, double high, Generator& generator) {
  return fill<4>(t, generator, [=](const std::array<uint32_t, 4>& bits, float* out) {
    for (int i = 0; i < 4; ++i) out[i] = static_cast<float>(low + (high - low) * uniform_f32(bits[static_cast<size_t>(i)]));
  });
}

Tensor normal_(Tensor t, double mean, double std, Generator& generator) {
  return fill<4>(t, generator, [=](const std::array<uint32_t, 4>& bits, float* out) {
    normal_pair(bits[0], bits[1], mean, std, out);
    normal_pair(bits[2], bits[3], mean, std, out + 2);
  });
}

Tensor trunc_normal_(Tensor t, double mean, double std, double low, double high, Generator& generator) {
  check(low < high, "trunc_normal_", "low must be below high, got ", low, " and ", high);
  // Each element has its own stream, of which the first number inside the bounds is taken.
  constexpr int kTries = 256;
  if (t.is_meta() || t.numel() == 0) return t;
  const RngKey key = generator.next(static_cast<uint64_t>(t.numel()) * kTries);
  Tensor values = empty({t.shape(), DType::f32, Device::cpu(), std::nullopt});
  float* out = values.data<float>();
  parallel_for(0, t.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float pair[2];
      out[i] = static_cast<float>(std::min(std::max(mean, low), high));
      for (int k = 0; k < kTries; ++k) {
        const auto bits = philox(key, static_cast<uint64_t>(i) * kTries + static_cast<uint64_t>(k));
        normal_pair(bits[0], bits[1], mean, std, pair);
        if (pair[0] >= low && pair[0] <= high) {
          out[i] = pair[0];
          break;
        }
      }
    }
  });
  NoGrad guard;
  t.copy_(values);
  return t;
}

Tensor constant_(Tensor t, double value) {
  NoGrad guard;
  if (!t.is_meta()) t.fill_(value);
  return t;
}

std::pair<int64_t, int64_t> fans(const Tensor& weight) {
  check<ShapeError>(weight.dim() >= 2, "fans", "a weight has at least 2 dimensions, got ", weight);
  int64_t kernel = 1;
  for (int64_t i = 2; i < weight.dim(); ++i) kernel *= weight.size(i);
  return {weight.size(1) * kernel, weight.size(0) * kernel};
}

Tensor xavier_uniform_(Tensor t, double gain, Generator& generator) {
  const auto [in, out] = fans(t);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(in + out));
  return uniform_(t, -bound, bound, generator);
}

Tensor xavier_normal_(Tensor t, double gain, Generator& generator) {
  const auto [in, out] = fans(t);
  return normal_(t, 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)), generator);
}

Tensor kaiming_uniform_(Tensor t, double a, Generator& generator) {
  const double bound = leaky_gain(a) * std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(1, fans(t).first)));
  return uniform_(t, -bound, bound, generator);
}

Tensor kaiming_normal_(Tensor t, double a, Generator& generator) {
  return normal_(t, 0, leaky_gain(a) / std::sqrt(static_cast<double>(std::max<int64_t>(1, fans(t).first))), generator);
}

}  // namespace strata::nn::init
