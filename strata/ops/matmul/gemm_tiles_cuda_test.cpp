// The product from tiles on a card, against sums in double precision: every layout and dtype, sizes whose edges the
// copies fill, rows that they cannot copy.

#include "strata/ops/matmul/gemm_tiles.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/matmul/gemm_gated.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

class TileGemmOnCard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    if (properties().major != 9) GTEST_SKIP() << "the kernels are for Hopper";
  }
  static void expect_near(const Tensor& got, const Tensor& want, double bound) {
    const std::vector<double> a = got.to(Device::cpu()).to(DType::f64).to_vector<double>(),
                              b = want.to(DType::f64).to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_LE(std::fabs(a[i] - b[i]), bound * (1 + std::fabs(b[i])))
          << "element " << i << ": " << a[i] << ", " << b[i];
  }
  // The matrices of x on the card, `turned` or not, rows of whole 16 bytes, NaN between them.
  static Tensor put(const Tensor& x, bool turned) {
    const Tensor y = turned ? x.transpose(-2, -1) : x;
    Shape wide = y.shape();
    wide[wide.size() - 1] = (wide[wide.size() - 1] + 7) / 8 * 8 + 8;
    const Tensor room = full(wide, NAN).to(x.dtype()).to(Device::cuda());
    Tensor part = room.narrow(-1, 0, y.size(-1));
    part.copy_(y.to(Device::cuda()));
    return turned ? part.transpose(-2, -1) : part;
  }
  static void check_product(DType in, DType out, int64_t m, int64_t n, int64_t k, bool turn_a, bool turn_b, bool bias,
                            int64_t batches = 1) {
    SCOPED_TRACE(cat(in, " into ", out, ", ", batches, " of ", m, " x ", n, " x ", k, turn_a ? ", A turned" : "",
                     turn_b ? ", B turned" : ""));
    const Tensor x = uniform({batches, m, k}, -1, 1).to(in), w = uniform({batches, k, n}, -1, 1).to(in),
                 shift = uniform({n}, -1, 1).to(out);
    const Tensor a = put(x, turn_a), b = put(w, !turn_b), c = put(zeros({batches, m, n}).to(out), false),
                 shift_there = shift.to(Device::cuda());
    Gemm g;
    g.in = in, g.out = out, g.m = m, g.n = n, g.k = k, g.alpha = 0.5, g.beta = 0;
    g.a = a.raw_data(), g.a_row = a.strides()[1], g.a_col = a.strides()[2];
    g.b = b.raw_data(), g.b_row = b.strides()[1], g.b_col = b.strides()[2];
    g.c = c.raw_data(), g.c_row = c.strides()[1];
    if (batches > 1)
      g.batch = Shape{batches}, g.a_batch = Strides{a.strides()[0]}, g.b_batch = Strides{b.strides()[0]},
      g.c_batch = Strides{c.strides()[0]};
    if (bias) g.bias = shift_there.raw_data(), g.bias_dtype = out;
    ASSERT_TRUE(gemm_tiles(g, Device::cuda()));
    Tensor want = matmul(x.to(DType::f64), w.to(DType::f64)) * 0.5;
    if (bias) want = want + shift.to(DType::f64);
    expect_near(c, want, out == DType::f32 ? 1e-4 : in == DType::bf16 ? 1e-2 : 2e-3);
  }
};

TEST_F(TileGemmOnCard, EveryLayout) {
  for (const DType in : {DType::bf16, DType::f16})
    for (const DType out : {in, DType::f32})
      for (int turn = 0; turn < 4; ++turn) {
        check_product(in, out, 136, 264, 72, turn & 1, turn & 2, false);
        check_product(in, out, 2000, 3001, 333, turn & 1, turn & 2, true);  // tiles of the full width
      }
}
TEST_F(TileGemmOnCard, OddSizes) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {1, 300, 5}, {129, 1, 1000}, {63, 65, 64}, {515, 770, 129}})
    for (int turn = 0; turn < 4; ++turn) check_product(DType::bf16, DType::bf16, m, n, k, turn & 1, turn & 2, true);
}
TEST_F(TileGemmOnCard, Batches) {
  check_product(DType::bf16, DType::bf16, 200, 300, 100, false, false, true, 7);
  check_product(DType::bf16, DType::f32, 1000, 1000, 70, true, true, false, 9);
}
TEST_F(TileGemmOnCard, TheSameBitsEachTime) {
  const Tensor a = uniform({1500, 800}, -1, 1).to(DType::bf16).to(Device::cuda()),
               b = uniform({800, 2000}, -1, 1).to(DType::bf16).to(Device::cuda());
  std::vector<float> first;
  for (int i = 0; i < 10; ++i) {
    const Tensor c = zeros({1500, 2000}).to(DType::bf16).to(Device::cuda());
    Gemm g;
    g.in = g.out = DType::bf16, g.m = 1500, g.n = 2000, g.k = 800, g.beta = 0;
    g.a = a.raw_data(), g.a_row = 800, g.a_col = 1, g.b = b.raw_data(), g.b_row = 2000, g.b_col = 1;
    g.c = c.raw_data(), g.c_row = 2000;
    ASSERT_TRUE(gemm_tiles(g, Device::cuda()));
    const std::vector<float> bits = c.to(Device::cpu()).to(DType::f32).to_vector<float>();
    if (i == 0) first = bits;
    ASSERT_EQ(bits, first);
  }
}
TEST_F(TileGemmOnCard, RowsThatCopiesCannotTakeAreRefused) {
  const Tensor a = zeros({64, 67}).to(DType::bf16).to(Device::cuda()),
               c = zeros({64, 64}).to(DType::bf16).to(Device::cuda());
  Gemm g;
  g.in = g.out = DType::bf16, g.m = g.n = 64, g.k = 67, g.beta = 0;
  g.a = a.raw_data(), g.a_row = 67, g.a_col = 1, g.b = a.raw_data(), g.b_row = 1, g.b_col = 67;
  g.c = c.raw_data(), g.c_row = 64;
  EXPECT_FALSE(gemm_tiles(g, Device::cuda()));
}

// Codes of fp8 that stand for small numbers, and what they stand for.
Tensor fp8_codes(const Tensor& numbers, bool e5m2) {
  // 1, 1.5, ... 3.5 have codes in both forms.
  const std::vector<float> v = numbers.to_vector<float>();
  std::vector<uint8_t> codes;
  for (const float x : v) {
    const int halves = static_cast<int>(std::lround(2 * std::fabs(x)));  // 0 to 7
    static constexpr uint8_t kE4[8] = {0, 0x30, 0x38, 0x3c, 0x40, 0x42, 0x44, 0x46},
                             kE5[8] = {0, 0x38, 0x3c, 0x3e, 0x40, 0x41, 0x42, 0x43};
    codes.push_back(static_cast<uint8_t>((x < 0 ? 0x80 : 0) | (e5m2 ? kE5[halves] : kE4[halves])));
  }
  return from_span<uint8_t>(codes, numbers.shape());
}
TEST_F(TileGemmOnCard, EightBits) {
  const int64_t m = 300, n = 530;
  for (const int64_t k : {int64_t{160}, int64_t{1040}}) {
    const Tensor x = floor(uniform({m, k}, -7, 8)) * 0.5, w = floor(uniform({n, k}, -7, 8)) * 0.5;
    const Tensor want = matmul(x, w.t());
    TileGemm8 g;
    g.m = m, g.n = n, g.k = k, g.lda = g.ldb = k, g.ldc = 536;
    using Type = TileGemm8::Type;
    const Tensor scales = full({2}, 0.5).to(Device::cuda());
    for (const Type ta : {Type::e4m3, Type::e5m2})
      for (const Type tb : {Type::e4m3, Type::e5m2})
        for (const DType out : {DType::f32, DType::bf16}) {
          const Tensor a = fp8_codes(x, ta == Type::e5m2).to(Device::cuda()),
                       b = fp8_codes(w, tb == Type::e5m2).to(Device::cuda()),
                       c = zeros({m, g.ldc}).to(out).to(Device::cuda());
          g.a_type = ta, g.b_type = tb, g.out = out, g.a = a.raw_data(), g.b = b.raw_data(), g.c = c.raw_data();
          g.scale_a = static_cast<const float*>(scales.raw_data()), g.scale_b = g.scale_a + 1;
          ASSERT_TRUE(gemm_tiles(g, Device::cuda()));
          expect_near(c.narrow(1, 0, n), want * 0.25, 2e-2);  // sums of fp8 are not exact
        }
    const Tensor a = floor(uniform({m, k}, -128, 128)), b = floor(uniform({n, k}, -128, 128));
    const Tensor a8 = a.to(DType::i8).to(Device::cuda()), b8 = b.to(DType::i8).to(Device::cuda()),
                 c32 = zeros({m, g.ldc}, DType::i32).to(Device::cuda()),
                 c8 = zeros({m, 544}, DType::i8).to(Device::cuda());
    g.a_type = g.b_type = Type::s8, g.scale_a = g.scale_b = nullptr, g.a = a8.raw_data(), g.b = b8.raw_data();
    const Tensor sums = matmul(a.to(DType::i64), b.to(DType::i64).t());
    g.out = DType::i32, g.c = c32.raw_data();
    ASSERT_TRUE(gemm_tiles(g, Device::cuda()));
    EXPECT_EQ(c32.to(Device::cpu()).narrow(1, 0, n).to(DType::i64).to_vector<int64_t>(), sums.to_vector<int64_t>());
    g.out = DType::i8, g.c = c8.raw_data(), g.ldc = 544;
    ASSERT_TRUE(gemm_tiles(g, Device::cuda()));
    EXPECT_EQ(c8.to(Device::cpu()).narrow(1, 0, n).contiguous().to_vector<int8_t>(),
              sums.to(DType::i8).to_vector<int8_t>());
  }
}

// As the engine calls it: i8 by i8 whose sums wrap, in every layout.
TEST_F(TileGemmOnCard, IntegersWrap) {
  const Tensor a = floor(uniform({160, 208}, -128, 128)).to(DType::i8),
               b = floor(uniform({208, 96}, -128, 128)).to(DType::i8);
  const std::vector<int8_t> want = matmul(a, b).to_vector<int8_t>();
  const Tensor ad = a.to(Device::cuda()), bd = b.to(Device::cuda()), at = a.t().contiguous().to(Device::cuda()).t(),
               bt = b.t().contiguous().to(Device::cuda()).t();
  EXPECT_EQ(matmul(ad, bd).to(Device::cpu()).to_vector<int8_t>(), want);
  EXPECT_EQ(matmul(at, bt).to(Device::cpu()).to_vector<int8_t>(), want);
}

TEST_F(TileGemmOnCard, GatedLayer) {
  for (const DType t : {DType::bf16, DType::f16})
    for (const auto& [m, h, k] :
         {std::array<int64_t, 3>{1, 8, 8}, {300, 200, 136}, {2000, 1000, 72}, {4096, 2048, 512}}) {
      SCOPED_TRACE(cat(t, ", ", m, " x ", h, " x ", k));
      const Tensor x = uniform({m, k}, -1, 1).to(t), w = uniform({2 * h, k}, -0.2, 0.2).to(t);
      Tensor y = full({m, h}, NAN).to(t).to(Device::cuda());
      ASSERT_TRUE(gated_tiles(y, x.to(Device::cuda()), w.to(Device::cuda())));
      expect_near(y, swiglu(matmul(x.to(DType::f32), w.to(DType::f32).t())), t == DType::bf16 ? 1e-2 : 2e-3);
    }
}

}  // namespace
}  // namespace strata::cuda
