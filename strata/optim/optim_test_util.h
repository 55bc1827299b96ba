#pragma once
// A double-precision formula beside an optimizer.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/optim.h"

namespace strata::optim {

using Doubles = std::vector<double>;

inline Doubles values(const Tensor& t) {
  const Tensor d = contiguous(to(t.detach(), DType::f64));
  return Doubles(d.data<double>(), d.data<double>() + d.numel());
}
/// A parameter with t's values and memory of its own.
inline Tensor leaf(const Tensor& t) {
  Tensor p = clone(t.detach());
  p.set_requires_grad();
  return p;
}
/// A parameter with values in [-1, 1]; 37 elements are no multiple of a vector.
inline Tensor start(const Shape& shape = {37}, DType dtype = DType::f32) {
  return leaf(Samples(DType::f32, 3).uniform(shape, -1, 1, dtype));
}

/// Steps `opt`, which holds `p`, 20 times with random gradients beside `formula(p, g, t)`, and compares the results.
template <class O, class F>
void compare(O& opt, Tensor& p, F&& formula, DType grad_dtype = DType::f32, double tolerance = 2e-6) {
  Samples random(DType::f32, 7);
  Doubles want = values(p);
  for (int t = 1; t <= 20; ++t) {
    const Tensor g = to(random.tensor(p.shape()), grad_dtype);
    p.set_grad(g);
    opt.step();
    formula(want, values(g), t);
  }
  const Doubles got = values(p);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
}

/// Adam's update number t (Kingma & Ba), or AdamW's.
struct AdamFormula {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  Doubles m = {}, v = {};
  void operator()(Doubles& p, const Doubles& g, int t) {
    m.resize(p.size());
    v.resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double grad = g[i] + (decoupled ? 0 : weight_decay * p[i]);
      if (decoupled) p[i] -= lr * weight_decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * grad;
      v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
      p[i] -= lr * (m[i] / (1 - std::pow(beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps);
    }
  }
};

/// An optimizer of a program's own, with each step's numbers from the host.
class HostBound final : public OptimizerOf<SGDOptions> {
 public:
  explicit HostBound(const TensorList& p) : OptimizerOf("host_bound", {{number_params(p), SGDOptions{}}}) {}

 protected:
  std::vector<StateSpec> state_spec(const Param&) const override { return {}; }
  void update(const std::vector<Param*>&, double) override {}
};

}  // namespace strata::optim
