// RMSprop and its relatives against plain double-precision versions of their formulas, for 20 steps.
#include "strata/optim/optim.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/adam/adam.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {

// Calls f(p, g, i) for each element, with g the gradient and its L2 decay.
template <class F>
auto each(double l2, F&& f) {
  return [l2, f](Doubles& p, const Doubles& g, int t) mutable {
    for (size_t i = 0; i < p.size(); ++i) f(p[i], g[i] + l2 * p[i], i, t);
  };
}

TEST(RMSprop, FollowsItsFormula) {
  for (const bool centered : {false, true})
    for (const double momentum : {0.0, 0.8}) {
      Tensor p = start({37}, DType::f64);
      RMSprop o(
          TensorList{p},
          {.lr = 0.02, .alpha = 0.9, .eps = 1e-5, .weight_decay = 0.1, .momentum = momentum, .centered = centered});
      Doubles v(37), b(37), mean(37);
      compare(o, p,
              each(0.1,
                   [&](double& x, double g, size_t i, int) {
                     v[i] = 0.9 * v[i] + 0.1 * g * g;
                     mean[i] = 0.9 * mean[i] + 0.1 * g;
                     b[i] = momentum * b[i] + g / (std::sqrt(v[i] - (centered ? mean[i] * mean[i] : 0)) + 1e-5);
                     x -= 0.02 * b[i];
                   }),
              DType::f64, 1e-10);
      EXPECT_EQ(o.state_dict().size(), centered ? 3u : momentum > 0 ? 2u : 1u);
    }
}

TEST(Adagrad, FollowsThePaper) {
  Tensor p = start({37}, DType::f64);
  Adagrad o(TensorList{p}, {.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.1, .initial_accumulator_value = 0.5});
  Doubles sum(37, 0.5);
  compare(o, p,
          each(0.1,
               [&](double& x, double g, size_t i, int t) {
                 sum[i] += g * g;
                 x -= 0.1 / (1 + (t - 1) * 0.05) * g / (std::sqrt(sum[i]) + 1e-10);
               }),
          DType::f64, 1e-12);
}

TEST(Adadelta, FollowsThePaper) {
  Tensor p = start({37}, DType::f64);
  Adadelta o(TensorList{p}, {.lr = 0.9, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.1});
  Doubles v(37), u(37);
  compare(o, p,
          each(0.1,
               [&](double& x, double g, size_t i, int) {
                 v[i] = 0.8 * v[i] + 0.2 * g * g;
                 const double d = std::sqrt(u[i] + 1e-4) / std::sqrt(v[i] + 1e-4) * g;
                 u[i] = 0.8 * u[i] + 0.2 * d * d;
                 x -= 0.9 * d;
               }),
          DType::f64, 1e-12);
}

TEST(Adamax, FollowsThePaper) {
  Tensor p = start({37}, DType::f64);
  Adamax o(TensorList{p}, {.lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
  Doubles m(37), u(37);
  compare(o, p,
          each(0.1,
               [&](double& x, double g, size_t i, int t) {
                 m[i] = 0.8 * m[i] + 0.2 * g;
                 u[i] = std::max(0.95 * u[i], std::abs(g) + 1e-8);
                 x -= 0.03 / (1 - std::pow(0.8, t)) * m[i] / u[i];
               }),
          DType::f64, 1e-12);
}

TEST(NAdam, FollowsThePaper) {
  for (const bool decoupled : {false, true})
    for (const double decay : {0.0, 4e-3, 0.5}) {
      Tensor p = start({37}, DType::f64);
      NAdam o(TensorList{p}, {.lr = 0.03,
                              .beta1 = 0.8,
                              .beta2 = 0.95,
                              .weight_decay = 0.1,
                              .momentum_decay = decay,
                              .decoupled_weight_decay = decoupled});
      Doubles m(37), v(37);
      const auto mu = [&](int t) { return 0.8 * (1 - 0.5 * std::pow(0.96, t * decay)); };
      compare(o, p,
              each(decoupled ? 0 : 0.1,
                   [&](double& x, double g, size_t i, int t) {
                     double product = 1;
                     for (int k = 1; k <= t; ++k) product *= mu(k);
                     if (decoupled) x -= 0.03 * 0.1 * x;
                     m[i] = 0.8 * m[i] + 0.2 * g;
                     v[i] = 0.95 * v[i] + 0.05 * g * g;
                     const double size = std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8;
                     x -= 0.03 * (1 - mu(t)) / (1 - product) * g / size;
                     x -= 0.03 * mu(t + 1) / (1 - product * mu(t + 1)) * m[i] / size;
                   }),
              DType::f64, 1e-11);
    }
}

TEST(RAdam, FollowsThePaper) {
  for (const bool decoupled : {false, true}) {
    Tensor p = start({37}, DType::f64);
    RAdam o(TensorList{p},
            {.lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = decoupled});
    Doubles m(37), v(37);
    const double most = 2 / 0.05 - 1;
    bool without = false, with = false;
    compare(o, p,
            each(decoupled ? 0 : 0.1,
                 [&](double& x, double g, size_t i, int t) {
                   if (decoupled) x -= 0.03 * 0.1 * x;
                   m[i] = 0.8 * m[i] + 0.2 * g;
                   v[i] = 0.95 * v[i] + 0.05 * g * g;
                   const double b = std::pow(0.95, t), length = most - 2 * t * b / (1 - b);
                   double step = m[i] / (1 - std::pow(0.8, t));
                   (length > 5 ? with : without) = true;
                   if (length > 5)
                     step *= std::sqrt(1 - b) / (std::sqrt(v[i]) + 1e-8) *
                             std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
                   x -= 0.03 * step;
                 }),
            DType::f64, 1e-11);
    EXPECT_TRUE(with && without);
  }
}

TEST(Amsgrad, KeepsTheLargestSecondMoment) {
  for (const bool decoupled : {false, true}) {
    Tensor p = start({37}, DType::f64);
    std::unique_ptr<Optimizer> o;
    if (decoupled)
      o = std::make_unique<AdamW>(TensorList{p}, AdamWOptions{0.03, 0.8, 0.5, 1e-8, 0.1, true});
    else
      o = std::make_unique<Adam>(TensorList{p}, AdamOptions{0.03, 0.8, 0.5, 1e-8, 0.1, true});
    Doubles m(37), v(37), most(37);
    compare(*o, p,
            each(decoupled ? 0 : 0.1,
                 [&](double& x, double g, size_t i, int t) {
                   if (decoupled) x -= 0.03 * 0.1 * x;
                   m[i] = 0.8 * m[i] + 0.2 * g;
                   v[i] = 0.5 * v[i] + 0.5 * g * g;
                   most[i] = std::max(most[i], v[i]);
                   x -= 0.03 * (m[i] / (1 - std::pow(0.8, t))) /
                        (std::sqrt(most[i]) / std::sqrt(1 - std::pow(0.5, t)) + 1e-8);
                 }),
            DType::f64, 1e-12);
    EXPECT_TRUE(o->state_dict().contains("0.max_exp_avg_sq"));
  }
}

TEST(AdaptiveOptions, AreChecked) {
  const TensorList p{start()};
  EXPECT_THROW(RMSprop(p, {.alpha = 1}), ValueError);
  EXPECT_THROW(Adagrad(p, {.lr_decay = -1}), ValueError);
  EXPECT_THROW(Adadelta(p, {.rho = 1.5}), ValueError);
  EXPECT_THROW(Adamax(p, {.beta2 = 1}), ValueError);
  EXPECT_THROW(NAdam(p, {.momentum_decay = -1}), ValueError);
  EXPECT_THROW(RAdam(p, {.eps = -1}), ValueError);
}

}  // namespace
}  // namespace strata::optim
