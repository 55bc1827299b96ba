// Order on a CUDA device against the CPU's: rows larger than a block, ties, NaNs, zeros of both signs.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

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

// Rows of which several blocks take a part, rows that are sorted together and alone, digits that say little: few and
// many of the elements share the k-th's.
TEST_F(SortCuda, LongRows) {
  manual_seed(13);
  for (const DType t : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    const Tensor ties = values({3, 100000}, t);
    const Tensor few = is_floating(t) ? randn({2, 70001}).to(t) : randint(0, 100, {2, 70001}).to(t);
    const Tensor close = is_floating(t) ? (rand({2, 40000}) * 1e-3 + 1).to(t) : ties.narrow(0, 0, 2);
    for (const Tensor& x : {ties, few, close, few.transpose(0, 1)}) {
      const int64_t dim = x.size(0) > x.size(1) ? 0 : 1;
      SCOPED_TRACE(cat(x));
      const Tensor dx = on(x);
      for (const bool flag : {false, true}) {
        const auto [v, at] = sort(x, dim, flag);
        const auto [dv, dat] = sort(dx, dim, flag);
        expect_same(dv, v);
        expect_same(dat, at);
        for (const int64_t k : {1, 50, 1024, 1025}) {
          const auto [kv, kat] = topk(x, k, dim, flag);
          const auto [dkv, dkat] = topk(dx, k, dim, flag);
          expect_same(dkv, kv);
          expect_same(dkat, kat);
        }
      }
      for (const int64_t k : {1, 20000, 39999}) {
        const auto [one, place] = kthvalue(x, k, dim);
        const auto [done, dplace] = kthvalue(dx, k, dim);
        expect_same(done, one);
        expect_same(dplace, place);
      }
    }
  }
  const Tensor whole = randint(-1000000, 1000000, {int64_t{1} << 21}).to(DType::i32);
  expect_same(std::get<0>(sort(on(whole))), std::get<0>(sort(whole)));
  expect_same(std::get<1>(sort(on(whole))), std::get<1>(sort(whole)));
}

// Sorted without places: the same numbers, each with its own bits, whatever stands among its equals.
TEST_F(SortCuda, Msort) {
  manual_seed(17);
  const auto bits = [](const Tensor& t) {
    const Tensor here = t.to(Device::cpu()).contiguous();
    std::vector<std::string> all;
    const auto size = static_cast<size_t>(size_of(t.dtype()));
    for (size_t i = 0; i < static_cast<size_t>(t.numel()); ++i)
      all.emplace_back(static_cast<const char*>(here.raw_data()) + i * size, size);
    std::sort(all.begin(), all.end());
    return all;
  };
  for (const DType t : kTypes)
    for (const int64_t length : {1, 33, 1000, 2000, 4097, 8193, 30000}) {
      const Tensor x = values({length}, t), many = values({length, 3}, t);
      SCOPED_TRACE(cat(x));
      const Tensor got = msort(on(x)).to(Device::cpu());
      EXPECT_TRUE(allclose(got.to(DType::f64), msort(x).to(DType::f64), 0, 0, true));
      EXPECT_EQ(bits(got), bits(x));
      EXPECT_TRUE(allclose(msort(on(many)).to(Device::cpu()).to(DType::f64), msort(many).to(DType::f64), 0, 0, true));
    }
}

TEST_F(SortCuda, UniqueAndSearchsorted) {
  manual_seed(12);
  const Tensor far = randint(-5, 5, {3000}).to(DType::i64) * (int64_t{1} << 40);
  for (const bool inverse : {false, true}) {
    const UniqueResult want = unique(far, inverse, true), got = unique(on(far), inverse, true);
    expect_same(got.values, want.values);
    expect_same(got.counts, want.counts);
    if (inverse) expect_same(got.inverse, want.inverse);
  }
  for (const double first : {0.0, -0.0}) {  // a zero's sign is that of the first one
    Tensor zeros_too = randint(-3, 3, {5000}).to(DType::f32);
    zeros_too.data<float>()[7] = static_cast<float>(first);
    for (int i = 0; i < 7; ++i) zeros_too.data<float>()[i] = 1;
    for (int i = 8; i < 5000; i += 3) zeros_too.data<float>()[i] = static_cast<float>(-first);
    expect_same(unique(on(zeros_too)).values, unique(zeros_too).values);
  }
  for (const DType t : kTypes) {
    for (const Shape& shape : {Shape{9, 1000}, Shape{1}, Shape{0}}) {
      if (shape.size() == 2) {
        const Tensor x = values(shape, t);
        expect_same(unique(on(x)).values, unique(x).values);
        expect_same(unique(on(x), false, true).counts, unique(x, false, true).counts);
      }
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
      expect_same(searchsorted(on(table), on(x), right, true), searchsorted(table, x, right, true));
      expect_same(searchsorted(on(table.select(0, 0).contiguous()), on(x), right),
                  searchsorted(table.select(0, 0).contiguous(), x, right));
    }
  }
}

}  // namespace
}  // namespace strata
