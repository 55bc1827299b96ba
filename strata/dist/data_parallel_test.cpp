// Data parallelism between threads: gradients against those of each rank alone, averaged by loops.

#include "strata/dist/data_parallel.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "strata/autograd/autograd.h"
#include "strata/dist/local_transport_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

// A net of three maps and a scale that only some ranks use.
struct Net {
  explicit Net(uint64_t seed) {
    Generator g(seed);
    const auto make = [&](const char* name, const Shape& shape) {
      Tensor t = randn(shape, DType::f32, g);
      t.set_requires_grad(true);
      all.emplace_back(name, t);
      return t;
    };
    a = make("a", {6, 40}), b = make("b", {40, 30}), c = make("c", {30, 2}), scale = make("scale", {2});
    idle = make("idle", {5});
  }
  Tensor loss(const Tensor& x, bool scaled) const {
    const Tensor y = matmul(relu(matmul(relu(matmul(x, a)), b)), c);
    return mean(square(scaled ? y * scale : y));
  }
  void zero() {
    for (auto& [name, t] : all) t.set_grad(Tensor());
  }
  Tensor a, b, c, scale, idle;
  DataParallel::Parameters all;
};

Tensor input(int rank, int pass) {
  Generator g(static_cast<uint64_t>(100 + 10 * rank + pass));
  return randn({8, 6}, DType::f32, g);
}

std::vector<int> numbers(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

// What each rank's gradients are alone, added in the order of the ranks and divided.
std::map<std::string, std::vector<float>> wanted(int size, int passes, bool scaled_by_all) {
  std::map<std::string, std::vector<float>> sums;
  for (int r = 0; r < size; ++r) {
    Net net(1);
    for (int p = 0; p < passes; ++p) net.loss(input(r, p), scaled_by_all || r == 1).backward();
    for (const auto& [name, t] : net.all) {
      std::vector<float> g(static_cast<size_t>(t.numel()), 0.0f);
      if (t.grad().defined()) g = t.grad().to_vector<float>();
      std::vector<float>& s = sums[name];
      if (r == 0) s = g;
      for (size_t i = 0; r > 0 && i < g.size(); ++i) s[i] += g[i];
    }
  }
  for (auto& [name, s] : sums) {
    for (float& v : s) v /= static_cast<float>(size);
  }
  return sums;
}

TEST(DataParallel, GradientsAreTheAveragesInEveryBucketSize) {
  for (const int size : {1, 2, 3}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{5000}, int64_t{1} << 20}) {
      for (const int passes : {1, 3}) {
        const auto want = wanted(size, passes, true);
        on_ranks(size, [&](int rank, std::unique_ptr<Transport> t) {
          Group group("dp", numbers(size), rank, size > 1 ? std::move(t) : nullptr);
          Net net(static_cast<uint64_t>(rank + 1));  // rank 0's weights win
          DataParallel ddp(net.all, group, {.bucket_bytes = bytes});
          for (int step = 0; step < 3; ++step) {  // the buckets are others after the first
            net.zero();
            for (int p = 0; p < passes; ++p) {
              ddp.reduce_next(p + 1 == passes);
              net.loss(input(rank, p), true).backward();
            }
            ddp.finish();
            for (const auto& [name, tensor] : net.all) {
              if (name == "idle") {
                EXPECT_FALSE(tensor.grad().defined());
              } else {
                ASSERT_EQ(tensor.grad().to_vector<float>(), want.at(name)) << name << ' ' << size << ' ' << step;
              }
            }
          }
          if (bytes == 1) EXPECT_EQ(ddp.buckets(), 5);
          if (bytes > 100000) EXPECT_EQ(ddp.buckets(), 1);
        });
      }
    }
  }
}

TEST(DataParallel, WhatOneRankUsesCountsAsZeroOnTheOthers) {
  const auto want = wanted(3, 1, false);
  on_ranks(3, [&](int rank, std::unique_ptr<Transport> t) {
    Group group("dp", numbers(3), rank, std::move(t));
    Net net(1);
    DataParallel ddp(net.all, group, {.bucket_bytes = 2000});
    for (int step = 0; step < 2; ++step) {
      net.zero();
      net.loss(input(rank, 0), rank == 1).backward();
      ddp.finish();
      for (const char* name : {"a", "b", "c", "scale"}) {
        const auto it = std::find_if(net.all.begin(), net.all.end(), [&](const auto& p) { return p.first == name; });
        ASSERT_TRUE(it->second.grad().defined()) << name;
        ASSERT_EQ(it->second.grad().to_vector<float>(), want.at(name)) << name;
      }
      EXPECT_FALSE(net.idle.grad().defined());
    }
  });
}

TEST(DataParallel, GradientsThatWereKeptAreAddedTo) {
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Group group("dp", numbers(2), rank, std::move(t));
    Net net(1);
    DataParallel ddp(net.all, group);
    std::vector<float> first;
    for (int step = 0; step < 3; ++step) {
      net.loss(input(0, 0), true).backward();  // the same on both: the average is each one's
      ddp.finish();
      const std::vector<float> now = net.a.grad().to_vector<float>();
      if (step == 0) first = now;
      for (size_t i = 0; i < now.size(); ++i) ASSERT_NEAR(now[i], first[i] * static_cast<float>(step + 1), 1e-4);
    }
  });
}

TEST(DataParallel, RefusesListsThatDiffer) {
  std::atomic<int> refused{0};
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Group group("dp", numbers(2), rank, std::move(t));
    Net net(1);
    if (rank == 1) net.all[2].first = "other";
    try {
      const DataParallel ddp(net.all, group);
    } catch (const DistributedError& e) {
      EXPECT_NE(std::string(e.what()).find(rank == 0 ? "'c f32 [30, 2]' here, 'other f32 [30, 2]' there"
                                                     : "'other f32 [30, 2]' here, 'c f32 [30, 2]' there"),
                std::string::npos)
          << e.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused.load(), 2);
}

TEST(DataParallel, ASecondPassWithoutSayingSoIsAnError) {
  Group group("dp", {0}, 0, nullptr);
  Net net(1);
  DataParallel ddp(net.all, group);
  net.loss(input(0, 0), true).backward();
  EXPECT_THROW(net.loss(input(0, 1), true).backward(), ValueError);
}

TEST(DataParallel, FrozenParametersAreLeftAlone) {
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Group group("dp", numbers(2), rank, std::move(t));
    Net net(static_cast<uint64_t>(rank + 1));
    net.idle.set_requires_grad(false);
    const std::vector<float> before = net.idle.to_vector<float>();
    DataParallel ddp(net.all, group);
    EXPECT_EQ(net.idle.to_vector<float>(), before);
    net.loss(input(rank, 0), true).backward();
    ddp.finish();
    EXPECT_TRUE(net.scale.grad().defined());
  });
}

}  // namespace
}  // namespace strata::distributed
