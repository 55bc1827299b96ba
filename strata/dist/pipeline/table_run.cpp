#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/dist/pipeline/table_run_inl.h"

namespace strata::distributed::pipeline {
namespace detail {

TableRun::TableRun(const Table& table, const std::vector<StageCost>& costs, double send, int buffers)
    : table_(table),
      costs_(costs),
      send_(send),
      buffers_(buffers),
      ranks_(static_cast<size_t>(table.ranks)),
      forward_(static_cast<size_t>(table.stages)),
      backward_(static_cast<size_t>(table.stages)) {
  if (costs_.size() == 1) costs_.resize(static_cast<size_t>(table.stages), costs_[0]);
  result_.begin.resize(static_cast<size_t>(table.ranks));
}

const Action& TableRun::action(int rank) const {
  return table_.actions[static_cast<size_t>(rank)][ranks_[static_cast<size_t>(rank)].next];
}
bool TableRun::at_end(int rank) const {
  return ranks_[static_cast<size_t>(rank)].next == table_.actions[static_cast<size_t>(rank)].size();
}

double TableRun::cost(const Action& a) const {
  const StageCost& c = costs_[static_cast<size_t>(a.stage)];
  switch (a.pass) {
    case Pass::forward:
      return c.forward;
    case Pass::input_gradient:
      return c.input;
    case Pass::weight_gradient:
      return c.weight;
    case Pass::backward:
      break;
  }
  return c.input + c.weight;
}

TableRun::Channel* TableRun::incoming(const Action& a) {
  if (a.pass == Pass::weight_gradient) return nullptr;
  const bool forward = a.pass == Pass::forward;
  const int from = a.stage + (forward ? -1 : 1);
  if (from < 0 || from == table_.stages) return nullptr;
  const auto s = static_cast<size_t>(a.stage);
  if (table_.rank_of[static_cast<size_t>(from)] == table_.rank_of[s]) return nullptr;
  return forward ? &forward_[s] : &backward_[s];
}

TableRun::Channel* TableRun::outgoing(const Action& a) {
  if (a.pass == Pass::weight_gradient) return nullptr;
  const bool forward = a.pass == Pass::forward;
  const int to = a.stage + (forward ? 1 : -1);
  return to < 0 || to == table_.stages ? nullptr : incoming({forward ? Pass::forward : Pass::backward, to, a.micro});
}

std::optional<double> TableRun::next_at(int rank) {
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  if (!r.sending) {
    const Channel* const c = incoming(action(rank));
    if (c == nullptr) return r.free;
    const size_t i = c->taken.size();
    if (i == c->there.size()) return std::nullopt;
    return std::max(r.free, c->there[i]);
  }
  const Channel* const c = outgoing(action(rank));
  if (c == nullptr) return r.free;
  const size_t i = c->there.size(), room = static_cast<size_t>(buffers_);
  if (buffers_ == 0 || i < room) return r.free;
  if (c->taken.size() <= i - room) return std::nullopt;
  return std::max(r.free, c->taken[i - room]);
}

void TableRun::step(int rank, double at) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  const Action& a = action(rank);
  if (r.sending) {
    if (Channel* c = outgoing(a)) c->there.push_back(at + send_);
    r.free = at;
    r.sending = false;
    ++r.next;
    return;
  }
  if (Channel* c = incoming(a)) c->taken.push_back(at);
  result_.begin[static_cast<size_t>(rank)].push_back(at);
  r.busy += cost(a);
  r.free = at + cost(a);
  r.sending = true;
}

// As far as the rank can go; whether it went anywhere.
bool TableRun::advance(int rank) {
  bool moved = false;
  while (!at_end(rank)) {
    const std::optional<double> at = next_at(rank);
    if (!at) break;
    step(rank, *at);
    moved = true;
  }
  return moved;
}

std::vector<std::vector<QueuedMessage>> TableRun::message_order() {
  std::vector<std::vector<QueuedMessage>> order(ranks_.size());
  const auto begun = [&](int rank) { return result_.begin[static_cast<size_t>(rank)].size(); };
  while (true) {
    // The earliest step; of those at one time a message before an action, and the lowest rank's.
    int first = -1;
    bool all = true;
    double earliest = 0;
    const auto sends = [&](int rank) { return ranks_[static_cast<size_t>(rank)].sending; };
    for (int rank = 0; rank < table_.ranks; ++rank) {
      if (at_end(rank)) continue;
      all = false;
      const std::optional<double> at = next_at(rank);
      if (!at) continue;
      if (first < 0 || *at < earliest || (*at == earliest && sends(rank) && !sends(first))) {
        first = rank;
        earliest = *at;
      }
    }
    if (all) return order;
    if (first < 0) throw ValueError("pipeline", standstill());
    const Action& a = action(first);
    if (sends(first) && outgoing(a) != nullptr) {
      const bool forward = a.pass == Pass::forward;
      const int stage = a.stage + (forward ? 1 : -1), to = table_.rank_of[static_cast<size_t>(stage)];
      QueuedMessage m{true, forward ? Pass::forward : Pass::backward, stage, a.micro, begun(first)};
      order[static_cast<size_t>(first)].push_back(m);
      m.sends = false;
      m.behind = begun(to);
      order[static_cast<size_t>(to)].push_back(m);
    }
    step(first, earliest);
  }
}

bool TableRun::ends() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < table_.ranks; ++rank) moved = advance(rank) || moved;
  }
  for (int rank = 0; rank < table_.ranks; ++rank)
    if (!at_end(rank)) return false;
  return true;
}

std::string TableRun::standstill() {
  std::string text = cat(table_.schedule, ": the ranks wait for each other");
  for (int rank = 0; rank < table_.ranks; ++rank) {
    text += cat("; rank ", rank, ' ');
    if (at_end(rank)) {
      text += "is done";
      continue;
    }
    const Action& a = action(rank);
    const bool sending = ranks_[static_cast<size_t>(rank)].sending;
    const int other = a.stage + ((a.pass == Pass::forward) == sending ? 1 : -1);
    text += cat(sending ? "has done " : "stands before ", to_text(a),
                sending ? cat(", and ", buffers_, " messages to stage ", other, " wait")
                        : cat(", and waits for stage ", other));
  }
  return text;
}

Simulation TableRun::run() {
  if (!ends()) throw ValueError("pipeline", standstill());
  double busy = 0;
  for (const Rank& r : ranks_) {
    result_.seconds = std::max(result_.seconds, r.free);
    result_.busy.push_back(r.busy);
    busy += r.busy;
  }
  const double all = result_.seconds * static_cast<double>(table_.ranks);
  result_.bubble = all > 0 ? 1 - busy / all : 0;
  return std::move(result_);
}

}  // namespace detail

Simulation simulate(const Table& table, const std::vector<StageCost>& costs, double send, int buffers) {
  detail::check_actions(table);
  check(costs.size() == 1 || costs.size() == static_cast<size_t>(table.stages), "pipeline", "there are costs of ",
        costs.size(), " stages, wanted one for all or ", table.stages);
  check(send >= 0 && std::isfinite(send), "pipeline", "a message takes ", send, " seconds");
  check(buffers >= 0, "pipeline", "buffers must not be negative, got ", buffers);
  for (const StageCost& c : costs)
    for (const double s : {c.forward, c.input, c.weight})
      check(s >= 0 && std::isfinite(s), "pipeline", "a pass takes ", s, " seconds");
  return detail::TableRun(table, costs, send, buffers).run();
}

}  // namespace strata::distributed::pipeline
