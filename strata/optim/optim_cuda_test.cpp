// The optimizers on a CUDA device beside themselves on the CPU.

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {

const std::vector<Shape> kShapes = {{37}, {64, 128}, {5000}, {}, {3, 17, 33}, {0}, {40, 9}, {4096}, {8193}};

TensorList params_on(Device device, DType dtype) {
  TensorList all;
  manual_seed(2);
  for (const Shape& s : kShapes) {
    Tensor p = randn(s, dtype).to(device);
    p.set_requires_grad();
    all.push_back(p);
  }
  return all;
}

void set_grads(const TensorList& params, DType dtype, double factor = 1) {
  manual_seed(3);
  for (const Tensor& p : params) {
    Tensor t = p;
    t.set_grad((randn(p.shape()) * Scalar(factor)).to(dtype).to(p.device()));
  }
}

void expect_near(const TensorList& got, const TensorList& want, double tolerance) {
  for (size_t i = 0; i < got.size(); ++i) {
    const Doubles a = got[i].detach().to_vector<double>(), b = want[i].detach().to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (size_t j = 0; j < a.size(); ++j)
      ASSERT_NEAR(a[j], b[j], tolerance * (1 + std::abs(b[j]))) << "tensor " << i << " element " << j;
  }
}

class CudaOptim : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }

  template <class Make>
  static void same(Make&& make, double tolerance, std::vector<DType> dtypes = {DType::f32, DType::f64}) {
    for (DType dtype : dtypes)
      for (DType grad : {dtype, DType::bf16}) {
        const TensorList here = params_on(Device::cpu(), dtype), there = params_on(Device::cuda(), dtype);
        auto a = make(here), b = make(there);
        for (int step = 0; step < 3; ++step) {
          set_grads(here, grad);
          set_grads(there, grad);
          if (step == 1) {
            const double norm = a->step_clipped(0.5);
            EXPECT_NEAR(b->step_clipped(0.5), norm, 1e-9 * norm);
          } else {
            a->step(0.7);
            b->step(0.7);
          }
        }
        expect_near(there, here, tolerance);
      }
  }
};

TEST_F(CudaOptim, StepsAsOnTheCpu) {
  same([](const TensorList& p) { return std::make_unique<AdamW>(p, AdamWOptions{0.05}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<Adam>(p, AdamOptions{.lr = 0.05, .weight_decay = 0.1}); },
       3e-6);
  same([](const TensorList& p) { return std::make_unique<Lion>(p, LionOptions{.lr = 0.01}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .weight_decay = 0.1}); }, 3e-6);
  same(
      [](const TensorList& p) {
        return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
      },
      3e-6);
  same([](const TensorList& p) { return std::make_unique<Adafactor>(p, AdafactorOptions{}); }, 1e-5);
  same([](const TensorList& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.05, .amsgrad = true}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<RMSprop>(p, RMSpropOptions{.lr = 0.02}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<RMSprop>(p, RMSpropOptions{.lr = 0.02, .momentum = 0.9}); },
       3e-6);
  same(
      [](const TensorList& p) {
        return std::make_unique<RMSprop>(p, RMSpropOptions{.lr = 0.02, .eps = 1e-2, .momentum = 0.9, .centered = true});
      },
      3e-5);
  same([](const TensorList& p) { return std::make_unique<Adagrad>(p, AdagradOptions{.lr_decay = 0.1}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<Adadelta>(p, AdadeltaOptions{}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<Adamax>(p, AdamaxOptions{.lr = 0.05}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<NAdam>(p, NAdamOptions{.lr = 0.05}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<RAdam>(p, RAdamOptions{.lr = 0.05, .beta2 = 0.5}); }, 3e-6);
  same([](const TensorList& p) { return std::make_unique<Rprop>(p, RpropOptions{.lr = 0.02}); }, 3e-6);
  same(
      [](const TensorList& p) {
        return std::make_unique<ASGD>(p, ASGDOptions{.lr = 0.1, .t0 = 1, .weight_decay = 0.1});
      },
      3e-6);
  // Five products of matrices that are each rounded a little differently.
  same([](const TensorList& p) { return std::make_unique<Muon>(p, MuonOptions{.lr = 0.02}); }, 1e-3);
}

// Another lr is heard one update later, and not where the device leaves the update out.
TEST_F(CudaOptim, ARateInTheStateIsReplacedByTheUpdate) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const TensorList here = params_on(Device::cpu(), dtype), there = params_on(Device::cuda(), dtype);
    const ASGDOptions options{.lr = 0.1, .lambd = 0.3, .t0 = 1};
    ASGD a(here, options), b(there, options);
    for (int step = 0; step < 6; ++step) {
      for (ASGD* o : {&a, &b}) {
        set_grads(o == &a ? here : there, dtype, step == 3 ? INFINITY : 1.0);
        o->set_lr(0.1 + 0.05 * step);
        o->step_clipped(2);
      }
    }
    expect_near(there, here, 3e-6);
    const double eta = a.state_dict().at("0.eta").item<double>();
    EXPECT_NEAR(eta, 0.35 / std::pow(1 + 0.3 * 0.35 * 5, 0.75), 1e-15);
    EXPECT_NEAR(b.state_dict().at("0.eta").item<double>(), eta, 1e-15);
  }
}

// With 16 bits a last bit of f32 that differs may change how a number is rounded: but few, and by one of its last bits.
TEST_F(CudaOptim, StepsIn16BitsAsOnTheCpu) {
  const LowPrecision master{.master_weights = true}, stochastic{.stochastic_rounding = true, .seed = 5},
      low{.stochastic_rounding = true, .low_state = true};
  const auto compare = [](DType dtype, DType grad, auto&& make) {
    const TensorList here = params_on(Device::cpu(), dtype), there = params_on(Device::cuda(), dtype);
    auto a = make(here), b = make(there);
    int64_t differ = 0, all = 0;
    for (int step = 0; step < 3; ++step) {
      set_grads(here, grad);
      set_grads(there, grad);
      a->step(0.7);
      b->step(0.7);
    }
    const double bit = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
    for (size_t i = 0; i < here.size(); ++i) {
      const Doubles x = values(here[i]), y = values(there[i].to(Device::cpu()));
      for (size_t j = 0; j < x.size(); ++j) {
        ASSERT_NEAR(y[j], x[j], 2 * bit * std::abs(x[j]) + 1e-4) << a->name() << " tensor " << i << " element " << j;
        differ += x[j] != y[j];
        ++all;
      }
    }
    EXPECT_LE(differ, all / 50) << a->name();
  };
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const LowPrecision& how : {LowPrecision{}, master, stochastic, low})
      for (const DType grad : {dtype, DType::f32}) {
        if (dtype == DType::f16 && how.stochastic_rounding) continue;
        SCOPED_TRACE(
            cat(dtype, " grad ", grad, " master ", how.master_weights, " stochastic ", how.stochastic_rounding));
        compare(dtype, grad,
                [&](const TensorList& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.05, .low = how}); });
        compare(dtype, grad,
                [&](const TensorList& p) { return std::make_unique<Lion>(p, LionOptions{.lr = 0.01, .low = how}); });
        compare(dtype, grad, [&](const TensorList& p) {
          return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .low = how});
        });
        compare(dtype, grad, [&](const TensorList& p) {
          return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .weight_decay = 0.1, .low = how});
        });
        compare(dtype, grad,
                [&](const TensorList& p) { return std::make_unique<ASGD>(p, ASGDOptions{.lr = 0.1, .low = how}); });
        compare(dtype, grad,
                [&](const TensorList& p) { return std::make_unique<Adafactor>(p, AdafactorOptions{.low = how}); });
        compare(dtype, grad,
                [&](const TensorList& p) { return std::make_unique<Muon>(p, MuonOptions{.lr = 0.02, .low = how}); });
      }
}

TEST_F(CudaOptim, RandomBitsAreThoseOfTheCpu) {
  // Additions that f32 has exactly: only the rounding is left.
  Tensor here = leaf(ones({10'001}, DType::bf16)), there = leaf(here.detach().to(Device::cuda()));
  const LowPrecision how{.stochastic_rounding = true, .seed = 9};
  SGD a(TensorList{here}, {.lr = 1, .low = how}), b(TensorList{there}, {.lr = 1, .low = how});
  for (int step = 0; step < 5; ++step) {
    here.set_grad(full({10'001}, -0x1p-10));
    there.set_grad(full({10'001}, -0x1p-10).to(Device::cuda()));
    a.step();
    b.step();
  }
  EXPECT_EQ(values(here), values(there.to(Device::cpu())));
  EXPECT_EQ(b.state_dict().at("0.step").item<int64_t>(), 5);
}

TEST_F(CudaOptim, GradientsOf16BitsAreClipped) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const TensorList here = params_on(Device::cpu(), dtype), there = params_on(Device::cuda(), dtype);
    set_grads(here, dtype);
    set_grads(there, dtype);
    const double norm = clip_grad_norm(here, 3);
    EXPECT_NEAR(clip_grad_norm(there, 3), norm, 1e-9 * norm);
    for (size_t i = 0; i < here.size(); ++i) expect_near({there[i].grad()}, {here[i].grad()}, 1e-2);
    clip_grad_value(there, 0.01);
    EXPECT_LE(there[2].grad().abs().max().item(), 0.0101);
  }
}

TEST_F(CudaOptim, MasterWeightsFollowWhoeverWritesTheParameter) {
  Tensor p = leaf(ones({4}, DType::bf16).to(Device::cuda()));
  SGD o(TensorList{p}, {.lr = 1, .low = {.master_weights = true}});
  p.set_grad(full({4}, -0x1p-10).to(Device::cuda()));
  o.step();
  {
    NoGrad guard;
    p.narrow(0, 0, 2).fill_(3);
  }
  o.step();
  const Doubles master = values(o.state_dict().at("0.master").to(Device::cpu()));
  EXPECT_EQ(master[0], 3 + 0x1p-10);
  EXPECT_EQ(master[3], 1 + 0x1p-9);
}

TEST_F(CudaOptim, AnInfiniteNormChangesNothing) {
  const TensorList params = params_on(Device::cuda(), DType::f32), before = params_on(Device::cuda(), DType::f32);
  AdamW opt(params, AdamWOptions{0.05});
  set_grads(params, DType::f32, INFINITY);
  EXPECT_FALSE(std::isfinite(opt.step_clipped(1)));
  expect_near(params, before, 0);
  EXPECT_TRUE(opt.state_dict().empty());
  EXPECT_FALSE(std::isfinite(clip_grad_norm(params, 1)));
}

TEST_F(CudaOptim, RenewsTheCopiesForAutocast) {
  for (const DType low : {DType::bf16, DType::f16}) {
    const TensorList params = params_on(Device::cuda(), DType::f32);
    AdamW opt(params, AdamWOptions{0.05});
    const auto cast = [&](const Tensor& p) {
      NoGrad guard;
      AutocastScope scope(low);
      return detail::autocast_tensor(p, Autocast::low, DType::f32);
    };
    for (const Tensor& p : params) cast(p);
    for (const double factor : {1.0, static_cast<double>(INFINITY), 1.0}) {
      set_grads(params, DType::f32, factor);
      opt.step_clipped(1);
      for (const Tensor& p : params) {
        EXPECT_TRUE(autograd_meta(p).low.is_current(p, low));
        EXPECT_EQ(cast(p).to_vector<double>(), p.detach().to(low).to_vector<double>());
      }
    }
    Tensor changed = params[1];
    {
      NoGrad guard;
      changed.fill_(3);
    }
    EXPECT_FALSE(autograd_meta(changed).low.is_current(changed, low));
    set_grads(params, DType::f32);
    opt.step();
    EXPECT_EQ(cast(changed).to_vector<double>(), changed.detach().to(low).to_vector<double>());
  }
}

TEST_F(CudaOptim, GradientsAreClippedAsOnTheCpu) {
  const TensorList here = params_on(Device::cpu(), DType::f32), there = params_on(Device::cuda(), DType::f32);
  for (const auto clip : {+[](const TensorList& p) { return clip_grad_norm(p, 3); },
                          +[](const TensorList& p) { return clip_grad_value(p, 0.4), grad_norm(p); }}) {
    set_grads(here, DType::f32);
    set_grads(there, DType::f32);
    const double norm = clip(here);
    EXPECT_NEAR(clip(there), norm, 1e-9 * norm);
    for (size_t i = 0; i < here.size(); ++i) expect_near({there[i].grad()}, {here[i].grad()}, 1e-6);
  }
}

}  // namespace
}  // namespace strata::optim
