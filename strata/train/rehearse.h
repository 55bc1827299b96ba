#pragma once
// A trained model for one that will write at once.

#include <string>
#include <vector>

#include "strata/train/run.h"

namespace strata::detail {

/// load_trained_model() of either kind; a model that continues `prompt`: a card loads the kernels for it while the disk
/// reads.
TrainedModel load_trained_model_for(const std::string& prompt, const std::string& path,
                                    std::vector<std::string>* warnings, Device device);

}  // namespace strata::detail
