#pragma once
// How bytes go away and come back: one class for each place, of each type of device.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/autograd/offload.h"
#include "strata/core/storage.h"

namespace strata::offload {

/// A storage's bytes that are away, or on the way. Calls come one at a time.
class Parcel {
 public:
  virtual ~Parcel() = default;
  /// The source is about to be given back: makes it wait (the compute stream, or the host) for the copy. Throws IoError
  /// where the copy failed; the source is whole then.
  virtual void leave() = 0;
  /// Whether leave() would wait for nothing. Not while a graph is captured.
  virtual bool sent() = 0;
  /// Begins to bring the bytes back. Throws MemoryError.
  virtual void fetch() = 0;
  /// After fetch(): a storage of its own with the bytes, for work that is queued from now on. May be fetched again
  /// then. Throws IoError.
  virtual Ref<Storage> take() = 0;
};

/// A place. Calls come one at a time; parcels may outlive it.
class Depot {
 public:
  virtual ~Depot() = default;
  /// Begins to copy `source`, which must stay until leave(). Throws MemoryError where there is no room, DeviceError
  /// where that cannot be captured.
  virtual std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) = 0;
  /// Appends what was copied since the last call, with times where `timed`.
  virtual void take_transfers(std::vector<OffloadTransfer>& into) = 0;
  /// Whether take_transfers() would wait for nothing.
  virtual bool quiet() { return true; }
  /// Goes on with copies that have several legs. Called often; waits for nothing.
  virtual void poll() {}
  virtual int64_t host_bytes() const { return 0; }
};

/// Copies at once, in plain memory; on the meta device it only counts.
std::unique_ptr<Depot> make_plain_depot();
/// Page-locked memory for a card; at most `most` bytes, or all there are where that is 0.
std::unique_ptr<Depot> make_pinned_depot(Device device, int64_t most, bool timed);
/// A disk: for the CPU, or for a card by way of page-locked memory, of which there is `most` bytes (0: 2 GiB).
std::unique_ptr<Depot> make_disk_depot(std::shared_ptr<memory::DiskStore> store);
std::unique_ptr<Depot> make_card_disk_depot(Device device, std::shared_ptr<memory::DiskStore> store, int64_t most);

/// When what happened of a pass, by the device's clock: seconds since the first mark.
class StepClock {
 public:
  virtual ~StepClock() = default;
  virtual void mark() = 0;
  /// Whether read() would wait for nothing.
  virtual bool done() = 0;
  /// Of each mark since the last read(), which are forgotten.
  virtual std::vector<double> read() = 0;
};
std::unique_ptr<StepClock> make_clock(Device device);

/// Memory of the device for bytes that come back.
Ref<Storage> new_near(Device device, size_t nbytes);

/// Host seconds since some moment, the same for all.
double host_seconds();

}  // namespace strata::offload
