#pragma once
// What a run tells of its beginning, and where the time until its first step went.

#include <string>
#include <utility>
#include <vector>

#include "strata/nn/module.h"
#include "strata/train/config.h"
#include "strata/train/train_data.h"

namespace strata::detail {

/// "the first step ended after 3.40 s: memory 1.90, step 0.80, model 0.31": the parts of 0.01 s and more that came to
/// `now` since `before` (both of once_seconds()), the longest first.
std::string startup_text(double seconds, const std::vector<std::pair<const char*, double>>& before,
                         const std::vector<std::pair<const char*, double>>& now);

/// "gpt2, 12.3M parameters; 1.00M training tokens, 50.0k for validation; 8 threads": what a run begins with.
std::string run_text(const TrainConfig& config, const nn::Module& model, const TrainData& data, Device device);

/// A number, of which a NaN has no sign: which one it has is chance.
std::string unsigned_text(double v);

}  // namespace strata::detail
