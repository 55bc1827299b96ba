#pragma once
// What a run will need, known before anything is allocated.

#include <cstdint>

#include "strata/train/config.h"

namespace strata {

/// Bytes of the memory of train.device. Gradients and activations are largest at different times: the peak is less than the sum.
struct MemoryEstimate {
  int64_t parameter_count = 0;  ///< elements
  int64_t parameters = 0;
  int64_t gradients = 0;  ///< after the backward pass
  int64_t optimizer = 0;
  int64_t activations = 0;  ///< at the peak: saved for the backward pass, and temporaries
  int64_t data = 0;         ///< batches made ready
  int64_t peak = 0;         ///< of the heap that holds them all: their sum, and what fragmentation adds
};

/// Runs one training step of the settings on the meta device: the same code, shapes only. model.vocab 0 is taken as the
/// byte tokenizer's 256. Throws ValueError for settings that do not fit together.
MemoryEstimate estimate_memory(const TrainConfig& config);

}  // namespace strata
