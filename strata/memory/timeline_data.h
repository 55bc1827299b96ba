#pragma once
// What the page of a timeline is made of: a record of what happened, or a forecast of what will.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/memory/allocator.h"

namespace strata::memory {

/// What a timeline's page shows: the blocks of one device that were taken and given back, in order.
struct TimelineData {
  /// A block taken, counted under another tag, or given back.
  struct Event {
    int64_t bytes;    ///< what the block takes (again: it counts under another tag); 0 gives it back
    uint32_t time;    ///< in ticks
    uint32_t block;   ///< a number of its own from 0
    uint32_t holder;  ///< place in `holders`
    Tag tag;
  };
  /// A moment with a name.
  struct Mark {
    uint32_t time;
    std::string text;
  };
  std::string device;
  std::string tier = "host";
  double tick = 1e-6;  ///< seconds
  std::vector<std::string> holders;
  std::vector<Event> events;
  std::vector<Mark> marks;
  bool whole = true;      ///< false: it ends before what it tells of did
  bool forecast = false;  ///< nothing of it has happened
};
/// {"device": ..., "tier": ..., "tick": seconds, "tags": [names], "holders": [names], "events": [[ticks, block, bytes,
/// tag, holder],
/// ...], "marks": [[ticks, text], ...], "whole": ..., "forecast": ...}.
std::string to_json(const TimelineData& data);
/// The same as a page that needs nothing but a browser: memory by tag over time, and who held it at any moment.
std::string to_html(const TimelineData& data, std::string_view title);

}  // namespace strata::memory
