#include "strata/memory/timeline.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "strata/core/error.h"
#include "strata/core/html_text.h"
#include "strata/memory/timeline_data.h"
#include "strata/memory/timeline_hooks.h"
#include "strata/memory/timeline_page.h"

namespace strata::memory {
namespace {

using Clock = std::chrono::steady_clock;

using Event = TimelineData::Event;

std::mutex g_mutex;  // guards every record, so that one can be stopped while other threads allocate
std::atomic<bool> g_recording{false};

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '<' || static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
}

void replace(std::string& page, std::string_view what, const std::string& with) {
  for (size_t at = 0; (at = page.find(what, at)) != std::string::npos; at += with.size())
    page.replace(at, what.size(), with);
}

}  // namespace

struct Timeline::Record {
  struct Held {
    uint32_t id;
    int64_t bytes;
    uint32_t holder;
  };

  Device device;
  Tier tier;
  Clock::time_point begin = Clock::now();
  size_t max_events = 0;
  TimelineData data;
  std::unordered_map<const void*, Held> held;
  std::unordered_map<const std::string*, uint32_t> holder_ids;
  uint32_t blocks = 0;

  uint32_t now() const {
    return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
  }
  uint32_t id_of(const std::string* holder) {
    const auto [it, fresh] = holder_ids.emplace(holder, static_cast<uint32_t>(data.holders.size()));
    if (fresh) data.holders.push_back(holder ? *holder : std::string());
    return it->second;
  }
  void take(const void* block, int64_t bytes, Tag tag, uint32_t holder) {
    held[block] = {blocks, bytes, holder};
    data.events.push_back({bytes, now(), blocks++, holder, tag});
  }
};

// The record that is being made, if `device` is its device and it has room.
struct TimelineAccess {
  static inline Timeline::Record* active = nullptr;

  static Timeline::Record* of(Device device, Tier tier) {
    if (!active || !(device == active->device) || tier != active->tier) return nullptr;
    if (active->data.events.size() < active->max_events) return active;
    active->data.whole = false;
    active = nullptr;
    g_recording = false;
    return nullptr;
  }
};

void record_taken(Device device, Tier tier, const void* block, size_t bytes, Tag tag, const std::string* holder) {
  std::lock_guard lock(g_mutex);
  if (auto* r = TimelineAccess::of(device, tier)) r->take(block, static_cast<int64_t>(bytes), tag, r->id_of(holder));
}

void record_given(Device device, Tier tier, const void* block) {
  std::lock_guard lock(g_mutex);
  auto* r = TimelineAccess::of(device, tier);
  if (!r) return;
  const auto at = r->held.find(block);
  if (at == r->held.end()) return;
  r->data.events.push_back({0, r->now(), at->second.id, at->second.holder, Tag::workspace});
  r->held.erase(at);
}

void record_retagged(Device device, Tier tier, const void* block, Tag tag) {
  std::lock_guard lock(g_mutex);
  auto* r = TimelineAccess::of(device, tier);
  if (!r) return;
  const auto at = r->held.find(block);
  if (at != r->held.end())
    r->data.events.push_back({at->second.bytes, r->now(), at->second.id, at->second.holder, tag});
}

bool is_recording() {
  return g_recording.load(std::memory_order_relaxed);
}

void mark(std::string_view text) {
  if (!is_recording()) return;
  std::lock_guard lock(g_mutex);
  if (auto* r = TimelineAccess::active) r->data.marks.push_back({r->now(), std::string(text)});
}

Timeline::Timeline(Device device, int64_t max_events, Tier tier) : record_(std::make_unique<Record>()) {
  check(max_events > 0, "Timeline", "max_events is ", max_events, ", wanted at least 1");
  Backend& kind = backend(device, tier);
  const std::vector<BlockInfo> before = kind.blocks(device);
  Record& r = *record_;
  r.device = device;
  r.tier = kind.tier;
  r.data.device = to_string(device);
  r.data.tier = kind.tier.name();
  r.max_events = static_cast<size_t>(max_events) + before.size();
  std::unordered_map<std::string, uint32_t> named;
  for (const BlockInfo& b : before) {
    const auto [it, fresh] = named.emplace(b.holder, static_cast<uint32_t>(r.data.holders.size()));
    if (fresh) r.data.holders.push_back(b.holder);
    r.take(reinterpret_cast<const void*>(b.address), b.bytes, b.tag, it->second);
  }
  std::lock_guard lock(g_mutex);
  check(!g_recording, "Timeline", "another one records");
  TimelineAccess::active = record_.get();
  g_recording = true;
}

Timeline::~Timeline() {
  stop();
}

void Timeline::stop() {
  std::lock_guard lock(g_mutex);
  if (TimelineAccess::active != record_.get()) return;
  TimelineAccess::active = nullptr;
  g_recording = false;
}

int64_t Timeline::size() const {
  std::lock_guard lock(g_mutex);
  return static_cast<int64_t>(record_->data.events.size());
}

std::string to_json(const TimelineData& data) {
  std::string s = "{\"device\":";
  append_text(s, data.device);
  s += ",\"tier\":";
  append_text(s, data.tier);
  char text[96];
  std::snprintf(text, sizeof text, ",\"tick\":%g,\"tags\":[", data.tick);
  s += text;
  for (int i = 0; i < kNumTags; ++i) {
    if (i > 0) s += ',';
    append_text(s, name_of(static_cast<Tag>(i)));
  }
  s += "],\"holders\":[";
  for (size_t i = 0; i < data.holders.size(); ++i) {
    if (i > 0) s += ',';
    append_text(s, data.holders[i]);
  }
  s += "],\"events\":[";
  for (size_t i = 0; i < data.events.size(); ++i) {
    const Event& e = data.events[i];
    std::snprintf(text, sizeof text, "%s[%u,%u,%lld,%d,%u]", i > 0 ? "," : "", e.time, e.block,
                  static_cast<long long>(e.bytes), static_cast<int>(e.tag), e.holder);
    s += text;
  }
  s += "],\"marks\":[";
  for (size_t i = 0; i < data.marks.size(); ++i) {
    s += cat(i > 0 ? "," : "", "[", data.marks[i].time, ",");
    append_text(s, data.marks[i].text);
    s += ']';
  }
  return s +
         cat("],\"whole\":", data.whole ? "true" : "false", ",\"forecast\":", data.forecast ? "true" : "false", "}");
}

std::string to_html(const TimelineData& data, std::string_view title) {
  std::string page = kTimelinePage;
  replace(page, "{{title}}", strata::detail::html_text(title));
  replace(page, "{{data}}", to_json(data));  // its texts hold no '<'
  return page;
}

std::string Timeline::to_json() const {
  std::lock_guard lock(g_mutex);
  return memory::to_json(record_->data);
}

std::string Timeline::to_html(std::string_view title) const {
  std::lock_guard lock(g_mutex);
  return memory::to_html(record_->data, title);
}

std::string snapshot_json(Device device, Tier tier) {
  Backend& kind = backend(device, tier);
  const Stats now = kind.stats(device);
  std::string s = "{\"device\":";
  append_text(s, to_string(device));
  s += ",\"tier\":";
  append_text(s, kind.tier.name());
  s += ",\"stats\":{\"live\":{";
  for (int i = 0; i < kNumTags; ++i) s += cat(i > 0 ? "," : "", "\"", name_of(static_cast<Tag>(i)), "\":", now.live[i]);
  s += "},\"peak\":{";
  for (int i = 0; i < kNumTags; ++i) s += cat(i > 0 ? "," : "", "\"", name_of(static_cast<Tag>(i)), "\":", now.peak[i]);
  s += cat("},\"live_total\":", now.live_total, ",\"peak_total\":", now.peak_total, ",\"reserved\":", now.reserved,
           ",\"peak_reserved\":", now.peak_reserved, ",\"allocations\":", now.allocations, ",\"retries\":", now.retries,
           "},\"blocks\":[");
  bool first = true;
  for (const BlockInfo& b : kind.blocks(device)) {
    s += cat(first ? "" : ",", "{\"address\":", b.address, ",\"bytes\":", b.bytes, ",\"tag\":\"", name_of(b.tag),
             "\",\"holder\":");
    append_text(s, b.holder);
    s += '}';
    first = false;
  }
  return s + "]}";
}

}  // namespace strata::memory
