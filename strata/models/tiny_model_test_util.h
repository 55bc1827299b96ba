#pragma once
// A decoder that tests build in milliseconds, and ids for it.

#include <cstdint>
#include <vector>

#include "strata/models/model_config.h"
#include "strata/ops/factory/factory.h"

namespace strata {

/// A decoder of a family.
inline ModelConfig tiny(const char* family, int64_t vocab = 20) {
  ModelConfig c;
  c.family = family;
  c.layers = 2;
  c.dim = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.context = 16;
  c.vocab = vocab;
  return c;
}

/// Ids [batch, time] that look irregular.
inline Tensor pattern(int64_t batch, int64_t time, int64_t vocab, int64_t shift) {
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < time; ++t) ids.push_back(((t + shift) * 7 + b * 3) % vocab);
  return from_span<int64_t>(ids, {batch, time});
}

}  // namespace strata
