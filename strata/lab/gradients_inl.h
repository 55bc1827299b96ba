#pragma once
// Gradients by the rules, with fixed gradients of the results: for what checks them.

#include <vector>

#include "strata/core/value.h"

namespace strata::lab {

/// Numbers in [-1, 1) that depend on `stream` only, in the shape and dtype of `like`.
Tensor direction(const Tensor& like, uint64_t stream);
/// The largest absolute value of an element; 0 of none.
double largest_of(const Tensor& t);

/// The floating results that depend on the arguments, and the fixed gradients that flow into them. A result's gradient
/// depends on its position only, so that calls with other inputs recorded remain comparable.
struct Recorded {
  std::vector<Tensor> results, weights;
  std::vector<size_t> positions;
};
Recorded recorded(const std::vector<Tensor>& results);

/// Dense copies whose floating tensors want gradients (all, or only that at position `only` among the tensors).
std::vector<Value> leaves(const std::vector<Value>& args, int only = -1);
/// The tensors among the values that want gradients.
std::vector<Tensor> wanting(const std::vector<Value>& args);
/// Gradients by the rule; zeros where nothing flows.
std::vector<Tensor> rule_gradients(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                                   const std::vector<Tensor>& weights, bool create_graph = false);

}  // namespace strata::lab
