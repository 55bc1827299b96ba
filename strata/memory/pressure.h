#pragma once
// Who can give back a device's memory when a request finds none: tensors on their way to another tier.

#include <cstdint>
#include <memory>

#include "strata/core/device.h"

namespace strata::memory {

/// Holds memory that it can do without, at the price of waiting.
class Reliever {
 public:
  virtual ~Reliever() = default;
  /// Gives back about `bytes` of the device's memory, or less; returns whether it gave back any. Called on the thread
  /// whose request found no room, by the backend, without its locks. It must not wait for another thread's lock, since
  /// that may be waiting for memory too, and must not throw.
  virtual bool relieve(Device device, int64_t bytes) noexcept = 0;
};
/// It is asked from now on, as long as it lives. Any thread may call it.
void add_reliever(std::weak_ptr<Reliever> reliever);
/// Asks them in turn until one has given back something. A thread that comes while another asks for the same device waits
/// for it, and is told what that was given too. False within a reliever, and within a NoRelief.
bool relieve(Device device, int64_t bytes) noexcept;
/// While one lives, nobody is asked for what this thread takes: it holds a lock that a reliever may want.
class NoRelief {
 public:
  NoRelief();
  ~NoRelief();
  NoRelief(const NoRelief&) = delete;

 private:
  bool previous_;
};

}  // namespace strata::memory
