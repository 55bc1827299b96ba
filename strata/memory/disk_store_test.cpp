// A DiskStore as its users see it, with each engine.

#include "strata/memory/disk_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"

namespace strata::memory {
namespace {

namespace fs = std::filesystem;
using Engine = DiskOptions::Engine;
constexpr size_t kMiB = size_t{1} << 20;

// A directory for a store, beside the test's other files.
class Scratch {
 public:
  Scratch() : path_(testing::TempDir() + "strata_disk_XXXXXX") {
    if (!::mkdtemp(path_.data())) throw IoError("test", path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }

 private:
  std::string path_;
};

// Memory that begins `shift` bytes behind a page.
class Buffer {
 public:
  explicit Buffer(size_t nbytes, size_t shift = 0)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kDiskPage, (nbytes + shift) / kDiskPage * kDiskPage + kDiskPage))),
        data_(memory_ + shift),
        size_(nbytes) {}
  ~Buffer() { std::free(memory_); }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  void fill(uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < size_; ++i) data_[i] = static_cast<std::byte>(random());
  }
  bool equals(const std::byte* other, size_t nbytes) const { return std::memcmp(data_, other, nbytes) == 0; }

 private:
  std::byte *memory_, *data_;
  size_t size_;
};

bool has_uring() {
  const Scratch scratch;
  DiskOptions o;
  o.directories = {scratch.path()};
  return DiskStore(o).engine() == "io_uring";
}

class DiskStoreTest : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (GetParam() == Engine::uring && !has_uring()) GTEST_SKIP() << "io_uring is not permitted here";
  }
  DiskOptions options() const {
    DiskOptions o;
    o.directories = {scratch_.path()};
    o.engine = GetParam();
    return o;
  }
  Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(Engines, DiskStoreTest, testing::Values(Engine::uring, Engine::threads),
                         [](const auto& info) { return info.param == Engine::uring ? "uring" : "threads"; });

TEST_P(DiskStoreTest, WholeBlocksOfEverySizeReadAsWritten) {
  DiskOptions o = options();
  o.request = 64 << 10;
  DiskStore store(o);
  EXPECT_EQ(store.engine(), GetParam() == Engine::uring ? "io_uring" : "threads");
  for (const size_t shift : {0, 64, 1})
    for (const size_t n : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{65536}, 3 * kMiB + 17}) {
      DiskStore::Block* block = store.allocate(n);
      EXPECT_EQ(DiskStore::size(block), n);
      Buffer in(n, shift), out(n + 8, shift);
      in.fill(static_cast<uint32_t>(n + shift));
      std::memset(out.data(), 0x5a, n + 8);
      store.wait(store.write(block, in.data(), n));
      const DiskStore::Ticket read = store.read(block, out.data(), n);
      store.wait(read);
      EXPECT_TRUE(store.done(read));
      EXPECT_TRUE(in.equals(out.data(), n)) << n << " bytes, " << shift << " behind a page";
      for (size_t i = n; i < n + 8; ++i) EXPECT_EQ(out.data()[i], std::byte{0x5a}) << "written behind the end";
      store.deallocate(block);
    }
}

TEST_P(DiskStoreTest, PartsOfABlock) {
  for (const bool checksums : {true, false}) {
    DiskOptions o = options();
    o.request = 16 << 10;
    o.checksums = checksums;
    DiskStore store(o);
    constexpr size_t n = 200'003;
    Buffer model(n);
    model.fill(1);
    DiskStore::Block* block = store.allocate(n);
    store.wait(store.write(block, model.data(), n));
    std::mt19937 random(2);
    for (int round = 0; round < 300; ++round) {
      const size_t from = random() % n, bytes = random() % 3 == 0 ? n - from : random() % (n - from + 1);
      Buffer part(bytes, round % 3 == 0 ? from % kDiskPage : round % 4);
      if (round % 2 == 0) {
        part.fill(static_cast<uint32_t>(round));
        std::memcpy(model.data() + from, part.data(), bytes);
        store.wait(store.write(block, part.data(), bytes, from));
      } else {
        store.wait(store.read(block, part.data(), bytes, from));
        ASSERT_TRUE(part.equals(model.data() + from, bytes)) << "bytes " << from << " + " << bytes;
      }
    }
    Buffer all(n);
    store.wait(store.read(block, all.data(), n));
    EXPECT_TRUE(all.equals(model.data(), n));
  }
}

TEST_P(DiskStoreTest, RowsInAnyOrderAndTwice) {
  const Scratch second;
  for (const size_t files : {1, 2})
    for (const size_t row : {size_t{1}, size_t{100}, size_t{256}, size_t{4096}, size_t{5000}, size_t{8192}, size_t{400'000}})
      for (const size_t stride : {row, row + 4096, row + 24}) {
        DiskOptions o = options();
        if (files == 2) o.directories.push_back(second.path());
        o.stripe = 64 << 10;
        o.request = 32 << 10;
        DiskStore store(o);
        const size_t rows = std::min<size_t>(2 * kMiB / row, 3000);
        Buffer table(rows * row);
        table.fill(static_cast<uint32_t>(row));
        DiskStore::Block* block = store.allocate(table.size());
        store.wait(store.write(block, table.data(), table.size()));
        std::mt19937_64 random(7);
        std::vector<int64_t> wanted(std::min<size_t>(rows, 200));
        for (int64_t& i : wanted) i = static_cast<int64_t>(random() % rows);
        wanted.push_back(wanted[0]);
        wanted.push_back(static_cast<int64_t>(rows) - 1);
        Buffer out(wanted.size() * stride);
        std::memset(out.data(), 0x5a, out.size());
        store.wait(store.read_rows(block, out.data(), stride, wanted.data(), wanted.size(), row));
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(std::memcmp(out.data() + i * stride, table.data() + static_cast<size_t>(wanted[i]) * row, row), 0)
              << row << " bytes a row, row " << wanted[i];
          for (size_t j = row; j < stride; ++j) ASSERT_EQ(out.data()[i * stride + j], std::byte{0x5a});
        }
      }
}

TEST_P(DiskStoreTest, RowsOfOnePageAreReadOnce) {
  DiskStore store(options());
  Buffer table(kMiB);
  table.fill(3);
  DiskStore::Block* block = store.allocate(kMiB);
  store.wait(store.write(block, table.data(), kMiB));
  std::vector<int64_t> wanted(16);
  std::iota(wanted.begin(), wanted.end(), 16);  // rows of 256 bytes: the second page
  std::reverse(wanted.begin(), wanted.end());
  Buffer out(4096);
  const DiskStats before = store.stats();
  store.wait(store.read_rows(block, out.data(), 256, wanted.data(), wanted.size(), 256));
  EXPECT_EQ(store.stats().reads - before.reads, 1);
  EXPECT_EQ(store.stats().bytes_read - before.bytes_read, 4096);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(std::memcmp(out.data() + i * 256, table.data() + 4096 + (15 - i) * 256, 256), 0);
}

TEST_P(DiskStoreTest, RequestsOfOneBlockKeepTheirOrder) {
  DiskOptions o = options();
  o.request = 8 << 10;
  o.depth = 7;
  DiskStore store(o);
  constexpr size_t n = 100'000;
  DiskStore::Block* block = store.allocate(n);
  std::vector<std::unique_ptr<Buffer>> in, out;
  std::vector<DiskStore::Ticket> tickets;
  for (int i = 0; i < 40; ++i) {
    in.push_back(std::make_unique<Buffer>(n, i % 2 * 64));
    std::memset(in.back()->data(), i, n);
    out.push_back(std::make_unique<Buffer>(n, i % 3));
    tickets.push_back(store.write(block, in.back()->data(), n));
    tickets.push_back(store.read(block, out.back()->data(), n));
  }
  for (const DiskStore::Ticket& t : tickets) store.wait(t);
  for (int i = 0; i < 40; ++i)
    EXPECT_TRUE(std::all_of(out[i]->data(), out[i]->data() + n, [&](std::byte b) { return b == std::byte(i); })) << i;
}

TEST_P(DiskStoreTest, ManyThreadsWithBlocksOfTheirOwnAndOneInCommon) {
  const Scratch second;
  DiskOptions o = options();
  o.directories.push_back(second.path());
  o.stripe = 16 << 10;
  o.request = 8 << 10;
  o.depth = 5;
  DiskStore store(o);
  Buffer common(300'000);
  common.fill(9);
  DiskStore::Block* shared = store.allocate(common.size());
  store.wait(store.write(shared, common.data(), common.size()));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < 6; ++id)
    threads.emplace_back([&, id] {
      std::mt19937 random(id);
      for (int round = 0; round < 20; ++round) {
        const size_t n = random() % 150'000 + 1, from = random() % common.size();
        Buffer in(n, random() % 2), out(n), piece(common.size() - from, 3);
        in.fill(id * 100 + static_cast<uint32_t>(round));
        DiskStore::Block* block = store.allocate(n);
        const auto write = store.write(block, in.data(), n);
        const auto read = store.read(block, out.data(), n);
        const auto other = store.read(shared, piece.data(), piece.size(), from);
        // The block goes when what is under way for it is done.
        store.deallocate(block);
        store.wait(read);
        store.wait(write);
        store.wait(other);
        if (!out.equals(in.data(), n) || !piece.equals(common.data() + from, piece.size())) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace strata::memory
