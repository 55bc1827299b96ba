#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/lab/verify.h"

namespace strata::lab {

std::string table(const std::vector<OpReport>& reports) {
  size_t width = 10, family = 6;
  for (const OpReport& r : reports) {
    width = std::max(width, r.op.size());
    family = std::max(family, r.family.size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:<9}  {:>7}", "op", width, "family", family, "reference", "samples");
  // The first check is the column of their number.
  for (int c = 1; c < kNumChecks; ++c) text += fmt::format("  {}", name_of(static_cast<Check>(c)));
  text += "  worst\n";
  int bad = 0, samples = 0;
  for (const OpReport& r : reports) {
    text += fmt::format("{:<{}}  {:<{}}  {:<9}  {:>7}", r.op, width, r.family, family, r.reference, r.samples);
    for (size_t c = 1; c < kNumChecks; ++c) {
      const char* cell = r.failed[c] > 0 ? "FAIL" : r.passed[c] > 0 ? "ok" : "-";
      text += fmt::format("  {:>{}}", cell, std::max<size_t>(4, name_of(static_cast<Check>(c)).size()));
    }
    text += r.worst < 10 ? fmt::format("  {:5.2f}\n", r.worst) : fmt::format("  {:5.0f}\n", r.worst);
    bad += !r.ok();
    samples += r.samples;
  }
  for (const OpReport& r : reports) {
    for (const Failure& f : r.failures)
      text += fmt::format("\n{} [{}, {}] {}\n    {}\n", r.op, name_of(f.check), name_of(f.dtype), f.sample, f.message);
    int counted = 0;
    for (const int n : r.failed) counted += n;
    if (const int more = counted - static_cast<int>(r.failures.size()); more > 0)
      text += fmt::format("\n{}: {} more failures\n", r.op, more);
  }
  const auto ops = reports.size();
  text += bad == 0 ? fmt::format("\n{} ops, {} samples: all verified\n", ops, samples)
                   : fmt::format("\n{} ops, {} samples: {} ops FAILED\n", ops, samples, bad);
  return text;
}

std::string to_json(const std::vector<OpReport>& reports) {
  auto list = nlohmann::ordered_json::array();
  for (const OpReport& r : reports) {
    nlohmann::ordered_json o;
    o["op"] = r.op;
    o["family"] = r.family;
    o["ok"] = r.ok();
    o["reference"] = r.reference;
    o["samples"] = r.samples;
    // JSON has no infinity.
    if (std::isfinite(r.worst)) o["worst"] = r.worst;
    o["seconds"] = r.seconds;
    for (size_t c = 0; c < kNumChecks; ++c) {
      const std::string name(name_of(static_cast<Check>(c)));
      o["checks"][name] = {{"passed", r.passed[c]}, {"failed", r.failed[c]}};
    }
    o["failures"] = nlohmann::ordered_json::array();
    for (const Failure& f : r.failures) {
      o["failures"].push_back(
          {{"check", name_of(f.check)}, {"dtype", name_of(f.dtype)}, {"sample", f.sample}, {"message", f.message}});
    }
    list.push_back(std::move(o));
  }
  return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

namespace {
Check parse_check(const std::string& name) {
  for (int c = 0; c < kNumChecks; ++c)
    if (name_of(static_cast<Check>(c)) == name) return static_cast<Check>(c);
  throw ValueError("reports_from_json", cat("no check is called '", name, "'"));
}
}  // namespace

std::vector<OpReport> reports_from_json(const std::string& text) {
  std::vector<OpReport> reports;
  try {
    for (const auto& o : nlohmann::json::parse(text)) {
      OpReport& r = reports.emplace_back();
      r.op = o.at("op");
      r.family = o.at("family");
      r.reference = o.at("reference");
      r.samples = o.at("samples");
      r.worst = o.value("worst", std::numeric_limits<double>::infinity());
      r.seconds = o.at("seconds");
      for (size_t c = 0; c < kNumChecks; ++c) {
        const auto& check = o.at("checks").at(std::string(name_of(static_cast<Check>(c))));
        r.passed[c] = check.at("passed");
        r.failed[c] = check.at("failed");
      }
      for (const auto& f : o.at("failures"))
        r.failures.push_back({parse_check(f.at("check")), parse_dtype(f.at("dtype").get<std::string>()), f.at("sample"),
                              f.at("message")});
    }
  } catch (const nlohmann::json::exception& e) {
    throw ValueError("reports_from_json", cat("not a list of reports: ", e.what()));
  }
  return reports;
}

}  // namespace strata::lab
