// Norms of gradients that live elsewhere: the same bits, and few of them near.
#include <gtest/gtest.h>

#include "strata/core/rng.h"
#include "strata/memory/second_heap_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/optim/optim.h"

namespace strata::optim {
namespace {

TEST(GradientGroups, NormsAreTheSameBits) {
  manual_seed(3);
  memory::SecondHeap& heap = memory::SecondHeap::get();
  TensorList here, away;
  int64_t bytes = 0;
  for (int i = 0; i < 24; ++i) {
    const Shape shape = i == 5 ? Shape{0, 3} : Shape{70 + i, 1000};  // one has no elements
    const DType dtype = i % 5 == 1 ? DType::bf16 : i % 7 == 2 ? DType::f64 : DType::f32;
    for (TensorList* list : {&here, &away}) list->push_back(randn(shape, dtype == DType::bf16 ? DType::f32 : dtype));
    const Tensor g = randn(shape, dtype) * 0.1;
    for (TensorList* list : {&here, &away}) list->back().set_requires_grad();
    here.back().set_grad(g);
    away.back().set_grad(g.to(memory::kSecond));
    bytes += g.nbytes();
  }
  const int64_t near = heap.near;
  heap.near_peak = near;
  EXPECT_EQ(grad_norm(away), grad_norm(here));
  const int64_t most = heap.near_peak - near, largest = 94 * 1000 * 8;
  EXPECT_LE(most, (int64_t{2} << 20) + largest);  // a group, and the first of the next
  EXPECT_GT(bytes, 2 * most);
  EXPECT_EQ(heap.near.load(), near);
  EXPECT_EQ(clip_grad_norm(away, 1.0), clip_grad_norm(here, 1.0));
  AdamW one(here), other(away);
  EXPECT_EQ(one.step_clipped(0.5), other.step_clipped(0.5));
  EXPECT_EQ(StepReport::of(one.step_guarded({.max_norm = 0.1}).data<double>()).norm,
            StepReport::of(other.step_guarded({.max_norm = 0.1}).data<double>()).norm);
}

}  // namespace
}  // namespace strata::optim
