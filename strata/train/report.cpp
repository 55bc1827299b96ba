#include "strata/train/report.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "strata/core/html_text.h"
#include "strata/io/files.h"
#include "strata/memory/budget.h"
#include "strata/text/utf8.h"
#include "strata/train/progress.h"
#include "strata/train/report_page.h"

namespace strata {
namespace {

constexpr size_t kMaxPoints = 2000;

// Text as HTML shows it, whatever its bytes.
std::string escaped(std::string_view raw) {
  return detail::html_text(text::valid_utf8(raw));
}

// A curve as JSON columns, averaged down to kMaxPoints; steps without the quantity are left out. With `axes` also the
// tokens and seconds at each point.
std::string series_json(const std::vector<StepMetrics>& metrics, double StepMetrics::*field, bool axes = false) {
  std::vector<const StepMetrics*> points;
  for (const StepMetrics& m : metrics)
    if (std::isfinite(m.*field)) points.push_back(&m);
  const size_t n = points.size(), buckets = std::min(n, kMaxPoints);
  std::string x, y, tokens, seconds;
  for (size_t b = 0; b < buckets; ++b) {
    const size_t begin = n * b / buckets, end = n * (b + 1) / buckets;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += points[i]->*field;
    const char* comma = b ? "," : "";
    // A bucket is placed at its last step: that is when all of it was known.
    const StepMetrics& last = *points[end - 1];
    x += fmt::format("{}{}", comma, last.step);
    y += fmt::format("{}{:.6g}", comma, sum / static_cast<double>(end - begin));
    tokens += fmt::format("{}{}", comma, last.tokens);
    seconds += fmt::format("{}{:.6g}", comma, std::isfinite(last.elapsed_s) ? last.elapsed_s : 0.0);
  }
  if (!axes) return fmt::format("{{\"x\":[{}],\"y\":[{}]}}", x, y);
  return fmt::format("{{\"x\":[{}],\"y\":[{}],\"n\":[{}],\"t\":[{}]}}", x, y, tokens, seconds);
}

// Every curve of a run, without the braces around.
std::string curves_json(const std::vector<StepMetrics>& metrics, bool axes = false) {
  constexpr std::pair<const char*, double StepMetrics::*> kCurves[] = {{"loss", &StepMetrics::loss},
                                                                       {"valid", &StepMetrics::valid_loss},
                                                                       {"lr", &StepMetrics::lr},
                                                                       {"rate", &StepMetrics::tokens_per_s},
                                                                       {"grad", &StepMetrics::grad_norm}};
  std::string s;
  for (const auto& [name, field] : kCurves)
    s += fmt::format("{}\"{}\":{}", s.empty() ? "" : ",", name, series_json(metrics, field, axes));
  return s;
}

std::string card(std::string_view label, std::string_view value, std::string_view detail) {
  return fmt::format(
      "<div class=\"card\"><div class=\"label\">{}</div><div class=\"value\">{}</div><div "
      "class=\"detail\">{}</div></div>\n",
      label, escaped(value), escaped(detail));
}

std::string table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string s = "<table>";
  for (const auto& [label, text] : rows)
    s += fmt::format("<tr><th>{}</th><td>{}</td></tr>", escaped(label), escaped(text));
  return s + "</table>";
}

double median_rate(const std::vector<StepMetrics>& metrics) {
  std::vector<double> rates;
  for (const StepMetrics& m : metrics)
    if (std::isfinite(m.tokens_per_s)) rates.push_back(m.tokens_per_s);
  if (rates.empty()) return NAN;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

std::string number(double v) {
  if (!std::isfinite(v)) return "–";
  return std::fabs(v) < 1000 ? fmt::format("{:.4f}", v) : format_count(v);
}

// One step is noisy; the mean of the last 20 is what the eye reads off the curve.
struct LastLoss {
  double mean = NAN;
  int steps = 0;
};
LastLoss last_loss(const std::vector<StepMetrics>& steps) {
  double sum = 0;
  int count = 0;
  for (size_t i = steps.size() - std::min<size_t>(steps.size(), 20); i < steps.size(); ++i)
    if (std::isfinite(steps[i].loss)) sum += steps[i].loss, ++count;
  return {count > 0 ? sum / count : NAN, count};
}

// The step with the least validation loss; nullptr where none was measured.
const StepMetrics* best_step(const std::vector<StepMetrics>& steps) {
  const StepMetrics* best = nullptr;
  for (const StepMetrics& m : steps)
    if (std::isfinite(m.valid_loss) && (best == nullptr || m.valid_loss < best->valid_loss)) best = &m;
  return best;
}

std::string summary(const ReportInput& in) {
  const auto& steps = in.metrics;
  const LastLoss loss = last_loss(steps);
  std::string s = card("Training loss", number(loss.mean), fmt::format("last {} steps", loss.steps));
  const StepMetrics* best = best_step(steps);
  if (best != nullptr)
    s += card("Best validation loss", number(best->valid_loss),
              fmt::format("step {}, perplexity {:.3g}", best->step, std::exp(best->valid_loss)));
  const StepMetrics last = steps.empty() ? StepMetrics{} : steps.back();
  std::string counted = in.unit;
  if (!counted.empty()) counted[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(counted[0])));
  s += card(escaped(counted), format_count(static_cast<double>(last.tokens)),
            fmt::format("{} of {} steps", last.step, in.config.steps));
  s += card("Time", format_duration(last.elapsed_s), in.status.substr(0, in.status.find(':')));
  const double rate = median_rate(steps);
  s += card("Throughput", std::isfinite(rate) ? format_count(rate) : std::string("–"), escaped(in.unit) + "/s, median");
  if (in.parameters > 0)
    s += card("Parameters", format_count(static_cast<double>(in.parameters)),
              !in.network.empty() ? std::string()
                                  : fmt::format("{}, {} layers, {} wide", in.config.model.family,
                                                in.config.model.layers, in.config.model.dim));
  return s;
}

// A section's settings, those apart that the optimizer does not read; those that differ from the default stand out.
std::string config_table(const TrainConfig& config, std::string_view section) {
  const TrainConfig defaults;
  std::string s = "<table>";
  for (const ConfigKey& key : config_keys()) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section || !is_read(key, config.optim.optimizer)) continue;
    const std::string value = value_text(config, key);
    std::string_view shown = value;
    // Words need no quotes.
    if (!key.choices.empty()) shown = shown.substr(1, shown.size() - 2);
    if (shown == "\"\"") shown = "–";
    s += fmt::format("<tr title=\"{}\"><th>{}</th><td{}>{}</td></tr>", escaped(key.doc),
                     escaped(key.name.substr(dot + 1)), value != value_text(defaults, key) ? " class=\"set\"" : "",
                     escaped(shown));
  }
  return s + "</table>";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  ::gmtime_r(&now, &tm);
  char buffer[40];
  return {buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M UTC", &tm)};
}

// The page with each "{{name}}" replaced by its value; values are not searched again.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string s;
  while (true) {
    const size_t open = page.find("{{"), close = page.find("}}", open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos || close == std::string_view::npos) return s += page;
    s += page.substr(0, open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    for (const auto& [key, value] : values)
      if (key == name) s += value;
    page.remove_prefix(close + 2);
  }
}

// A report of one run or several around its body.
std::string page(const std::string& title, const std::string& subtitle, const std::string& tools,
                 const std::string& body, const std::string& footer, const std::string& data) {
  return filled(kReportPage, {{"title", title},
                              {"subtitle", subtitle},
                              {"tools", tools},
                              {"body", body},
                              {"footer", footer},
                              {"style", kReportStyle},
                              {"script", kReportScript},
                              {"data", data}});
}

// A text in JSON inside a script, where only '<' could end it.
std::string json_text(std::string_view raw) {
  std::string s = "\"";
  for (const char c : text::valid_utf8(raw))
    s += c == '"' || c == '\\' || c == '<' || static_cast<unsigned char>(c) < 0x20
             ? fmt::format("\\u{:04x}", static_cast<unsigned char>(c))
             : std::string(1, c);
  return s + '"';
}

// The recorded step's parts, with a comma before them; nothing where there are none.
std::string costs_json(const lab::StepCosts& costs, bool on_card) {
  if (costs.parts().empty()) return "";
  std::string rows;
  const lab::StepCosts merged = costs.merged();
  for (const auto& [op, module, phase, sum] : merged.parts())
    rows += fmt::format("{}[{},{},{},{},{:.6g},{:.6g},{:.4g},{:.4g}]", rows.empty() ? "" : ",", json_text(op),
                        json_text(module), json_text(name_of(phase)), sum.calls, sum.flops, sum.bytes, sum.seconds,
                        sum.limit);
  return fmt::format(",\"costs\":{{\"clock\":\"{}\",\"outside\":{:.4g},\"rows\":[{}]}}",
                     on_card ? "by the card" : "by the host", costs.outside, rows);
}

}  // namespace

std::string report_html(const ReportInput& in) {
  const std::string data =
      '{' + curves_json(in.metrics) + costs_json(in.costs, in.config.device.starts_with("cuda")) + '}';
  std::string sample;
  if (!in.sample.empty())
    sample = fmt::format("<section class=\"panel wide\"><h2>Sample</h2><pre><b>{}</b>{}</pre></section>",
                         escaped(in.sample_prompt), escaped(in.sample));
  auto run = in.notes;
  run.insert(run.begin(), {"Report written", utc_now()});
  if (!in.status.empty()) run.insert(run.begin(), {"Status", in.status});
  const bool own = !in.network.empty();
  const std::string subtitle =
      own ? fmt::format("{} parameters", format_count(static_cast<double>(in.parameters)))
          : fmt::format("{} &middot; {} layers &middot; {} wide &middot; context {} &middot; {} &middot; {}",
                        escaped(in.config.model.family), in.config.model.layers, in.config.model.dim,
                        in.config.model.context, escaped(in.config.optim.optimizer), escaped(in.config.dtype));
  const std::string body = filled(
      kRunBody,
      {{"cards", summary(in)},
       {"costs", in.costs.parts().empty() ? "" : "<section class=\"panel wide costs\" id=\"costs\"></section>"},
       {"trace", in.trace.tracks.empty() ? ""
                                         : "<section class=\"panel wide\"><h2>Time line of the recorded step</h2>" +
                                               in.trace.to_html() + "</section>"},
       {"sample", sample},
       {"model", own ? "<pre>" + escaped(in.network) + "</pre>" : config_table(in.config, "model")},
       {"dataset", own ? std::string("<p>–</p>") : config_table(in.config, "data")},
       {"train", own ? table(in.settings) : config_table(in.config, "train")},
       {"run", table(run)},
       {"machine", table(machine_rows(in.machine))}});
  return page(escaped(in.title), subtitle, "", body,
              "Settings in bold are not the default. Strata " + escaped(in.machine.version), data);
}

std::string comparison_html(const std::vector<ReportInput>& runs) {
  constexpr std::string_view kColors[] = {"blue", "orange", "green", "violet", "rose", "teal", "olive", "grey"};
  const auto row = [](std::string_view cell, const std::vector<std::string>& texts) {
    std::string s = "<tr>";
    for (const std::string& text : texts) s += fmt::format("<{0}>{1}</{0}>", &text == &texts[0] ? "th" : cell, text);
    return s + "</tr>";
  };
  double least = INFINITY;
  for (const ReportInput& in : runs)
    if (const StepMetrics* best = best_step(in.metrics)) least = std::min(least, best->valid_loss);

  std::string data, names, results = "<table class=\"runs\"><thead>";
  results += row("th", {"Run", "Parameters", "Steps", "Tokens", "Training loss", "Best validation loss", "at step",
                        "Time", "Tokens/s", "Peak memory", "Status"});
  results += "</thead><tbody>";
  std::vector<std::string> header{"Setting"};
  for (size_t i = 0; i < runs.size(); ++i) {
    const ReportInput& in = runs[i];
    const std::string swatch =
        fmt::format("<i style=\"background:var(--{})\"></i>{}", kColors[i % std::size(kColors)], escaped(in.title));
    header.push_back(swatch);
    names += (i ? ", " : "") + escaped(in.title);
    data += fmt::format("{}{{\"name\":{},{}}}", i ? "," : "", json_text(in.title), curves_json(in.metrics, true));
    const StepMetrics last = in.metrics.empty() ? StepMetrics{} : in.metrics.back();
    const StepMetrics* best = best_step(in.metrics);
    std::string valid = number(best ? best->valid_loss : NAN);
    if (best && best->valid_loss == least) valid = "<b>" + valid + "</b>";
    const double rate = median_rate(in.metrics);
    results +=
        row("td", {swatch, in.parameters > 0 ? format_count(static_cast<double>(in.parameters)) : "–",
                   fmt::format("{}", last.step), format_count(static_cast<double>(last.tokens)),
                   number(last_loss(in.metrics).mean), valid, best ? fmt::format("{}", best->step) : "–",
                   format_duration(last.elapsed_s), std::isfinite(rate) ? format_count(rate) : "–",
                   std::isfinite(last.peak_memory) ? memory::bytes_text(static_cast<int64_t>(last.peak_memory)) : "–",
                   escaped(in.status.substr(0, in.status.find(':')))});
  }
  results += "</tbody></table>";

  std::string settings;
  for (const ConfigKey& key : config_keys()) {
    std::vector<std::string> cells{escaped(key.name)};
    bool differ = false;
    for (const ReportInput& in : runs) {
      const bool read = in.network.empty() && is_read(key, in.config.optim.optimizer);
      cells.push_back(read ? escaped(value_text(in.config, key)) : "–");
      differ = differ || cells.back() != cells[1];
    }
    if (differ) settings += row("td", cells);
  }
  if (settings.empty()) {
    settings = "<p>None.</p>";
  } else {
    settings = "<table class=\"runs\"><thead>" + row("th", header) + "</thead><tbody>" + settings + "</tbody></table>";
  }
  return page(fmt::format("{} runs", runs.size()), names, "<button id=\"axis\" type=\"button\">Over: steps</button>",
              filled(kCompareBody, {{"results", results}, {"settings", settings}}),
              fmt::format("Written {} by Strata {}", utc_now(), escaped(machine_info().version)),
              "{\"runs\":[" + data + "]}");
}

void write_report(const std::string& path, const ReportInput& input) {
  io::write_file(path, report_html(input));
}

}  // namespace strata
