// Normal vectors and their triangles, of any batches.

#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "strata/core/rng.h"
#include "strata/distributions/make.h"
#include "strata/memory/allocator.h"
#include "strata/ops/ops.h"

namespace strata::distributions {
namespace {

// One triangle for many vectors, many for one, and both in turns: as each alone.
TEST(Distributions, VectorsAndTrianglesOfAnyBatches) {
  Generator g(7);
  const auto numbers = [&](const Shape& s) { return normal(s, 0, 1, DType::f64, g); };
  for (const auto& [locs, triangles, samples] : {std::tuple<Shape, Shape, Shape>{{}, {}, {}},
                                                 {{}, {}, {5, 2}},
                                                 {{4}, {}, {}},
                                                 {{}, {3}, {2}},
                                                 {{2, 1, 3}, {4, 1}, {2}},
                                                 {{1, 3}, {2, 3}, {}},
                                                 {{0}, {}, {2}}}) {
    const auto of = [](Shape s, const Shape& end) {
      for (const int64_t n : end) s.push_back(n);
      return s;
    };
    const Tensor loc = numbers(of(locs, {3})), half = numbers(of(triangles, {3, 3}));
    const Tensor triangle = tril(half, -1) + diag_embed(numbers(of(triangles, {3})).abs() + 0.5);
    const Distribution d = make("MultivariateNormal", {{"loc", loc}, {"scale_tril", triangle}});
    const Tensor x = numbers(of(of(samples, d.batch_shape()), {3}));
    const Tensor covariance = matmul(triangle, triangle.transpose(-2, -1));
    const Tensor apart = (x - loc).unsqueeze(-1);
    const Tensor want =
        -0.5 * (matmul(matmul(apart.transpose(-2, -1), linalg_inv(covariance)), apart).squeeze(-1).squeeze(-1) +
                logdet(covariance) + 3 * std::log(2 * M_PI));
    EXPECT_TRUE(allclose(d.log_prob(x), want, 1e-9, 1e-9)) << to_string(locs) << to_string(triangles);
    EXPECT_EQ(d.log_prob(x).shape(), of(samples, d.batch_shape()));
  }
}

TEST(Distributions, ManyVectorsShareTheirTriangle) {
  const int64_t n = 64, count = 4096;
  for (const bool of_each : {false, true}) {  // a mean for each, or one for all
    const Tensor loc = of_each ? randn({count, n}) : zeros({n}), x = randn({count, n});
    const Distribution d = make("MultivariateNormal", {{"loc", loc}, {"scale_tril", eye(n) * 2.0}});
    (void)d.log_prob(x);
    memory::reset_peak(Device::cpu());
    const int64_t before = memory::stats(Device::cpu()).live_total;
    (void)d.log_prob(x);
    EXPECT_LT(memory::stats(Device::cpu()).peak_total - before,
              8 * x.nbytes());  // 64 of them, with a triangle for each
  }
}

}  // namespace
}  // namespace strata::distributions
