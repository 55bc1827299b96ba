#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
  }
};

TEST(CudaAbsent, SaysWhyAndRefuses) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  EXPECT_FALSE(unavailable_reason().empty());
  EXPECT_THROW(properties(0), DeviceError);
  EXPECT_THROW(empty({{2}, DType::f32, Device::cuda(), std::nullopt}), DeviceError);
  EXPECT_THROW(zeros({2}).to(Device::cuda()), DeviceError);
}

TEST_F(Cuda, MovesThereAndBack) {
  const Tensor x = randn({5, 7});
  const Tensor y = x.to(Device::cuda());
  EXPECT_TRUE(y.device().is_cuda());
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(y.t().to_vector<float>(), x.t().to_vector<float>());
  EXPECT_EQ(y.select(0, 3).contiguous().to_vector<float>(), x.select(0, 3).to_vector<float>());
  EXPECT_EQ(y.to(DType::bf16).to_vector<float>(), x.to(DType::bf16).to_vector<float>());
  EXPECT_FLOAT_EQ(y.select(0, 1).select(0, 2).item<float>(), x.select(0, 1).select(0, 2).item<float>());
  EXPECT_NE(y.to_string().find("device=cuda:0"), std::string::npos) << y.to_string();
}

TEST_F(Cuda, CopiesIntoStridedTensorsAcrossDevices) {
  Tensor y = empty({{4, 6}, DType::f32, Device::cuda(), std::nullopt});
  y.fill_(2);
  const Tensor x = arange(Scalar(0), Scalar(4), Scalar(1), DType::i64);
  y.select(1, 3).copy_(x);
  std::vector<float> want(24, 2.f);
  for (int i = 0; i < 4; ++i) want[static_cast<size_t>(i * 6 + 3)] = static_cast<float>(i);
  EXPECT_EQ(y.to_vector<float>(), want);
}

TEST_F(Cuda, GradientsCrossDevices) {
  Tensor x = randn({3});
  x.set_requires_grad();
  const Tensor y = x.to(Device::cuda()).to(Device::cpu());
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(3, 1.f));
}

TEST_F(Cuda, FreedMemoryIsReusedOnItsStreamAndMergedWithNeighbours) {
  const int64_t before = memory::stats(DeviceType::cuda).live_total;
  void* first = nullptr;
  {
    const Tensor a = empty({{1 << 20}, DType::f32, Device::cuda(), std::nullopt});
    first = a.raw_data();
  }
  const Tensor b = empty({{1 << 20}, DType::f32, Device::cuda(), std::nullopt});
  EXPECT_EQ(b.raw_data(), first);
  EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, before + (4 << 20));
}

TEST_F(Cuda, FragmentsDoNotKillALargeRequest) {
  // Many small blocks, every second one given back, then a request larger than any hole and than what is left.
  const int64_t total = properties(0).memory_bytes;
  const double old = set_memory_fraction(std::min(1.0, 2.0e9 / static_cast<double>(total)));
  {
    std::vector<Tensor> blocks;
    for (int i = 0; i < 56; ++i) blocks.push_back(empty({{8 << 20}, DType::f32, Device::cuda(), std::nullopt}));
    for (size_t i = 0; i < blocks.size(); i += 2) blocks[i] = Tensor();
    const Tensor large = empty({{200 << 20}, DType::f32, Device::cuda(), std::nullopt});
    EXPECT_NE(large.raw_data(), nullptr);
  }
  try {
    empty({{int64_t{1} << 30}, DType::f32, Device::cuda(), std::nullopt});
    ADD_FAILURE() << "4 GiB within a limit of 2 GB";
  } catch (const MemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("cuda:0"), std::string::npos) << e.what();
  }
  set_memory_fraction(old);
}

TEST_F(Cuda, ABlockUsedElsewhereWaitsForThatStream) {
  const Stream side = Stream::create();
  void* data = nullptr;
  static bool* go = new bool(false);
  *go = false;
  {
    const Tensor a = empty({{1 << 20}, DType::f32, Device::cuda(), std::nullopt});
    data = a.raw_data();
    side.host_callback(
        [](void* p) {
          while (!*static_cast<volatile bool*>(p)) {
          }
        },
        go);
    record_stream(a, side);
  }
  const Tensor b = empty({{1 << 20}, DType::f32, Device::cuda(), std::nullopt});
  EXPECT_NE(b.raw_data(), data);
  *go = true;
  side.synchronize();
  const Tensor c = empty({{1 << 20}, DType::f32, Device::cuda(), std::nullopt});
  EXPECT_EQ(c.raw_data(), data);
}

TEST_F(Cuda, EventsTimeAndOrderStreams) {
  Event begin(true), end(true);
  const Stream s = current_stream();
  begin.record(s);
  Tensor x = empty({{64 << 20}, DType::f32, Device::cuda(), std::nullopt});
  x.fill_(1);
  end.record(s);
  end.synchronize();
  EXPECT_GT(end.elapsed_ms(begin), 0.01);
  const Stream side = Stream::create();
  {
    StreamScope scope(side);
    EXPECT_TRUE(current_stream() == side);
    side.wait(s);
    const Tensor y = x.clone();
    EXPECT_FLOAT_EQ(y.select(0, 5).item<float>(), 1.f);
  }
  EXPECT_TRUE(current_stream() == s);
}

}  // namespace
}  // namespace strata::cuda
