#pragma once
// What tests of saved tensors that go away share: options, losses, and gradients with hooks beside those without.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload.h"
#include "strata/core/samples.h"
#include "strata/memory/allocator.h"
#include "strata/memory/pressure.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {

// Everything moves, at once, and nothing is measured.
inline OffloadOptions all_away() {
  return {.min_bytes = 1, .keep_bytes = 0, .queue_bytes = 0, .fetch_bytes = 0, .adaptive = false};
}
inline OffloadOptions all_again() {
  OffloadOptions o = all_away();
  o.recompute = true;
  return o;
}

inline Tensor leaf(const Shape& shape, uint64_t seed = 1, DType dtype = DType::f32) {
  return Samples(dtype, seed).tensor(shape).set_requires_grad();
}
inline int64_t live() {
  return memory::stats(DeviceType::cpu).live_total;
}
inline std::string bits(const Tensor& t) {
  const Tensor c = contiguous(t.detach());
  return {static_cast<const char*>(c.raw_data()), static_cast<size_t>(c.nbytes())};
}

using Loss = std::function<Tensor(const TensorList&)>;

// The gradients of loss(leaves), with hooks or without.
inline std::vector<std::string> gradients(const Loss& loss, const TensorList& leaves,
                                          const std::shared_ptr<SavedTensorOffload>& offload) {
  for (Tensor t : leaves) t.set_grad({});
  Tensor y;
  {
    std::optional<SavedTensorOffload::Scope> scope;
    if (offload) scope.emplace(offload);
    y = loss(leaves);
  }
  y.backward();
  std::vector<std::string> all;
  for (const Tensor& t : leaves) all.push_back(t.grad().defined() ? bits(t.grad()) : std::string());
  return all;
}

// Compares them over several passes (the first is measured, later ones follow its plan), for every way to work.
inline void expect_same_bits(const Loss& loss, const TensorList& leaves) {
  const RngKey random = default_generator().state();
  const auto run = [&](const std::shared_ptr<SavedTensorOffload>& offload) {
    default_generator().set_state(random);
    return gradients(loss, leaves, offload);
  };
  const std::vector<std::string> want = run(nullptr);
  OffloadOptions adaptive = all_again();
  adaptive.adaptive = true;
  adaptive.slowdown = 1.5;
  OffloadOptions windows = all_away();
  windows.keep_bytes = 3000;
  windows.queue_bytes = 2000;
  windows.fetch_bytes = 1000;
  int way = 0;
  for (const OffloadOptions& o : {all_away(), all_again(), adaptive, windows}) {
    const auto offload = SavedTensorOffload::create(o);
    for (int pass = 0; pass < 4; ++pass) EXPECT_EQ(run(offload), want) << "way " << way << " pass " << pass;
    const OffloadStats s = offload->stats();
    EXPECT_EQ(s.passes, 4) << way;
    EXPECT_GT(s.saved, 0) << way;
    EXPECT_EQ(s.away_bytes, 0) << way;
    EXPECT_EQ(s.refused, 0) << way << s.last_failure;
    ++way;
  }
}

inline Tensor mlp(const TensorList& p) {
  Tensor h = p[0];
  for (size_t i = 1; i + 1 < p.size(); i += 2) h = gelu(linear(h, p[i], p[i + 1]), i == 1 ? "tanh" : "none");
  return sum(h * h);
}
inline TensorList mlp_leaves(DType dtype = DType::f32) {
  return {leaf({7, 9}, 1, dtype), leaf({33, 9}, 2, dtype), leaf({33}, 3, dtype), leaf({21, 33}, 4, dtype),
          leaf({21}, 5, dtype)};
}

// A chain of sines, each of which saves its argument.
inline Loss sines(int calls) {
  return [calls](const TensorList& p) {
    Tensor t = p[0];
    for (int i = 0; i < calls; ++i) t = sin(t);
    return sum(t);
  };
}
// What kernels of other tests left with threads would be given first.
inline void give_all_back() {
  while (memory::relieve(Device::cpu(), int64_t{1} << 40)) {
  }
}

}  // namespace strata
