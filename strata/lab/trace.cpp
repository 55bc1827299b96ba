#include "strata/lab/trace.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace strata::lab {
namespace {

// The spans' times as stretches that do not overlap, in order.
std::vector<std::pair<double, double>> stretches(const TraceTrack& t) {
  std::vector<std::pair<double, double>> all;
  for (const TraceSpan& s : t.spans)
    if (s.end > s.begin) all.emplace_back(s.begin, s.end);
  std::sort(all.begin(), all.end());
  std::vector<std::pair<double, double>> joined;
  for (const auto& [begin, end] : all) {
    if (joined.empty() || begin > joined.back().second) {
      joined.emplace_back(begin, end);
    } else {
      joined.back().second = std::max(joined.back().second, end);
    }
  }
  return joined;
}

std::string escaped(std::string_view text) {
  std::string s;
  for (const char c : text) {
    switch (c) {
      case '&':
        s += "&amp;";
        break;
      case '<':
        s += "&lt;";
        break;
      case '>':
        s += "&gt;";
        break;
      case '"':
        s += "&quot;";
        break;
      default:
        s += c;
    }
  }
  return s;
}

std::string seconds_text(double s) {
  if (s >= 1) return fmt::format("{:.3g} s", s);
  if (s >= 1e-3) return fmt::format("{:.3g} ms", 1e3 * s);
  return fmt::format("{:.3g} us", 1e6 * s);
}

// 1, 2 or 5 times a power of ten, so that about six of it fit.
double tick(double length) {
  const double rough = length / 6, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double f : {1.0, 2.0, 5.0})
    if (f * power >= rough) return f * power;
  return 10 * power;
}

}  // namespace

double TraceTrack::busy() const {
  double sum = 0;
  for (const auto& [begin, end] : stretches(*this)) sum += end - begin;
  return sum;
}

TraceTrack& Trace::track(std::string_view name) {
  for (TraceTrack& t : tracks)
    if (t.name == name) return t;
  return tracks.emplace_back(TraceTrack{std::string(name), {}});
}

void Trace::add_calls(const Recording& step, double begin) {
  TraceTrack& t = track("compute");
  for (size_t i = 0; i < step.calls.size(); ++i) {
    const RecordedCall& c = step.calls[i];
    if (!step.is_work(i)) {
      begin += c.seconds;
      continue;
    }
    std::string name(c.op->name());
    if (c.module && !c.module->empty()) name += " in " + *c.module;
    t.spans.push_back({std::move(name), begin, begin + c.seconds, 0, c.phase});
    begin += c.seconds;
  }
}

double Trace::overlap(std::string_view a, std::string_view b) const {
  const auto of = [&](std::string_view name) {
    const auto at = std::find_if(tracks.begin(), tracks.end(), [&](const TraceTrack& t) { return t.name == name; });
    return at == tracks.end() ? std::vector<std::pair<double, double>>{} : stretches(*at);
  };
  const auto x = of(a), y = of(b);
  double sum = 0;
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    sum += std::max(0.0, std::min(x[i].second, y[j].second) - std::max(x[i].first, y[j].first));
    (x[i].second < y[j].second ? i : j) += 1;
  }
  return sum;
}

double Trace::end() const {
  double last = 0;
  for (const TraceTrack& t : tracks)
    for (const TraceSpan& s : t.spans) last = std::max(last, s.end);
  return last;
}

std::string Trace::to_chrome_json() const {
  nlohmann::json events = nlohmann::json::array();
  for (size_t i = 0; i < tracks.size(); ++i) {
    events.push_back(
        {{"ph", "M"}, {"pid", 1}, {"tid", i}, {"name", "thread_name"}, {"args", {{"name", tracks[i].name}}}});
    events.push_back(
        {{"ph", "M"}, {"pid", 1}, {"tid", i}, {"name", "thread_sort_index"}, {"args", {{"sort_index", i}}}});
    for (const TraceSpan& s : tracks[i].spans) {
      nlohmann::json args = {{"phase", name_of(s.phase)}};
      if (s.bytes > 0) {
        args["bytes"] = s.bytes;
        if (s.end > s.begin) args["GB/s"] = 1e-9 * static_cast<double>(s.bytes) / (s.end - s.begin);
      }
      events.push_back({{"ph", "X"},
                        {"pid", 1},
                        {"tid", i},
                        {"name", s.name},
                        {"ts", 1e6 * s.begin},
                        {"dur", 1e6 * (s.end - s.begin)},
                        {"args", std::move(args)}});
    }
  }
  // Names may be any bytes; the file is UTF-8 all the same.
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Trace::to_svg(int width) const {
  constexpr int kLabel = 90, kRow = 22, kBar = 16, kScale = 20;
  const double length = std::max(end(), 1e-9);
  const double room = std::max(width - kLabel - 10, 50);
  const auto x = [&](double t) { return kLabel + room * t / length; };
  const int height = static_cast<int>(tracks.size()) * kRow + kScale;
  std::string s =
      fmt::format("<svg class=\"trace\" viewBox=\"0 0 {0} {1}\" width=\"100%\" role=\"img\">", width, height);
  constexpr const char* kCompute[] = {"var(--blue, #2a6fdb)", "var(--orange, #d9822b)", "var(--green, #3a9a5b)"};
  for (size_t i = 0; i < tracks.size(); ++i) {
    const int y = static_cast<int>(i) * kRow;
    const bool compute = tracks[i].name == "compute";
    s += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"11\" fill=\"currentColor\">{}</text>",
                     kLabel - 8, y + 13, escaped(tracks[i].name));
    std::vector<const TraceSpan*> spans;
    for (const TraceSpan& span : tracks[i].spans) spans.push_back(&span);
    std::stable_sort(spans.begin(), spans.end(),
                     [](const TraceSpan* a, const TraceSpan* b) { return a->begin < b->begin; });
    for (size_t k = 0; k < spans.size();) {
      // Neighbours of a phase that nobody could tell apart are one bar.
      size_t to = k + 1;
      double last = spans[k]->end;
      while (to < spans.size() && spans[to]->phase == spans[k]->phase && x(spans[to]->begin) - x(last) < 0.25 &&
             (x(spans[to]->end) - x(spans[to]->begin) < 0.25 || x(last) - x(spans[k]->begin) < 0.25)) {
        last = std::max(last, spans[to]->end);
        ++to;
      }
      const std::string title =
          to == k + 1 ? fmt::format("{}: {}{}", spans[k]->name, seconds_text(last - spans[k]->begin),
                                    spans[k]->bytes > 0
                                        ? fmt::format(", {:.1f} MB", 1e-6 * static_cast<double>(spans[k]->bytes))
                                        : std::string())
                      : fmt::format("{} from {}: {}", to - k, spans[k]->name, seconds_text(last - spans[k]->begin));
      s += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>",
          x(spans[k]->begin), y + 1, std::max(x(last) - x(spans[k]->begin), 0.25), kBar,
          compute ? kCompute[static_cast<size_t>(spans[k]->phase)] : "var(--muted, #8a8f98)", escaped(title));
      k = to;
    }
  }
  const int y = static_cast<int>(tracks.size()) * kRow;
  const double step = tick(length);
  for (double t = 0; t <= length * 1.0001; t += step)
    s += fmt::format(
        "<text x=\"{:.1f}\" y=\"{}\" font-size=\"10\" text-anchor=\"middle\" fill=\"currentColor\" "
        "opacity=\".6\">{}</text>",
        x(t), y + 13, seconds_text(t));
  return s + "</svg>";
}

}  // namespace strata::lab
