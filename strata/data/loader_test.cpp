#include "strata/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "strata/core/error.h"
#include "strata/core/thread_limit_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/memory/bounds.h"
#include "strata/memory/ledger.h"

namespace strata::data {
namespace {

// {index, epoch} of each sample; throws for one index, counts what was asked.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}
  int64_t size() const override { return size_; }
  Batch get_batch(std::span<const Sample> samples) const override {
    asked += static_cast<int64_t>(samples.size());
    Tensor t = empty(TensorMeta{Shape{static_cast<int64_t>(samples.size()), 2}, DType::i64, Device::cpu()});
    for (size_t i = 0; i < samples.size(); ++i) {
      check<IoError>(samples[i].index != bad_, "Numbers", "sample ", samples[i].index, " is unreadable");
      t.data<int64_t>()[2 * i] = samples[i].index;
      t.data<int64_t>()[2 * i + 1] = samples[i].epoch;
    }
    return {t};
  }
  mutable std::atomic<int64_t> asked{0};

 private:
  int64_t size_, bad_;
};

std::vector<int64_t> indices(const Batch& batch) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < batch[0].size(0); ++i) result.push_back(batch[0].data<int64_t>()[2 * i]);
  return result;
}

using Ids = std::vector<int64_t>;

TEST(DataLoader, EndsEachEpoch) {
  for (const int64_t prefetch : {0, 1, 3, 100}) {
    DataLoader loader(std::make_shared<Numbers>(7), {.batch_size = 3, .prefetch = prefetch});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(indices(*loader.next()), (Ids{0, 1, 2}));
      EXPECT_EQ(indices(*loader.next()), (Ids{3, 4, 5}));
      EXPECT_EQ(indices(*loader.next()), (Ids{6}));
      EXPECT_FALSE(loader.next());
    }
  }
}

TEST(DataLoader, DropLast) {
  DataLoader loader(std::make_shared<Numbers>(7), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 2);
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(indices(*loader.next()), (Ids{0, 1, 2}));
    EXPECT_EQ(indices(*loader.next()), (Ids{3, 4, 5}));
    EXPECT_FALSE(loader.next());
  }
  DataLoader even(std::make_shared<Numbers>(6), {.batch_size = 3, .drop_last = true});
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_TRUE(even.next());
    EXPECT_TRUE(even.next());
    EXPECT_FALSE(even.next());
  }
}

TEST(DataLoader, RepeatFillsEveryBatch) {
  DataLoader loader(std::make_shared<Numbers>(3), {.batch_size = 4, .repeat = true});
  EXPECT_EQ(indices(*loader.next()), (Ids{0, 1, 2, 0}));
  const Batch second = *loader.next();
  EXPECT_EQ(indices(second), (Ids{1, 2, 0, 1}));
  EXPECT_EQ(second[0].data<int64_t>()[1], 1);  // the epoch of each sample
  EXPECT_EQ(second[0].data<int64_t>()[5], 2);
}

// Even ones, and of given sizes: together they are the batch.
TEST(DataLoader, MakesAPartOfEachBatch) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{}, {1, 4, 2}, {5, 1, 1}}) {
    DataLoader whole(std::make_shared<Numbers>(10), {.batch_size = 7, .repeat = true});
    std::vector<DataLoader> parts;
    for (int64_t p = 0; p < 3; ++p)
      parts.emplace_back(std::make_shared<Numbers>(10), DataLoaderOptions{.batch_size = 7,
                                                                          .repeat = true,
                                                                          .part = p,
                                                                          .parts = 3,
                                                                          .part_sizes = sizes});
    for (int batch = 0; batch < 4; ++batch) {
      Ids all;
      for (size_t p = 0; p < 3; ++p) {
        const Ids own = indices(*parts[p].next());
        EXPECT_EQ(own.size(), sizes.empty() ? (p == 2 ? 3u : 2u) : static_cast<size_t>(sizes[p]));
        all.insert(all.end(), own.begin(), own.end());
      }
      EXPECT_EQ(all, indices(*whole.next()));
      EXPECT_EQ(to_string(parts[1].state()), to_string(whole.state()));
    }
  }
  for (const std::vector<int64_t>& wrong : std::vector<std::vector<int64_t>>{{7}, {3, 3}, {7, 0}, {8, -1}})
    EXPECT_THROW(DataLoader(std::make_shared<Numbers>(9),
                            {.batch_size = 7, .repeat = true, .parts = 2, .part_sizes = wrong}),
                 ValueError);
}

TEST(DataLoader, ShufflesBySeed) {
  const auto epoch_of = [](uint64_t seed, int64_t prefetch) {
    DataLoader loader(std::make_shared<Numbers>(100),
                      {.batch_size = 7, .shuffle = true, .seed = seed, .prefetch = prefetch});
    Ids all;
    while (const auto batch = loader.next())
      for (const int64_t i : indices(*batch)) all.push_back(i);
    return all;
  };
  Ids sorted = epoch_of(1, 2);
  EXPECT_EQ(sorted, epoch_of(1, 0));
  EXPECT_NE(sorted, epoch_of(2, 2));
  std::sort(sorted.begin(), sorted.end());
  Ids expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(sorted, expected);
}

TEST(DataLoader, StateIsOfWhatWasDelivered) {
  const auto set = std::make_shared<Numbers>(100);
  DataLoader loader(set, {.batch_size = 10, .prefetch = 4});
  loader.next();
  while (set->asked < 50) std::this_thread::yield();  // the thread has run ahead
  EXPECT_EQ(loader.state().position, 10);
  loader.next();
  EXPECT_EQ(loader.state().position, 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(set->asked, 20 + 4 * 10 + 10);  // the queue is bounded, with one batch in the thread's hand
}

TEST(DataLoader, ResumesAfterAnyBatch) {
  for (const bool repeat : {false, true}) {
    const DataLoaderOptions options{.batch_size = 5, .shuffle = true, .seed = 3, .repeat = repeat, .prefetch = 3};
    DataLoader whole(std::make_shared<Numbers>(23), options);
    std::vector<Ids> batches;
    std::vector<SamplerState> states{whole.state()};
    while (batches.size() < 30) {
      const auto batch = whole.next();
      if (!batch) continue;  // an epoch's end
      batches.push_back(indices(*batch));
      states.push_back(whole.state());
    }
    DataLoader moved(std::make_shared<Numbers>(23), options);
    for (size_t i = 0; i < batches.size(); ++i) {
      moved.set_state(states[i]);
      for (size_t k = i, left = 4; k < batches.size() && left > 0;) {
        const auto batch = moved.next();
        if (!batch) continue;
        ASSERT_EQ(indices(*batch), batches[k]) << i;
        ++k;
        --left;
      }
    }
  }
}

TEST(DataLoader, RefusedStateChangesNothing) {
  DataLoader loader(std::make_shared<Numbers>(10), {.batch_size = 2});
  loader.next();
  EXPECT_THROW(loader.set_state({0, 0, 0, 11}), ValueError);
  EXPECT_EQ(indices(*loader.next()), (Ids{2, 3}));
}

TEST(DataLoader, PassesErrorsOn) {
  for (const int64_t prefetch : {0, 2}) {
    DataLoader loader(std::make_shared<Numbers>(6, 3), {.batch_size = 2, .prefetch = prefetch});
    EXPECT_EQ(indices(*loader.next()), (Ids{0, 1}));
    EXPECT_THROW(loader.next(), IoError);
    EXPECT_EQ(indices(*loader.next()), (Ids{4, 5}));
  }
}

TEST(DataLoader, RefusesBadOptions) {
  const auto set = std::make_shared<Numbers>(4);
  EXPECT_THROW(DataLoader(nullptr, {}), ValueError);
  EXPECT_THROW(DataLoader(set, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(set, {.prefetch = -1}), ValueError);
  EXPECT_THROW(DataLoader(std::make_shared<Numbers>(0), {}), ValueError);
  EXPECT_THROW(DataLoader(set, {.batch_size = 5, .drop_last = true}), ValueError);
}

TEST(DataLoader, StopsWithBatchesReady) {
  for (int i = 0; i < 50; ++i) {
    DataLoader loader(std::make_shared<Numbers>(100), {.batch_size = 1, .repeat = true, .prefetch = 1 + i % 3});
    for (int k = 0; k < i % 4; ++k) loader.next();
    DataLoader moved = std::move(loader);
    EXPECT_TRUE(moved.next());
  }
}

TEST(TensorDataset, TakesRows) {
  Tensor x = empty(TensorMeta{Shape{5, 3}, DType::f32, Device::cpu()}),
         y = empty(TensorMeta{Shape{5}, DType::u8, Device::cpu()});
  for (int i = 0; i < 15; ++i) x.data<float>()[i] = static_cast<float>(i);
  for (int i = 0; i < 5; ++i) y.data<uint8_t>()[i] = static_cast<uint8_t>(10 + i);
  const TensorDataset set({x, y});
  EXPECT_EQ(set.size(), 5);
  const Batch batch = set.get_batch(std::vector<Sample>{{4, 0}, {0, 0}, {4, 1}});
  EXPECT_EQ(batch[0].shape(), (Shape{3, 3}));
  EXPECT_EQ(batch[1].shape(), (Shape{3}));
  EXPECT_EQ(batch[0].data<float>()[1], 13.0f);
  EXPECT_EQ(batch[0].data<float>()[3], 0.0f);
  EXPECT_EQ(batch[1].data<uint8_t>()[2], 14);
  EXPECT_THROW(set.get_batch(std::vector<Sample>{{5, 0}}), IndexError);
  EXPECT_THROW(TensorDataset({}), ValueError);
  EXPECT_THROW(TensorDataset({x, empty(TensorMeta{Shape{4}, DType::u8, Device::cpu()})}), ShapeError);
  EXPECT_THROW(TensorDataset({empty(TensorMeta{Shape{}, DType::u8, Device::cpu()})}), ShapeError);
}

TEST(DataLoader, MakesBatchesItselfWhereNoThreadCanStart) {
  const auto batches = [](DataLoader& loader) {
    std::vector<int64_t> all;
    while (const std::optional<Batch> b = loader.next())
      for (const int64_t v : (*b)[0].to_vector<int64_t>()) all.push_back(v);
    return all;
  };
  const DataLoaderOptions options{.batch_size = 3, .shuffle = true, .repeat = false, .prefetch = 2};
  DataLoader alone(std::make_shared<Numbers>(10), options), ordinary(std::make_shared<Numbers>(10), options);
  const std::vector<int64_t> want = batches(ordinary);
  EXPECT_EQ(want.size(), 20u);
  const NoMoreThreads none;
  EXPECT_EQ(batches(alone), want);
}

// Stands for page-locked memory where no card's driver gives it.
class PinnedStandIn final : public memory::Backend {
 public:
  PinnedStandIn() : Backend("page-locked stand-in", DeviceType::cpu, Tier::pinned, memory::Bytes::fixed) {}
  void* allocate(Device device, size_t nbytes, memory::Tag tag) override {
    void* block = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
    ledger_.take(device, block, static_cast<int64_t>(nbytes), tag);
    return block;
  }
  void deallocate(Device device, void* block, size_t, memory::Tag) override {
    ledger_.give(device, block);
    std::free(block);
  }
  void retag(Device device, void* block, size_t, memory::Tag, memory::Tag to) override {
    ledger_.retag(device, block, to);
  }
  memory::Bound bound(Device device) override { return memory::backend(device).bound(device); }
  memory::Stats stats(Device) override { return ledger_.stats(); }
  void reset_peak(Device) override { ledger_.reset_peak(); }
  std::vector<memory::BlockInfo> blocks(Device) override { return ledger_.blocks(); }

 private:
  memory::Ledger ledger_{*this};
};

// Hands on the same tensor each time: it did not make it for the batch.
class OneTensor final : public Dataset {
 public:
  int64_t size() const override { return 4; }
  Batch get_batch(std::span<const Sample>) const override { return {there}; }
  Tensor there = from_span<float>(std::vector<float>{1, 2, 3}, {3});
};

TEST(DataLoader, BatchesAreMadeInPageLockedMemory) {
  if (!memory::find_backend(DeviceType::cpu, Tier::pinned)) {
    DataLoader refused(std::make_shared<Numbers>(4), {.batch_size = 2, .pin_memory = true});
    EXPECT_THROW(refused.next(), DeviceError);
    memory::register_backend(*new PinnedStandIn);
  }
  try {
    empty({{1}, DType::f32, Device::cpu(), std::nullopt}, Tier::pinned);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  const auto rows = std::make_shared<TensorDataset>(std::vector<Tensor>{
      from_span<float>(std::vector<float>(8 << 12, 0.5f), {8, 1 << 12}),
      from_span<int64_t>(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}, {8}),
  });
  const int64_t host = memory::stats(Device::cpu()).allocations;
  const int64_t pinned = memory::stats(Device::cpu(), Tier::pinned).allocations;
  const auto data = static_cast<size_t>(memory::Tag::data);
  const int64_t live = memory::stats(Device::cpu(), Tier::pinned).live[data];
  {
    DataLoader loader(rows, {.batch_size = 4, .prefetch = 0, .pin_memory = true});
    const std::optional<Batch> batch = loader.next();
    for (const Tensor& t : *batch) EXPECT_EQ(t.tier(), Tier::pinned);
    EXPECT_EQ((*batch)[0].data<float>()[(4 << 12) - 1], 0.5f);
    EXPECT_EQ((*batch)[1].data<int64_t>()[3], 3);
    // Written there at once: no batch in ordinary memory before it.
    EXPECT_EQ(memory::stats(Device::cpu()).allocations, host);
    EXPECT_EQ(memory::stats(Device::cpu(), Tier::pinned).allocations, pinned + 2);
    EXPECT_GE(memory::stats(Device::cpu(), Tier::pinned).live[data], live + (4 << 14));
  }
  EXPECT_EQ(memory::stats(Device::cpu(), Tier::pinned).live[data], live);

  DataLoader ahead(rows, {.batch_size = 4, .prefetch = 2, .pin_memory = true});
  for (int i = 0; i < 2; ++i) {
    const Batch made = *ahead.next();
    for (const Tensor& t : made) EXPECT_EQ(t.tier(), Tier::pinned);
  }
  EXPECT_EQ(empty({{1}, DType::f32, Device::cpu(), std::nullopt}).tier(), Tier::host);

  const auto one = std::make_shared<OneTensor>();
  DataLoader copies(one, {.batch_size = 1, .prefetch = 0, .pin_memory = true});
  const Batch batch = *copies.next();
  EXPECT_EQ(batch[0].tier(), Tier::pinned);
  EXPECT_EQ(batch[0].data<float>()[2], 3);
  EXPECT_EQ(one->there.tier(), Tier::host);
}

}  // namespace
}  // namespace strata::data
