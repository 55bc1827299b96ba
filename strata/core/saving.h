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
/// This thread's innermost hooks, for others that are to be used within them; nullptr where there are none.
const std::shared_ptr<SavedTensorHooks>& innermost_hooks();
/// What `hooks` keep for `t`; empty where there are none or it is to be kept as it is.
PackedTensor pack_with(const std::shared_ptr<SavedTensorHooks>& hooks, const Tensor& t);

}  // namespace strata::detail
