#pragma once
// Loading runs from inside: a trained model for one that will write at once, and what its files must hold.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "strata/train/run.h"

namespace strata::detail {

/// load_trained_model() of either kind; a model that continues `prompt`: a card loads the kernels for it while the disk
/// reads.
TrainedModel load_trained_model_for(const std::string& prompt, const std::string& path,
                                    std::vector<std::string>* warnings, Device device);

/// strata::check_base() of whatever has the frozen weights: `checksum` gives theirs, where it is needed.
void check_base(const FoundRun& run, const std::function<uint64_t()>& checksum);
/// Throws IoError naming the first tensor that the model of the run at `path` wants and its file has not, or that is
/// too many there.
void check_run_names(const std::string& path, const std::set<std::string>& wanted, const std::set<std::string>& found);

}  // namespace strata::detail
