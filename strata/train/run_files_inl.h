#pragma once
// What a run's checkpoint and a mirror hold alike: tensors by file, and texts.

#include <map>
#include <string>

#include "strata/io/checkpoint.h"
#include "strata/optim/optimizer.h"
#include "strata/train/run.h"

namespace strata::detail {

inline constexpr const char* kModelFile = "model";
inline constexpr const char* kOptimizerFile = "optimizer";
inline constexpr const char* kExchangeFile = "exchange";  ///< of parallel.reduce

/// The tensors, as they lie: of several ranks without what is in another one's stage.
io::TensorFiles run_files(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer);
/// What there is beside tensors, and back. Throws IoError naming `source` and the text that is missing or makes no
/// sense.
std::map<std::string, std::string> run_texts(const RunState& state);
RunState run_state(const std::map<std::string, std::string>& texts, int64_t step, const std::string& source);

}  // namespace strata::detail
