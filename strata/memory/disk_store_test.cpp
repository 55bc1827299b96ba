// A DiskStore as its users see it, with each engine.

#include "strata/memory/disk_store.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/child_test_util.h"
#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/memory/disk_test_util.h"

namespace strata::memory {
namespace {

using Engine = DiskOptions::Engine;
constexpr size_t kMiB = size_t{1} << 20;

class DiskStoreTest : public DiskTest {};
INSTANTIATE_TEST_SUITE_P(Engines, DiskStoreTest, testing::Values(Engine::uring, Engine::threads), engine_name);

TEST_P(DiskStoreTest, WholeBlocksOfEverySizeReadAsWritten) {
  DiskOptions o = options();
  o.request = 64 << 10;
  DiskStore store(o);
  EXPECT_EQ(store.engine(), GetParam() == Engine::uring ? "io_uring" : "threads");
  for (const size_t shift : {0, 4, 64, 512, 1})
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{65536}, 3 * kMiB + 17}) {
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
    for (const size_t row :
         {size_t{1}, size_t{100}, size_t{256}, size_t{4096}, size_t{5000}, size_t{8192}, size_t{400'000}})
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

TEST_P(DiskStoreTest, RegisteredMemory) {
  DiskStore store(options());
  Buffer in(3 * kMiB), out(3 * kMiB + kDiskPage, 64);
  in.fill(4);
  store.register_buffer(in.data(), in.size());
  store.register_buffer(in.data(), in.size());  // twice is once
  DiskStore::Block* block = store.allocate(in.size());
  store.wait(store.write(block, in.data(), in.size()));
  store.register_buffer(out.data(), out.size());
  // The aligned part goes straight there.
  store.wait(store.read(block, out.data() + kDiskPage - 64, kMiB, kMiB));
  EXPECT_TRUE(in.size() == 3 * kMiB && std::memcmp(out.data() + kDiskPage - 64, in.data() + kMiB, kMiB) == 0);
  store.unregister_buffer(out.data());
  store.unregister_buffer(out.data());
  store.unregister_buffer(in.data());
  // The same addresses, of other memory maybe, are as good as any.
  in.fill(5);
  store.wait(store.write(block, in.data(), in.size()));
  store.wait(store.read(block, out.data() + kDiskPage - 64, 3 * kMiB));
  EXPECT_TRUE(in.equals(out.data() + kDiskPage - 64, 3 * kMiB));
}

TEST_P(DiskStoreTest, WhatItDidIsCounted) {
  DiskOptions o = options();
  o.request = 256 << 10;
  DiskStore store(o);
  Buffer memory(kMiB);
  memory.fill(1);
  DiskStore::Block* block = store.allocate(kMiB);
  store.wait(store.write(block, memory.data(), kMiB));
  store.wait(store.read(block, memory.data(), kMiB));
  const DiskStats s = store.stats();
  EXPECT_EQ(s.bytes_written, 1 << 20);
  EXPECT_EQ(s.bytes_read, 1 << 20);
  EXPECT_GE(s.writes, 4);
  EXPECT_GE(s.reads, 4);
  EXPECT_EQ(s.writes + s.reads, 8 + s.retried);
  EXPECT_GT(s.seconds_writing, 0);
  EXPECT_GT(s.seconds_reading, 0);
  EXPECT_LT(s.seconds_reading, 60);
}

TEST_P(DiskStoreTest, WithoutDirectAccess) {
  DiskOptions o = options();
  o.direct = false;
  DiskStore store(o);
  EXPECT_FALSE(store.direct());
  Buffer in(kMiB + 5, 1), out(kMiB + 5, 7);
  in.fill(8);
  DiskStore::Block* block = store.allocate(in.size());
  store.wait(store.write(block, in.data(), in.size()));
  store.wait(store.read(block, out.data(), out.size()));
  EXPECT_TRUE(in.equals(out.data(), in.size()));
}

TEST_P(DiskStoreTest, LimitBoundAndRoom) {
  DiskOptions o = options();
  o.limit = 4 * kMiB;
  DiskStore store(o);
  EXPECT_EQ(store.bound().name, "disk " + scratch_.path());
  EXPECT_EQ(store.bound().limit, 4 << 20);
  EXPECT_EQ(store.bound().used, 0);
  DiskStore::Block* block = store.allocate(3 * kMiB);
  EXPECT_EQ(store.bound().used, 3 << 20);
  const std::string refused = message<MemoryError>([&] { store.allocate(kMiB + 1); });
  EXPECT_NE(refused.find("cannot get 1.00 MiB on disk " + scratch_.path() +
                         ": 3.00 MiB are in use and the limit is 4.00 MiB"),
            std::string::npos)
      << refused;
  store.deallocate(block);
  EXPECT_EQ(store.bound().used, 0);
  // A block one page long makes a hole that the next cannot use whole.
  DiskStore::Block* small = store.allocate(1);
  DiskStore::Block* large = store.allocate(4 * kMiB - kDiskPage);
  EXPECT_EQ(store.bound().free(), 0);
  store.deallocate(small);
  store.deallocate(large);
  EXPECT_EQ(store.set_limit(0), 4 << 20);
  EXPECT_GT(store.bound().limit, 4 << 20);
  EXPECT_EQ(store.set_limit(kMiB), 0);
  EXPECT_THROW(store.allocate(2 * kMiB), MemoryError);
  EXPECT_THROW(store.set_limit(-1), ValueError);
}

TEST_P(DiskStoreTest, InvalidArguments) {
  DiskStore store(options());
  DiskStore::Block* block = store.allocate(1000);
  std::byte memory[16] = {};
  EXPECT_NE(message<ValueError>([&] {
              store.read(block, memory, 16, 985);
            }).find("read of bytes [985, 985 + 16) of a block of 1000"),
            std::string::npos);
  EXPECT_THROW(store.write(block, memory, 1, 1000), ValueError);
  EXPECT_THROW(store.read(block, memory, ~size_t{0}, 1), ValueError);
  EXPECT_THROW(store.read(nullptr, memory, 1), ValueError);
  for (const int64_t row : {int64_t{-1}, int64_t{100}, int64_t{1} << 62})
    EXPECT_NE(message<ValueError>([&] {
                store.read_rows(block, memory, 10, &row, 1, 10);
              }).find("of a block of 1000 bytes, which has 100 rows of 10"),
              std::string::npos);
  EXPECT_THROW(store.allocate(~size_t{0}), MemoryError);
  store.wait({});
  EXPECT_TRUE(store.done({}));
  store.wait(store.read_rows(block, memory, 10, nullptr, 0, 10));
  store.deallocate(block);
  EXPECT_THROW(store.deallocate(block), ValueError);

  const auto with = [&](auto change) {
    return message([&] {
      DiskOptions o = options();
      change(o);
      DiskStore made(o);
    });
  };
  EXPECT_NE(with([](DiskOptions& o) { o.directories.clear(); }).find("a directory"), std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.stripe = 1000; }).find("stripe"), std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.request = 0; }).find("requests"), std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.depth = 0; }).find("depth"), std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.limit = -1; }).find("limit"), std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.directories.push_back("/nowhere/at all"); }).find("/nowhere/at all"),
            std::string::npos);
  EXPECT_NE(with([](DiskOptions& o) { o.directories = {"/proc/self/exe"}; }).find("Not a directory"),
            std::string::npos);
}

// The thread sanitizer loses count of the threads that a child of a program with threads starts, and ends it.
#if defined(__SANITIZE_THREAD__)
constexpr bool kChildrenHaveThreads = false;
#else
constexpr bool kChildrenHaveThreads = true;
#endif

TEST_P(DiskStoreTest, ADirectoryThatWeMayNotWriteTo) {
  ::chmod(scratch_.path().c_str(), 0555);
  EXPECT_EQ(in_child([&] {
              if (::geteuid() == 0 && ::seteuid(65534) != 0) return 2;
              const std::string text = message<IoError>([&] { DiskStore store(options()); });
              return text.find(scratch_.path() + ": Permission denied") != std::string::npos ? 0 : 1;
            }),
            0);
}

TEST_P(DiskStoreTest, FileSizeLimits) {
  if (!kChildrenHaveThreads) GTEST_SKIP() << "a sanitizer that cannot follow it";
  EXPECT_EQ(in_child([&] {
              rlimit limit{};
              ::getrlimit(RLIMIT_FSIZE, &limit);
              limit.rlim_cur = kMiB;
              ::setrlimit(RLIMIT_FSIZE, &limit);
              DiskStore store(options());
              const std::string text = message<MemoryError>([&] { store.allocate(2 * kMiB); });
              if (text.find("File too large") == std::string::npos) return 1;
              DiskStore::Block* block = store.allocate(512 << 10);
              // A limit that comes later.
              limit.rlim_cur = 0;
              ::setrlimit(RLIMIT_FSIZE, &limit);
              Buffer memory(512 << 10);
              memory.fill(1);
              const DiskStore::Ticket write = store.write(block, memory.data(), memory.size());
              const std::string late = message<IoError>([&] { store.wait(write); });
              return late.find("File too large") != std::string::npos ? 0 : 2;
            }),
            0);
}

TEST_P(DiskStoreTest, AFullFileSystem) {
  if (!kChildrenHaveThreads) GTEST_SKIP() << "a sanitizer that cannot follow it";
  const int result = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, "size=2m") != 0)
      return 77;
    DiskStore store(options());
    const std::string text = message<MemoryError>([&] { store.allocate(4 * kMiB); });
    if (text.find("No space left on device") == std::string::npos) return 1;
    // What there was of it was given back.
    DiskStore::Block* block = store.allocate(kMiB + kMiB / 2);
    Buffer memory(kMiB), out(kMiB);
    memory.fill(1);
    store.wait(store.write(block, memory.data(), kMiB));
    store.wait(store.read(block, out.data(), kMiB));
    if (!out.equals(memory.data(), kMiB)) return 2;
    if (store.bound().free() > (1 << 19)) return 3;
    store.deallocate(block);
    // Smaller ones, then a larger one where they were: their room is not kept from it.
    DiskStore::Block* blocks[4];
    for (DiskStore::Block*& b : blocks) b = store.allocate(kMiB / 4);
    store.deallocate(blocks[0]);
    store.deallocate(blocks[2]);
    store.allocate(kMiB);
    return 0;
  });
  if (result == 77) GTEST_SKIP() << "file systems may not be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_P(DiskStoreTest, NothingIsLeftByAProcessThatIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    DiskStore store(options());
    Buffer memory(kMiB);
    memory.fill(1);
    DiskStore::Block* block = store.allocate(kMiB);
    store.wait(store.write(block, memory.data(), kMiB));
    (void)!::write(ready[1], "1", 1);
    while (true) store.write(block, memory.data(), kMiB);
  }
  char c;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_EQ(scratch_.entries(), 0) << "a file with a name";
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(scratch_.entries(), 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace strata::memory
