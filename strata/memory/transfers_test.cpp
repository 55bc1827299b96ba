#include "strata/memory/transfers.h"

#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/memory/disk_store.h"
#include "strata/memory/disk_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"

namespace strata::memory {
namespace {

TEST(Transfers, NothingIsPutDownUnlessSomebodyListens) {
  EXPECT_FALSE(transfers_wanted());
  bool named = false;
  {
    const MovedName name([&] { return named = true, std::string("x"); });
    const TimedTransfer t(TransferKind::copy, "to host", 4);
  }
  EXPECT_FALSE(named);
  TransferLog log;
  EXPECT_TRUE(transfers_wanted());
  EXPECT_TRUE(log.take().empty());
}

TEST(Transfers, NamesNestAndBelongToTheThread) {
  TransferLog log;
  {
    const MovedName outer([] { return std::string("outer"); });
    { const TimedTransfer t(TransferKind::copy, "to host", 4); }
    {
      const MovedName inner([] { return std::string("inner"); });
      std::thread([] { const TimedTransfer t(TransferKind::processor, "processor"); }).join();
      { const TimedTransfer t(TransferKind::wait, "waiting"); }
    }
    { const TimedTransfer t(TransferKind::copy, "from host"); }
  }
  EXPECT_EQ(moved_name(), "");
  const std::vector<Transfer> all = log.take();
  ASSERT_EQ(all.size(), 4u);
  const char* names[] = {"outer", "", "inner", "outer"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].name, names[i]);
    EXPECT_LE(all[i].begin, all[i].end);
    EXPECT_GE(all[i].begin, i == 0 ? 0 : all[i - 1].begin);
  }
  EXPECT_EQ(all[0].bytes, 4);
  EXPECT_EQ(all[1].kind, TransferKind::processor);
  EXPECT_TRUE(log.take().empty());  // each once
}

TEST(Transfers, LogsNestAndAYoungOneHasNothingOld) {
  TransferLog old;
  const double before = host_seconds();
  TransferLog young;
  note_transfer({TransferKind::copy, "a", "b", before, host_seconds(), 1});
  { const TimedTransfer t(TransferKind::copy, "c", 2); }
  EXPECT_EQ(old.take().size(), 2u);
  const std::vector<Transfer> seen = young.take();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].track, "c");
}

class LaterTimes final : public TransferTimes {
 public:
  explicit LaterTimes(double begin) : begin_(begin) {}
  std::pair<double, double> read() override { return {begin_, begin_ + 0.5}; }

 private:
  double begin_;
};

TEST(Transfers, TimesThatAreKnownLater) {
  TransferLog log;
  note_transfer({TransferKind::copy, "to host", "x"}, std::make_shared<LaterTimes>(log.begun() + 1));
  note_transfer({TransferKind::copy, "to host", "early"}, std::make_shared<LaterTimes>(log.begun() - 0.25));
  const std::vector<Transfer> all = log.take();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "early");
  EXPECT_EQ(all[0].begin, 0);
  EXPECT_NEAR(all[0].end, 0.25, 1e-6);
  EXPECT_NEAR(all[1].begin, 1, 1e-6);
  EXPECT_NEAR(all[1].end, 1.5, 1e-6);
}

// A request tells of each file with its bytes, whole pages, when it was asked for before others ended.
TEST(Transfers, OfADiskByFile) {
  const Scratch first, second;
  DiskOptions o;
  o.directories = {first.path(), second.path()};
  o.stripe = 64 << 10;
  DiskStore store(o);
  DiskStore::Block* block = store.allocate(256 << 10);
  std::vector<std::byte> bytes(256 << 10, std::byte{3});
  store.wait(store.write(block, bytes.data(), bytes.size()));  // nobody listens
  TransferLog log;
  {
    const MovedName name([] { return std::string("weight"); });
    store.wait(store.write(block, bytes.data(), bytes.size()));
  }
  store.wait(store.read(block, bytes.data(), 100, 5000));
  const std::vector<Transfer> all = log.take();
  ASSERT_EQ(all.size(), 3u);
  std::map<std::string, int64_t> written;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(all[i].name, "weight");
    EXPECT_EQ(all[i].kind, TransferKind::disk);
    EXPECT_GE(all[i].queued, 0);
    written[all[i].track] += all[i].bytes;
  }
  EXPECT_EQ(written["write " + first.path()], 128 << 10);
  EXPECT_EQ(written["write " + second.path()], 128 << 10);
  EXPECT_EQ(all[2].name, "");
  EXPECT_TRUE(all[2].track.starts_with("read "));
  EXPECT_EQ(all[2].bytes, 4096);
  store.deallocate(block);
}

TEST(Transfers, OfATierByTheLastName) {
  const Tensor x = ones({1 << 16}).to(kDisk);
  backend(Device::cpu(), kDisk).release_cached();  // home
  TransferLog log;
  {
    const MovedName name([] { return std::string("mine"); });
    const Pin pin(x, Access::write);
  }
  backend(Device::cpu(), kDisk).release_cached();  // by whom does not matter
  std::map<std::string, std::string> names;
  for (const Transfer& t : log.take())
    if (t.kind == TransferKind::disk) names[t.track.substr(0, 5)] = t.name;
  EXPECT_EQ(names["read "], "mine");
  EXPECT_EQ(names["write"], "mine");
}

}  // namespace
}  // namespace strata::memory
