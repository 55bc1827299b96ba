#pragma once
// What saved-tensor hooks of the engine's own may ask and answer beyond SavedTensorHooks.

#include <memory>

#include "strata/core/node.h"

namespace strata::detail {

/// What pack() returns for a tensor that is to be kept as it is, as if there were no hooks: then nothing is packed.
const std::shared_ptr<void>& keep_as_it_is();
/// During pack(): the tensor with its history, which pack()'s argument lacks.
const Tensor* tensor_being_saved();
/// Whether hooks of this thread see what is saved now.
bool saving_is_hooked();

}  // namespace strata::detail
