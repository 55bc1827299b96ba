#pragma once
// Where the collectives of a device group are queued: a stream of its own beside the callers'.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "strata/core/device.h"

namespace strata::distributed::detail {

class Lane {
 public:
  /// A point of the lane.
  class Point {
   public:
    virtual ~Point() = default;
    /// The caller's current stream, and the one that was current when the point was made, wait for it.
    virtual void wait() = 0;
  };

  virtual ~Lane() = default;
  virtual Device device() const = 0;
  /// The stream that calls queue on.
  virtual void* stream() const = 0;
  /// Calls fn with the device current on this thread. Never looks at what failed on it.
  virtual void within(const std::function<void()>& fn) const = 0;
  /// What comes on the lane waits for what the caller's current stream holds.
  virtual void fork() = 0;
  /// A point after what the lane holds.
  virtual std::unique_ptr<Point> point() = 0;
  /// What comes on the lane waits for a point of another one, of the same kind and the same device.
  virtual void follow(const Point& point) = 0;
  /// Queues on the lane: a call begins, or has ended. In a graph that is what each replay counts.
  virtual void mark_begun() = 0;
  virtual void mark_ended() = 0;
  /// How many have, as the device tells. Any thread may ask at any time, and nothing waits.
  virtual uint64_t begun() const = 0;
  virtual uint64_t ended() const = 0;
  /// Of the graph that this thread captures, a number that no other has; 0 where it captures none.
  virtual uint64_t capture() const = 0;
  /// Inside a capture: fn is called at the beginning of each replay, as long as `owner` lives.
  virtual void on_replay(std::weak_ptr<const void> owner, std::function<void()> fn) = 0;
  /// The host waits for the lane.
  virtual void synchronize() = 0;
};

/// The lane of a card.
std::unique_ptr<Lane> make_card_lane(Device device);

}  // namespace strata::distributed::detail
