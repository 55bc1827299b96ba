// Attention on a CUDA device against the CPU's in double, for every head size that has kernels of its own.

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

struct Config {
  int64_t batch, heads, kv_heads, tq, tk;
  AttentionOptions options;
};

// Queries, keys, values, the result and its gradients, of which the last four are filled by run().
struct Tensors {
  Tensor q, k, v, gy, y, gq, gk, gv;

  Tensors(const Config& c, int64_t d) {
    manual_seed(5);
    q = randn({c.batch, c.tq, c.heads, d}).transpose(1, 2);
    k = randn({c.batch, c.tk, c.kv_heads, d}).transpose(1, 2);
    v = randn({c.batch, c.kv_heads, c.tk, d});
    gy = randn({c.batch, c.heads, c.tq, d});
  }
  void convert(DType dtype, Device device) {
    for (Tensor* t : {&q, &k, &v, &gy}) *t = t->to(dtype).to(device);
  }
  void run(const AttentionOptions& options) {
    for (Tensor* t : {&q, &k, &v}) t->set_requires_grad();
    manual_seed(6);  // dropout's
    y = scaled_dot_product_attention(q, k, v, {}, options);
    y.backward(gy);
    gq = q.grad(), gk = k.grad(), gv = v.grad();
  }
};

// The largest difference in units of the largest value.
double difference(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.detach().to_vector<double>(), b = want.detach().to_vector<double>();
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= most)) most = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return most / largest;
}

class CudaAttention : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_P(CudaAttention, AgreesWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, window, earlier, dropout, both_sides, behind;
  causal.is_causal = true;
  window.is_causal = true;
  window.window = 21;
  both_sides.window = 13;
  both_sides.scale = 0.3;
  earlier.is_causal = true;
  earlier.query_offset = 63;
  behind.is_causal = true;  // windows behind the last key
  behind.window = 4;
  behind.query_offset = 300;
  dropout.is_causal = true;
  dropout.dropout_p = 0.25;
  const Config configs[] = {{2, 2, 2, 67, 131, plain},   {1, 4, 2, 150, 150, causal}, {1, 2, 1, 150, 150, window},
                            {1, 3, 1, 40, 103, earlier}, {2, 2, 2, 33, 33, dropout},  {1, 2, 2, 200, 170, both_sides},
                            {1, 2, 2, 200, 100, behind}, {1, 2, 1, 400, 431, plain},  {1, 2, 2, 513, 513, causal},
                            {1, 1, 1, 5, 0, plain}};
  for (size_t i = 0; i < std::size(configs); ++i) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 2e-5), {DType::bf16, 2e-2}, {DType::f16, 5e-3}}) {
      const Config& c = configs[i];
      Tensors here(c, d), there(c, d);
      here.convert(dtype, Device::cpu());
      here.convert(DType::f64, Device::cpu());
      there.convert(dtype, Device::cuda());
      here.run(c.options);
      there.run(c.options);
      EXPECT_LE(difference(there.y, here.y), tolerance) << "config " << i << ' ' << name_of(dtype);
      EXPECT_LE(difference(there.gq, here.gq), tolerance) << "config " << i << ' ' << name_of(dtype);
      EXPECT_LE(difference(there.gk, here.gk), tolerance) << "config " << i << ' ' << name_of(dtype);
      EXPECT_LE(difference(there.gv, here.gv), tolerance) << "config " << i << ' ' << name_of(dtype);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(HeadSizes, CudaAttention, ::testing::Values(16, 32, 64, 80, 96, 128, 256, 100));

TEST_P(CudaAttention, PackedHeadsGiveTheSameAsSeparateOnes) {
  const int64_t d = GetParam(), heads = 4, kv = 2, t = 150;
  manual_seed(1);
  AttentionOptions causal;
  causal.is_causal = true;
  const Tensor numbers = randn({2, t, (heads + 2 * kv) * d}), gy = randn({2, t, heads * d});
  Tensor here = numbers.to(DType::bf16).to(DType::f64), there = numbers.to(DType::bf16).to(Device::cuda());
  here.set_requires_grad();
  there.set_requires_grad();
  const Tensor a = packed_attention(here, heads, kv, causal), b = packed_attention(there, heads, kv, causal);
  a.backward(gy.to(DType::bf16).to(DType::f64));
  b.backward(gy.to(DType::bf16).to(Device::cuda()));
  EXPECT_LE(difference(b, a), 2e-2);
  EXPECT_LE(difference(there.grad(), here.grad()), 2e-2);
}

TEST_P(CudaAttention, GradientsAreTheSameBitsEveryTime) {
  AttentionOptions causal;
  causal.is_causal = true;
  const Config c{2, 4, 2, 300, 300, causal};
  Tensors a(c, GetParam()), b(c, GetParam());
  for (Tensors* t : {&a, &b}) {
    t->convert(DType::bf16, Device::cuda());
    t->run(causal);
  }
  EXPECT_EQ(a.gq.to_vector<float>(), b.gq.to_vector<float>());
  EXPECT_EQ(a.gk.to_vector<float>(), b.gk.to_vector<float>());
  EXPECT_EQ(a.gv.to_vector<float>(), b.gv.to_vector<float>());
}

}  // namespace
}  // namespace strata
