#pragma once
// Functions that there are one of for each device: kernels, in records.

#include <utility>

#include "strata/core/device.h"
#include "strata/core/launch.h"

/// `.cuda = STRATA_CUDA_KERNEL(softmax_cuda)`: the kernel in a build with CUDA, none in one without.
#ifdef STRATA_WITH_CUDA
#define STRATA_CUDA_KERNEL(...) __VA_ARGS__
#else
#define STRATA_CUDA_KERNEL(...) nullptr
#endif

namespace strata {

/// Functions of one type F (a pointer), one for each device.
template <class F>
struct ByDevice {
  F cpu = nullptr;
  F cuda = nullptr;
  F everywhere = nullptr;  ///< where there is none for the device: one that asks nothing of it, but calls other ops
  /// The one for the device, nullptr for none.
  F on(DeviceType d) const {
    const F own = d == DeviceType::cpu ? cpu : d == DeviceType::cuda ? cuda : nullptr;
    return own ? own : everywhere;
  }
  /// Whether there is one for the device, and this build has such devices.
  bool has(DeviceType d) const {
    if (d == DeviceType::cpu) return cpu || everywhere;
    return d == DeviceType::cuda && (cuda || (everywhere && launch_room(d)));
  }
  /// Whether there is one for any device.
  explicit operator bool() const { return cpu || cuda || everywhere; }
};

/// The device that a body is compiled for, as a type. `if constexpr (on.cuda)` leaves out what other builds lack.
template <DeviceType D>
struct On {
  static constexpr bool cuda = D == DeviceType::cuda;
};

/// What on_each_device() returns: it becomes one function for each device.
template <class Body>
class OnEachDevice {
 public:
  /// For the type F that the record wants.
  template <class F>
  constexpr operator ByDevice<F>() const {
    return {.cpu = compiled<On<DeviceType::cpu>>(F()), .cuda = STRATA_CUDA_KERNEL(compiled<On<DeviceType::cuda>>(F()))};
  }

 private:
  template <class D, class R, class... A>
  static constexpr auto compiled(R (*)(A...)) -> R (*)(A...) {
    return [](A... a) -> R { return Body{}(D{}, std::forward<A>(a)...); };
  }
};

/// `.kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) { map(on, Map::exp, y, {&x}); })`: one body,
/// compiled for the CPU and, in a build with CUDA, for a card. The record chooses, not the body.
template <class Body>
constexpr OnEachDevice<Body> on_each_device(Body) {
  return {};
}

}  // namespace strata
