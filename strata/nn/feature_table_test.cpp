#include "strata/nn/feature_table.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/strata.h"

namespace strata::nn {
namespace {

using Keep = FeatureTableOptions::Keep;

// A directory of a test's own.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / "strata-rows-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw IoError("Scratch", cat("cannot make ", path_));
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <class E, class F>
void refuses(F&& f, const std::string& text) {
  const std::string said = message<E>(f);
  EXPECT_NE(said.find(text), std::string::npos) << said;
}

// Any bits, NaN's among them.
Tensor noise(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  const Tensor t = empty({shape, dtype, Device::cpu(), std::nullopt});
  auto* p = static_cast<unsigned char*>(t.numel() == 0 ? nullptr : t.raw_data());
  for (int64_t i = 0; i < t.nbytes(); ++i)
    p[i] = static_cast<unsigned char>(dtype == DType::boolean ? random() % 2 : random());
  return t;
}
bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()).contiguous(), y = b.to(Device::cpu()).contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0);
}
Tensor ids(const std::vector<int64_t>& v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}
Tensor some_rows(std::mt19937& random, int64_t n, int64_t rows) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  for (int64_t& i : v)
    i = static_cast<int64_t>(random() % 3 == 0 ? random() % rows : random() % std::min<int64_t>(rows, 9));
  return ids(v);
}

struct Place {
  const char* name;
  Device device;
  Tier home;
};
std::vector<Place> places() {
  std::vector<Place> all = {{"RAM", Device::cpu(), {}}, {"disk", Device::cpu(), memory::kDisk}};
  if (cuda::device_count() > 0) {
    all.push_back({"the card", Device::cuda(), {}});
    all.push_back({"the card, from disk", Device::cuda(), memory::kDisk});
    if (memory::find_backend(DeviceType::cuda, memory::kUnified))
      all.push_back({"the card, over the bus", Device::cuda(), memory::kUnified});
  }
  return all;
}
FeatureTableOptions options_of(const Place& place, const Scratch& dir, Keep keep, int64_t cache_bytes) {
  FeatureTableOptions o{.device = place.device, .home = place.home, .keep = keep, .cache_bytes = cache_bytes};
  if (place.home == memory::kDisk) o.directories = {dir.path()};
  return o;
}

// Calls in any order, against a plain tensor.
TEST(FeatureTable, RowsAreThoseOfTheTableWhateverIsKept) {
  const Scratch dir;
  std::mt19937 random(3);
  struct Rows {
    int64_t width;
    DType dtype;
  };
  for (const Place& place : places())
    for (const Keep keep : {Keep::most_used, Keep::last_used})
      for (const Rows r : {Rows{1, DType::u8},
                           {3, DType::bf16},
                           {64, DType::f32},
                           {100, DType::f32},
                           {33, DType::f64},
                           {4096, DType::boolean},
                           {5, DType::i64}})
        for (const int64_t kept : {0, 1, 10, 1000}) {
          SCOPED_TRACE(cat(place.name, ", ", r.width, " ", r.dtype, ", ", kept, " kept ", static_cast<int>(keep)));
          const int64_t rows = 70;
          Tensor plain = noise({rows, r.width}, r.dtype, 11);
          FeatureTable table(plain, options_of(place, dir, keep, kept * r.width * size_of(r.dtype)));
          EXPECT_EQ(table.cache_rows(), std::min(kept, rows));
          std::vector<Tensor> begun;
          const auto expect = [&](const Tensor& index) {
            const Tensor got = table.gather(index);
            ASSERT_EQ(got.device(), place.device);
            ASSERT_TRUE(same_bits(got, embedding(index, plain)));
          };
          for (int step = 0; step < 40; ++step) {
            switch (random() % 6) {
              case 0:
                begun.push_back(some_rows(random, static_cast<int64_t>(random() % 30), rows));
                table.prefetch(begun.back());
                break;
              case 1:
                if (begun.empty()) break;
                ASSERT_NO_FATAL_FAILURE(expect(begun.front()));
                begun.erase(begun.begin());
                break;
              case 2: {
                const Tensor which = slice(randperm(rows), 0, 0, static_cast<int64_t>(random() % 20)).contiguous();
                const Tensor now = noise({which.numel(), r.width}, r.dtype, random());
                table.write(which, now);
                plain.index_put_({which}, now);
                break;
              }
              case 3:
                if (keep == Keep::most_used) {
                  table.keep_most_used(some_rows(random, rows, 1000));
                } else {
                  const int64_t first = static_cast<int64_t>(random() % 50);
                  const Tensor now = noise({20, r.width}, r.dtype, random());
                  table.write(first, now);
                  plain.narrow(0, first, 20).copy_(now);
                }
                break;
              default:
                ASSERT_NO_FATAL_FAILURE(expect(some_rows(random, static_cast<int64_t>(random() % 60), rows)));
            }
          }
          while (!begun.empty()) {
            ASSERT_NO_FATAL_FAILURE(expect(begun.front()));
            begun.erase(begun.begin());
          }
          EXPECT_TRUE(same_bits(table.read(0, rows), plain));
        }
}

TEST(FeatureTable, TakesIndicesOfAnyShapeAndBothTypes) {
  const Scratch dir;
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const Tensor plain = noise({6, 5}, DType::f32, 1);
    FeatureTable table(plain, options_of(place, dir, Keep::last_used, 40));
    const Tensor index = ids({5, 0, 0, 3, 2, 5}).view({2, 3});
    EXPECT_TRUE(same_bits(table.gather(index), embedding(index, plain)));
    EXPECT_TRUE(same_bits(table.gather(index.to(DType::i32)), embedding(index, plain)));
    EXPECT_TRUE(same_bits(table.gather(transpose(index, 0, 1)), embedding(transpose(index, 0, 1), plain)));
    EXPECT_EQ(table.gather(select(index, 0, 0).select(0, 1)).shape(), Shape({5}));
    EXPECT_EQ(table.gather(empty({{0, 4}, DType::i64, Device::cpu(), std::nullopt})).shape(), Shape({0, 4, 5}));
  }
}

TEST(FeatureTable, RefusesWhatDoesNotFit) {
  const Scratch dir;
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const Tensor plain = noise({6, 5}, DType::f32, 1);
    FeatureTable table(plain, options_of(place, dir, Keep::last_used, 40));
    refuses<IndexError>([&] { table.gather(ids({0, 6})); }, "index 6 at position 1");
    refuses<IndexError>([&] { table.prefetch(ids({-1})); }, "index -1 at position 0");
    refuses<DTypeError>([&] { table.gather(zeros({2})); }, "i64 or i32");
    refuses<ValueError>([&] { table.write(ids({1, 1}), plain.narrow(0, 0, 2)); }, "row 1 is to be written twice");
    refuses<IndexError>([&] { table.write(ids({9}), plain.narrow(0, 0, 1)); }, "index 9");
    refuses<IndexError>([&] { table.write(5, plain.narrow(0, 0, 2)); }, "[5, 7)");
    refuses<ShapeError>([&] { table.write(ids({1}), plain); }, "cannot write");
    refuses<DTypeError>([&] { table.write(0, plain.to(DType::f64)); }, "cannot write");
    refuses<IndexError>([&] { table.read(3, 4); }, "[3, 7)");
    refuses<ValueError>([&] { table.keep_most_used(); }, "most used");
    refuses<ValueError>([&] { table.uses(); }, "nothing is counted");
    EXPECT_TRUE(same_bits(table.gather(ids({2, 4})), embedding(ids({2, 4}), plain)));
  }
  refuses<ValueError>([&] { FeatureTable(-1, 2, DType::f32, {}); }, "negative");
  refuses<ValueError>([&] { FeatureTable(1, 2, DType::f32, {.cache_bytes = -1}); }, "cache_bytes");
  refuses<ValueError>([&] { FeatureTable(1, 2, DType::f32, {.home = memory::kDisk}); }, "directories");
  refuses<ValueError>([&] { FeatureTable(1, 2, DType::f32, {.directories = {dir.path()}}); }, "directories");
  refuses<DeviceError>([&] { FeatureTable(1, 2, DType::f32, {.home = memory::kUnified}); }, "unified");
  refuses<ShapeError>([&] { FeatureTable(noise({3}, DType::f32, 1)); }, "[rows, width]");
  FeatureTable unwritten(100, 64, DType::f32, {.home = memory::kDisk, .directories = {dir.path()}});
  refuses<IoError>([&] { unwritten.gather(ids({3})); }, "never written");
}

TEST(FeatureTable, AFailedReadLeavesNothingHalfKept) {
  const Scratch dir;
  const int64_t rows = 64, width = 1024;  // a page each
  FeatureTable table(rows, width, DType::f32,
                     {.home = memory::kDisk, .cache_bytes = 8 * width * 4, .directories = {dir.path()}});
  const Tensor plain = noise({32, width}, DType::f32, 1);
  table.write(0, plain);
  table.prefetch(ids({1, 2, 40}));  // row 40 was never written
  table.prefetch(ids({1, 3}));      // row 1 was to come with the one before
  refuses<IoError>([&] { table.gather(ids({1, 2, 40})); }, "never written");
  EXPECT_TRUE(same_bits(table.gather(ids({1, 3})), embedding(ids({1, 3}), plain)));
  EXPECT_TRUE(same_bits(table.gather(ids({2, 1})), embedding(ids({2, 1}), plain)));
}

TEST(FeatureTable, IndicesMayChangeAfterTheyWereBegun) {
  const Scratch dir;
  for (const Place& place : places())
    for (const bool on_device : {false, true}) {
      SCOPED_TRACE(cat(place.name, on_device ? ", indices there" : ""));
      const Tensor plain = noise({40, 6}, DType::f32, 1);
      Tensor host = plain.clone();
      FeatureTable table(plain, options_of(place, dir, Keep::last_used, 5 * 24));
      Tensor index = ids({1, 2, 3});
      if (on_device) index = index.to(place.device);
      table.prefetch(index);
      index.add_(10);
      const Tensor now = noise({1, 6}, DType::f32, 2);
      table.write(ids({2}), now);
      host.index_put_({ids({2})}, now);
      EXPECT_TRUE(same_bits(table.gather(index), embedding(ids({11, 12, 13}), host)));
      EXPECT_TRUE(same_bits(table.gather(ids({1, 2, 3})), embedding(ids({1, 2, 3}), host)));
    }
}

// What was begun later is neither waited for nor lost.
TEST(FeatureTable, BatchesAreCompletedInTheirOrder) {
  const Scratch dir;
  for (const Place& place : places())
    for (const Keep keep : {Keep::most_used, Keep::last_used}) {
      SCOPED_TRACE(place.name);
      const Tensor plain = noise({40, 6}, DType::f32, 1);
      FeatureTable table(plain, options_of(place, dir, keep, 4 * 24));
      const std::vector<Tensor> batches = {ids({1, 2, 3}), ids({3, 4, 5, 1}), ids({9, 8, 7, 6}), ids({1, 2, 9}),
                                           ids({3})};
      for (const Tensor& b : batches) table.prefetch(b);
      for (const size_t i : {0, 1, 3, 4}) {  // the third is not asked for
        EXPECT_TRUE(same_bits(table.gather(batches[i]), embedding(batches[i], plain)));
      }
      EXPECT_TRUE(same_bits(table.gather(batches[2]), embedding(batches[2], plain)));
    }
}

TEST(FeatureTable, CountsHits) {
  const Scratch dir;
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const Tensor plain = noise({10, 4}, DType::f32, 1);
    {
      FeatureTable table(plain, options_of(place, dir, Keep::last_used, 3 * 16));
      table.gather(ids({1, 2, 1}));
      FeatureTableStats s = table.stats();
      EXPECT_EQ(s.rows, 3);
      EXPECT_EQ(s.hits, 0);
      EXPECT_EQ(s.home_rows, 2);
      EXPECT_EQ(s.home_bytes, 32);
      table.prefetch(ids({2, 1, 5}));
      table.gather(ids({2, 1, 5}));
      s = table.stats();
      EXPECT_EQ(s.rows, 6);
      EXPECT_EQ(s.hits, 2);
      EXPECT_EQ(s.home_rows, 3);
      EXPECT_EQ(s.prefetched, 1);
      EXPECT_DOUBLE_EQ(s.hit_rate(), 2. / 6);
      table.reset_stats();
      EXPECT_EQ(table.stats().rows, 0);
      EXPECT_EQ(table.stats().hit_rate(), 0);
    }
    FeatureTable table(plain, options_of(place, dir, Keep::most_used, 2 * 16));
    table.count_uses(true);
    table.gather(ids({7, 3, 7, 7, 3, 9}));
    EXPECT_EQ(table.stats().hits, 0);
    EXPECT_EQ(table.uses().to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0, 2, 0, 0, 0, 3, 0, 1}));
    table.keep_most_used();
    table.reset_stats();
    EXPECT_TRUE(same_bits(table.gather(ids({3, 9, 7, 3})), embedding(ids({3, 9, 7, 3}), plain)));
    EXPECT_EQ(table.stats().hits, 3);
    EXPECT_EQ(table.stats().home_rows, 1);
    table.keep_most_used(ids({9, 8, 0, 0, 0, 0, 0, 0, 0, 0}));
    table.reset_stats();
    table.gather(ids({0, 1, 3, 7}));
    EXPECT_EQ(table.stats().hits, 2);
    refuses<ShapeError>([&] { table.keep_most_used(ids({1})); }, "a count for each");
  }
}

TEST(FeatureTable, GradientIsThatOfAnEmbedding) {
  const Scratch dir;
  for (const Place& place : places())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      SCOPED_TRACE(cat(place.name, " ", dtype));
      manual_seed(5);
      const Tensor plain = randn({12, 7}).to(dtype), index = ids({3, 8, 3, 0, 11, 3, 8}).view({7, 1});
      const Tensor weights = randn({7, 1, 7}).to(dtype).to(place.device);
      FeatureTable table(plain, options_of(place, dir, Keep::last_used, 5 * 7 * size_of(dtype)));
      table.set_requires_grad(true);
      EXPECT_TRUE(table.requires_grad());
      (table.gather(index) * weights).sum().backward();
      const Tensor dense = plain.to(place.device).to(dtype == DType::f64 ? DType::f64 : DType::f32).set_requires_grad();
      (embedding(index.to(place.device), dense) * weights.to(dense.dtype())).sum().backward();
      const RowGradient g = table.gradient();
      EXPECT_EQ(g.rows.to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 8, 11}));
      EXPECT_TRUE(same_bits(g.values, index_select(dense.grad(), 0, g.rows)));
      {
        const NoGrad off;
        EXPECT_FALSE(table.gather(index).requires_grad());
      }
      table.zero_grad();
      EXPECT_EQ(table.gradient().rows.numel(), 0);
      EXPECT_EQ(table.gradient().values.shape(), Shape({0, 7}));
    }
  FeatureTable whole(noise({3, 2}, DType::i32, 1));
  refuses<DTypeError>([&] { whole.set_requires_grad(true); }, "no gradient");
}

TEST(FeatureTable, GradientsOfSeveralGathersAddUpInTheirOrder) {
  const Tensor plain = zeros({4, 1});
  FeatureTable table(plain);
  table.set_requires_grad(true);
  const Tensor a = table.gather(ids({1})), b = table.gather(ids({1, 2})), c = table.gather(ids({1}));
  // In another order the sum is another number.
  c.backward(full({1, 1}, 1.0f));
  b.backward(full({2, 1}, -1e8f));
  a.backward(full({1, 1}, 1e8f));
  const RowGradient g = table.gradient();
  EXPECT_EQ(g.rows.to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(g.values.to_vector<float>(), (std::vector<float>{1, -1e8f}));
}

TEST(FeatureTable, ThreadsGatherAndWriteAtOnce) {
  const Scratch dir;
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const int64_t rows = 50, width = 16;
    FeatureTable table(zeros({rows, width}, DType::i64), options_of(place, dir, Keep::last_used, 10 * width * 8));
    std::atomic<int> wrong{0};
    const auto work = [&](uint32_t seed) {
      std::mt19937 random(seed);
      for (int i = 0; i < 40; ++i) {
        const Tensor index = some_rows(random, 20, rows);
        if (random() % 4 == 0) {
          const auto row = static_cast<int64_t>(random() % rows);
          table.write(ids({row}), full({1, width}, static_cast<int64_t>(random() % 1000) * rows + row));
          continue;
        }
        if (random() % 2 == 0) table.prefetch(index);
        // All of a row is of one write, and of a write to that row.
        const std::vector<int64_t> got = table.gather(index).to_vector<int64_t>(), asked = index.to_vector<int64_t>();
        for (size_t k = 0; k < got.size(); ++k) {
          const int64_t first = got[k / width * width];
          if (got[k] != first || (first != 0 && first % rows != asked[k / width])) ++wrong;
        }
      }
    };
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace strata::nn
