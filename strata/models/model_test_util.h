#pragma once
// What tests of models share: a small one's settings, a text of whole numbers, and a tensor's bytes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/models/model_config.h"
#include "strata/ops/factory/factory.h"

namespace strata {

/// A model of 32 numbers a token and four heads.
inline ModelConfig small_model(std::string_view family, int64_t layers, int64_t context, int64_t vocab) {
  ModelConfig c;
  c.family = std::string(family);
  c.layers = layers;
  c.dim = 32;
  c.heads = 4;
  c.context = context;
  c.vocab = vocab;
  c.dropout = 0;
  return c;
}

/// i64 [rows, columns] of 0, step, 2 step, .. modulo vocab.
inline Tensor stepping_tokens(int64_t rows, int64_t columns, int64_t step, int64_t vocab) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows * columns; ++i) ids.push_back(i * step % vocab);
  return from_span<int64_t>(ids, {rows, columns});
}

inline std::vector<uint8_t> bits(const Tensor& given) {
  const Tensor t = given.detach().contiguous();
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

}  // namespace strata
