#pragma once
#include <set>
#include <string>

#include "strata/nn/module.h"

namespace strata::nn {

/// Converts the parameters of at least `least_dim` dimensions, every handle to them with it: matrices to bf16, say,
/// with norms and biases left in f32, which take little memory and want the precision. Gradients are dropped where a
/// dtype changes. Module::to() converts all, and buffers. Throws DTypeError unless `dtype` is floating.
void convert_parameters(const Module& module, DType dtype, int64_t least_dim = 2);

/// The names of the weights of Embedding and EmbeddingBag: tables that are looked up by rows and no linear maps, which
/// Muon does not orthogonalise.
std::set<std::string> table_names(const Module& module);

}  // namespace strata::nn
