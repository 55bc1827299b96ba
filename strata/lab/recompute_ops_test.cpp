// Every op under Recompute: what it saves is made again to the same bits.
#include <cstring>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/recompute.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// Calls with arguments that calls made, of leaves; the leaves' gradients.
struct Ran {
  bool differentiable = false;
  Tensor loss;
  TensorList leaves;
};
Ran run(const OpBase& op, const Sample& sample) {
  Ran r;
  std::vector<Value> args = sample.args;
  const auto made = [&](Tensor& t) {
    if (!t.defined() || !is_floating(t.dtype()) || t.impl().wrapped_number) return;
    r.leaves.push_back(t.detach().clone().set_requires_grad());
    t = r.leaves.back() * 1.0;
  };
  for (Value& v : args) {
    if (auto* t = std::get_if<Tensor>(&v)) made(*t);
    if (auto* list = std::get_if<TensorList>(&v)) std::for_each(list->begin(), list->end(), made);
  }
  const auto add = [&](const Tensor& t) {
    if (!t.defined() || !t.requires_grad() || !is_floating(t.dtype())) return;
    const Tensor part = sum(t * t);
    r.loss = r.loss.defined() ? r.loss + part : part;
  };
  for (const Value& v : op.call_boxed(args)) {
    if (const auto* t = std::get_if<Tensor>(&v)) add(*t);
    if (const auto* list = std::get_if<TensorList>(&v)) std::for_each(list->begin(), list->end(), add);
  }
  r.differentiable = r.loss.defined();
  return r;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || a.numel() == 0) return true;
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

TEST(RecomputeOps, EveryGradientIsTheSame) {
  int ops = 0;
  for (const OpBase* op : OpBase::all()) {
    if (!op->has_samples() || !op->has_backward() || !(op->dtypes() & dtype_bit(DType::f32))) continue;
    Samples samples(DType::f32);
    op->samples(samples);
    size_t done = 0;
    for (const Sample& sample : samples.valid) {
      Ran plain;
      TensorList wanted;
      try {
        plain = run(*op, sample);
        if (!plain.differentiable) continue;
        wanted = grad({plain.loss}, plain.leaves, {}, false, false, true);
      } catch (const Error&) {
        continue;  // not for this machine or dtype
      }
      Recompute recompute;
      recompute.begin();
      const Ran again = run(*op, sample);
      EXPECT_TRUE(same_bits(again.loss, plain.loss)) << op->name();
      TensorList got;
      ASSERT_NO_THROW(got = grad({again.loss}, again.leaves, {}, false, false, true)) << op->name();
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << op->name() << " " << i;
      if (++done == 4) break;
    }
    ops += done > 0;
  }
  EXPECT_GT(ops, 200);
}

}  // namespace
}  // namespace strata
