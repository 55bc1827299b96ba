#pragma once
// What is read from files while a card is made ready.

#include <future>

#include "strata/core/device.h"
#include "strata/cuda/runtime.h"

namespace strata::detail {

/// read(), while another thread has the driver make the context of a card: that takes as long as reading the tokenizer
/// of a hundred thousand tokens. What either throws is thrown, read()'s first.
template <class F>
auto beside_card(Device device, const F& read) {
  std::future<void> ready;
  if (device.is_cuda()) ready = std::async(std::launch::async, [device] { cuda::synchronize(device.index); });
  auto result = read();
  if (ready.valid()) ready.get();
  return result;
}

}  // namespace strata::detail
