#pragma once
// Devices that are told what to do and do it later. The room of such a device registers here what the call path asks
// of it, so that core includes nothing of that room.

#include <string_view>

#include "strata/core/device.h"

namespace strata {

/// What the call path asks of one kind of device.
struct LaunchRoom {
  /// Makes `device` current and calls launch(data), which launches kernels of `op`. Returns the error that they left,
  /// nullptr for none.
  const char* (*run)(std::string_view op, Device device, void (*launch)(const void*), const void* data);
  /// The number of the stream that this thread launches on.
  int (*stream)(Device device);
  /// Whether each launch waits for its end, so that an error is that of the op which reports it.
  bool (*blocking)();
};

namespace detail {
/// By type of device; nullptr where kernels run on the calling thread, or where this build has no such device. Written
/// before main, read by any thread.
inline constinit const LaunchRoom* g_launch_rooms[kNumDeviceTypes] = {};
}  // namespace detail

/// The room of devices of this type, nullptr for the CPU and for what this build does not have.
inline const LaunchRoom* launch_room(DeviceType type) {
  return detail::g_launch_rooms[static_cast<int>(type)];
}

}  // namespace strata
