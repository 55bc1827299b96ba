#pragma once
// Kernels of generation's ops. Results are row-major and allocated; the records have checked shapes and dtypes.

#include "strata/core/tensor.h"
#include "strata/ops/generation/generation.h"

namespace strata::generation {

// What sample_tokens() takes but for the logits, of one row.
struct RowParams {
  float temperature = 1;
  int64_t top_k = 0;
  float top_p = 1, min_p = 0, typical_p = 1;
  uint64_t seed = 0, position = 0;
};
inline constexpr const char* kParamsRule =
    "temperature must be finite and at least 0, top_k at least 0, top_p and typical_p above 0 and at most 1, min_p "
    "from "
    "0 to 1";
inline constexpr const char* kNumbersRule = "the logits of a row must not all be NaN: the model has diverged";

// Where a row's parameters lie; nullptr: off. step 0: one for all rows.
template <class T>
struct PerRow {
  const T* at = nullptr;
  int64_t step = 0;
};
struct SampleArgs {
  PerRow<float> temperature, top_p, min_p, typical_p;
  PerRow<int64_t> top_k;
  const int64_t *seeds, *positions;
  int64_t rows, columns, vocab;
};

// What penalise_logits() reads beside the logits.
struct PenaltyArgs {
  const int64_t *history, *lengths, *prompts;
  PerRow<float> repetition, frequency, presence;
  int64_t rows, columns, places;
};

struct BiasArgs {
  const int64_t *ids, *counts, *limits;  // the last two may be nullptr
  const float* values;
  int64_t rows, columns, n, step;  // step 0: the same ids and values for all rows
};

void sample_tokens_cpu(DType t, const void* logits, const SampleArgs& a, int64_t* ids, float* logprobs);
void penalise_logits_cpu(const PenaltyArgs& a, const float* x, float* y);
void bias_logits_cpu(const BiasArgs& a, float* y);
void cache_write_cpu(Tensor& y, const Tensor& x, const Tensor& starts, const Tensor& counts);

void sample_tokens_cuda(DType t, const void* logits, const SampleArgs& a, int64_t* ids, float* logprobs);
// `seen` is room of rows * columns numbers.
void penalise_logits_cuda(const PenaltyArgs& a, const float* x, float* y, uint32_t* seen);
void bias_logits_cuda(const BiasArgs& a, float* y);
void cache_write_cuda(Tensor& y, const Tensor& x, const Tensor& starts, const Tensor& counts);

}  // namespace strata::generation
