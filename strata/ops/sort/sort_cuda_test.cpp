// Order on a CUDA device against the CPU's: rows larger than a block, ties, NaNs, zeros of both signs.

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/sort/sort.h"
#include "strata/strata.h"

namespace strata {
namespace {

class SortCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static Tensor on(const Tensor& t) { return t.to(Device::cuda()); }
  // Bit for bit.
  static void expect_same(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.shape(), want.shape());
    ASSERT_EQ(got.dtype(), want.dtype());
    const Tensor a = got.to(Device::cpu()).contiguous(), b = want.contiguous();
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())), 0);
  }
  // Many ties; in floating dtypes also NaN, infinities and both zeros.
  static Tensor values(const Shape& shape, DType t) {
    if (t == DType::boolean) return randint(0, 2, shape).to(t);
    if (!is_floating(t)) return randint(t == DType::u8 ? 0 : -60, 60, shape).to(t);
    Tensor x = randint(-300, 300, shape).to(DType::f64) / 7;
    Tensor flat = x.view({-1});
    const double odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0};
    for (int64_t i = 0; i < 6 && flat.numel() > 20 * i + 3; ++i) flat.data<double>()[20 * i + 3] = odd[i];
    return x.to(t);
  }
};

constexpr DType kTypes[] = {DType::u8,  DType::i8,   DType::i16, DType::i32, DType::i64,
                            DType::f16, DType::bf16, DType::f32, DType::f64, DType::boolean};

TEST_F(SortCuda, SortAndTopkAndKthvalue) {
  manual_seed(11);
  for (const DType t : kTypes) {
    for (const Shape& shape : {Shape{3, 5000}, Shape{70, 33}, Shape{20000}, Shape{1, 1}}) {
      const Tensor x = values(shape, t), dx = on(x);
      for (const bool flag : {false, true}) {
        SCOPED_TRACE(cat(x, " ", flag));
        const auto [v, at] = sort(x, -1, flag);
        const auto [dv, dat] = sort(dx, -1, flag);
        expect_same(dv, v);
        expect_same(dat, at);
        for (const int64_t k : {1, 7, 33, 1000, 1024, 1500}) {
          if (k > x.size(-1)) continue;
          const auto [kv, kat] = topk(x, k, -1, flag);
          const auto [dkv, dkat] = topk(dx, k, -1, flag);
          expect_same(dkv, kv);
          expect_same(dkat, kat);
          const auto [one, place] = kthvalue(x, k);
          const auto [done, dplace] = kthvalue(dx, k);
          expect_same(done, one);
          expect_same(dplace, place);
        }
      }
    }
    const Tensor x = values({40, 30, 6}, t);
    const auto [v, at] = sort(x, 1);
    const auto [dv, dat] = sort(on(x), 1);
    expect_same(dv, v);
    expect_same(dat, at);
  }
}

TEST_F(SortCuda, UniqueAndSearchsorted) {
  manual_seed(12);
  for (const DType t : kTypes) {
    for (const Shape& shape : {Shape{9, 1000}, Shape{1}, Shape{0}}) {
      const Tensor x = values(shape, t);
      SCOPED_TRACE(cat(x));
      const UniqueResult want = unique(x, true, true), got = unique(on(x), true, true);
      expect_same(got.values, want.values);
      expect_same(got.inverse, want.inverse);
      expect_same(got.counts, want.counts);
    }
    const Tensor table = std::get<0>(sort(values({4, 500}, t))), x = values({4, 300}, t);
    for (const bool right : {false, true}) {
      expect_same(searchsorted(on(table), on(x), right), searchsorted(table, x, right));
      expect_same(searchsorted(on(table.select(0, 0).contiguous()), on(x), right),
                  searchsorted(table.select(0, 0).contiguous(), x, right));
    }
  }
}

}  // namespace
}  // namespace strata
