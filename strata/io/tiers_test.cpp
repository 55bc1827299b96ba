// Files of tensors from and to memory whose bytes move: more than fits near.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/backend.h"
#include "strata/core/error_test_util.h"
#include "strata/io/hash.h"
#include "strata/io/safetensors.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::io {
namespace {
using memory::kDisk;

Tensor ramp(const Shape& shape, double first) {
  return reshape(arange(shape.product()), shape).to(DType::f32) + first;
}
bool same(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  const Pin p(x, Access::read), q(y, Access::read);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0);
}

class DiskFiles : public ::testing::Test {
 protected:
  DiskFiles() : path_(::testing::TempDir() + "tiers.safetensors") {
    for (int i = 0; i < 12; ++i) here_.emplace("layer." + std::to_string(i), ramp({1000 + i, 1031}, i));  // 4 MiB each
    for (int i = 0; i < 300; ++i) here_.emplace("bias." + std::to_string(i), ramp({i}, i));
    here_.emplace("turned", ramp({100, 70}, 3).t());
    here_.emplace("flags", ramp({5000}, -2500) > 0.0);
    here_.emplace("half", ramp({777}, 0).to(DType::bf16));
  }
  ~DiskFiles() override { memory::set_near_limit(previous_, Device::cpu(), kDisk); }
  static void settle() { memory::backend(Device::cpu(), kDisk).release_cached(); }

  const std::string path_;
  TensorMap here_;
  const int64_t previous_ = memory::set_near_limit(10 << 20, Device::cpu(), kDisk);
};

TEST_F(DiskFiles, AreTheSameFromEveryTierAndGoStraightThere) {
  TensorMap there;
  for (const auto& [name, t] : here_) there.emplace(name, t.to(kDisk));
  settle();
  const int64_t own = memory::stats(Device::cpu()).live_total;
  memory::reset_peak(Device::cpu());
  EXPECT_EQ(save_safetensors(path_, there).xxh64, save_safetensors(path_ + ".own", here_).xxh64);
  EXPECT_EQ(encode_safetensors(there), encode_safetensors(here_));

  // Into what is there, and as new tensors of the scope.
  TensorMap into;
  for (const auto& [name, t] : here_) into.emplace(name, full(t.shape(), 0, t.dtype()).to(kDisk));
  settle();
  memory::reset_peak(Device::cpu());
  const SafetensorsFile file(path_);
  for (const bool hashed : {false, true}) {
    Hasher hasher;
    const TensorMap filled = file.read(into, Device::cpu(), hashed ? &hasher : nullptr);
    const memory::Stats host = memory::stats(Device::cpu());
    EXPECT_LE(host.peak_total, own + (int64_t{10} << 20) + (int64_t{28} << 20));  // near, and pieces of the file
    for (const auto& [name, t] : filled) {
      EXPECT_TRUE(same(t, here_.at(name))) << name;
      EXPECT_EQ(t.tier(), name == "flags" ? Tier::host : kDisk);
      if (name != "flags") {
        EXPECT_TRUE(t.same_as(into.at(name)));
      }
    }
    for (auto& [name, t] : into) t.fill_(0);
    if (hashed) {
      Hasher whole;
      InputFile(path_).hash(whole);
      EXPECT_EQ(hasher.digest(), whole.digest());
    }
  }
  const memory::TierScope scope(kDisk);
  for (const auto& [name, t] : file.tensors()) {
    EXPECT_EQ(t.tier(), kDisk);
    EXPECT_TRUE(same(t, here_.at(name))) << name;
  }
  EXPECT_TRUE(same(file.tensor("layer.3"), here_.at("layer.3")));
  EXPECT_EQ(file.tensor("layer.3").tier(), kDisk);
}

TEST_F(DiskFiles, ATensorLargerThanWhatMayBeNearIsRefused) {
  save_safetensors(path_, here_);
  TensorMap into{{"layer.5", empty({1005, 1031}).to(kDisk)}};
  into.at("layer.5").fill_(1);
  settle();
  memory::set_near_limit(1 << 20, Device::cpu(), kDisk);
  EXPECT_NE(message<MemoryError>([&] { SafetensorsFile(path_).read(into); }).find("near"), std::string::npos);
  memory::set_near_limit(10 << 20, Device::cpu(), kDisk);
  EXPECT_TRUE(same(into.at("layer.5"), full({1005, 1031}, 1.0)));
}

}  // namespace
}  // namespace strata::io
