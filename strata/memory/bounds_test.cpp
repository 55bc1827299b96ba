#include "strata/memory/bounds.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"

namespace strata::memory {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = 1 << 20;

// A system's files in a folder of their own.
class Bounds : public testing::Test {
 protected:
  Bounds() : root_(testing::TempDir() + "strata_bounds_" + std::to_string(::getpid())) {
    fs::remove_all(root_);
    write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n");
  }
  ~Bounds() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  // name -> MiB of limit, used; without ulimit's, which is the real one.
  std::map<std::string, std::pair<int64_t, int64_t>> bounds() const {
    std::map<std::string, std::pair<int64_t, int64_t>> all;
    for (const Bound& b : host_bounds(root_))
      if (b.name != "ulimit -v") all[b.name] = {b.limit / kMiB, b.used / kMiB};
    return all;
  }
  using Expected = std::map<std::string, std::pair<int64_t, int64_t>>;
  std::string root_;
};

TEST_F(Bounds, TheMachineCountsWhatOthersHold) {
  EXPECT_EQ(bounds(), (Expected{{"this machine", {16384, 4096}}}));
  write("/proc/meminfo", "MemTotal: 1048576 kB\n");  // an old kernel
  EXPECT_EQ(bounds(), (Expected{{"this machine", {1024, 0}}}));
  fs::remove_all(root_);
  EXPECT_GT(host_bounds(root_).front().limit, 0);  // asked in another way
}

TEST_F(Bounds, GroupsOfVersion2UpToTheTop) {
  write("/proc/self/cgroup", "0::/jobs/7\n");
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  const std::string job = "/sys/fs/cgroup/jobs/7";
  write(job + "/memory.max", "max\n");
  write(job + "/memory.high", "2147483648\n");
  write(job + "/memory.current", "1073741824\n");
  write(job + "/memory.stat", "anon 5\ninactive_file 268435456\nactive_file 134217728\nslab_reclaimable 134217728\n");
  write("/sys/fs/cgroup/jobs/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/jobs/memory.high", "max\n");
  write("/sys/fs/cgroup/jobs/memory.current", "3221225472\n");
  EXPECT_EQ(bounds(), (Expected{{"this machine", {16384, 4096}},
                                {"the control group /jobs/7", {2048, 512}},
                                {"the control group /jobs", {4096, 3072}}}));
}

// A container sees its own group as the mount's top, by the name that it has outside.
TEST_F(Bounds, GroupsOfVersion1) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/ab12/worker\n0::/\n");
  write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "35 31 0:31 /docker/ab12 /sys/fs/cgroup/cpu,memory ro - cgroup cgroup rw,cpu,memory\n");
  const std::string top = "/sys/fs/cgroup/cpu,memory";
  write(top + "/memory.limit_in_bytes", "1073741824\n");
  write(top + "/memory.usage_in_bytes", "536870912\n");
  write(top + "/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file 134217728\ntotal_active_file 134217728\n");
  write(top + "/worker/memory.limit_in_bytes", "9223372036854771712\n");
  write(top + "/worker/memory.usage_in_bytes", "536870912\n");
  EXPECT_EQ(bounds(), (Expected{{"this machine", {16384, 4096}}, {"the control group /", {1024, 256}}}));
  write(top + "/worker/memory.limit_in_bytes", "805306368\n");
  EXPECT_EQ(bounds()["the control group /worker"], (std::pair<int64_t, int64_t>{768, 512}));
}

TEST_F(Bounds, BrokenFilesBoundNothing) {
  write("/proc/self/cgroup", "0::/../../elsewhere\nnonsense\n:\n");
  write("/proc/self/mountinfo", "1 2\n\n- cgroup2\n");
  write("/sys/fs/cgroup/memory.max", "plenty\n");
  EXPECT_EQ(bounds().size(), 1u);
  write("/sys/fs/cgroup/memory.max", "1048576\n");
  write("/sys/fs/cgroup/memory.current", "3145728\n");
  EXPECT_EQ(bounds()["the control group /"], (std::pair<int64_t, int64_t>{1, 3}));
  for (const Bound& b : host_bounds(root_)) EXPECT_GE(b.free(), 0);
}

TEST(TightestBound, OfEachDevice) {
  const Bound host = tightest_bound(Device::cpu());
  EXPECT_FALSE(host.name.empty());
  EXPECT_GT(host.free(), 0);
  EXPECT_LE(host.used, host.limit);
  const int64_t live = stats(Device::cpu()).live_total, before = set_limit(live + 12345);
  EXPECT_EQ(tightest_bound(Device::cpu()).free(), 12345);
  EXPECT_EQ(tightest_bound(Device::cpu()).limit, live + 12345);
  set_limit(before);
  EXPECT_GT(tightest_bound(Device::meta()).free(), int64_t{1} << 62);
  EXPECT_THROW(tightest_bound(Device::cuda(cuda::device_count())), DeviceError);
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Bound card = tightest_bound(Device::cuda());
  EXPECT_EQ(card.name.substr(0, 6), "cuda:0");
  EXPECT_GT(card.free(), 0);
  // Other processes may give memory back meanwhile: one attempt of several has to show ours.
  int64_t most = 0;
  for (int attempt = 0; attempt < 20 && most < int64_t{60} << 20; ++attempt) {
    release_cached();
    const int64_t before = tightest_bound(Device::cuda()).used;
    void* block = allocate(Device::cuda(), size_t{64} << 20, Tag::workspace);
    most = std::max(most, tightest_bound(Device::cuda()).used - before);
    deallocate(Device::cuda(), block, size_t{64} << 20, Tag::workspace);
  }
  EXPECT_GE(most, int64_t{60} << 20);
}

}  // namespace
}  // namespace strata::memory
