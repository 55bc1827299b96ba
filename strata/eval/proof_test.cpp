// Proofs of activations: what they accept and what they do not.

#include "strata/eval/proof.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::eval {
namespace {

TEST(ActivationProof, Is258BytesFor32TokensAndAcceptsItself) {
  manual_seed(1);
  const Tensor hidden = randn({70, 64});
  const auto proofs = activation_proofs(hidden);
  ASSERT_EQ(proofs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(proofs[i].size(), 258u);
    const int64_t from = static_cast<int64_t>(i) * 32;
    const ProofCheck c = check_proof(proofs[i], hidden.narrow(0, from, std::min<int64_t>(32, 70 - from)));
    EXPECT_EQ(c.other_exponents, 0);
    EXPECT_EQ(c.mean_mantissa, 0);
    EXPECT_EQ(c.median_mantissa, 0);
    EXPECT_TRUE(c.accepted());
  }
}

TEST(ActivationProof, EveryPointIsRecovered) {
  // With infinities, numbers of both signs, zeros, and what is no number.
  std::vector<float> values;
  for (int i = 0; i < 300; ++i) values.push_back(static_cast<float>((i * 7919 % 601) - 300) * 0.37f);
  values[5] = INFINITY;
  values[6] = -INFINITY;
  values[7] = NAN;
  const Tensor x = from_span<float>(values, {300});
  for (const int64_t top : {1, 2, 127, 300}) {
    const auto proof = activation_proof(x, top);
    EXPECT_EQ(proof.size(), static_cast<size_t>(2 + 2 * top));
    const ProofCheck c = check_proof(proof, x);
    EXPECT_EQ(c.other_exponents, 0) << top;
    EXPECT_EQ(c.mean_mantissa, 0) << top;
  }
}

// A network of twelve layers with sums in another order, at lower precision, with other weights, of another input.
TEST(ActivationProof, AcceptsOtherKernelsAndRejectsOtherWeightsOrPrecision) {
  manual_seed(2);
  const int64_t dim = 256;
  const Tensor x = randn({32, dim});
  std::vector<Tensor> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(randn({dim, dim}) * (1.6 / 16));
  using Product = std::function<Tensor(const Tensor&, const Tensor&)>;
  const auto run = [&](Tensor h, const Product& product) {
    for (const Tensor& w : weights) h = h + tanh(product(h, w));
    return h;
  };
  const Product plain = [](const Tensor& h, const Tensor& w) { return matmul(h, w.t()); };
  const Product halves = [&](const Tensor& h, const Tensor& w) {
    const int64_t half = dim / 2;
    return plain(h.narrow(1, half, half), w.narrow(1, half, half)) + plain(h.narrow(1, 0, half), w.narrow(1, 0, half));
  };
  const auto rounded = [](const Tensor& t, double steps) {
    const Tensor unit = amax(abs(t), {1}, true) * (1.0 / steps);
    return round(t / unit) * unit;
  };
  const auto proof = activation_proof(run(x, plain));
  const auto judged = [&](const Tensor& y) { return check_proof(proof, y).accepted(); };
  EXPECT_TRUE(judged(run(x, plain)));
  EXPECT_TRUE(judged(run(x, halves)));
  EXPECT_TRUE(judged(run(x, [&](const Tensor& h, const Tensor& w) {
    return plain(h.to(DType::bf16), w.to(DType::bf16)).to(DType::f32);
  })));
  EXPECT_FALSE(judged(run(x, [&](const Tensor& h, const Tensor& w) { return plain(h, rounded(w, 7)); })));  // 4 bits
  EXPECT_FALSE(judged(run(x, [&](const Tensor& h, const Tensor& w) {
    return plain(h, w + randn({dim, dim}) * 0.02);
  })));
  EXPECT_FALSE(judged(run(randn({32, dim}), plain)));
}

TEST(ActivationProof, RefusesWhatIsNone) {
  const Tensor x = randn({8, 32});
  auto proof = activation_proof(x, 16);
  EXPECT_THROW(activation_proof(x, 0), ValueError);
  EXPECT_THROW(activation_proof(x, 257), ValueError);
  EXPECT_THROW(activation_proof(zeros({8}, DType::i64), 2), DTypeError);
  EXPECT_THROW(activation_proofs(x.reshape({-1})), ShapeError);
  EXPECT_THROW(check_proof(proof, randn({3, 5})), ValueError);
  EXPECT_THROW(check_proof(std::span(proof).first(33), x), ValueError);
  EXPECT_THROW(check_proof({}, x), ValueError);
  auto wrong = proof;
  wrong[0] = wrong[1] = 0;
  EXPECT_THROW(check_proof(wrong, x), ValueError);
  wrong = proof;
  wrong[4] = wrong[5] = 0xFF;
  EXPECT_THROW(check_proof(wrong, x), ValueError);
  // A bit that fell over makes another polynomial, and so other values.
  wrong = proof;
  wrong[6] ^= 1;
  EXPECT_FALSE(check_proof(wrong, x).accepted());
}

}  // namespace
}  // namespace strata::eval
