#include "strata/lab/trace.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/lab/device_clock.h"
#include "strata/lab/trace_times.h"

namespace strata::lab {
namespace {

constexpr std::array<std::string_view, 5> kKinds{"compute", "wait", "processor", "copy", "disk"};

std::string name_of_call(const RecordedCall& c) {
  std::string name(c.op->name());
  if (c.module && !c.module->empty()) name += " in " + *c.module;
  return name;
}

// The rows of spans that do not run beside each other, for each span its row.
std::vector<size_t> rows_of(const std::vector<TraceSpan>& spans) {
  std::vector<size_t> order(spans.size()), row(spans.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return spans[a].begin < spans[b].begin; });
  std::vector<double> until;
  for (const size_t i : order) {
    const auto free = std::find_if(until.begin(), until.end(), [&](double end) { return end <= spans[i].begin; });
    row[i] = static_cast<size_t>(free - until.begin());
    if (free == until.end()) until.push_back(0);
    until[row[i]] = spans[i].end;
  }
  return row;
}

}  // namespace

std::string_view name_of(TrackKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

double TraceTrack::busy() const {
  return Stretches(*this).seconds();
}

TraceTrack& Trace::track(std::string_view name) {
  return track(name, name == "compute" ? TrackKind::compute : TrackKind::copy);
}
TraceTrack& Trace::track(std::string_view name, TrackKind kind) {
  for (TraceTrack& t : tracks)
    if (t.name == name) return t;
  return tracks.emplace_back(TraceTrack{std::string(name), {}, kind});
}

void Trace::add_calls(const Recording& step, double begin) {
  TraceTrack& t = track("compute");
  for (size_t i = 0; i < step.calls.size(); ++i) {
    const RecordedCall& c = step.calls[i];
    if (step.is_work(i)) t.spans.push_back({name_of_call(c), begin, begin + c.seconds, 0, c.phase});
    begin += c.seconds;
  }
}

void Trace::add_calls(const Recording& step, std::span<const CallStretch> line, double zero) {
  TraceTrack& t = track("compute");
  int32_t last = -1;  // whose span is the last of the track
  for (const CallStretch& s : line) {
    int32_t call = s.call;
    while (call >= 0 && !step.is_work(static_cast<size_t>(call))) call = step.calls[static_cast<size_t>(call)].parent;
    if (call < 0) continue;
    if (call == last) {
      t.spans.back().end = s.end - zero;
      continue;
    }
    const RecordedCall& c = step.calls[static_cast<size_t>(call)];
    t.spans.push_back({name_of_call(c), s.begin - zero, s.end - zero, 0, c.phase});
    last = call;
  }
}

double Trace::overlap(std::string_view a, std::string_view b) const {
  Stretches x, y;
  for (const TraceTrack& t : tracks) {
    if (t.name == a) x = Stretches(t);
    if (t.name == b) y = Stretches(t);
  }
  return x.common(y).seconds();
}

double Trace::end() const {
  double last = 0;
  for (const TraceTrack& t : tracks)
    for (const TraceSpan& s : t.spans) last = std::max(last, s.end);
  return last;
}

TraceSummary Trace::summary() const {
  std::array<Stretches, kKinds.size()> of;
  for (const TraceTrack& t : tracks) of[static_cast<size_t>(t.kind)].add(t);
  const auto at = [&](TrackKind kind) -> const Stretches& { return of[static_cast<size_t>(kind)]; };
  const Stretches compute = at(TrackKind::compute).without(at(TrackKind::wait));
  TraceSummary s{.seconds = end(), .compute = compute.seconds()};
  const auto hidden = [&](TrackKind kind) { return std::pair(at(kind).seconds(), at(kind).common(compute).seconds()); };
  std::tie(s.copies, s.copies_hidden) = hidden(TrackKind::copy);
  std::tie(s.disk, s.disk_hidden) = hidden(TrackKind::disk);
  s.processor = at(TrackKind::processor).seconds();
  return s;
}

std::string to_text(const TraceSummary& s) {
  if (s.seconds <= 0) return {};
  std::string text = fmt::format("compute busy {:.0f}% of {}", 100 * s.compute / s.seconds, time_text(s.seconds));
  const auto add = [&](const char* what, double seconds, double under) {
    if (seconds > 0) text += fmt::format("; {} {}, {:.0f}% hidden", what, time_text(seconds), 100 * under / seconds);
  };
  add("copies", s.copies, s.copies_hidden);
  add("disk", s.disk, s.disk_hidden);
  if (s.processor > 0) text += "; processor " + time_text(s.processor);
  return text;
}

std::string Trace::to_chrome_json() const {
  nlohmann::json events = nlohmann::json::array();
  size_t thread = 0;
  for (const TraceTrack& t : tracks) {
    const std::vector<size_t> row = rows_of(t.spans);
    const size_t rows = row.empty() ? 1 : *std::max_element(row.begin(), row.end()) + 1;
    for (size_t r = 0; r < rows; ++r) {
      const std::string name = r == 0 ? t.name : fmt::format("{} ({})", t.name, r + 1);
      events.push_back({{"ph", "M"},
                        {"pid", 1},
                        {"tid", thread + r},
                        {"name", "thread_name"},
                        {"args", {{"name", name}, {"track", t.name}, {"kind", name_of(t.kind)}}}});
      events.push_back({{"ph", "M"},
                        {"pid", 1},
                        {"tid", thread + r},
                        {"name", "thread_sort_index"},
                        {"args", {{"sort_index", thread + r}}}});
    }
    for (size_t i = 0; i < t.spans.size(); ++i) {
      const TraceSpan& s = t.spans[i];
      nlohmann::json args = {{"phase", strata::name_of(s.phase)}};
      if (s.bytes > 0) {
        args["bytes"] = s.bytes;
        if (s.end > s.begin) args["GB/s"] = 1e-9 * static_cast<double>(s.bytes) / (s.end - s.begin);
      }
      if (s.queued > 0) args["queued us"] = 1e6 * s.queued;
      events.push_back({{"ph", "X"},
                        {"pid", 1},
                        {"tid", thread + row[i]},
                        {"name", s.name},
                        {"ts", 1e6 * s.begin},
                        {"dur", 1e6 * (s.end - s.begin)},
                        {"args", std::move(args)}});
    }
    thread += rows;
  }
  // Names may be any bytes; the file is UTF-8 all the same.
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Trace Trace::from_chrome_json(std::string_view text) {
  Trace trace;
  try {
    const nlohmann::json file = nlohmann::json::parse(text);
    std::map<int64_t, size_t> track_of;
    for (const nlohmann::json& e : file.at("traceEvents")) {
      if (e.at("name") != "thread_name" || e.at("ph") != "M") continue;
      const nlohmann::json& args = e.at("args");
      const auto kind = std::find(kKinds.begin(), kKinds.end(), args.at("kind").get<std::string>());
      check<IoError>(kind != kKinds.end(), "trace", "no kind of track is '", args.at("kind").get<std::string>(), "'");
      TraceTrack& t = trace.track(args.at("track").get<std::string>(), static_cast<TrackKind>(kind - kKinds.begin()));
      track_of[e.at("tid").get<int64_t>()] = static_cast<size_t>(&t - trace.tracks.data());
    }
    for (const nlohmann::json& e : file.at("traceEvents")) {
      if (e.at("ph") != "X") continue;
      const nlohmann::json& args = e.at("args");
      const double begin = 1e-6 * e.at("ts").get<double>();
      TraceSpan s{.name = e.at("name"), .begin = begin, .end = begin + 1e-6 * e.at("dur").get<double>()};
      s.bytes = args.value("bytes", int64_t{0});
      s.queued = 1e-6 * args.value("queued us", 0.0);
      for (const Phase p : {Phase::forward, Phase::backward, Phase::update})
        if (args.at("phase") == strata::name_of(p)) s.phase = p;
      trace.tracks[track_of.at(e.at("tid").get<int64_t>())].spans.push_back(std::move(s));
    }
  } catch (const nlohmann::json::exception& e) {
    throw IoError("trace", cat("is not the JSON of a trace: ", e.what()));
  } catch (const std::out_of_range&) {
    throw IoError("trace", "is not the JSON of a trace: a span has no track");
  }
  return trace;
}

}  // namespace strata::lab
