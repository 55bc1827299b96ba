// Saved tensors on a disk: the same gradients, nothing left behind, and what can fail.
#include "strata/autograd/offload.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "strata/autograd/checkpoint.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/memory/pressure.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// A directory for a store.
class Scratch {
 public:
  Scratch() : path_(testing::TempDir() + "strata_offload_XXXXXX") {
    if (!::mkdtemp(path_.data())) throw IoError("test", path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::shared_ptr<memory::DiskStore> store(int64_t limit = 0) const {
    return std::make_shared<memory::DiskStore>(
        memory::DiskOptions{.directories = {path_}, .limit = limit, .stripe = 1 << 14, .request = 1 << 13});
  }
  // Overwrites what the store's file holds.
  void spoil() const {
    int files = 0;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code none;
      const std::string target = std::filesystem::read_symlink(fd.path(), none).string();
      if (target.compare(0, path_.size(), path_) != 0) continue;
      const int file = ::open(fd.path().c_str(), O_WRONLY);  // the same file, without O_DIRECT
      ASSERT_GE(file, 0);
      const std::string noise(1 << 17, '!');
      EXPECT_EQ(::pwrite(file, noise.data(), noise.size(), 0), static_cast<ssize_t>(noise.size()));
      ::close(file);
      ++files;
    }
    EXPECT_GT(files, 0);
  }

 private:
  std::string path_;
};

TEST(OffloadToDisk, SameBitsAndNothingLeft) {
  const Scratch dir;
  const auto store = dir.store();
  const TensorList leaves = mlp_leaves(DType::bf16);
  const std::vector<std::string> want = gradients(mlp, leaves, nullptr);
  for (OffloadOptions o : {all_away(), all_again()}) {
    o.away = SavedPlace::disk;
    o.disk = store;
    const auto offload = SavedTensorOffload::create(o);
    for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(gradients(mlp, leaves, offload), want);
    EXPECT_GT(offload->stats().fetched, 0);
    EXPECT_EQ(offload->stats().refused, 0) << offload->stats().last_failure;
  }
  EXPECT_EQ(store->bound().used, 0);
  EXPECT_GT(store->stats().bytes_read, 0);
}

TEST(OffloadToDisk, WhatFindsNoRoomStays) {
  const Scratch dir;
  OffloadOptions o = all_away();
  o.away = SavedPlace::disk;
  o.disk = dir.store(2 * static_cast<int64_t>(memory::kDiskPage));
  const auto offload = SavedTensorOffload::create(o);
  const TensorList leaves = mlp_leaves();
  EXPECT_EQ(gradients(mlp, leaves, offload), gradients(mlp, leaves, nullptr));
  const OffloadStats s = offload->stats();
  EXPECT_GT(s.refused, 0);
  EXPECT_FALSE(s.last_failure.empty());
}

// The next step works, and nothing was computed with other bytes.
TEST(OffloadToDisk, SpoiledBytesAreAnErrorOfBackward) {
  const Scratch dir;
  OffloadOptions o = all_away();
  o.away = SavedPlace::disk;
  o.disk = dir.store();
  const auto offload = SavedTensorOffload::create(o);
  const TensorList leaves = mlp_leaves();
  const std::vector<std::string> want = gradients(mlp, leaves, nullptr);
  for (Tensor t : leaves) t.set_grad({});
  {
    Tensor y;
    {
      const SavedTensorOffload::Scope scope(offload);
      y = mlp(leaves);
    }
    EXPECT_GT(offload->stats().away_bytes, 0);
    dir.spoil();
    EXPECT_THROW(y.backward({}, true), IoError);
    EXPECT_THROW(y.backward(), IoError);
  }
  EXPECT_EQ(offload->stats().away_bytes, 0);
  EXPECT_EQ(gradients(mlp, leaves, offload), want);
  EXPECT_EQ(o.disk->bound().used, 0);
}

// A plan that keeps everything, where there is no room for that: what was saved first leaves after all, in forward and in
// backward, and the numbers are the same. Nothing leaves where there is room.
TEST(OffloadToDisk, WhatWasToStayLeavesWhereThereIsNoRoom) {
  constexpr int64_t kEach = int64_t{1} << 20;
  const Tensor x = leaf({kEach / 4});
  const Loss chain = sines(8);
  const std::vector<std::string> want = gradients(chain, {x}, nullptr);
  Tensor(x).set_grad({});
  give_all_back();
  const Scratch dir;
  OffloadOptions o = all_away();
  o.away = SavedPlace::disk;
  o.disk = dir.store();
  const int64_t held = live();
  // A gradient, what sin saved, its cosine and their product; and up to all that is saved besides.
  for (int64_t room = 4; room <= 12; ++room) {
    SCOPED_TRACE(room);
    const auto offload = SavedTensorOffload::create(o);
    offload->set_plan(OffloadPlan::of(std::vector<SavedPlace>(8, SavedPlace::keep)));
    const int64_t before = memory::backend(Device::cpu()).set_limit(Device::cpu(), held + room * kEach + (64 << 10));
    EXPECT_NO_THROW(EXPECT_EQ(gradients(chain, {x}, offload), want));
    memory::backend(Device::cpu()).set_limit(Device::cpu(), before);
    Tensor(x).set_grad({});
    EXPECT_EQ(offload->stats().sent > 0, room < 9) << offload->stats().sent;
    EXPECT_EQ(offload->stats().away_bytes, 0);
  }
}

// Random graphs whose tensors have several users, some of them in blocks that run again, in any room from what their calls
// take on: the same gradients, from a graph that is kept too.
TEST(OffloadToDisk, AnyGraphInLessRoomHasTheSameGradients) {
  constexpr int64_t kEach = int64_t{1} << 18;
  const Scratch dir;
  const Tensor x = leaf({kEach / 4});
  int64_t sent = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    const Loss graph = [seed](const TensorList& p) {
      std::minstd_rand draw(seed + 1);
      TensorList all{p[0]};
      for (int i = 0; i < 10; ++i) {
        const Tensor& a = all[draw() % all.size()];
        const Tensor& b = all[draw() % all.size()];
        switch (draw() % 4) {
          case 0:
            all.push_back(sin(a));
            break;
          case 1:
            all.push_back(a * b);
            break;
          case 2:
            all.push_back(checkpoint([](const Tensor& t) { return sin(t * t) * t; }, a));
            break;
          default:
            all.push_back(tanh(a) + b);
        }
      }
      Tensor y = sum(all.back());
      for (size_t i = 1; i + 1 < all.size(); ++i) y = y + sum(all[i]) * 0.1;
      return y;
    };
    const std::vector<std::string> want = gradients(graph, {x}, nullptr);
    give_all_back();
    const int64_t held = live();
    OffloadOptions o = all_away();
    o.away = SavedPlace::disk;
    o.disk = dir.store();
    std::minstd_rand draw(seed + 100);
    for (int tries = 0; tries < 3; ++tries) {
      Tensor(x).set_grad({});
      give_all_back();
      const auto offload = SavedTensorOffload::create(o);
      offload->set_plan(OffloadPlan::of(std::vector<SavedPlace>(64, SavedPlace::keep)));
      // The results stand beside their sums while forward runs, and some gradients in backward.
      const int64_t room = static_cast<int64_t>(14 + draw() % 14) * kEach;
      const int64_t before = memory::backend(Device::cpu()).set_limit(Device::cpu(), held + room + (64 << 10));
      EXPECT_NO_THROW(EXPECT_EQ(gradients(graph, {x}, offload), want)) << room / kEach;
      // Twice through one graph, each time from nothing.
      Tensor(x).set_grad({});
      Tensor y;
      {
        const SavedTensorOffload::Scope scope(offload);
        y = graph({x});
      }
      EXPECT_NO_THROW(y.backward({}, true));
      EXPECT_EQ(bits(x.grad()), want[0]);
      Tensor(x).set_grad({});
      EXPECT_NO_THROW(y.backward());
      EXPECT_EQ(bits(x.grad()), want[0]);
      y = Tensor();
      memory::backend(Device::cpu()).set_limit(Device::cpu(), before);
      EXPECT_EQ(offload->stats().away_bytes, 0);
      sent += offload->stats().sent;
    }
    EXPECT_EQ(o.disk->bound().used, 0);
  }
  EXPECT_GT(sent, 0);
}

}  // namespace
}  // namespace strata
