// Small all_reduces over memory that ranks write to: the kernel's source on threads, files that pass between processes,
// and the whole between cards where there are enough.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/peer/peer_copies_inl.h"
#include "strata/dist/peer/peer_copies_kernel.h"
#include "strata/dist/peer/peer_sum_kernel.h"
#include "strata/dist/peer/peer_sums_inl.h"
#include "strata/dist/processes_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

// A block of one thread.
struct ThreadBlock {
  int index, thread = 0, threads = 1;
  void sync() const {}
  void idle() const { std::this_thread::yield(); }
  template <class T>
  auto widen(T x) const {
    return static_cast<peer::Wide<T>>(x);
  }
  template <class T, class W>
  T narrow(W x) const {
    return static_cast<T>(x);
  }
};

// The ranks of one process: memory of each, as all see it.
struct Ranks {
  explicit Ranks(int n) : size(n), memory(static_cast<size_t>(n)), calls(static_cast<size_t>(n)) {
    for (auto& m : memory)
      m = std::make_unique<std::vector<peer::Words>>(static_cast<size_t>(peer::kRoomBytes) / sizeof(peer::Words) + 1);
  }
  peer::Call call(int rank, int64_t count, int64_t item) {
    peer::Call c{};
    for (int r = 0; r < size; ++r) {
      auto* const data = reinterpret_cast<std::byte*>(memory[static_cast<size_t>(r)]->data());
      c.rooms[r] = {data, reinterpret_cast<uint32_t*>(data + peer::kDataBytes)};
    }
    c.rank = rank;
    c.size = size;
    c.count = count;
    c.per_block = peer::shares_of(count, item).per_block;
    c.calls = calls[static_cast<size_t>(rank)].data();
    c.aborted = &aborted;
    return c;
  }
  int size;
  std::vector<std::unique_ptr<std::vector<peer::Words>>> memory;
  std::vector<std::array<uint32_t, peer::kBlocks>> calls;
  volatile uint32_t aborted = 0;
};

template <class T>
void all_reduce_on_threads(int size, const std::vector<int64_t>& counts, Reduction r, int unaligned_rank) {
  Ranks ranks(size);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  const auto value = [](int rank, size_t call, int64_t i) {
    return static_cast<float>((rank + 1) * (i % 7 + 1)) / 4 + static_cast<float>(call % 5);
  };
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937 draw(static_cast<unsigned>(rank));
      for (size_t n = 0; n < counts.size(); ++n) {
        const int64_t count = counts[n], shift = rank == unaligned_rank ? 1 : 0;
        std::vector<peer::Words> room(static_cast<size_t>(count) * sizeof(T) / sizeof(peer::Words) + 2);
        T* const data = reinterpret_cast<T*>(room.data()) + shift;
        for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(value(rank, n, i));
        const peer::Call call = ranks.call(rank, count, sizeof(T));
        const int blocks = peer::shares_of(count, sizeof(T)).blocks;
        // Blocks run in any order and at any time.
        std::vector<int> order;
        for (int b = 0; b < blocks; ++b) order.push_back(b);
        for (const int b : order) {
          if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 50));
          peer::all_reduce_block(call, r, data, ThreadBlock{b});
        }
        for (int64_t i = 0; i < count; ++i) {
          double expected = value(0, n, i);
          for (int p = 1; p < size; ++p) {
            const double v = value(p, n, i);
            expected = r == Reduction::max       ? std::max(expected, v)
                       : r == Reduction::min     ? std::min(expected, v)
                       : r == Reduction::product ? expected * v
                                                 : expected + v;
          }
          if (r == Reduction::avg) expected /= size;
          const auto rounded = static_cast<double>(static_cast<T>(static_cast<peer::Wide<T>>(expected)));
          if (std::abs(static_cast<double>(data[i]) - rounded) > 1e-6 * std::abs(rounded)) ++wrong;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  for (int rank = 0; rank < size; ++rank) {
    const auto at = static_cast<size_t>(rank);
    EXPECT_TRUE(ranks.calls[at] == ranks.calls[0]) << "rank " << rank;
  }
}

std::vector<int64_t> sizes(int64_t item) {
  const int64_t most = peer::kMostBytes / item;
  return {1, 7, 1023, 5000, most - 3, most, 4096, 1, 7919, 1024, 3};
}

TEST(PeerSumKernel, AddsWhatRanksHaveWhateverTheirTimes) {
  for (const int size : {2, 3, 8}) all_reduce_on_threads<float>(size, sizes(4), Reduction::sum, -1);
  all_reduce_on_threads<BFloat16>(4, sizes(2), Reduction::sum, -1);
}
TEST(PeerSumKernel, EveryReductionAndDtypeAndPlacesThatDoNotAlign) {
  for (const Reduction r : {Reduction::avg, Reduction::min, Reduction::max, Reduction::product}) {
    all_reduce_on_threads<float>(3, {1, 1001, 40000, 5}, r, 1);
    all_reduce_on_threads<Half>(2, {1, 9, 4097}, r, 0);
    all_reduce_on_threads<double>(2, {7, 3000, 2}, r, 1);
  }
}

TEST(PeerSumKernel, WhoWaitsForADeadRankIsEnded) {
  Ranks ranks(2);
  std::vector<float> data(100, 1.0F);
  std::thread waiting(
      [&] { peer::all_reduce_block(ranks.call(0, 100, 4), Reduction::sum, data.data(), ThreadBlock{0}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ranks.aborted = 1;
  waiting.join();
  EXPECT_EQ(ranks.calls[0][0], 1U);
}

// What one rank writes before a meeting the others read behind it, and overwrites behind the next one.
TEST(PeerCopiesKernel, NobodyGoesOnBeforeAllHaveCome) {
  constexpr int kRanks = 4, kTurns = 200;
  std::array<std::array<uint32_t, peer::kMostRanks>, kRanks> met{};
  std::array<uint32_t, kRanks> meetings{};
  std::array<std::array<int, 2>, kRanks> halves{};
  volatile uint32_t aborted = 0;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      peer::Meeting m{
          .rank = rank, .size = kRanks, .meetings = &meetings[static_cast<size_t>(rank)], .aborted = &aborted};
      for (int p = 0; p < kRanks; ++p) m.met[p] = met[static_cast<size_t>(p)].data();
      std::mt19937 draw(static_cast<unsigned>(rank));
      for (int turn = 0; turn < kTurns; ++turn) {
        const auto half = static_cast<size_t>(turn % 2);
        halves[static_cast<size_t>(rank)][half] = 1000 * turn + rank;
        if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 50));
        peer::meet_block(m, ThreadBlock{0});
        for (int p = 0; p < kRanks; ++p) wrong += halves[static_cast<size_t>(p)][half] != 1000 * turn + p;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(meetings[0], static_cast<uint32_t>(kTurns));
}

template <class T>
void adds_in_the_order_of_ranks(int shift) {
  constexpr int kRanks = 3, kBlocks = 3;
  for (const int64_t count : {1, 15, 16, 1000, 4099}) {
    std::vector<std::vector<peer::Words>> rooms;
    const T* parts[peer::kMostRanks] = {};
    for (int p = 0; p < kRanks; ++p) {
      auto& room = rooms.emplace_back(static_cast<size_t>(count) * sizeof(T) / sizeof(peer::Words) + 2);
      T* const data = reinterpret_cast<T*>(room.data()) + shift;
      for (int64_t i = 0; i < count; ++i)
        data[i] = static_cast<T>(static_cast<float>(p + 1) / 3 + static_cast<float>(i % 11));
      parts[p] = data;
    }
    std::vector<peer::Words> room(static_cast<size_t>(count) * sizeof(T) / sizeof(peer::Words) + 2);
    T* const out = reinterpret_cast<T*>(room.data()) + shift;
    using W = peer::Wide<T>;
    for (int b = 0; b < kBlocks; ++b)
      peer::add_block(parts, kRanks, count, W{1} / kRanks, out, ThreadBlock{b}, kBlocks);
    for (int64_t i = 0; i < count; ++i) {
      const W sum = static_cast<W>(parts[0][i]) + static_cast<W>(parts[1][i]) + static_cast<W>(parts[2][i]);
      ASSERT_EQ(static_cast<W>(out[i]), static_cast<W>(static_cast<T>(sum * (W{1} / kRanks)))) << i << " of " << count;
    }
  }
}
TEST(PeerCopiesKernel, AddsInTheOrderOfRanks) {
  for (const int shift : {0, 1}) {
    adds_in_the_order_of_ranks<float>(shift);
    adds_in_the_order_of_ranks<BFloat16>(shift);
    adds_in_the_order_of_ranks<double>(shift);
  }
}
TEST(PeerCopiesKernel, TurnsAreOfWholeVectorsAndFit) {
  for (int size = 2; size <= peer::kMostRanks; ++size) {
    for (const int64_t item : {2, 4, 8}) {
      const int64_t bytes = peer::turn_of(size, item) * item;
      EXPECT_EQ(bytes % static_cast<int64_t>(sizeof(peer::Words)), 0);
      EXPECT_LE(bytes * size, peer::kHalf);
      EXPECT_GT(bytes * size, peer::kHalf - size * static_cast<int64_t>(sizeof(peer::Words)));
    }
  }
}

TEST(PeerCopies, TakeLargeOnes) {
  EXPECT_TRUE(detail::PeerCopies::takes(size_t{1} << 20));
  EXPECT_FALSE(detail::PeerCopies::takes(size_t{1} << 10));
  EXPECT_TRUE(detail::PeerCopies::takes(1 << 20, DType::f32, Reduction::avg));
  EXPECT_FALSE(detail::PeerCopies::takes(1 << 20, DType::f32, Reduction::max));
  EXPECT_FALSE(detail::PeerCopies::takes(1 << 20, DType::i32, Reduction::sum));
  EXPECT_FALSE(detail::PeerCopies::takes(100, DType::f32, Reduction::sum));
}

TEST(PeerSumKernel, SharesAreOfWholeVectorsAndFit) {
  for (const int64_t item : {2, 4, 8}) {
    for (int64_t count = 1; count <= peer::kMostBytes / item; count += count < 5000 ? 1 : 997) {
      const peer::Shares s = peer::shares_of(count, item);
      ASSERT_LE(s.blocks, peer::kBlocks);
      ASSERT_LE(s.per_block * item, peer::kSlot);
      ASSERT_EQ(s.per_block * item % static_cast<int64_t>(sizeof(peer::Words)), 0);
      ASSERT_GE(s.blocks * s.per_block, count);
      ASSERT_LT((s.blocks - 1) * s.per_block, count);
    }
  }
}

TEST(PeerSums, TakeSmallSumsOfFloatingNumbers) {
  EXPECT_TRUE(detail::PeerSums::takes(1 << 16, DType::f32));
  EXPECT_TRUE(detail::PeerSums::takes(1 << 17, DType::bf16));
  EXPECT_FALSE(detail::PeerSums::takes((1 << 16) + 1, DType::f32));
  EXPECT_FALSE(detail::PeerSums::takes(0, DType::f32));
  EXPECT_FALSE(detail::PeerSums::takes(8, DType::i64));
}

class StoreBookOfTest final : public AddressBook {
 public:
  void set(const std::string& key, const std::string& value) override { store().set("book/" + key, value); }
  std::string get(const std::string& key) override { return store().get("book/" + key, std::chrono::seconds(20)); }
};

TEST(ExchangeFiles, EachRankReadsWhatTheOthersWrote) {
  on_processes(4, [](int rank) {
    const int file = memfd_create("own", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    const std::string own = cat("rank ", rank);
    ASSERT_EQ(pwrite(file, own.data(), own.size(), 0), static_cast<ssize_t>(own.size()));
    StoreBookOfTest book;
    const std::vector<int> files = detail::exchange_files(file, rank, 4, book, std::chrono::seconds(20));
    for (int p = 0; p < 4; ++p) {
      const int theirs = files[static_cast<size_t>(p)];
      if (p == rank) {
        EXPECT_EQ(theirs, -1);
        continue;
      }
      std::array<char, 16> text{};
      EXPECT_EQ(pread(theirs, text.data(), text.size(), 0), 6);
      EXPECT_STREQ(text.data(), cat("rank ", p).c_str());
      close(theirs);
    }
    close(file);
  });
}

TEST(ExchangeFiles, ARankThatDoesNotComeIsToldInTime) {
  on_processes(2, [](int rank) {
    StoreBookOfTest book;
    if (rank == 1) {
      // Told where it listens, and never there.
      book.set("files/1", "strata-nobody");
      EXPECT_EQ(book.get("seen"), "yes");
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      detail::exchange_files(0, 0, 2, book, std::chrono::seconds(2));
      ADD_FAILURE() << "files came";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find("rank 1 is not reached"), std::string::npos) << e.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    book.set("seen", "yes");
  });
}

TEST(ConnectPeerSums, AllOrNoneAndWhy) {
  on_processes(2, [](int rank) {
    if (rank == 1) setenv("STRATA_PEER_SUMS", "0", 1);
    StoreBookOfTest book;
    std::string why;
    EXPECT_EQ(detail::connect_peer_sums(0, rank, 2, book, std::chrono::seconds(20), why), nullptr);
    // Where there is no card rank 0 says so first.
    EXPECT_FALSE(why.empty());
    if (cuda::device_count() > 0) {
      EXPECT_EQ(why, "rank 1: STRATA_PEER_SUMS is 0");
    }
  });
}

TEST(ConnectPeerCopies, OnlyWhereEveryRankWantsThem) {
  on_processes(2, [](int rank) {
    if (rank == 0) setenv("STRATA_PEER_COPIES", "1", 1);
    StoreBookOfTest book;
    std::string why;
    EXPECT_EQ(detail::connect_peer_copies(0, rank, 2, book, std::chrono::seconds(20), why), nullptr);
    EXPECT_FALSE(why.empty());
    if (cuda::device_count() > 0) {
      EXPECT_EQ(why, "rank 1: STRATA_PEER_COPIES is not 1");
    }
  });
}

// Whole numbers: the sums of any order are equal.
Tensor drawn(int64_t count, int rank, int64_t call) {
  return ((arange(count) * (rank + 3) + call) % 17).to(DType::f32);
}

void on_cards(int size, const std::function<void(int)>& body) {
  if (std::getenv("STRATA_RANKS_OF_TEST") == nullptr && cuda::device_count() < size) {
    GTEST_SKIP() << "needs " << size << " cards, and there are " << cuda::device_count();
  }
  on_processes(size, [&](int rank) {
    take_own_card();
    const DeviceScope there(Device::cuda(0));
    body(rank);
  });
}

class PeerSumsOnCards : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, PeerSumsOnCards, testing::Values(2, 4));

TEST_P(PeerSumsOnCards, AreTheSumsOfEveryRank) {
  const int n = GetParam();
  on_cards(n, [n](int rank) {
    int64_t call = 0;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const int64_t count : {1, 7, 1000, 4096, 16384, 32765}) {
        for (const char* const how : {"sum", "max", "avg"}) {
          ++call;
          // From the second element on: no place of 16 bytes.
          const Tensor x = drawn(count + 1, rank, call).to(dtype);
          const Tensor y = all_reduce(x.slice(0, 1, count + 1), how);
          Tensor expected = drawn(count + 1, 0, call);
          for (int p = 1; p < n; ++p) {
            const Tensor theirs = drawn(count + 1, p, call);
            expected = std::string_view(how) == "max" ? maximum(expected, theirs) : expected + theirs;
          }
          if (std::string_view(how) == "avg") expected = expected / static_cast<double>(n);
          const bool same = equal(y.to(DType::f32), expected.slice(0, 1, count + 1).to(dtype).to(DType::f32));
          EXPECT_TRUE(same) << cat(how, " of ", count, " ", dtype);
        }
      }
    }
  });
}

// Several turns and less than one, in graphs too: of an odd number of calls, so that halves of a replay and of the next
// one are the same.
TEST_P(PeerSumsOnCards, LargeGathersAndReduceScattersByCopyEngines) {
  const int n = GetParam();
  on_cards(n, [n](int rank) {
    setenv("STRATA_PEER_COPIES", "1", 1);
    Group& g = group("world");
    int64_t call = 0;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t part : {int64_t{200000}, int64_t{262144}, int64_t{9000001}, int64_t{13000000}}) {
        ++call;
        const auto of = [&](int p) { return drawn(part, p, call).to(dtype); };
        Tensor all = zeros({part * n}, DType::f32).to(dtype), sum = zeros({part}, DType::f32).to(dtype);
        const Tensor own = of(rank);
        TensorList parts;
        for (int p = 0; p < n; ++p) parts.push_back(of(p));
        const Tensor expected = cat(parts);
        const Tensor added = expected * static_cast<double>(rank + 1);
        const auto both = [&] {
          g.run(Device::cuda(0), "gather", [&](Collectives& c) {
            c.all_gather(all.raw_data(), own.raw_data(), static_cast<size_t>(own.nbytes()));
          });
          g.run(Device::cuda(0), "scatter", [&](Collectives& c) {
            c.reduce_scatter(sum.raw_data(), added.raw_data(), part, dtype, Reduction::sum);
          });
        };
        const auto are_right = [&] {
          EXPECT_TRUE(equal(all.to(DType::f32), expected.to(DType::f32))) << cat("gather of ", part, " ", dtype);
          // 1 + 2 + .. of what this rank has: whole numbers.
          const Tensor want = (of(rank).to(DType::f32) * static_cast<double>(n * (n + 1) / 2)).to(dtype);
          EXPECT_TRUE(equal(sum.to(DType::f32), want.to(DType::f32))) << cat("sum of ", part, " ", dtype);
        };
        both();
        are_right();
        cuda::Graph graph;
        graph.capture([&] { both(); });
        for (int i = 0; i < 3; ++i) {
          all.zero_();
          sum.zero_();
          graph.replay();
          are_right();
        }
      }
    }
    EXPECT_NE(g.way_of_cards().find("copy engines"), std::string::npos) << g.way_of_cards();
  });
}

TEST_P(PeerSumsOnCards, ReplaysOfAGraphDoNotGrow) {
  const int n = GetParam();
  on_cards(n, [n](int rank) {
    Tensor x = full({16384}, static_cast<double>(rank + 1));
    const auto once = [&] {
      group("world").run(Device::cuda(0), "small",
                         [&](Collectives& c) { c.all_reduce(x.raw_data(), x.numel(), DType::f32, Reduction::max); });
    };
    once();
    cuda::Graph graph;
    graph.capture([&] {
      for (int i = 0; i < 20; ++i) once();
    });
    graph.replay();
    cuda::synchronize(0);
    const int64_t live = memory::stats(DeviceType::cuda).live_total,
                  reserved = memory::stats(DeviceType::cuda).reserved;
    for (int i = 0; i < 500; ++i) graph.replay();  // 10,000 sums
    cuda::synchronize(0);
    EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, live);
    EXPECT_EQ(memory::stats(DeviceType::cuda).reserved, reserved);
    const std::vector<float> values = x.to(Device::cpu()).to_vector<float>();
    EXPECT_TRUE(values == std::vector<float>(16384, static_cast<float>(n)));
  });
}

}  // namespace
}  // namespace strata::distributed
