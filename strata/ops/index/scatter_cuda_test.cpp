// Much that is scattered along lines, on a CUDA device beside the CPU: places named often, sizes that fill no block,
// lines of both orders, of which some are left alone.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/index/index.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(ScatterCuda, MuchAlongLinesIsAsOnTheProcessor) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(25);
  const struct {
    Shape x, index;
    int64_t dim;
  } cases[] = {{{2100, 1103}, {1051, 1103}, 0}, {{1103, 2100}, {1103, 1051}, 1}, {{1200, 901}, {1190, 899}, 0}};
  for (const auto& c : cases) {
    SCOPED_TRACE(cat(c.x, " along ", c.dim));
    const Tensor x = randn(c.x), src = randn(c.index);
    const Tensor index = randint(0, c.x[static_cast<int>(c.dim)], c.index);
    index.narrow(c.dim, 3, 40).copy_(full({1}, 7, DType::i64).expand(index.narrow(c.dim, 3, 40).shape()));
    for (const DType t : {DType::f32, DType::f64, DType::bf16}) {
      const Tensor want = scatter(x.to(t), c.dim, index, src.to(t));
      const Tensor got =
          scatter(x.to(t).to(Device::cuda()), c.dim, index.to(Device::cuda()), src.to(t).to(Device::cuda()));
      EXPECT_EQ(got.to(Device::cpu()).to(DType::f64).to_vector<double>(), want.to(DType::f64).to_vector<double>()) << cat(t);
    }
  }
}

}  // namespace
}  // namespace strata
