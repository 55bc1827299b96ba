#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/room_costs_inl.h"
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

// A request for more addresses than there are leaves nothing behind, also where nothing is mapped yet.
TEST_F(Cuda, AbsurdRequestsDoNotStandInTheWayOfOthers) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(empty({{int64_t{1} << 44}, DType::f32, Device::cuda(), std::nullopt}), MemoryError);
    const Tensor small = ones({3}).to(Device::cuda());
    EXPECT_EQ(small.to_vector<float>(), std::vector<float>(3, 1));
    memory::release_cached();
  }
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

TEST_F(Cuda, NearTheLimitStreamsTakeTurnsAndNothingIsMappedAnew) {
  constexpr int64_t kMiB = 1 << 20;
  const Stream side = Stream::create();
  ones({1}).to(Device::cuda());
  memory::release_cached();
  const auto block = [](int64_t mebibytes) {
    return empty({{mebibytes * kMiB}, DType::u8, Device::cuda(), std::nullopt});
  };
  const int64_t before = memory::set_limit(memory::stats(Device::cuda()).reserved + 70 * kMiB, Device::cuda());
  static bool* go = new bool(false);
  *go = false;
  void* data = nullptr;
  {
    const Tensor a = block(64);
    data = a.raw_data();
    current_stream(0).host_callback(
        [](void* p) {
          while (!*static_cast<volatile bool*>(p)) {
          }
        },
        go);
  }
  const memory::RoomCosts costs = memory::room_costs();
  {
    const StreamScope scope(side);
    const Tensor b = block(64);  // the main stream's hole: mapping as much again is past the limit
    EXPECT_EQ(b.raw_data(), data);
    EXPECT_FALSE(side.query());  // it waits for what the main stream had to do with it
    *go = true;
    side.synchronize();
  }
  {
    const Tensor c = block(40);
    EXPECT_EQ(c.raw_data(), data);  // it is the main stream's again
    const StreamScope scope(side);
    EXPECT_EQ(block(24).raw_data(), static_cast<std::byte*>(data) + 40 * kMiB);  // and what c leaves of it the side's
  }
  EXPECT_EQ(memory::room_costs().mapped_bytes, costs.mapped_bytes);
  EXPECT_EQ(memory::room_costs().unmapped_bytes, costs.unmapped_bytes);
  memory::set_limit(before, Device::cuda());
  memory::release_cached();
}

TEST_F(Cuda, APinnedBlockWaitsForTheCopiesFromIt) {
  static bool* go = new bool(false);
  const auto hold = [](const Stream& s) {
    *go = false;
    s.host_callback(
        [](void* p) {
          while (!*static_cast<volatile bool*>(p)) {
          }
        },
        go);
  };
  constexpr int64_t n = 1 << 20;
  const auto pinned = [] { return empty({{n}, DType::f32, Device::cpu(), std::nullopt}, Tier::pinned); };
  const Stream main = current_stream();
  Tensor there = empty({{n}, DType::f32, Device::cuda(), std::nullopt});
  main.synchronize();
  void* data = nullptr;
  hold(main);
  {
    Tensor a = pinned();
    data = a.raw_data();
    a.fill_(1.0);
    there.copy_(a);  // waits behind the callback
  }
  {
    Tensor b = pinned();  // would be the same block
    EXPECT_NE(b.raw_data(), data);
    b.fill_(2.0);
  }
  *go = true;
  main.synchronize();
  EXPECT_EQ(there.min().item<float>(), 1.0f);
  // The streams have passed: no further block is made.
  const int64_t reserved = memory::stats(Device::cpu(), Tier::pinned).reserved;
  const Tensor c = pinned(), d = pinned();
  EXPECT_EQ(memory::stats(Device::cpu(), Tier::pinned).reserved, reserved);
  // To the host as well.
  hold(main);
  {
    Tensor e = pinned();
    data = e.raw_data();
    copy_to_pinned(e, there);
  }
  EXPECT_NE(pinned().raw_data(), data);
  *go = true;
  main.synchronize();
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

TEST_F(Cuda, AnIndexOutOfRangeIsToldByTheNextThatWaits) {
  const auto card = [](const Tensor& t) { return t.to(Device::cuda()); };
  const auto ints = [](const std::vector<int64_t>& v) {
    return from_span(std::span<const int64_t>(v), {static_cast<int64_t>(v.size())});
  };
  const Tensor x = card(ones({4, 3})), good = card(ints({0, 3})), bad = card(ints({1, 4})),
               negative = card(ints({-1, 1})), wide = card(full({2, 3}, 7, DType::i64)), two = card(ones({2, 3}));
  const std::pair<const char*, std::function<Tensor()>> cases[] = {
      {"embedding", [&] { return embedding(bad, x); }},
      {"index_select", [&] { return index_select(x, 0, bad); }},
      {"gather", [&] { return gather(x, 0, wide); }},
      {"scatter", [&] { return scatter(x, 0, wide, two); }},
      {"scatter_add", [&] { return scatter_add(x, 0, wide, two); }},
      {"index_add", [&] { return index_add(x, 0, bad, two); }},
      {"one_hot", [&] { return one_hot(bad, 4); }},
      {"cross_entropy",
       [&] {
         return cross_entropy(two, card(ints({0, 3})));
       }},
      {"cross_entropy", [&] { return cross_entropy(two, negative, {.reduction = "none"}); }},
      {"nll_rows",
       [&] {
         return nll_loss(two, card(ints({0, 3})));
       }},
  };
  for (const auto& [name, call] : cases) {
    SCOPED_TRACE(name);
    std::string told;
    try {
      const Tensor y = call();
      synchronize();
    } catch (const IndexError& e) {
      told = e.what();
    }
    EXPECT_NE(told.find(name), std::string::npos) << told;
    EXPECT_NE(told.find("is out of range for size"), std::string::npos) << told;
    // Told once, and nothing is lost.
    EXPECT_NO_THROW(synchronize());
    EXPECT_EQ(embedding(good, x).to_vector<float>(), std::vector<float>(6, 1.f));
  }
  const std::pair<const char*, std::function<Tensor()>> values[] = {
      {"probabilities must lie in [0, 1], got 1.5", [&] { return bernoulli(card(full({4}, 1.5))); }},
      {"not negative, got -1", [&] { return multinomial(card(full({4}, -1.0)), 2); }},
      {"must not all be 0", [&] { return multinomial(card(zeros({4})), 2, true); }},
      {"as many positive weights",
       [&] {
         return multinomial(card(ints({0, 1, 0}).to(DType::f32)), 2);
       }},
  };
  for (const auto& [text, call] : values) {
    try {
      call();
      synchronize();
      ADD_FAILURE() << text;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
  // The next op tells as well; in blocking mode the op itself does.
  gather(x, 0, wide);
  while (!current_stream().query()) {
  }
  EXPECT_THROW(x + x, IndexError);
  set_launch_blocking(true);
  EXPECT_THROW(gather(x, 0, wide), IndexError);
  set_launch_blocking(false);
  // What would have been written out of range is left out, the rest is done.
  Tensor y = card(zeros({4}));
  EXPECT_THROW(
      {
        y.index_put_({card(ints({2, 9}))}, card(ones({2})), true);
        synchronize();
      },
      IndexError);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 0, 1, 0}));
}

}  // namespace
}  // namespace strata::cuda
