// What is loaded as NCCL, and what the engine takes it for.

#include <gtest/gtest.h>

#include <cstdlib>

#include "strata/dist/lane_test_util.h"
#include "strata/dist/nccl_inl.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define STRATA_HAS_NCCL_H
#endif

namespace strata::distributed {
namespace {

std::string refusal() {
  try {
    detail::nccl();
  } catch (const DistributedError& e) {
    return e.what();
  }
  return {};
}

TEST(Nccl, SaysWhereItWasLookedForAndWhatItIs) {
  // In this order: what has been loaded once stays.
  setenv("STRATA_NCCL", "/nowhere/libnccl.so.2", 1);
  const std::string absent = refusal();
  EXPECT_NE(absent.find("/nowhere/libnccl.so.2: not there"), std::string::npos) << absent;
  EXPECT_NE(absent.find("nvidia-nccl"), std::string::npos) << absent;
  EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");

  setenv("STRATA_NCCL", "/proc/self/exe", 1);  // a program, no library
  EXPECT_NE(refusal().find("/proc/self/exe: "), std::string::npos);

  setenv("STRATA_NCCL", STRATA_FAKE_NCCL, 1);
  setenv("STRATA_FAKE_NCCL_VERSION", "2708", 1);
  const std::string old = refusal();
  EXPECT_NE(old.find("from 2.18 on"), std::string::npos) << old;
  setenv("STRATA_FAKE_NCCL_VERSION", "22803", 1);
  EXPECT_EQ(detail::nccl().version, 22803);
  EXPECT_EQ(detail::nccl().file, STRATA_FAKE_NCCL);
  unsetenv("STRATA_NCCL");
  EXPECT_EQ(&detail::nccl(), &detail::nccl());
}

TEST(Nccl, SaysOverWhatSmallSumsGo) {
  setenv("STRATA_NCCL", STRATA_FAKE_NCCL, 1);
  setenv("STRATA_FAKE_NCCL_VERSION", "22803", 1);
  detail::NcclId id{};
  ASSERT_EQ(detail::nccl().GetUniqueId(&id), detail::kNcclSuccess);
  detail::NcclCollectives calls(id, 0, 1, std::chrono::seconds(10), [](const std::function<void()>& fn) { fn(); });
  EXPECT_EQ(calls.way(), "NCCL 2.28.3");
  calls.take(nullptr, "rank 1: STRATA_PEER_SUMS is 0");
  EXPECT_EQ(calls.way(),
            "NCCL 2.28.3; small sums too, as there is no memory that the ranks map: rank 1: STRATA_PEER_SUMS is 0");
  calls.close();
}

TEST(Nccl, IsDeclaredAsItsHeaderDoes) {
#ifdef STRATA_HAS_NCCL_H
  static_assert(sizeof(ncclUniqueId) == sizeof(detail::NcclId) && sizeof(ncclResult_t) == sizeof(int) &&
                sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int));
  static_assert(ncclSuccess == static_cast<int>(detail::kNcclSuccess) &&
                ncclInProgress == static_cast<int>(detail::kNcclInProgress));
  static_assert(
      ncclInt8 == static_cast<int>(detail::kNcclInt8) && ncclUint8 == static_cast<int>(detail::kNcclUint8) &&
      ncclInt32 == static_cast<int>(detail::kNcclInt32) && ncclInt64 == static_cast<int>(detail::kNcclInt64) &&
      ncclFloat16 == static_cast<int>(detail::kNcclFloat16) && ncclFloat32 == static_cast<int>(detail::kNcclFloat32) &&
      ncclFloat64 == static_cast<int>(detail::kNcclFloat64) && ncclBfloat16 == static_cast<int>(detail::kNcclBfloat16));
  static_assert(ncclSum == static_cast<int>(detail::kNcclSum) && ncclProd == static_cast<int>(detail::kNcclProd) &&
                ncclMax == static_cast<int>(detail::kNcclMax) && ncclMin == static_cast<int>(detail::kNcclMin) &&
                ncclAvg == static_cast<int>(detail::kNcclAvg));
  constexpr ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  static_assert(theirs.magic == detail::NcclConfig{}.magic && theirs.maxCTAs == detail::NcclConfig::kNothing &&
                offsetof(ncclConfig_t, maxCTAs) == offsetof(detail::NcclConfig, most_blocks) &&
                offsetof(ncclConfig_t, trafficClass) == offsetof(detail::NcclConfig, traffic) &&
                sizeof(ncclConfig_t) >= sizeof(detail::NcclConfig));
  // The same arguments, but that handles are pointers of other names and enumerations integers.
  const auto same = []<class R, class... A, class Q, class... B>(R (*)(A...), Q (*)(B...)) {
    return sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...);
  };
  detail::Nccl n{};
  EXPECT_TRUE(same(&ncclGetVersion, n.GetVersion) && same(&ncclGetUniqueId, n.GetUniqueId));
  EXPECT_TRUE(same(&ncclCommInitRankConfig, n.CommInitRankConfig) && same(&ncclCommDestroy, n.CommDestroy));
  EXPECT_TRUE(same(&ncclCommAbort, n.CommAbort) && same(&ncclCommGetAsyncError, n.CommGetAsyncError));
  EXPECT_TRUE(same(&ncclGetErrorString, n.GetErrorString) && same(&ncclGetLastError, n.GetLastError));
  EXPECT_TRUE(same(&ncclAllReduce, n.AllReduce) && same(&ncclReduce, n.Reduce) && same(&ncclBroadcast, n.Broadcast));
  EXPECT_TRUE(same(&ncclAllGather, n.AllGather) && same(&ncclReduceScatter, n.ReduceScatter));
  EXPECT_TRUE(same(&ncclSend, n.Send) && same(&ncclRecv, n.Recv));
  EXPECT_TRUE(same(&ncclGroupStart, n.GroupStart) && same(&ncclGroupEnd, n.GroupEnd));
#else
  GTEST_SKIP() << "nccl.h is not here";
#endif
}

}  // namespace
}  // namespace strata::distributed
