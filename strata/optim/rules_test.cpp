// Each optimizer against a plain double-precision version of its published formula, for 20 steps.
#include "strata/optim/optim.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {

TEST(Adam, FollowsThePaper) {
  const AdamOptions o{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  Tensor p = start();
  Adam opt(TensorList{p}, o);
  compare(opt, p, AdamFormula{0.05, 0.8, 0.95, 1e-6, 0.1, false});
}

TEST(AdamW, FollowsThePaper) {
  const AdamWOptions o{0.05, 0.9, 0.99, 1e-8, 0.2};
  for (DType grad : {DType::f32, DType::bf16}) {
    Tensor p = start();
    AdamW opt(TensorList{p}, o);
    compare(opt, p, AdamFormula{0.05, 0.9, 0.99, 1e-8, 0.2, true}, grad);
  }
}

TEST(AdamW, DoublePrecisionParameters) {
  const AdamWOptions o{0.05};
  Tensor p = start({37}, DType::f64);
  AdamW opt(TensorList{p}, o);
  compare(opt, p, AdamFormula{0.05, 0.9, 0.999, 1e-8, 0.01, true}, DType::f64, 1e-13);
}

TEST(SGD, PlainWithWeightDecay) {
  Tensor p = start();
  SGD opt(TensorList{p}, {.lr = 0.1, .weight_decay = 0.3});
  compare(opt, p, [](Doubles& x, const Doubles& g, int) {
    for (size_t i = 0; i < x.size(); ++i) x[i] -= 0.1 * (g[i] + 0.3 * x[i]);
  });
}

TEST(SGD, MomentumWithDampening) {
  Tensor p = start();
  SGD opt(TensorList{p}, {.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01});
  Doubles b(37);
  compare(opt, p, [&](Doubles& x, const Doubles& g, int t) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = g[i] + 0.01 * x[i];
      b[i] = t == 1 ? d : 0.9 * b[i] + 0.75 * d;
      x[i] -= 0.1 * b[i];
    }
  });
}

TEST(SGD, Nesterov) {
  Tensor p = start();
  SGD opt(TensorList{p}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  Doubles b(37);
  compare(opt, p, [&](Doubles& x, const Doubles& g, int) {
    for (size_t i = 0; i < x.size(); ++i) {
      b[i] = 0.9 * b[i] + g[i];
      x[i] -= 0.1 * (g[i] + 0.9 * b[i]);
    }
  });
  EXPECT_THROW(SGD(TensorList{leaf(ones({2}))}, {.nesterov = true}), ValueError);
}

TEST(Lion, FollowsThePaper) {
  for (DType grad : {DType::f32, DType::bf16}) {
    Tensor p = start();
    Lion opt(TensorList{p}, {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.5});
    Doubles m(37);
    compare(
        opt, p,
        [&](Doubles& x, const Doubles& g, int) {
          for (size_t i = 0; i < x.size(); ++i) {
            const double c = 0.9 * m[i] + 0.1 * g[i];
            x[i] -= 0.02 * ((c > 0 ? 1 : c < 0 ? -1 : 0) + 0.5 * x[i]);
            m[i] = 0.99 * m[i] + 0.01 * g[i];
          }
        },
        grad);
  }
  Tensor p = leaf(ones({3}));
  Lion opt(TensorList{p});
  p.set_grad(zeros({3}));
  opt.step();
  EXPECT_EQ(values(p), Doubles({1, 1, 1}));  // the sign of 0 is 0
}

// Adafactor for batch x rows x cols; rows = 0 stands for a vector of `cols`.
struct AdafactorFormula {
  size_t batch, rows, cols;
  AdafactorOptions o;
  Doubles r = {}, c = {}, v = {};
  void operator()(Doubles& p, const Doubles& g, int t) {
    const double beta2 = 1 - std::pow(t, -o.beta2_decay);
    Doubles u(p.size());
    if (rows == 0) {
      v.resize(p.size());
      for (size_t i = 0; i < p.size(); ++i) {
        v[i] = beta2 * v[i] + (1 - beta2) * (g[i] * g[i] + o.eps1);
        u[i] = g[i] / std::sqrt(v[i]);
      }
    } else {
      r.resize(batch * rows);
      c.resize(batch * cols);
      for (double& x : r) x *= beta2;
      for (double& x : c) x *= beta2;
      for (size_t i = 0; i < p.size(); ++i) {
        const double square = g[i] * g[i] + o.eps1;
        const size_t b = i / (rows * cols), row = i / cols, col = b * cols + i % cols;
        r[row] += (1 - beta2) * square / static_cast<double>(cols);
        c[col] += (1 - beta2) * square / static_cast<double>(rows);
      }
      Doubles mean(batch);
      for (size_t i = 0; i < r.size(); ++i) mean[i / rows] += r[i] / static_cast<double>(rows);
      for (size_t i = 0; i < p.size(); ++i) {
        const size_t b = i / (rows * cols);
        u[i] = g[i] / std::sqrt(r[i / cols] * c[b * cols + i % cols] / mean[b]);
      }
    }
    const auto rms = [](const Doubles& x) {
      double s = 0;
      for (double e : x) s += e * e;
      return std::sqrt(s / static_cast<double>(x.size()));
    };
    const double alpha = std::max(o.eps2, rms(p)) * std::min(o.lr, 1 / std::sqrt(t));
    const double clip = std::max(1.0, rms(u) / o.clip_threshold);
    for (size_t i = 0; i < p.size(); ++i) p[i] = p[i] - o.lr * o.weight_decay * p[i] - alpha * u[i] / clip;
  }
};

TEST(Adafactor, FollowsThePaper) {
  const AdafactorOptions o{.lr = 0.3, .clip_threshold = 0.7, .weight_decay = 0.05};
  for (DType grad : {DType::f32, DType::bf16}) {
    Tensor vector = start({37}), matrix = start({9, 21}), batch = start({2, 3, 5});
    Adafactor a(TensorList{vector}, o), b(TensorList{matrix}, o), c(TensorList{batch}, o);
    compare(a, vector, AdafactorFormula{1, 0, 37, o}, grad, 1e-5);
    compare(b, matrix, AdafactorFormula{1, 9, 21, o}, grad, 1e-5);
    compare(c, batch, AdafactorFormula{2, 3, 5, o}, grad, 1e-5);
    EXPECT_EQ(b.state_dict().at("0.row_var").shape(), Shape({9}));
    EXPECT_EQ(c.state_dict().at("0.col_var").shape(), Shape({2, 5}));
  }
}

TEST(Adafactor, LargeMatricesAndThreads) {
  const int threads = num_threads();
  const AdafactorOptions o{.lr = 0.1};
  std::vector<Doubles> results;
  for (int n : {1, 2, 3}) {
    set_num_threads(n);
    Tensor p = start({700, 300});
    Adafactor opt(TensorList{p}, o);
    compare(opt, p, AdafactorFormula{1, 700, 300, o}, DType::f32, 2e-5);
    results.push_back(values(p));
  }
  set_num_threads(threads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

using Matrix = std::vector<Doubles>;
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), Doubles(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), Doubles(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

// Muon as published, with the iteration always on the wide side.
struct MuonFormula {
  size_t rows, cols;
  MuonOptions o;
  Doubles b = {};
  void operator()(Doubles& p, const Doubles& g, int) {
    b.resize(p.size());
    Matrix x(rows, Doubles(cols));
    double norm = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      b[i] = o.momentum * b[i] + (1 - o.momentum) * g[i];
      const double u = o.nesterov ? (1 - o.momentum) * g[i] + o.momentum * b[i] : b[i];
      x[i / cols][i % cols] = u;
      norm += u * u;
    }
    for (Doubles& row : x)
      for (double& e : row) e /= std::sqrt(norm);
    if (rows > cols) x = transposed(x);
    for (int k = 0; k < o.ns_steps; ++k) {
      const Matrix a = product(x, transposed(x)), aa = product(a, a);
      Matrix mix = a;
      for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < a.size(); ++j) mix[i][j] = -4.7750 * a[i][j] + 2.0315 * aa[i][j];
      const Matrix y = product(mix, x);
      for (size_t i = 0; i < x.size(); ++i)
        for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + y[i][j];
    }
    if (rows > cols) x = transposed(x);
    const double m = static_cast<double>(rows), n = static_cast<double>(cols);
    const double scale = o.match_rms_adamw ? 0.2 * std::sqrt(std::max(m, n)) : std::sqrt(std::max(1.0, m / n));
    for (size_t i = 0; i < p.size(); ++i)
      p[i] = p[i] - o.lr * o.weight_decay * p[i] - o.lr * scale * x[i / cols][i % cols];
  }
};

TEST(Muon, FollowsThePaper) {
  for (bool match : {true, false}) {
    for (const Shape& shape : {Shape{6, 11}, Shape{13, 5}}) {
      const MuonOptions o{.lr = 0.02, .momentum = 0.9, .nesterov = match, .match_rms_adamw = match};
      Tensor p = start(shape);
      Muon opt(TensorList{p}, o);
      // Five iterations multiply a rounding error by up to 3.4^5.
      compare(opt, p, MuonFormula{static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]), o}, DType::f32, 1e-4);
      EXPECT_TRUE(opt.state_dict().contains("0.momentum_buffer"));
    }
  }
}

TEST(Muon, NewtonSchulzBringsSingularValuesNearOne) {
  const Tensor q = newton_schulz(start({8, 30}));
  const Doubles gram = values(matmul(q, q.t()));
  double trace = 0;
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_GT(gram[i * 9], 0.3);
    EXPECT_LT(gram[i * 9], 1.5);
    trace += gram[i * 9];
  }
  EXPECT_NEAR(trace / 8, 1, 0.4);
  EXPECT_THROW(newton_schulz(ones({3})), ShapeError);
}

TEST(Muon, WhatIsNoMatrixGoesToAdamW) {
  Tensor hidden = start({4, 6}), norm = start({37}), embedding = start({37, 1});
  const auto groups = muon_groups({{"blocks.0.weight", hidden}, {"norm.bias", norm}, {"tok_emb.weight", embedding}},
                                  {.lr = 0.05, .weight_decay = 0.2}, {"tok_emb.weight"});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].params.size(), 1u);
  Muon opt(groups);
  hidden.set_grad(ones({4, 6}));
  compare(opt, norm, AdamFormula{0.05, 0.9, 0.95, 1e-8, 0, true});
  norm.set_grad({});
  compare(opt, embedding, AdamFormula{0.05, 0.9, 0.95, 1e-8, 0.2, true});
  const StateDict state = opt.state_dict();
  EXPECT_TRUE(state.contains("blocks.0.weight.momentum_buffer"));
  EXPECT_TRUE(state.contains("norm.bias.exp_avg_sq"));
  EXPECT_TRUE(state.contains("tok_emb.weight.step"));
}

TEST(OptionsOfTheRules, AreChecked) {
  const TensorList p{start()};
  EXPECT_THROW(Lion(p, {.lr = -1}), ValueError);
  EXPECT_THROW(Adafactor(p, {.eps1 = 0}), ValueError);
  EXPECT_THROW(Muon(p, {.ns_steps = 0}), ValueError);
  EXPECT_THROW(Adam(p, {.beta2 = 1}), ValueError);
}

// Every rule's state survives a round trip in the middle of a run.
template <class O, class Options>
void round_trip(const Options& options) {
  const Tensor from = start({6, 5});
  Tensor p = leaf(from), q = leaf(from);
  O one(TensorList{p}, options);
  auto two = std::make_unique<O>(TensorList{q}, options);
  Samples random(DType::f32, 5);
  for (int t = 0; t < 6; ++t) {
    const Tensor g = random.tensor(p.shape());
    p.set_grad(g);
    q.set_grad(g);
    one.step();
    two->step();
    StateDict saved;
    for (const auto& [key, tensor] : two->state_dict()) saved.emplace(key, clone(tensor));
    two = std::make_unique<O>(TensorList{q}, options);
    two->load_state_dict(saved);
  }
  EXPECT_EQ(values(p), values(q));
}

TEST(StateRoundTrip, OfEveryRule) {
  round_trip<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  round_trip<SGD>(SGDOptions{.lr = 0.1});
  round_trip<Adam>(AdamOptions{});
  round_trip<AdamW>(AdamWOptions{});
  round_trip<Lion>(LionOptions{});
  round_trip<Adafactor>(AdafactorOptions{});
  round_trip<Muon>(MuonOptions{});
  round_trip<Muon>(MuonOptions{.use_adamw = true});
}

}  // namespace
}  // namespace strata::optim
