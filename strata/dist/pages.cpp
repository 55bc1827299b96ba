#include <cstdio>
#include <functional>

#include "strata/core/error.h"
#include "strata/core/html_text.h"
#include "strata/dist/pages_inl.h"

namespace strata::distributed::detail {
namespace {

using strata::detail::html_text;

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", s);
  return text;
}

bool heard(const RankState& s) {
  return s.age >= 0;
}

// How a rank is: one word for its colour and for people.
const char* condition(const RankState& s) {
  if (!s.failure.empty()) return "failed";
  if (s.left) return "ended";
  return heard(s) ? "well" : "silent";
}

// In Prometheus' text format a label's value escapes these three.
std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

struct Metric {
  const char *name, *help;
  std::function<double(const RankState&)> value;
  std::function<bool(const RankState&)> known;
};

const Metric kMetrics[] = {
    {"strata_rank_up", "1 while the rank lives and has not ended or failed",
     [](const RankState& s) { return double(heard(s) && !s.left && s.failure.empty()); },
     [](const RankState&) { return true; }},
    {"strata_rank_failed", "1 once the rank has failed", [](const RankState& s) { return double(!s.failure.empty()); },
     [](const RankState&) { return true; }},
    {"strata_rank_heartbeat_age_seconds", "Seconds since the rank's last heartbeat",
     [](const RankState& s) { return s.age; }, heard},
    {"strata_rank_step", "The rank's step of training", [](const RankState& s) { return double(s.last.step); },
     [](const RankState& s) { return heard(s) && s.last.step >= 0; }},
    {"strata_rank_waiting_seconds", "Seconds that the rank has waited for others in the collective that it is in",
     [](const RankState& s) { return s.last.waiting; }, heard},
    {"strata_rank_collectives_share",
     "Part of its last seconds that the rank was in collectives, waiting or transferring",
     [](const RankState& s) { return s.share; }, [](const RankState& s) { return s.share >= 0; }},
    {"strata_rank_straggler", "1 while the others wait for this rank",
     [](const RankState& s) { return double(s.straggler); }, heard},
};

}  // namespace

std::string status_page(const std::vector<RankState>& ranks) {
  size_t well = 0, ended = 0, failed = 0;
  const std::string waited_for = straggler_text(ranks);
  std::string rows;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankState& s = ranks[r];
    const std::string how = condition(s);
    well += how == "well";
    ended += how == "ended";
    failed += how == "failed";
    rows += cat("<tr class=", how, "><td>", r, "<td>", html_text(s.last.host), "<td>",
                s.last.pid > 0 ? std::to_string(s.last.pid) : "", "<td>", how, "<td>",
                heard(s) ? seconds(s.age) + " s" : "", "<td>", s.last.step >= 0 ? std::to_string(s.last.step) : "",
                "<td>", s.last.waiting > 0 ? seconds(s.last.waiting) + " s" : "", "<td>",
                s.share >= 0 ? seconds(100 * s.share) + " %" : "", "<td>",
                html_text(s.failure.empty() ? s.last.state : s.failure), "\n");
  }
  return cat(
      "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>"
      "<title>Strata: ",
      well, " of ", ranks.size(),
      " ranks</title>\n"
      "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
      "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}.failed td{background:#fdd}"
      ".ended,.silent{color:#777}</style>\n<h1>",
      ranks.size(), " ranks: ", well, " well, ", ended, " ended, ", failed, " failed</h1>\n",
      waited_for.empty() ? "" : cat("<p>", html_text(waited_for), ".</p>\n"),
      "<table><tr><th>Rank<th>Host<th>Process<th>Is<th>Last heartbeat<th>Step<th>Waits<th>In collectives"
      "<th>Doing\n",
      rows, "</table></html>\n");
}

std::string metrics_page(const std::vector<RankState>& ranks) {
  std::string text =
      cat("# HELP strata_ranks Ranks of the job\n# TYPE strata_ranks gauge\nstrata_ranks ", ranks.size(), "\n");
  for (const Metric& m : kMetrics) {
    text += cat("# HELP ", m.name, " ", m.help, "\n# TYPE ", m.name, " gauge\n");
    for (size_t r = 0; r < ranks.size(); ++r)
      if (m.known(ranks[r]))
        text += cat(m.name, "{rank=\"", r, "\",host=\"", label(ranks[r].last.host), "\"} ", m.value(ranks[r]), "\n");
  }
  return text;
}

}  // namespace strata::distributed::detail
