#pragma once
// Who holds a device's memory: now, as a list of blocks, and over time, as a record that a page shows.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/device.h"
#include "strata/memory/allocator.h"

namespace strata::memory {

/// Every block in use of a device's memory of a tier, by address; of the host's own, those past 4 KiB.
std::vector<BlockInfo> blocks(Device device, Tier tier = {});

/// stats() and blocks() as JSON. Throws DeviceError where there is no such memory.
/// {"device": "cuda:0", "tier": "device", "stats": {"live": {"parameter": bytes, ...}, "live_total": ..., ...},
///  "blocks": [{"address": ..., "bytes": ..., "tag": "parameter", "holder": "..."}, ...]}.
std::string snapshot_json(Device device, Tier tier = {});

/// Records what is taken and given back of a device's memory of one tier while it lives, starting from what is in use.
///
///     memory::Timeline timeline(Device::cuda());
///     ...train a few steps...
///     io::write_file("memory.html", timeline.to_html("three steps"));
class Timeline {
 public:
  /// Records `max_events` events at most (24 bytes each) and then no more. Throws ValueError where another one records,
  /// DeviceError where there is no such memory.
  explicit Timeline(Device device, int64_t max_events = 200'000, Tier tier = {});
  /// Stops.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// No more is recorded.
  void stop();
  /// Events so far.
  int64_t size() const;
  /// {"device": ..., "tier": ..., "tags": [names], "holders": [names], "events": [[microseconds, block, bytes, tag,
  /// holder], ...], "marks": [[microseconds, text], ...], "whole": true unless max_events were too few}. Blocks are
  /// numbered from 0; an event with bytes takes the block (or, where it is held, counts it under another tag), one of 0
  /// bytes gives it back.
  std::string to_json() const;
  /// The same as a page that needs nothing but a browser: memory by tag over time, and who held it at any moment.
  std::string to_html(std::string_view title) const;

 private:
  friend struct TimelineAccess;
  struct Record;
  std::unique_ptr<Record> record_;
};

/// Whether a Timeline records.
bool is_recording();
/// Names this moment in the record, e.g. "step 3"; nothing where none is made.
void mark(std::string_view text);

}  // namespace strata::memory
