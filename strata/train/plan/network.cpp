#include <algorithm>
#include <bit>
#include <set>

#include "strata/core/error.h"
#include "strata/train/plan/network_inl.h"

namespace strata::plan {

Network::Network(const Links& links, int64_t ranks, std::vector<int> order)
    : links_(links), ranks_(ranks), order_(std::move(order)) {
  check(links.pairs.empty() || links.ranks() >= ranks, "plan", "the links are of ", links.ranks(), " ranks, and the plan is for ",
        ranks);
  check((links.inside.gb_s > 0 && (links.between.gb_s > 0 || ranks <= links.ranks_per_host)) || !links.pairs.empty() ||
            ranks == 1,
        "plan", "the links between ranks are not known");
  check(order_.empty() || (static_cast<int64_t>(order_.size()) == ranks &&
                           std::set<int>(order_.begin(), order_.end()).size() == order_.size() &&
                           *std::ranges::min_element(order_) == 0 && *std::ranges::max_element(order_) == ranks - 1),
        "plan", "an order of ranks names each of the ", ranks, " once");
}

double Network::sent(Collective c, int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  return (c == Collective::all_reduce ? 2 : 1) * (n - 1) / n * bytes;
}

double Network::seconds(Collective c, Span span, double bytes) const {
  if (span.size <= 1) return 0;
  const Cost& k = cost(span);
  // Rings of few bytes are trees; else each rank waits for a message from every other one.
  const double ways = links_.transport == "nccl" ? std::bit_width(static_cast<uint64_t>(span.size - 1))
                                                 : static_cast<double>(span.size - 1);
  return links_.scale * sent(c, span.size, bytes) * k.byte +
         links_.small_scale * (c == Collective::all_reduce ? 2 : 1) * ways * k.first;
}

double Network::message(Span span, double bytes) const {
  const Cost& k = cost(span);
  return bytes * k.byte + k.first;
}

const Network::Cost& Network::cost(Span span) const {
  const auto [at, fresh] = known_.try_emplace(span);
  if (fresh) at->second = measured(span);
  return at->second;
}

Network::Cost Network::measured(Span span) const {
  Cost worst;
  const bool ring = links_.transport == "nccl";
  const auto seconds_of = [](Link l) { return Cost{1e-9 / l.gb_s, 1e-6 * l.latency_us}; };
  const auto worse = [&worst](Cost c) { worst = {std::max(worst.byte, c.byte), std::max(worst.first, c.first)}; };
  std::vector<int> members(static_cast<size_t>(span.size));
  for (int64_t base = 0; base < ranks_; ++base) {
    if (base / span.stride % span.size != 0) continue;
    for (int64_t i = 0; i < span.size; ++i) members[static_cast<size_t>(i)] = at(base + i * span.stride);
    const size_t n = members.size();
    if (ring && !links_.pairs.empty()) {
      for (size_t i = 0; i < n; ++i) worse(seconds_of(links_.of(members[i], members[(i + 1) % n])));
      continue;
    }
    if (!links_.pairs.empty()) {
      for (const int from : members) {
        Cost all;
        for (const int to : members) {
          if (to == from) continue;
          const Cost c = seconds_of(links_.of(from, to));
          all = {all.byte + c.byte / static_cast<double>(n - 1), std::max(all.first, c.first)};
        }
        worse(all);
      }
      continue;
    }
    // Alike within and between hosts: how many of each one has is enough.
    std::map<int, size_t> on_host;
    for (const int m : members) ++on_host[m / links_.ranks_per_host];
    const Cost in = seconds_of(links_.inside), out = on_host.size() > 1 ? seconds_of(links_.between) : Cost{};
    for (const auto& [host, count] : on_host) {
      // As many rings as the host has members, each with a way of its own to the next host.
      if (ring) {
        worse({std::max(count > 1 ? in.byte : 0, out.byte / static_cast<double>(count)), std::max(in.first, out.first)});
        continue;
      }
      const double near = static_cast<double>(count - 1) / static_cast<double>(n - 1);
      worse({near * in.byte + (1 - near) * out.byte, std::max(count > 1 ? in.first : 0, out.first)});
    }
  }
  return worst;
}

}  // namespace strata::plan
