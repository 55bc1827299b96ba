// The tier `disk` of the host: ordinary tensors whose bytes live in files.
#include "strata/memory/disk.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::memory {
namespace {

const Device kCpu = Device::cpu();

Tensor ramp(const Shape& shape, double step) {
  return reshape(arange(shape.product()), shape).to(DType::f32) * step - 0.5;
}
void settle() {
  backend(kCpu, kDisk).release_cached();
}

TEST(DiskTier, TensorsComputeAsElsewhere) {
  const Tensor x = ramp({37, 53}, 0.001);
  Tensor y = x.to(kDisk);
  EXPECT_EQ(y.tier(), kDisk);
  EXPECT_TRUE(y.to(kDisk).same_as(y));
  settle();
  EXPECT_FALSE(y.storage()->resident());
  EXPECT_THROW(y.raw_data(), DeviceError);
  EXPECT_EQ(y.to_string(), x.to_string());
  EXPECT_EQ(y[3][4].item<float>(), x[3][4].item<float>());
  const Tensor turned = y.t();
  EXPECT_EQ(turned.tier(), kDisk);
  EXPECT_EQ(turned.contiguous().to_vector<float>(), x.t().contiguous().to_vector<float>());
  EXPECT_EQ(sum(y, {1}).to_vector<float>(), sum(x, {1}).to_vector<float>());
  Tensor z = y.to(Tier::host);
  EXPECT_EQ(z.tier(), Tier::host);
  z.copy_(turned.reshape({37, 53}));
  y.fill_(3);
  settle();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(37 * 53, 3.0F));
  for (const DType d : {DType::u8, DType::i64, DType::f16, DType::bf16, DType::f64, DType::boolean}) {
    const Tensor a = x.to(d), b = a.to(kDisk);
    settle();
    EXPECT_EQ(b.to_string(), a.to_string());
  }
  {
    const TierScope scope(kDisk);
    EXPECT_EQ((x + x).tier(), kDisk);
    EXPECT_EQ(zeros({0, 3}).tier(), kDisk);
    EXPECT_EQ(zeros({}).item(), 0);
  }
}

TEST(DiskTier, MovingIsDifferentiable) {
  Tensor x = ramp({5, 3}, 0.5).set_requires_grad();
  const Tensor y = (x * 2.0).to(kDisk);
  sum(y.to(Tier::host) * y).backward();
  const std::vector<float> v = x.to_vector<float>(), g = x.grad().to_vector<float>();
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(g[i], 8 * v[i]);
}

TEST(DiskTier, WhereItIsIsSaidBeforeItsUse) {
  const std::shared_ptr<DiskStore> before = disk();
  DiskOptions options;
  options.directories = {::testing::TempDir()};
  EXPECT_NE(message<ValueError>([&] { use_disk(options); }).find("before the first use"), std::string::npos);
  std::weak_ptr<DiskStore> old = before;
  const_cast<std::shared_ptr<DiskStore>&>(before).reset();
  Tensor x = ones({10}).to(kDisk);
  EXPECT_THROW(use_disk(options), ValueError);
  EXPECT_EQ(old.lock(), disk());
  x = {};
  options.directories = {"/nowhere at all"};
  EXPECT_THROW(use_disk(options), IoError);
  EXPECT_EQ(old.lock(), disk());
  options.directories = {::testing::TempDir()};
  options.limit = 10 * 4096;
  use_disk(options);
  EXPECT_TRUE(old.expired());
  EXPECT_THROW(zeros({20000}).to(kDisk), MemoryError);
  x = ones({10}).to(kDisk);
  EXPECT_EQ(sum(x).item(), 10);
  x = {};
  options.limit = 0;
  use_disk(options);
}

// Three layers, Adam by hand: everything that is made lives on the tier of the scope.
struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<float>> weights;
};
struct Adam {
  Tensor weight, first, second;

  explicit Adam(const Tensor& w) : weight(w.to(detail::t_caller.tier)), first(zeros(w.shape())), second(zeros(w.shape())) {
    weight.set_requires_grad();
  }
  void step(int count) {
    const NoGrad guard;
    const Tensor g = weight.grad();
    first.mul_(0.9).add_(g, 0.1);
    second.mul_(0.99).add_(g * g, 0.01);
    const Tensor scale = sqrt(second * (1.0 / (1.0 - std::pow(0.99, count)))) + 1e-8;
    weight.add_(first / scale, -0.01 / (1.0 - std::pow(0.9, count)));
    weight.set_grad({});
  }
};
Trained train(Tier tier) {
  const Tensor x = ramp({64, 96}, 0.0002), y = arange(64) % 10;
  const TierScope scope(tier);
  std::vector<Adam> layers;
  for (const Shape& s : {Shape{96, 160}, Shape{160, 160}, Shape{160, 160}, Shape{160, 160}, Shape{160, 10}})
    layers.emplace_back(ramp(s, 1e-5) * 0.1);
  Trained t;
  for (int step = 1; step <= 6; ++step) {
    Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i + 1 < layers.size()) layers[i + 1].weight.storage()->prefetch();
      h = matmul(h, layers[i].weight);
      if (i + 1 < layers.size()) h = gelu(h);
    }
    const Tensor loss = cross_entropy(h, y);
    loss.backward();
    t.losses.push_back(loss.item<float>());
    for (Adam& l : layers) l.step(step);
  }
  for (const Adam& l : layers) t.weights.push_back(l.weight.to_vector<float>());
  return t;
}

TEST(DiskTier, AModelTrainsUnderAQuarterOfWhatItNeedsToTheSameBits) {
  const Trained wanted = train(Tier());
  reset_peak(kCpu, kDisk);
  set_near_limit(0, kCpu, kDisk);
  EXPECT_EQ(train(kDisk).losses, wanted.losses);  // all of it fits
  settle();
  const int64_t needed = stats(kCpu, kDisk).peak_total;
  const int64_t before = near_stats(kCpu, kDisk).bytes_in, out = near_stats(kCpu, kDisk).bytes_out;
  const int64_t previous = set_near_limit(needed / 4, kCpu, kDisk);
  const int64_t own = stats(kCpu).live_total;
  const Trained got = train(kDisk);
  EXPECT_EQ(got.losses, wanted.losses);
  for (size_t i = 0; i < got.weights.size(); ++i)
    EXPECT_EQ(std::memcmp(got.weights[i].data(), wanted.weights[i].data(), 4 * wanted.weights[i].size()), 0) << i;
  const NearStats s = near_stats(kCpu, kDisk);
  EXPECT_GT(s.bytes_in - before, needed);
  EXPECT_GT(s.bytes_out - out, needed / 2);
  EXPECT_LE(s.bytes, needed / 4);
  settle();
  EXPECT_EQ(near_stats(kCpu, kDisk).bytes, 0);
  EXPECT_EQ(stats(kCpu, kDisk).blocks, 0);
  EXPECT_LE(stats(kCpu).live_total, own);
  set_near_limit(previous, kCpu, kDisk);
}

}  // namespace
}  // namespace strata::memory
