#pragma once
// What a program that will need a card can begin with before it does.

#include <thread>

#include "strata/core/device.h"

namespace strata::cuda::detail {

/// A thread that makes the card's context and loads the library of products, while its caller reads files. What fails
/// is told by the first who needs it. None for a device that is no card.
std::jthread load_libraries(Device device);

}  // namespace strata::cuda::detail
