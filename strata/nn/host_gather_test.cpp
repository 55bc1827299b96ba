#include <cstring>

#include <gtest/gtest.h>

#include "strata/core/parallel.h"
#include "strata/memory/tiers.h"
#include "strata/nn/host_gather_inl.h"
#include "strata/strata.h"

namespace strata::nn {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()), y = b.to(Device::cpu());
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0);
}

// Pieces of a row and of many, fewer and more of them than are on their way at once.
TEST(HostGather, RowsArriveWhateverThePieces) {
  manual_seed(2);
  for (const int64_t width : {1, 33, 64})
    for (const DType dtype : {DType::f32, DType::u8})
      for (const int64_t piece : {1, 64, 1000, 1 << 20}) {
        SCOPED_TRACE(cat(width, " ", dtype, " in pieces of ", piece));
        const Tensor host = (rand({500, width}) * 200.0).to(dtype);
        HostGather here(Device::cpu(), piece);
        for (const int64_t n : {0, 1, 77, 300}) {
          const Tensor index = randint(0, 500, {n});
          EXPECT_TRUE(same_bits(here.gather(host, index), embedding(index, host)));
        }
        if (cuda::device_count() == 0) continue;
        Tensor far = empty({host.shape(), dtype, Device::cuda(), std::nullopt}, memory::kUnified);
        far.copy_(host);
        cuda::synchronize();
        HostGather there(Device::cuda(), piece);
        for (const int64_t n : {0, 1, 77, 300}) {
          const Tensor index = randint(0, 500, {n}), got = there.gather(far, index);
          EXPECT_EQ(got.device(), Device::cuda());
          EXPECT_TRUE(same_bits(got, embedding(index, host)));
        }
      }
}

TEST(HostGather, CoresDecide) {
  const int before = num_threads();
  set_num_threads(1);
  EXPECT_TRUE(HostGather::is_faster(64));
  EXPECT_FALSE(HostGather::is_faster(256));
  set_num_threads(16);
  EXPECT_TRUE(HostGather::is_faster(256));
  EXPECT_FALSE(HostGather::is_faster(1024));
  set_num_threads(before);
}

}  // namespace
}  // namespace strata::nn
