#include <algorithm>
#include <cmath>

#include "strata/dist/wire_inl.h"

namespace strata::distributed::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kOp = "coordinator";
constexpr int kMostRanks = 1 << 20;

json parsed(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  check(value.is_object(), kOp, "the request is no JSON object");
  return value;
}

const json& field(const json& object, const char* name, bool fits) {
  const auto at = object.find(name);
  check(at != object.end() && fits, kOp, "field '", name, "' is missing or of another type");
  return *at;
}

int64_t integer(const json& object, const char* name, int64_t least, int64_t most) {
  const auto at = object.find(name);
  const int64_t value = field(object, name, at != object.end() && at->is_number_integer()).get<int64_t>();
  check(value >= least && value <= most, kOp, "field '", name, "' is ", value, ", it must be from ", least, " to ",
        most);
  return value;
}

std::string text(const json& object, const char* name, size_t most) {
  const auto at = object.find(name);
  return one_line(field(object, name, at != object.end() && at->is_string()).get_ref<const std::string&>(), most);
}

double number(const json& object, const char* name) {
  const auto at = object.find(name);
  return field(object, name, at != object.end() && at->is_number()).get<double>();
}

Heartbeat beat_of(const json& object, int size) {
  return {.rank = static_cast<int>(integer(object, "rank", 0, size - 1)),
          .host = text(object, "host", kLongestHost),
          .pid = integer(object, "pid", 0, INT64_MAX),
          .state = text(object, "state", kLongestState),
          .step = integer(object, "step", INT64_MIN, INT64_MAX),
          .waiting = number(object, "waiting"),
          .calls = object.contains("calls") ? text(object, "calls", kLongestState) : std::string(),
          .waited = object.contains("waited") ? number(object, "waited") : 0};
}

}  // namespace

std::string one_line(std::string_view text, size_t most) {
  std::string line(text.substr(0, most));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return line;
}

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_json(const Heartbeat& beat) {
  json object = {{"rank", beat.rank}, {"host", one_line(beat.host, kLongestHost)},
                 {"pid", beat.pid},   {"state", one_line(beat.state, kLongestState)},
                 {"step", beat.step}, {"waiting", std::isfinite(beat.waiting) ? beat.waiting : 0}};
  if (std::isfinite(beat.waited) && beat.waited > 0) object["waited"] = beat.waited;
  if (!beat.calls.empty()) object["calls"] = one_line(beat.calls, kLongestState);
  return object;
}

Heartbeat heartbeat_of(std::string_view text, int size) {
  return beat_of(parsed(text), size);
}

int rank_of(std::string_view text, int size) {
  return static_cast<int>(integer(parsed(text), "rank", 0, size - 1));
}

std::pair<int, int64_t> forming_of(std::string_view text, int size) {
  const json all = parsed(text);
  return {static_cast<int>(integer(all, "rank", 0, size - 1)), integer(all, "after", 0, INT64_MAX)};
}

std::string formation_text(const Formation& formation) {
  return text_of({{"number", formation.number}, {"seats", formation.seats}});
}

Formation formation_of(std::string_view text) try {
  const json all = parsed(text);
  Formation formed{integer(all, "number", 0, INT64_MAX), {}};
  const auto seats = all.find("seats");
  for (const json& one : field(all, "seats", seats != all.end() && seats->is_array())) {
    const bool fits = one.is_number_integer() && one >= 0 && one < kMostRanks;
    check(fits && (formed.seats.empty() || one > formed.seats.back()), kOp, "field 'seats' is no rising list of ranks");
    formed.seats.push_back(one.get<int>());
  }
  return formed;
} catch (const ValueError& e) {
  throw DistributedError("", cat("the coordinator's answer makes no sense: ", e.what()));
}

std::string states_text(const std::vector<RankState>& states, bool everyone) {
  json ranks = json::array();
  for (const RankState& s : states) {
    const bool over = s.left || !s.failure.empty();
    if (!over && (!everyone || (s.age < 0 && s.last.host.empty()))) continue;
    json one = to_json(s.last);
    one["age"] = s.age;
    one["left"] = s.left;
    one["failure"] = s.failure;
    one["order"] = s.order;
    one["share"] = s.share;
    one["straggler"] = s.straggler;
    ranks.push_back(std::move(one));
  }
  return text_of({{"size", states.size()}, {"ranks", std::move(ranks)}});
}

std::vector<RankState> states_of(std::string_view text) try {
  const json all = parsed(text);
  const int size = static_cast<int>(integer(all, "size", 1, kMostRanks));
  std::vector<RankState> states(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    states[static_cast<size_t>(r)].last.rank = r;
    states[static_cast<size_t>(r)].age = -1;
  }
  const auto ranks = all.find("ranks");
  for (const json& one : field(all, "ranks", ranks != all.end() && ranks->is_array())) {
    check(one.is_object(), kOp, "field 'ranks' holds something that is no object");
    Heartbeat beat = beat_of(one, size);
    RankState& s = states[static_cast<size_t>(beat.rank)];
    s.last = std::move(beat);
    s.age = number(one, "age");
    const auto left = one.find("left");
    s.left = field(one, "left", left != one.end() && left->is_boolean()).get<bool>();
    s.failure = detail::text(one, "failure", kLongestFailure);
    s.order = static_cast<int>(integer(one, "order", 0, INT32_MAX));
    s.share = number(one, "share");
    const auto straggler = one.find("straggler");
    s.straggler = field(one, "straggler", straggler != one.end() && straggler->is_boolean()).get<bool>();
  }
  return states;
} catch (const ValueError& e) {
  throw DistributedError("", cat("the coordinator's answer makes no sense: ", e.what()));
}

std::string query_text(std::string_view key) {
  std::string out;
  for (const unsigned char c : key) {
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.') {
      out += static_cast<char>(c);
    } else {
      for (const char digit : {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]}) out += digit;
    }
  }
  return out;
}

}  // namespace strata::distributed::detail
