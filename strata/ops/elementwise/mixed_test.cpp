// Sums and products of mixed dtypes: the numbers of the copies that they do without.
#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/recording.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor of(Dims sizes, DType dtype, uint64_t seed) {
  Samples s(dtype, seed);
  return s.tensor(sizes, dtype).clone();
}
int casts(const Recording& r) {
  int n = 0;
  for (const RecordedCall& c : r.calls) n += c.op->name() == "to";
  return n;
}
std::vector<uint8_t> bytes(const Tensor& t) {
  const Tensor c = t.detach().contiguous();
  const auto* p = static_cast<const uint8_t*>(c.raw_data());
  return {p, p + c.nbytes()};
}

constexpr DType kOthers[] = {DType::bf16, DType::f16, DType::boolean, DType::u8,
                             DType::i8,   DType::i16, DType::i32,     DType::i64};

TEST(Mixed, TheBitsOfTheCopyThatIsNotMade) {
  for (DType dtype : kOthers) {
    SCOPED_TRACE(name_of(dtype));
    for (const Dims& sizes : {Dims{7}, Dims{3, 70}, Dims{0, 4}, Dims{2, 3, 5}}) {
      const Tensor a = of(sizes, DType::f32, 1), b = of(sizes, dtype, 2), wide = b.to(DType::f32);
      Tensor sum, product, other;
      const Recording r = record([&] {
        sum = add(a, b, 0.5);
        product = b * a;
        other = b + a;
      });
      EXPECT_EQ(casts(r), 0);
      EXPECT_EQ(sum.dtype(), DType::f32);
      EXPECT_EQ(bytes(sum), bytes(add(a, wide, 0.5)));
      EXPECT_EQ(bytes(product), bytes(wide * a));
      EXPECT_EQ(bytes(other), bytes(wide + a));
      Tensor in_place = a.clone(), scaled = a.clone();
      const Recording writes = record([&] {
        in_place.add_(b);
        scaled.mul_(b);
      });
      EXPECT_EQ(casts(writes), 0);
      EXPECT_EQ(bytes(in_place), bytes(a + wide));
      EXPECT_EQ(bytes(scaled), bytes(a * wide));
    }
  }
}

TEST(Mixed, BroadcastAndStrided) {
  for (DType dtype : kOthers) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor a = of({4, 1, 6}, DType::f32, 1), b = of({5, 6}, dtype, 2), wide = b.to(DType::f32);
    EXPECT_EQ(bytes(a * b), bytes(a * wide));
    EXPECT_EQ(bytes(b + a), bytes(wide + a));
    const Tensor column = of({5, 1}, DType::f32, 4), rows = of({5, 70}, dtype, 5);
    EXPECT_EQ(bytes(column * rows), bytes(column * rows.to(DType::f32)));
    const Tensor t = of({6, 5}, DType::f32, 3).t();
    EXPECT_EQ(bytes(t * b), bytes(t * wide));
    EXPECT_EQ(bytes(t.contiguous() * b.t().contiguous().t()), bytes(t * wide));
  }
}

TEST(Mixed, GradientsHaveTheBitsOfThoseThroughTheCopy) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (const Dims& low : {Dims{4, 5, 6}, Dims{4, 1, 6}, Dims{5, 6}}) {
      const Tensor gy = of(low.size() == 3 ? Dims{4, 5, 6} : Dims{5, 6}, DType::f32, 9);
      const auto gradients = [&](bool copy, bool product) {
        const Tensor a = of({5, 6}, DType::f32, 1).set_requires_grad(), b = of(low, dtype, 2).set_requires_grad();
        const Tensor wide = copy ? b.to(DType::f32) : b;
        return grad({product ? wide * a : add(a, wide, -2)}, {a, b}, {gy});
      };
      for (bool product : {false, true}) {
        const TensorList got = gradients(false, product), want = gradients(true, product);
        EXPECT_EQ(got[1].dtype(), dtype);
        EXPECT_EQ(bytes(got[0]), bytes(want[0]));
        EXPECT_EQ(bytes(got[1]), bytes(want[1]));
      }
    }
  }
}

TEST(Mixed, ZeroDimensionsAndNumbersYieldAsBefore) {
  const Tensor low = ones({3}, DType::bf16), one = full({}, 2.0, DType::f32);
  EXPECT_EQ((low * one).dtype(), DType::bf16);
  EXPECT_EQ((low + 0.5).dtype(), DType::bf16);
  EXPECT_EQ((ones({3}) * full({}, 2.0, DType::bf16)).dtype(), DType::f32);
  EXPECT_THROW(ones({3}) + ones({4}, DType::bf16), ShapeError);
}

}  // namespace
}  // namespace strata
