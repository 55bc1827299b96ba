// Rows that a card reads in place in page-locked memory, against the processor's gather, bit for bit.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/ops/embedding/embedding_cached_kernel.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

class FarRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    manual_seed(7);
  }
};

Tensor noise(const Shape& shape, DType dtype) {
  static std::mt19937 random(5);
  const Tensor t = empty({shape, dtype, Device::cpu(), std::nullopt});
  auto* p = static_cast<unsigned char*>(t.raw_data());
  for (int64_t i = 0; i < t.nbytes(); i += 4) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(p + i, &word, static_cast<size_t>(std::min<int64_t>(4, t.nbytes() - i)));
  }
  return t;
}
Tensor far(const Tensor& t) {
  Tensor u = empty({t.shape(), t.dtype(), Device::cuda(), std::nullopt}, memory::kUnified);
  u.copy_(t);
  EXPECT_EQ(u.tier(), memory::kUnified);
  return u;
}
bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()).contiguous(), y = b.to(Device::cpu()).contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0);
}

// Every size of a row from a byte to 4 KiB that is near a line's or a word's, begun at every byte.
TEST_F(FarRows, RowsOfAnySizeThatBeginAnywhere) {
  for (const int64_t bytes : {1,   2,   3,   4,   7,   8,   15,  16,  17,  31,  32,  33,   63,   64,   65,   100,
                              127, 128, 129, 200, 255, 256, 257, 400, 511, 512, 513, 1000, 1024, 1025, 4095, 4096}) {
    const int64_t rows = 37, longer = bytes + 19;
    const Tensor host = noise({rows, longer}, DType::u8), card = far(host), index = randint(0, rows, {53}),
                 there = index.to(Device::cuda());
    for (const int64_t from : {0, 1, 2, 3, 4, 7, 8, 15, 16, 19}) {
      const Tensor want = index_select(host.narrow(1, from, bytes), 0, index);
      ASSERT_TRUE(same_bits(index_select(card.narrow(1, from, bytes), 0, there), want)) << bytes << " from " << from;
    }
    const Tensor tight = noise({rows, bytes}, DType::u8);
    ASSERT_TRUE(same_bits(index_select(far(tight), 0, there), index_select(tight, 0, index))) << bytes;
  }
}

TEST_F(FarRows, EveryDtypeAndFunction) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64})
    for (const int64_t width : {1, 5, 16, 100, 301}) {
      SCOPED_TRACE(cat(width, " ", dtype));
      const Tensor host = noise({91, width}, dtype), card = far(host), index = randint(0, 91, {7, 30}),
                   there = index.to(Device::cuda());
      const Tensor want = embedding(index, host);
      EXPECT_TRUE(same_bits(embedding(there, card), want));
      EXPECT_TRUE(same_bits(embedding(there.to(DType::i32), card), want));
      EXPECT_TRUE(same_bits(index_select(card, 0, there.reshape({-1})), want.reshape({-1, width})));
      EXPECT_TRUE(same_bits(card.index({there}), want));
      EXPECT_TRUE(same_bits(card.index({there - 91}), want));
      EXPECT_TRUE(same_bits(index_select(card, 1, zeros({2}, DType::i64).to(Device::cuda())),
                            index_select(host, 1, zeros({2}, DType::i64))));
      EXPECT_EQ(embedding(there.narrow(1, 0, 0), card).shape(), Shape({7, 0, width}));
    }
  const Tensor cube = noise({9, 3, 11}, DType::f32), index = randint(0, 9, {20});
  EXPECT_TRUE(same_bits(index_select(far(cube), 0, index.to(Device::cuda())), index_select(cube, 0, index)));
}

TEST_F(FarRows, AnIndexOutsideIsToldAndReadsZeros) {
  const Tensor card = far(ones({5, 70}));
  const Tensor y = embedding(from_span<int64_t>(std::vector<int64_t>{4, 5, -1}, {3}).to(Device::cuda()), card);
  const std::string said = message<IndexError>([&] { synchronize(); });
  EXPECT_NE(said.find("embedding"), std::string::npos) << said;
  EXPECT_NE(said.find("out of range for size 5"), std::string::npos) << said;
  EXPECT_EQ(y.sum().item(), 70);
}

TEST_F(FarRows, GradientsAreThoseOfATableOnTheCard) {
  const Tensor host = randn({50, 33}), index = randint(0, 50, {300}).to(Device::cuda()),
               weights = randn({300, 33}).to(Device::cuda());
  const Tensor near = host.to(Device::cuda()).set_requires_grad(), away = far(host).set_requires_grad();
  (embedding(index, near) * weights).sum().backward();
  (embedding(index, away) * weights).sum().backward();
  EXPECT_TRUE(same_bits(away.grad(), near.grad()));
}

TEST_F(FarRows, ThroughACacheAsFromTheTable) {
  for (const int64_t width : {1, 33, 64, 1000})
    for (const DType dtype : {DType::f32, DType::u8}) {
      const int64_t rows = 80;
      const Tensor host = noise({rows, width}, dtype), card = far(host);
      const Tensor kept = randperm(rows).narrow(0, 0, 25).contiguous(), cache = index_select(host, 0, kept);
      Tensor slots = full({rows}, -1, DType::i32);
      slots.index_put_({kept}, arange(25).to(DType::i32));
      const Tensor index = randint(0, rows, {999});
      const auto [y, hits] =
          embedding_cached(index.to(Device::cuda()), card, cache.to(Device::cuda()), slots.to(Device::cuda()));
      EXPECT_TRUE(same_bits(y, embedding(index, host)));
      const auto [want, hits_there] = embedding_cached(index, host, cache, slots);
      EXPECT_EQ(hits.item<int64_t>(), hits_there.item<int64_t>());
    }
}

// Indexing a page-locked tensor on the card equals the processor's gather bitwise: a million random rows.
TEST_F(FarRows, PyTorchDirect) {
  const int64_t rows = 1 << 20, width = 100;
  const Tensor host = noise({rows, width}, DType::i32), card = far(host), index = randint(0, rows, {1000000});
  EXPECT_TRUE(same_bits(index_select(card, 0, index.to(Device::cuda())), index_select(host, 0, index)));
}

TEST_F(FarRows, WhatTheProcessorWroteIsReadByTheNextKernel) {
  Tensor card = far(zeros({64, 64}));
  const Tensor index = arange(64).to(Device::cuda());
  for (int i = 1; i < 20; ++i) {
    card.copy_(full({64, 64}, static_cast<float>(i)));
    EXPECT_EQ(embedding(index, card).sum().item(), 4096. * i);
  }
}

TEST_F(FarRows, ThreadsOnStreamsOfTheirOwn) {
  const Tensor host = noise({1000, 77}, DType::i32), card = far(host);
  synchronize();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const StreamScope scope(Stream::create());
      for (int i = 0; i < 10; ++i) {
        const Tensor index = remainder(arange(500) * (7 + t) + i, 1000).to(DType::i64);
        if (!same_bits(embedding(index.to(Device::cuda()), card), embedding(index, host))) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace strata::cuda
