// A DiskStore on a disk that fails: an engine stands in between, which tells the store what a real one might.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/memory/disk_core.h"
#include "strata/memory/disk_faults_test_util.h"
#include "strata/memory/disk_test_util.h"

namespace strata::memory {
namespace {

using Engine = DiskOptions::Engine;
constexpr size_t kKiB = 1024;

class DiskFaults : public DiskTest {
 protected:
  void set(std::function<int64_t(DiskTransfer&, int64_t)> answer) {
    const std::lock_guard lock(faults_.mutex);
    faults_.answer = std::move(answer);
  }
  static void write(DiskCore& core, DiskCore::Block* block, const Buffer& b) {
    DiskCore::wait(core.write(block, b.data(), b.size(), 0));
  }
  static void read(DiskCore& core, DiskCore::Block* block, const Buffer& b, size_t from = 0) {
    DiskCore::wait(core.read(block, b.data(), b.size(), from));
  }
  Faults faults_;
};
INSTANTIATE_TEST_SUITE_P(Engines, DiskFaults, testing::Values(Engine::uring, Engine::threads), engine_name);

TEST_P(DiskFaults, ShortAndInterruptedRequestsAreContinued) {
  for (const bool direct : {true, false}) {
    DiskOptions o = options();
    o.request = 64 * kKiB;
    o.depth = 4;
    o.direct = direct;
    DiskCore core(o, faults_.maker());
    Buffer in(1000 * kKiB + 3, 64), out(in.size(), 0);
    in.fill(1);
    DiskCore::Block* block = core.allocate(in.size());
    std::mt19937 random(3);
    // Of the file system's pages where it goes past the cache, of any number of bytes else.
    faults_.length = [&](const DiskTransfer& t) {
      const size_t n = random() % t.nbytes + 1;
      return core.direct() ? whole_pages(n) : n;
    };
    faults_.answer = [&](DiskTransfer&, int64_t n) {
      return random() % 4 == 0 ? -EAGAIN : random() % 4 == 0 ? -EINTR : random() % 4 == 0 && n > 1 ? n - 1 : n;
    };
    write(core, block, in);
    read(core, block, out);
    EXPECT_TRUE(in.equals(out.data(), in.size()));
    EXPECT_GT(core.stats().retried, 10);
    // The bytes of the pages, however often they were begun again.
    EXPECT_EQ(core.stats().bytes_read, static_cast<int64_t>(whole_pages(in.size())));
    EXPECT_EQ(core.stats().bytes_written, static_cast<int64_t>(whole_pages(in.size())));
  }
}

TEST_P(DiskFaults, AnErrorReachesEveryWaiterAndNobodyElse) {
  DiskOptions o = options();
  o.request = 16 * kKiB;
  o.depth = 2;
  DiskCore core(o, faults_.maker());
  Buffer in(512 * kKiB), out(in.size()), other(in.size());
  in.fill(1);
  DiskCore::Block *bad = core.allocate(in.size()), *good = core.allocate(in.size());
  write(core, bad, in);
  write(core, good, in);
  // What comes behind the failed piece takes its time: on a busy machine the error may be told late.
  set([&](DiskTransfer& t, int64_t n) {
    if (!t.write && t.offset == 32768) return int64_t{-EIO};
    if (!t.write && t.offset > 32768 && t.offset < 524288) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return n;
  });
  faults_.transfers = 0;
  const auto request = core.read(bad, out.data(), out.size(), 0);
  const auto fine = core.read(good, other.data(), other.size(), 0);
  std::atomic<int> told{0};
  std::vector<std::thread> waiters;
  waiters.reserve(4);
  for (int i = 0; i < 4; ++i)
    waiters.emplace_back([&] {
      const std::string text = message<IoError>([&] { DiskCore::wait(request); });
      const std::string wanted = "DiskStore: reading " + scratch_.path() +
                                 ", byte 32768 of its file (byte 32768 of a block of 524288): Input/output error";
      told += text == wanted;
    });
  for (std::thread& t : waiters) t.join();
  EXPECT_EQ(told, 4);
  DiskCore::wait(fine);
  EXPECT_TRUE(other.equals(in.data(), in.size()));
  // 32 pieces each; those that had not begun were left out.
  EXPECT_LT(faults_.transfers, 32 + 16);
  set(nullptr);
  read(core, bad, out);
  EXPECT_TRUE(out.equals(in.data(), in.size()));
}

TEST_P(DiskFaults, WritesThatFail) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    DiskOptions o = options();
    o.request = 8 * kKiB;
    o.depth = 1;  // so that pieces are left out
    DiskCore core(o, faults_.maker());
    Buffer old(64 * kKiB), in(64 * kKiB), out(64 * kKiB);
    old.fill(1);
    in.fill(2);
    DiskCore::Block* block = core.allocate(in.size());
    write(core, block, old);
    set([&](DiskTransfer& t, int64_t n) { return t.write && t.offset == 8192 ? -error : n; });
    const std::string text = message<IoError>([&] { write(core, block, in); });
    EXPECT_NE(text.find("writing " + scratch_.path()), std::string::npos) << text;
    EXPECT_NE(text.find(std::generic_category().message(error)), std::string::npos) << text;
    set(nullptr);
    // Which pages are old and which new nobody knows: none is taken for right, nor completed.
    for (const size_t page : {0, 7, 15})
      EXPECT_NE(message<IoError>([&] {
                  DiskCore::wait(core.read(block, out.data(), 1, page * kDiskPage));
                }).find("a write of this page has failed"),
                std::string::npos);
    EXPECT_THROW(DiskCore::wait(core.write(block, in.data(), 1, 100)), IoError);
    write(core, block, in);
    read(core, block, out);
    EXPECT_TRUE(out.equals(in.data(), in.size()));
  }
}

TEST_P(DiskFaults, ADiskThatNeverGetsOnWithIt) {
  DiskCore core(options(), faults_.maker());
  Buffer memory(64 * kKiB);
  memory.fill(1);
  DiskCore::Block* block = core.allocate(memory.size());
  for (const int64_t forever : {int64_t{-EAGAIN}, int64_t{0}}) {
    set([forever](DiskTransfer&, int64_t) { return forever; });
    EXPECT_NE(message<IoError>([&] { write(core, block, memory); }), "no error");
    EXPECT_NE(message<IoError>([&] { read(core, block, memory); }), "no error");
  }
  EXPECT_NE(message<IoError>([&] { read(core, block, memory); }).find("the file ends there"), std::string::npos);
}

TEST_P(DiskFaults, APageThatIsNotWhatWasWritten) {
  for (const bool checksums : {true, false}) {
    DiskOptions o = options();
    o.checksums = checksums;
    DiskCore core(o, faults_.maker());
    Buffer in(64 * kKiB), out(64 * kKiB);
    in.fill(1);
    DiskCore::Block* block = core.allocate(in.size());
    write(core, block, in);
    // One bit, on the disk itself.
    Buffer page(kDiskPage);
    ASSERT_EQ(::pread(faults_.fd, page.data(), kDiskPage, 5 * kDiskPage), static_cast<ssize_t>(kDiskPage));
    page.data()[100] ^= std::byte{4};
    ASSERT_EQ(::pwrite(faults_.fd, page.data(), kDiskPage, 5 * kDiskPage), static_cast<ssize_t>(kDiskPage));
    if (!checksums) {
      read(core, block, out);
      EXPECT_EQ(out.data()[5 * kDiskPage + 100] ^ in.data()[5 * kDiskPage + 100], std::byte{4});
      continue;
    }
    const std::string wanted =
        "byte 20480 of its file (byte 20480 of a block of 65536): this page is not what was written";
    EXPECT_NE(message<IoError>([&] { read(core, block, out); }).find(wanted), std::string::npos);
    const int64_t row = 20500;
    EXPECT_NE(message<IoError>([&] { DiskCore::wait(core.read_rows(block, out.data(), 1, &row, 1, 1)); }).find(wanted),
              std::string::npos);
    // A part of it cannot be written: the rest would be taken for right from then on.
    EXPECT_NE(message<IoError>([&] { DiskCore::wait(core.write(block, in.data(), 10, 20490)); }).find(wanted),
              std::string::npos);
    // The others are as they were, and the page is right again once all of it is written.
    Buffer before(5 * kDiskPage);
    read(core, block, before);
    DiskCore::wait(core.write(block, in.data() + 5 * kDiskPage, kDiskPage, 5 * kDiskPage));
    read(core, block, out);
    EXPECT_TRUE(out.equals(in.data(), in.size()));
  }
}

TEST_P(DiskFaults, PagesThatWereNeverWritten) {
  DiskCore core(options(), faults_.maker());
  Buffer memory(3 * kDiskPage), out(3 * kDiskPage);
  memory.fill(1);
  DiskCore::Block* block = core.allocate(3 * kDiskPage);
  EXPECT_NE(message<IoError>([&] { read(core, block, out); }).find("this page was never written"), std::string::npos);
  // A part of one is enough for all of it.
  DiskCore::wait(core.write(block, memory.data(), 10, kDiskPage + 5));
  DiskCore::wait(core.read(block, out.data(), 10, kDiskPage + 5));
  EXPECT_TRUE(memory.equals(out.data(), 10));
  EXPECT_NE(message<IoError>([&] { read(core, block, out); }).find("byte 0 of a block"), std::string::npos);
  // The next who has the place does not see what was there.
  core.deallocate(block);
  EXPECT_THROW(read(core, core.allocate(3 * kDiskPage), out), IoError);
}

TEST_P(DiskFaults, RoomIsRefusedAndGivenBack) {
  const Scratch second;
  DiskOptions o = options();
  o.directories.push_back(second.path());
  o.stripe = 64 * kKiB;
  DiskCore core(o, faults_.maker());
  int64_t left = 512 * static_cast<int64_t>(kKiB);
  faults_.reserve = [&](int64_t, int64_t nbytes) { return nbytes > left ? ENOSPC : (left -= nbytes, 0); };
  DiskCore::Block* first = core.allocate(256 * kKiB);
  const std::string text = message<MemoryError>([&] { core.allocate(512 * kKiB); });
  EXPECT_NE(text.find("cannot get 256.0 KiB in "), std::string::npos) << text;
  EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
  EXPECT_EQ(core.bound().used, 256 << 10);
  // The part that had been got, of the second file, is used for the next.
  left = 0;
  DiskCore::Block* next = core.allocate(64 * kKiB);
  EXPECT_EQ(core.bound().used, (256 + 64) << 10);
  Buffer in(64 * kKiB), out(64 * kKiB);
  in.fill(5);
  write(core, next, in);
  read(core, next, out);
  EXPECT_TRUE(out.equals(in.data(), in.size()));
  // Holes that are too small go back to the file system before it is said to be full.
  core.deallocate(first);
  core.deallocate(next);
  const int before = faults_.releases;
  EXPECT_THROW(core.allocate(4096 * kKiB), MemoryError);
  EXPECT_GT(faults_.releases, before);
  left = int64_t{1} << 40;
  EXPECT_NE(core.allocate(4096 * kKiB), nullptr);
}

TEST_P(DiskFaults, ASlowDiskKeepsTheOrder) {
  using namespace std::chrono;
  std::unique_ptr<DiskCore> core = std::make_unique<DiskCore>(options(), faults_.maker());
  faults_.before = [](const DiskTransfer& t) { std::this_thread::sleep_for(milliseconds(t.write ? 40 : 10)); };
  Buffer one(kDiskPage), two(kDiskPage), a(kDiskPage), b(kDiskPage), c(kDiskPage);
  one.fill(1);
  two.fill(2);
  DiskCore::Block *x = core->allocate(2 * kDiskPage), *y = core->allocate(kDiskPage);
  const auto first = core->write(x, one.data(), kDiskPage, 0);
  const auto read_first = core->read(x, a.data(), kDiskPage, 0);
  const auto second = core->write(x, two.data(), kDiskPage, 0);
  const auto read_second = core->read(x, b.data(), kDiskPage, 0);
  const auto apart = core->write(x, two.data(), kDiskPage, kDiskPage);  // waits for none of them
  const auto elsewhere = core->write(y, one.data(), kDiskPage, 0);
  EXPECT_FALSE(read_second->is_done);
  core->deallocate(x);
  EXPECT_THROW(core->read(x, c.data(), kDiskPage, 0), ValueError);
  EXPECT_EQ(core->bound().used, static_cast<int64_t>(3 * kDiskPage));  // x is not gone yet
  DiskCore::wait(read_second);
  EXPECT_TRUE(first->is_done && read_first->is_done && second->is_done);
  EXPECT_TRUE(a.equals(one.data(), kDiskPage));
  EXPECT_TRUE(b.equals(two.data(), kDiskPage));
  DiskCore::wait(apart);
  EXPECT_EQ(core->bound().used, static_cast<int64_t>(kDiskPage));
  // The store waits for what is under way.
  const auto last = core->write(y, two.data(), kDiskPage, 0);
  core.reset();
  EXPECT_TRUE(last->is_done);
  DiskCore::wait(last);
  DiskCore::wait(elsewhere);
}

TEST(DiskFile, RoomWithoutFallocate) {
  const Scratch scratch;
  for (const bool direct : {true, false}) {
    const UnnamedFile file(scratch.path(), direct);
    constexpr int64_t n = (3 << 20) + 4096;
    EXPECT_EQ(write_zeros(file.fd(), 8192, n), 0);
    EXPECT_EQ(::lseek(file.fd(), 0, SEEK_END), 8192 + n);
    Buffer page(kDiskPage);
    page.fill(1);
    ASSERT_EQ(::pread(file.fd(), page.data(), kDiskPage, 8192 + n - 4096), 4096);
    EXPECT_TRUE(std::all_of(page.data(), page.data() + kDiskPage, [](std::byte b) { return b == std::byte{0}; }));
    const int full = ::open("/dev/full", O_RDWR | O_CLOEXEC);
    EXPECT_EQ(write_zeros(full, 0, 4096), ENOSPC);
    ::close(full);
  }
}

TEST(DiskFile, WithANameForAMoment) {
  const Scratch scratch;
  const int fd = open_and_unlink(scratch.path(), 0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(scratch.entries(), 0);
  EXPECT_EQ(::pwrite(fd, "abc", 3, 0), 3);
  ::close(fd);
  EXPECT_LT(open_and_unlink("/nowhere", 0), 0);
}

// Against a map of who has which page.
TEST(FreeExtents, NeverGivesAPageTwice) {
  FreeExtents extents;
  std::mt19937 random(1);
  std::vector<bool> used, backed;
  struct Held {
    int64_t offset, nbytes;
  };
  std::vector<Held> held;
  for (int round = 0; round < 4000; ++round) {
    if (held.size() < 40 && random() % 2 == 0) {
      const int64_t n = random() % 20 + 1;
      const FreeExtents::Taken taken = extents.take(n);
      used.resize(std::max<size_t>(used.size(), static_cast<size_t>(taken.offset + n)));
      backed.resize(used.size());
      for (int64_t i = taken.offset; i < taken.offset + n; ++i) {
        ASSERT_FALSE(used[i]) << i;
        ASSERT_EQ(backed[i], taken.backed) << i;
        used[i] = backed[i] = true;
      }
      held.push_back({taken.offset, n});
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      const Held h = held[which];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      extents.give(h.offset, h.nbytes, true);
      for (int64_t i = h.offset; i < h.offset + h.nbytes; ++i) used[i] = false;
    }
    int64_t free_and_backed = 0;
    for (size_t i = 0; i < used.size(); ++i) free_and_backed += !used[i] && backed[i];
    ASSERT_EQ(extents.backed_bytes(), free_and_backed);
    if (round % 500 == 499) {
      extents.release_backed([&](int64_t offset, int64_t nbytes) {
        for (int64_t i = offset; i < offset + nbytes; ++i) {
          ASSERT_TRUE(backed[i] && !used[i]);
          backed[i] = false;
        }
      });
      ASSERT_EQ(extents.backed_bytes(), 0);
    }
  }
  for (const Held& h : held) extents.give(h.offset, h.nbytes, true);
  extents.release_backed([](int64_t, int64_t) {});
  EXPECT_EQ(extents.take(1).offset, 0) << "the file is as small as it was";
}

}  // namespace
}  // namespace strata::memory
