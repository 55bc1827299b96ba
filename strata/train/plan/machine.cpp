#include "strata/train/plan/machine.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/lab/known_cards.h"

namespace strata::plan {
namespace {

using nlohmann::json;

json json_of(const Link& l) {
  return {{"gb_s", l.gb_s}, {"latency_us", l.latency_us}};
}

// One JSON object, whose keys are asked for by name.
class Reader {
 public:
  Reader(const json& object, std::string path, std::string_view source)
      : object_(object), path_(std::move(path)), source_(source) {
    if (!object.is_object()) fail("", "is no object");
  }

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw IoError(std::string(source_), cat("'", path_, key, "' ", what));
  }
  Reader inside(const char* key) const { return {at(key), cat(path_, key, "."), source_}; }
  const json& at(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) fail(key, "is not there");
    return *it;
  }
  double number(const char* key, double least, double most = 1e18) const {
    const json& v = at(key);
    if (!v.is_number()) fail(key, "is no number");
    const auto n = v.get<double>();
    if (!(n >= least && n <= most)) fail(key, cat("is ", n, ", wanted ", least, " to ", most));
    return n;
  }
  std::string text(const char* key) const {
    const json& v = at(key);
    if (!v.is_string()) fail(key, "is no text");
    return v.get<std::string>();
  }
  Link link(const char* key) const {
    const Reader r = inside(key);
    return {r.number("gb_s", 0), r.number("latency_us", 0)};  // 0: not known, of a machine that was measured alone
  }

 private:
  const json& object_;
  std::string path_;
  std::string_view source_;
};

}  // namespace

int Links::ranks() const {
  return static_cast<int>(std::lround(std::sqrt(static_cast<double>(pairs.size()))));
}

Link Links::of(int from, int to) const {
  if (pairs.empty()) return from / ranks_per_host == to / ranks_per_host ? inside : between;
  return pairs[static_cast<size_t>(from) * static_cast<size_t>(ranks()) + static_cast<size_t>(to)];
}

std::string Machine::to_json() const {
  json j{{"name", name},
         {"limits",
          {{"gb_s", limits.gb_s},
           {"gflops", limits.gflops},
           {"matmul_f32", limits.matmul_f32},
           {"matmul_bf16", limits.matmul_bf16}}},
         {"efficiency", efficiency},
         {"call_us", call_us},
         {"share", share},
         {"memory", memory},
         {"links",
          {{"transport", links.transport},
           {"ranks_per_host", links.ranks_per_host},
           {"inside", json_of(links.inside)},
           {"between", json_of(links.between)},
           {"overlap", links.overlap},
           {"scale", links.scale},
           {"small_scale", links.small_scale}}}};
  if (!links.pairs.empty()) {
    json rows = json::array();
    for (const Link& l : links.pairs) rows.push_back({l.gb_s, l.latency_us});
    j["links"]["pairs"] = std::move(rows);
  }
  return j.dump(1) + "\n";
}

Machine machine_from_json(std::string_view text, std::string_view source) {
  json j;
  try {
    j = json::parse(text);
  } catch (const json::parse_error& e) {
    throw IoError(std::string(source), cat("is no JSON at byte ", e.byte));
  }
  const Reader all(j, "", source), limits = all.inside("limits"), links = all.inside("links");
  Machine m{.name = all.text("name"),
            .limits = {.gb_s = limits.number("gb_s", 1e-9),
                       .gflops = limits.number("gflops", 1e-9),
                       .matmul_f32 = limits.number("matmul_f32", 1e-9),
                       .matmul_bf16 = limits.number("matmul_bf16", 0)},
            .efficiency = all.number("efficiency", 1e-6, 1),
            .call_us = all.number("call_us", 0),
            .share = all.number("share", 1e-6, 1),
            .memory = static_cast<int64_t>(all.number("memory", 0)),
            .links = {.transport = links.text("transport"),
                      .ranks_per_host = static_cast<int>(links.number("ranks_per_host", 1, 1 << 20)),
                      .inside = links.link("inside"),
                      .between = links.link("between"),
                      .overlap = links.number("overlap", 0, 1),
                      .scale = links.number("scale", 1e-6),
                      .small_scale = links.number("small_scale", 1e-6)}};
  const std::string& t = m.links.transport;
  if (t != "nccl" && t != "gloo" && t != "mpi") links.fail("transport", cat("is '", t, "', wanted nccl, gloo or mpi"));
  if (!j["links"].contains("pairs")) return m;
  const json& rows = links.at("pairs");
  if (!rows.is_array()) links.fail("pairs", "is no list");
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    if (!row.is_array() || row.size() != 2 || !row[0].is_number() || !row[1].is_number() || row[0].get<double>() <= 0 ||
        row[1].get<double>() < 0)
      links.fail("pairs", cat("has an entry ", i, " that is no pair of GB/s, above 0, and microseconds"));
    m.links.pairs.push_back({row[0].get<double>(), row[1].get<double>()});
  }
  const auto n = static_cast<size_t>(m.links.ranks());
  if (n * n != rows.size()) links.fail("pairs", cat("has ", rows.size(), " entries, no square number"));
  return m;
}

Machine machine_of_card(std::string_view name) {
  const lab::KnownCard& card = lab::known_card(name);
  return {.name = cat(card.title, ", 8 a host at 355 GB/s, network 50 GB/s (a data sheet's)"),
          .limits = card.limits,
          // GPT-2 124M in bf16 runs at 616,540 tokens/s on a card, of 890,000 that its limits allow.
          .efficiency = 0.69,
          .call_us = 2,
          .memory = card.memory_bytes,
          .links = {.transport = "nccl",
                    .ranks_per_host = 8,
                    .inside = {.gb_s = 355, .latency_us = 5},
                    .between = {.gb_s = 50, .latency_us = 15},
                    .overlap = 0.9}};
}

}  // namespace strata::plan
