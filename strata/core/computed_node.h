#pragma once
// The tape of a tensor that is given another value, and another history, before each use.

#include <string_view>
#include <utility>

#include "strata/core/node.h"

namespace strata {

/// Stands between such a tensor (a parametrised parameter's: strata/nn/parametrize.h) and what its value of now was
/// computed with. Who saves the tensor for backward keeps its value and its history of now, not the tensor.
struct ComputedNode : Node {
  explicit ComputedNode(const Tensor& value) { edges.push_back(gradient_edge(value)); }
  std::string_view name() const override { return "parametrization"; }
  bool passes_on() const override { return true; }
  void apply(Grads& gy, Grads& gx) override { gx[0] = std::move(gy[0]); }
};

}  // namespace strata
