// CTC against the sum over all ways to write the labels, PyTorch's values, and on a CUDA device the CPU's.

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor numbers(std::vector<int64_t> v, const Shape& shape) {
  return from_span<int64_t>(v, shape);
}

// sin(0), sin(1), ..
Tensor waves(const Shape& shape) {
  std::vector<double> v(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<double>(i));
  return from_span<double>(v, shape);
}

// The loss of one sequence, log_probs [steps, classes]: every way to choose a class at each step is tried. `share` gets
// the probability that a step has a class, given the labels.
double by_paths(const std::vector<double>& x, int64_t steps, int64_t classes, const std::vector<int64_t>& labels,
                int64_t blank, std::vector<double>& share) {
  share.assign(x.size(), 0);
  std::vector<int64_t> path(static_cast<size_t>(steps));
  double total = 0;
  int64_t paths = 1;
  for (int64_t t = 0; t < steps; ++t) paths *= classes;
  for (int64_t p = 0; p < paths; ++p) {
    double log = 0;
    std::vector<int64_t> written;
    for (int64_t t = 0, rest = p; t < steps; ++t, rest /= classes) {
      path[t] = rest % classes;
      log += x[t * classes + path[t]];
      if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) written.push_back(path[t]);
    }
    if (written != labels) continue;
    total += std::exp(log);
    for (int64_t t = 0; t < steps; ++t) share[t * classes + path[t]] += std::exp(log);
  }
  for (double& v : share) v /= total;
  return -std::log(total);
}

TEST(Ctc, IsTheSumOverAllPaths) {
  const int64_t steps = 6, classes = 4;
  const Tensor logs = log_softmax(waves({steps, 1, classes}), -1);
  const std::vector<double> x = logs.to_vector<double>();
  for (const int64_t blank : {0, 2, 3})
    for (const std::vector<int64_t>& wanted :
         {std::vector<int64_t>{}, {1}, {1, 1}, {1, 1, 1}, {1, 2, 1}, {3, 1}, {0, 3, 0}, {1, 2, 3, 1}}) {
      std::vector<int64_t> labels = wanted;
      for (int64_t& v : labels)
        if (v == blank) v = (blank + 1) % classes;
      std::vector<double> share;
      const double want = by_paths(x, steps, classes, labels, blank, share);
      const auto count = static_cast<int64_t>(labels.size());
      Tensor p = logs.clone();
      p.set_requires_grad();
      const Tensor loss =
          ctc_loss(p, numbers(labels, {1, count}), numbers({steps}, {1}), numbers({count}, {1}), blank, "sum");
      EXPECT_NEAR(loss.item(), want, 1e-12);
      const std::vector<double> g = grad({loss}, {p})[0].to_vector<double>();
      for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], -share[i], 1e-12) << "blank " << blank << " at " << i;
    }
}

// torch 2.15: torch.nn.functional.ctc_loss(log_softmax(sin(arange)), ..).
TEST(Ctc, GivesPyTorchsLossesAndGradients) {
  Tensor x = waves({6, 2, 4});
  x.set_requires_grad();
  const Tensor targets = numbers({1, 2, 2, 3, 1, 0}, {2, 3}), inputs = numbers({6, 5}, {2}),
               counts = numbers({3, 2}, {2});
  const Tensor each = ctc_loss(log_softmax(x, -1), targets, inputs, counts, 0, "none");
  EXPECT_NEAR(each[0].item(), 5.602497438922332, 1e-12);
  EXPECT_NEAR(each[1].item(), 3.8858170744883282, 1e-12);
  EXPECT_NEAR(ctc_loss(log_softmax(x, -1), targets, inputs, counts).item(), 1.905203841775804, 1e-12);
  EXPECT_NEAR(ctc_loss(log_softmax(x, -1), numbers({1, 2, 2, 3, 1}, {5}), inputs, counts).item(), 1.905203841775804,
              1e-12);
  const std::vector<double> g = grad({sum(each)}, {x})[0].to_vector<double>();
  const std::vector<double> third = {-0.2867271221037365, 0.061119969207967736, -0.19441533248000661,
                                     0.4200224853757754,  -0.07718736416790398, -0.07696183044200632,
                                     0.15934201644324714, -0.005192821833336845};
  for (size_t i = 0; i < third.size(); ++i) EXPECT_NEAR(g[16 + i], third[i], 1e-12) << i;
}

TEST(Ctc, LabelsWithoutAPathAreInfiniteOrNothing) {
  Tensor x = log_softmax(waves({3, 2, 4}), -1).detach();
  x.set_requires_grad();
  // Two equal labels need three steps.
  const Tensor targets = numbers({1, 1, 2, 3}, {2, 2}), inputs = numbers({2, 3}, {2}), counts = numbers({2, 2}, {2});
  const Tensor loss = ctc_loss(x, targets, inputs, counts, 0, "none"),
               zeroed = ctc_loss(x, targets, inputs, counts, 0, "none", true);
  EXPECT_EQ(loss[0].item(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(zeroed[0].item(), 0);
  EXPECT_EQ(zeroed[1].item(), loss[1].item());
  const Tensor g = grad({sum(zeroed)}, {x})[0], bad = grad({sum(loss)}, {x})[0];
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(g[t][0][c].item(), 0);
      EXPECT_EQ(bad[t][1][c].item(), g[t][1][c].item());
      EXPECT_EQ(std::isnan(bad[t][0][c].item()), t < 2);
    }
}

TEST(Ctc, ASequenceWithoutStepsHasNoLabels) {
  const Tensor x = log_softmax(waves({3, 1, 4}), -1), none = numbers({0}, {1});
  EXPECT_EQ(ctc_loss(x, numbers({1}, {1, 1}), none, none, 0, "sum").item(), 0);
  EXPECT_EQ(ctc_loss(x, numbers({1}, {1, 1}), none, numbers({1}, {1}), 0, "sum").item(),
            std::numeric_limits<double>::infinity());
}

TEST(Ctc, MoreStepsThanASecondGradientCanRecordAreRefused) {
  const DeviceScope on(Device::meta());
  const auto made = [](const Shape& shape, DType dtype) {
    return empty(TensorMeta{shape, dtype, Device::meta(), std::nullopt});
  };
  Tensor x = made({int64_t{1} << 31, 1, 4}, DType::f32);
  x.set_requires_grad();
  const Tensor label = made({1, 1}, DType::i64), length = made({1}, DType::i64);
  const Tensor loss = ctc_loss(x, label, length, length);
  EXPECT_THROW(grad({loss}, {x}, {}, true), MemoryError);
  EXPECT_EQ(grad({loss}, {x})[0].shape(), x.shape());
}

TEST(Ctc, LongSequencesStayExact) {
  const int64_t steps = 400, batch = 3, classes = 30, labels = 120;
  manual_seed(5);
  const Tensor x = randn({steps, batch, classes}) * 2, targets = randint(1, 8, {batch, labels}),
               inputs = numbers({400, 391, 350}, {3}), counts = numbers({120, 80, 1}, {3});
  const auto run = [&](DType t) {
    Tensor p = x.to(t);
    p.set_requires_grad();
    const Tensor loss = ctc_loss(log_softmax(p.to(t == DType::f64 ? t : DType::f32), -1), targets, inputs, counts);
    return std::pair(loss, grad({loss}, {p})[0]);
  };
  const auto [want, want_grad] = run(DType::f64);
  const auto [loss, g] = run(DType::f32);
  EXPECT_LE(difference(loss, want), 1e-6);
  EXPECT_LE(difference(g, want_grad), 1e-3);
}

TEST(Ctc, TheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  manual_seed(6);
  Tensor x = log_softmax(randn({40, 7, 9}), -1).detach();
  x.set_requires_grad();
  const Tensor targets = randint(1, 9, {7, 12}), inputs = full({7}, 40, DType::i64), counts = full({7}, 12, DType::i64);
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    const std::vector<float> g = grad({ctc_loss(x, targets, inputs, counts)}, {x})[0].to_vector<float>();
    if (first.empty()) first = g;
    EXPECT_EQ(g, first) << threads;
  }
  set_num_threads(before);
}

class CudaCtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

// States for a thread each and for several, classes of a few and of many labels, lengths of all kinds.
TEST_F(CudaCtc, AgreesWithTheCpuInDouble) {
  for (const auto& [steps, batch, classes, labels] :
       {std::array<int64_t, 4>{50, 5, 7, 11}, {37, 3, 1000, 16}, {300, 2, 5, 140}, {1300, 2, 33, 601}}) {
    manual_seed(7);
    const Tensor x = randn({batch, steps, classes}), targets = randint(0, classes - 1, {batch, labels});
    std::vector<int64_t> lengths, counts;
    for (int64_t n = 0; n < batch; ++n) {
      lengths.push_back(steps - 3 * n);
      counts.push_back(n == 2 ? 0 : labels - n);
    }
    const auto run = [&](DType given, DType t, Device device) {
      Tensor p = x.to(given).to(t).to(device);
      p.set_requires_grad();
      const Tensor logs = log_softmax(p.to(statistic_dtype(t)), -1).to(t);
      const Tensor loss = ctc_loss(transpose(logs, 0, 1), targets.to(device), numbers(lengths, {batch}).to(device),
                                   numbers(counts, {batch}).to(device), classes - 1, "mean", true);
      return std::pair(loss, grad({loss}, {p})[0]);
    };
    for (const auto& [t, bound] : {std::pair(DType::f64, 1e-9), {DType::f32, 2e-3}}) {
      const auto [want, want_grad] = run(t, DType::f64, Device::cpu());
      const auto [loss, g] = run(t, t, Device::cuda());
      const auto [again, g_again] = run(t, t, Device::cuda());
      EXPECT_LE(difference(loss, want), bound) << steps << ' ' << name_of(t);
      EXPECT_LE(difference(g, want_grad), bound) << steps << ' ' << name_of(t);
      EXPECT_EQ(g.to_vector<double>(), g_again.to_vector<double>());
    }
  }
}

TEST_F(CudaCtc, ALabelThatIsNoClassIsAnError) {
  const Tensor x = log_softmax(waves({5, 1, 4}), -1).to(Device::cuda());
  const auto on_card = [](const Tensor& t) { return t.to(Device::cuda()); };
  const Tensor five = on_card(numbers({5}, {1})), two = on_card(numbers({2}, {1}));
  EXPECT_THROW(ctc_loss(x, on_card(numbers({1, 4}, {1, 2})), five, two).item(), IndexError);
  EXPECT_THROW(ctc_loss(x, on_card(numbers({1, 2}, {1, 2})), on_card(numbers({6}, {1})), two).item(), ValueError);
  EXPECT_GT(ctc_loss(x, on_card(numbers({1, 2}, {1, 2})), five, two).item(), 0);
}

}  // namespace
}  // namespace strata
