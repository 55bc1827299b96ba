// Collectives over a transport between threads, against loops.

#include "strata/dist/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "strata/core/dispatch.h"
#include "strata/dist/local_transport_test_util.h"

namespace strata::distributed {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 7};
// Nothing, one, fewer than ranks, past the small way, past a piece of 1 MiB a rank.
constexpr int64_t kCounts[] = {0, 1, 5, 1000, 1500000};

float value(int rank, int64_t i) {
  return static_cast<float>((rank + 1) * 0.37 + static_cast<double>(i % 97) * 0.011);
}
std::vector<float> values(int rank, int64_t count) {
  std::vector<float> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = value(rank, i);
  return v;
}
// Added in the order of the ranks, as the interface promises: equal to the last bit.
float summed(int size, int64_t i) {
  float s = value(0, i);
  for (int r = 1; r < size; ++r) s += value(r, i);
  return s;
}

TEST(Communicator, AllReduceAddsInTheOrderOfTheRanks) {
  for (const int size : kSizes) {
    for (const int64_t count : kCounts) {
      if (size == 7 && count > 1000000) continue;
      on_ranks(size, [&](int rank, std::unique_ptr<Transport> t) {
        Communicator c(size > 1 ? std::move(t) : nullptr, rank, size);
        std::vector<float> x = values(rank, count);
        c.all_reduce(x.data(), count, DType::f32, Reduction::sum);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x[static_cast<size_t>(i)], summed(size, i)) << size << ' ' << i;
        // No more than 2 (n-1)/n of the bytes leave a rank, past the small way.
        if (count > 1000) EXPECT_LE(static_cast<double>(c.sent_bytes()), 4.0 * count * 2 * (size - 1) / size + 64);
      });
    }
  }
}

TEST(Communicator, EveryReductionOfEveryType) {
  for (const DType dtype : kAllDTypes) {
    for (const Reduction r : {Reduction::sum, Reduction::avg, Reduction::min, Reduction::max, Reduction::product}) {
      try {
        check_reduction("test", r, dtype);
      } catch (const DTypeError&) {
        continue;
      }
      dispatch_all(dtype, "test", [&]<class T>() {
        constexpr int kSize = 3;
        constexpr int64_t kCount = 1100;
        const auto at = [](int rank, int64_t i) { return static_cast<T>(compute_t<T>((rank * 5 + i * 3) % 4)); };
        on_ranks(kSize, [&](int rank, std::unique_ptr<Transport> t) {
          Communicator c(std::move(t), rank, kSize);
          std::unique_ptr<T[]> x(new T[kCount]);
          for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = at(rank, i);
          c.all_reduce(x.get(), kCount, dtype, r);
          for (int64_t i = 0; i < kCount; ++i) {
            const double v[] = {static_cast<double>(compute_t<T>(at(0, i))), static_cast<double>(compute_t<T>(at(1, i))),
                                static_cast<double>(compute_t<T>(at(2, i)))};
            double want = 0;
            if (r == Reduction::sum) want = v[0] + v[1] + v[2];
            if (r == Reduction::avg) want = (v[0] + v[1] + v[2]) / 3;
            if (r == Reduction::min) want = std::min({v[0], v[1], v[2]});
            if (r == Reduction::max) want = std::max({v[0], v[1], v[2]});
            if (r == Reduction::product) want = v[0] * v[1] * v[2];
            const auto got = static_cast<double>(compute_t<T>(x[static_cast<size_t>(i)]));
            ASSERT_NEAR(got, want, want * 0.01) << name_of(dtype) << ' ' << name_of(r) << ' ' << i;
          }
        });
      });
    }
  }
}

TEST(Communicator, HalvesAreRoundedOnce) {
  // 256 + 1 + 1 in bf16: 258 when it is rounded once, 256 when after each addition.
  on_ranks(3, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, 3);
    BFloat16 x(rank == 0 ? 256.0f : 1.0f);
    c.all_reduce(&x, 1, DType::bf16, Reduction::sum);
    EXPECT_EQ(static_cast<float>(x), 258.0f);
  });
}

TEST(Communicator, ANanOfAnyRankIsSeenByAll) {
  for (const Reduction r : {Reduction::min, Reduction::max}) {
    for (int sick = 0; sick < 3; ++sick) {
      on_ranks(3, [&](int rank, std::unique_ptr<Transport> t) {
        Communicator c(std::move(t), rank, 3);
        float x = rank == sick ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rank);
        c.all_reduce(&x, 1, DType::f32, r);
        EXPECT_TRUE(std::isnan(x));
      });
    }
  }
}

TEST(Communicator, TheOtherCollectives) {
  for (const int size : {2, 3, 4}) {
    for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{400000}}) {
      on_ranks(size, [&](int rank, std::unique_ptr<Transport> t) {
        Communicator c(std::move(t), rank, size);
        const std::vector<float> mine = values(rank, count);
        std::vector<float> x = mine;
        c.reduce(x.data(), count, DType::f32, Reduction::sum, 1);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(x[static_cast<size_t>(i)], rank == 1 ? summed(size, i) : mine[static_cast<size_t>(i)]);

        x = mine;
        c.broadcast(x.data(), x.size() * 4, size - 1);
        ASSERT_EQ(x, values(size - 1, count));

        std::vector<float> all(static_cast<size_t>(count * size));
        c.all_gather(all.data(), mine.data(), mine.size() * 4);
        for (int r = 0; r < size; ++r)
          ASSERT_EQ(std::vector<float>(all.begin() + r * count, all.begin() + (r + 1) * count), values(r, count));

        // Every rank's whole is `count` values a rank.
        std::vector<float> part(static_cast<size_t>(count)), whole = values(rank, count * size);
        c.reduce_scatter(part.data(), whole.data(), count, DType::f32, Reduction::sum);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], summed(size, rank * count + i));

        c.shift(x.data(), mine.data(), mine.size() * 4, (rank + 1) % size, (rank + size - 1) % size);
        ASSERT_EQ(x, values((rank + size - 1) % size, count));
        c.barrier();
      });
    }
  }
}

TEST(Communicator, UnevenPartsToAll) {
  // Rank r sends p + r elements to rank p: 0 of rank 0 to itself.
  constexpr int kSize = 4;
  on_ranks(kSize, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, kSize);
    std::vector<size_t> out(kSize), in(kSize);
    std::vector<int> give, want;
    for (int p = 0; p < kSize; ++p) {
      in[static_cast<size_t>(p)] = out[static_cast<size_t>(p)] = static_cast<size_t>(p + rank) * sizeof(int);
      for (int i = 0; i < p + rank; ++i) give.push_back(100 * rank + p);
      for (int i = 0; i < p + rank; ++i) want.push_back(100 * p + rank);
    }
    std::vector<int> got(want.size());
    c.all_to_all(got.data(), out, give.data(), in);
    EXPECT_EQ(got, want);
  });
}

TEST(Communicator, MessagesGoBesideCollectives) {
  on_ranks(3, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, 3);
    int x = rank;
    if (rank == 0) c.send(&x, sizeof x, 2);
    if (rank == 2) c.receive(&x, sizeof x, 0);
    c.barrier();
    EXPECT_EQ(x, rank == 2 ? 0 : rank);
  });
}

TEST(Communicator, NobodyLeavesABarrierBeforeAllAreThere) {
  for (const int size : {2, 5}) {
    std::atomic<int> here{0};
    on_ranks(size, [&](int rank, std::unique_ptr<Transport> t) {
      Communicator c(std::move(t), rank, size);
      for (int round = 1; round <= 20; ++round) {
        if (rank == round % size) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++here;
        c.barrier();
        EXPECT_GE(here.load(), round * size);
        c.barrier();
      }
    });
  }
}

TEST(Communicator, AnotherCollectiveIsRefusedBeforeAnythingIsWritten) {
  std::atomic<int> refused{0};
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, 2);
    std::vector<float> x(1000, static_cast<float>(rank)), before = x;
    c.announce(rank == 0 ? "all_reduce(sum) f32 [1000]" : "all_reduce(max) f32 [1000]");
    try {
      c.all_reduce(x.data(), 1000, DType::f32, rank == 0 ? Reduction::sum : Reduction::max);
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find("is in another collective"), std::string::npos) << e.what();
      EXPECT_EQ(x, before);
      ++refused;
    }
    c.abort();
  });
  EXPECT_EQ(refused.load(), 2);
}

TEST(Communicator, AnotherSizeIsRefused) {
  std::atomic<int> refused{0};
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, 2);
    std::vector<size_t> counts{4, static_cast<size_t>(rank == 0 ? 4 : 8)};
    if (rank == 1) counts = {8, 4};
    std::vector<char> in(12), out(12);
    // Rank 1 wants 8 bytes of rank 0, which sends 4; it sends what rank 0 wants.
    std::vector<size_t> gives = rank == 1 ? std::vector<size_t>{4, 4} : std::vector<size_t>{4, 4};
    try {
      c.all_to_all(out.data(), counts, in.data(), gives);
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(rank, 1);
      EXPECT_NE(std::string(e.what()).find("sends 4 bytes, wanted 8"), std::string::npos) << e.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused.load(), 1);
}

TEST(Communicator, AbortEndsWhoWaits) {
  std::atomic<int> ended{0};
  on_ranks(2, [&](int rank, std::unique_ptr<Transport> t) {
    Communicator c(std::move(t), rank, 2);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      c.abort();
      return;
    }
    EXPECT_THROW(c.barrier(), std::runtime_error);
    ++ended;
  });
  EXPECT_EQ(ended.load(), 1);
}

}  // namespace
}  // namespace strata::distributed
