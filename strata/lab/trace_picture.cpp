// A trace as a picture: by itself, and in a page.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "strata/core/html_text.h"
#include "strata/lab/trace.h"
#include "strata/lab/trace_times.h"
#include "strata/memory/budget.h"

namespace strata::lab {
namespace {

using detail::html_text;

// The colours of bars: a page's variable, and what stands for it elsewhere.
struct Paint {
  const char *variable, *colour, *meaning;
};
constexpr Paint kPaints[] = {{"blue", "#2563eb", "forward"},    {"orange", "#ea7317", "backward"},
                             {"green", "#0f9d6c", "update"},    {"rose", "#e11d62", "waiting"},
                             {"olive", "#7a8b00", "processor"}, {"violet", "#7c3aed", "copy"},
                             {"teal", "#0891b2", "disk"}};
size_t paint_of(const TraceTrack& track, const TraceSpan& span) {
  constexpr size_t kPhases = 3;
  return track.kind == TrackKind::compute ? static_cast<size_t>(span.phase)
                                          : kPhases - 1 + static_cast<size_t>(track.kind);
}
std::string fill_of(size_t paint) {
  return fmt::format("var(--{}, {})", kPaints[paint].variable, kPaints[paint].colour);
}

// A rectangle of a row: spans that nobody could tell apart are one.
struct Bar {
  double begin = 0, end = 0;  // seconds
  size_t paint = 0;
  size_t spans = 0;
  int64_t bytes = 0;
  const TraceSpan *first = nullptr, *last = nullptr;

  std::string title() const {
    std::string text = first->name;
    if (spans > 1) text = fmt::format("{} from {} to {}", spans, first->name, last->name);
    text += ": " + time_text(end - begin);
    if (bytes > 0) text += ", " + memory::bytes_text(bytes);
    if (spans == 1 && first->queued > 0) text += fmt::format(", after {} in the queue", time_text(first->queued));
    return text;
  }
};

// `pixel` in seconds.
std::vector<Bar> bars_of(const TraceTrack& track, double pixel) {
  std::vector<const TraceSpan*> spans;
  for (const TraceSpan& s : track.spans) spans.push_back(&s);
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TraceSpan* a, const TraceSpan* b) { return a->begin < b->begin; });
  std::vector<Bar> bars;
  for (const TraceSpan* s : spans) {
    const size_t paint = paint_of(track, *s);
    if (!bars.empty()) {
      Bar& b = bars.back();
      const bool beside = s->begin < b.end, small = s->end - s->begin < pixel || b.end - b.begin < pixel;
      if (b.paint == paint && (beside || (small && s->begin - b.end < pixel))) {
        b.end = std::max(b.end, s->end);
        b.bytes += s->bytes, ++b.spans, b.last = s;
        continue;
      }
    }
    bars.push_back({s->begin, s->end, paint, 1, s->bytes, s, s});
  }
  return bars;
}

// Rectangles of a row `height` high at `y`, its times from x0 on over `width` units.
std::string rectangles(const TraceTrack& track, double length, double x0, double width, double y, double height) {
  std::string s;
  const double unit = width / length;
  for (const Bar& b : bars_of(track, 1 / unit)) {
    // A hair between neighbours, so that a row of calls is one.
    const double wide = (b.end - b.begin) * unit, shown = std::max(wide > 3 ? wide - 0.4 : wide, 0.8);
    s += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\"><title>{}</title></rect>",
        x0 + b.begin * unit, y, shown, height, fill_of(b.paint), html_text(b.title()));
  }
  return s;
}

// 1, 2 or 5 times a power of ten, so that at most `count` of it fit.
double tick(double length, int count) {
  const double rough = length / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double f : {1.0, 2.0, 5.0})
    if (f * power >= rough) return f * power;
  return 10 * power;
}
std::string tick_text(double seconds, double length) {
  if (seconds < length * 1e-9) return "0";
  const double unit = length >= 1 ? 1 : length >= 1e-3 ? 1e3 : 1e6;
  return fmt::format("{:.4g} {}", seconds * unit, unit == 1 ? "s" : unit == 1e3 ? "ms" : "us");
}

std::vector<size_t> paints_of(const Trace& trace) {
  bool used[std::size(kPaints)] = {};
  for (const TraceTrack& t : trace.tracks)
    for (const TraceSpan& s : t.spans) used[paint_of(t, s)] = true;
  std::vector<size_t> all;
  for (size_t i = 0; i < std::size(kPaints); ++i)
    if (used[i]) all.push_back(i);
  return all;
}

std::string percent(const TraceTrack& t, double length) {
  return fmt::format("{:.0f}%", 100 * t.busy() / length);
}

// At most `most` characters, what is left out in its middle.
std::string shortened(const std::string& name, size_t most) {
  if (name.size() <= most) return name;
  const size_t head = most / 2 - 1, tail = most - head - 3;
  return name.substr(0, head) + "..." + name.substr(name.size() - tail);
}

}  // namespace

std::string Trace::to_svg(int given) const {
  constexpr int kLabel = 150, kRight = 44, kTop = 52, kRow = 24, kBar = 17, kScale = 26, kCharacters = 22;
  const int width = std::max(given, 2 * kLabel + kRight);
  const double length = std::max(end(), 1e-9), room = width - kLabel - kRight;
  const int rows = static_cast<int>(tracks.size()) * kRow, height = kTop + rows + kScale;
  const char* text = "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>";
  constexpr const char *kInk = "var(--text, #1a2230)", *kSoft = "var(--soft, #667085)";
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"trace\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\"><title>Time line of a step</title>"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"var(--panel, #ffffff)\"/>",
      width, height);
  const auto put = [&](double x, int y, const char* anchor, int size, const char* colour, const std::string& what) {
    s += fmt::format(fmt::runtime(text), x, y, anchor, size, colour, html_text(what));
  };
  put(10, 19, "start", 13, kInk, to_text(summary()));
  double x = 10;
  for (const size_t p : paints_of(*this)) {
    s += fmt::format("<rect x=\"{:.1f}\" y=\"30\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{}\"/>", x, fill_of(p));
    put(x + 15, 39, "start", 11, kSoft, kPaints[p].meaning);
    x += 34 + 6.4 * static_cast<double>(std::string_view(kPaints[p].meaning).size());
  }
  const double step = tick(length, std::max(2, static_cast<int>(room / 90)));
  for (int i = 0; i * step <= length * 1.0001; ++i) {
    const double at = kLabel + room * i * step / length;
    s += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"var(--grid, #eceff3)\"/>", at,
                     kTop - 4, kTop + rows);
    put(at, kTop + rows + 15, "middle", 11, kSoft, tick_text(i * step, length));
  }
  for (size_t i = 0; i < tracks.size(); ++i) {
    const int y = kTop + static_cast<int>(i) * kRow;
    put(kLabel - 10, y + 13, "end", 12, kInk, shortened(tracks[i].name, kCharacters));
    s += rectangles(tracks[i], length, kLabel, room, y, kBar);
    put(width - 8, y + 13, "end", 11, kSoft, percent(tracks[i], length));
  }
  return s + "</svg>";
}

std::string Trace::to_html() const {
  constexpr double kUnits = 1000, kHeight = 18;
  const double length = std::max(end(), 1e-9);
  std::string s = "<div class=\"trace\"><p class=\"sum\">" + html_text(to_text(summary())) + "</p><p class=\"keys\">";
  for (const size_t p : paints_of(*this))
    s += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", fill_of(p), kPaints[p].meaning);
  s += "</p>";
  for (const TraceTrack& t : tracks)
    s += fmt::format(
        "<div class=\"row\"><b title=\"{0}\">{0}</b><svg viewBox=\"0 0 {1:g} {2:g}\" preserveAspectRatio=\"none\" "
        "role=\"img\" aria-label=\"{0}\">{3}</svg><em>{4}</em></div>",
        html_text(t.name), kUnits, kHeight, rectangles(t, length, 0, kUnits, 0, kHeight), percent(t, length));
  s += "<div class=\"row\"><b></b><div class=\"scale\">";
  const double step = tick(length, 5);
  for (int i = 0; i * step <= length * 1.0001; ++i)
    s += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", 100 * i * step / length, tick_text(i * step, length));
  return s + "</div><em></em></div></div>";
}

}  // namespace strata::lab
