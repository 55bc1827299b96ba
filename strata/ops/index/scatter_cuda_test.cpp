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
      EXPECT_EQ(got.to(Device::cpu()).to(DType::f64).to_vector<double>(), want.to(DType::f64).to_vector<double>())
          << cat(t);
    }
  }
}

// Beyond what is added up by atomic operations, and few of many places. Whole numbers, so that no sum is rounded.
TEST(ScatterCuda, SinglePlacesAddUp) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(27);
  const auto on = [](const Tensor& t) { return t.to(Device::cuda()); };
  const struct {
    int64_t places, n, named;
  } cases[] = {{(1 << 22) + 3, (1 << 22) + 77, (1 << 22) + 3}, {1 << 22, 1 << 22, 5}, {1 << 22, 1000, 1 << 22}};
  for (const auto& c : cases) {
    SCOPED_TRACE(cat(c.n, " to ", c.named, " of ", c.places));
    const Tensor index = randint(-c.named, c.named, {c.n}), source = randint(-9, 10, {c.n}, DType::f32),
                 x = randint(-9, 10, {c.places}, DType::f32);
    const Tensor want = index_put(x, {index}, source, true), got = index_put(on(x), {on(index)}, on(source), true);
    EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
    EXPECT_EQ(index_put(on(x), {on(index)}, on(source), true).to_vector<float>(), want.to_vector<float>());
  }
  const Tensor x = on(ones({1 << 22})), wrong = on(full({1000}, 1 << 22, DType::i64));
  EXPECT_THROW(index_put(x, {wrong}, on(ones({1000})), true).to(Device::cpu()), IndexError);
}

TEST(ScatterCuda, FewPlacesAreAsOnTheProcessor) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(26);
  const auto on = [](const Tensor& t) { return t.to(Device::cuda()); };
  for (const int64_t n : {1, 37, 512, 4095, 4096, 4097})
    for (const DType t : {DType::u8, DType::f16, DType::f32, DType::f64}) {
      SCOPED_TRACE(cat(n, " of ", t));
      const Tensor x = randint(0, 200, {131, 257}).to(t), source = randint(0, 200, {n}).to(t);
      const auto same = [&](const Tensor& got, const Tensor& want) {
        EXPECT_EQ(got.to(Device::cpu()).to(DType::f64).to_vector<double>(), want.to(DType::f64).to_vector<double>());
      };
      // Places that many name, and all of x.
      for (const int64_t places : {int64_t{11}, x.numel()}) {
        const Tensor index = randint(-places, places, {n});
        same(put(on(x), on(index), on(source)), put(x, index, source));
      }
      const Tensor wide = randint(0, 9000, {n, 2}), flat = zeros({9001, 2}, t), from = randint(0, 200, {n, 3}).to(t);
      const Tensor want = index_put(flat.select(1, 0), {wide.select(1, 1)}, from.select(1, 2));
      same(index_put(on(flat).select(1, 0), {on(wide).select(1, 1)}, on(from).select(1, 2)), want);
    }
  const Tensor x = on(zeros({9000}));
  index_put(x, {on(full({3}, 9000, DType::i64))}, on(ones({3})));
  EXPECT_THROW(x.sum().item(), IndexError);
}

}  // namespace
}  // namespace strata
