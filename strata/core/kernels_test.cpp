// What records say of their kernels is so: one for each device where there is one, none for a device that the build
// does not have.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/op.h"
#include "strata/cuda/runtime.h"

namespace strata {
namespace {

// The toolkit that the build was made with; 0 without CUDA. Needs no card.
bool built_with_cuda() {
  return cuda::versions().runtime != 0;
}

// The library's records, not those that tests beside this one make.
std::vector<std::string> names_of(auto&& wanted) {
  std::vector<std::string> names;
  int all = 0;
  for (const OpBase* op : OpBase::all()) {
    if (op->file().find("strata/ops/") == std::string_view::npos) continue;
    ++all;
    if (wanted(*op)) names.emplace_back(op->name());
  }
  EXPECT_GT(all, 300);
  return names;
}

TEST(Kernels, ARoomThatLaunchesIsThereWithCudaOnly) {
  EXPECT_EQ(launch_room(DeviceType::cuda) != nullptr, built_with_cuda());
  EXPECT_EQ(launch_room(DeviceType::cpu), nullptr);
  EXPECT_EQ(launch_room(DeviceType::meta), nullptr);
}

TEST(Kernels, NoneForACardInABuildWithoutCuda) {
  if (built_with_cuda()) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(names_of([](const OpBase& op) { return op.has_kernel(DeviceType::cuda); }), std::vector<std::string>());
}

TEST(Kernels, OnACardAllHaveOneThatTheCpuHas) {
  if (!built_with_cuda()) GTEST_SKIP() << "this build has no CUDA";
  const auto host_only = [](const OpBase& op) {
    return op.has_kernel(DeviceType::cpu) && !op.has_kernel(DeviceType::cuda);
  };
  EXPECT_EQ(names_of(host_only), (std::vector<std::string>{"isin", "lstsq_gelsy", "max_pool_values", "scale_rounded",
                                                           "scale_shift_channels"}));
  for (const std::string& name : names_of(host_only)) EXPECT_TRUE(OpBase::find(name)->has_composed()) << name;
}

TEST(Kernels, NoRecordIsForACardAlone) {
  EXPECT_EQ(names_of([](const OpBase& op) {
              return op.has_kernel(DeviceType::cuda) && !op.has_kernel(DeviceType::cpu) && !op.has_composed();
            }),
            std::vector<std::string>());
}

TEST(Kernels, AnOpHasAKernelOrIsWrittenWithOthersOrIsAView) {
  EXPECT_EQ(
      names_of([](const OpBase& op) { return !op.has_kernel(DeviceType::cpu) && !op.has_composed() && !op.is_view(); }),
      std::vector<std::string>());
}

using Function = void (*)(int&);

TEST(Kernels, OneBodyIsCompiledForEachDevice) {
  const ByDevice<Function> all = on_each_device([](auto on, int& ran) { ran = on.cuda ? 2 : 1; });
  int ran = 0;
  all.on(DeviceType::cpu)(ran);
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(all.has(DeviceType::cpu));
  EXPECT_EQ(all.on(DeviceType::meta), nullptr);
  // Programs outside the library compile no kernels for a card.
  EXPECT_EQ(all.on(DeviceType::cuda), nullptr);
  EXPECT_FALSE(all.has(DeviceType::cuda));
}

TEST(Kernels, WhatCallsOtherOpsIsForTheDevicesOfTheBuild) {
  const ByDevice<Function> all{.everywhere = [](int&) {}};
  EXPECT_TRUE(all.has(DeviceType::cpu));
  EXPECT_EQ(all.has(DeviceType::cuda), built_with_cuda());
  EXPECT_FALSE(all.has(DeviceType::meta));
  EXPECT_FALSE(static_cast<bool>(ByDevice<Function>()));
}

}  // namespace
}  // namespace strata
