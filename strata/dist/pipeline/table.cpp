#include "strata/dist/pipeline/table.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/dist/pipeline/table_run_inl.h"

namespace strata::distributed::pipeline {
namespace {

constexpr std::string_view kOp = "pipeline";

// Where each pass of each micro-batch at each stage stands on its rank; -1 where it does not.
struct Places {
  explicit Places(const Table& t) : table(t), at(static_cast<size_t>(4 * t.stages * t.micro_batches), -1) {}
  int& of(Pass pass, int stage, int micro) {
    return at[static_cast<size_t>((static_cast<int>(pass) * table.stages + stage) * table.micro_batches + micro)];
  }
  int& of(const Action& a) { return of(a.pass, a.stage, a.micro); }
  // Of the gradient that the stage before waits for.
  int backward(int stage, int micro) {
    return std::max(of(Pass::backward, stage, micro), of(Pass::input_gradient, stage, micro));
  }
  Action backward_action(int stage, int micro) {
    return {of(Pass::backward, stage, micro) >= 0 ? Pass::backward : Pass::input_gradient, stage, micro};
  }
  const Table& table;
  std::vector<int> at;
};

void check_sizes(const Table& t) {
  const std::string& s = t.schedule;
  check(t.ranks > 0 && t.stages >= t.ranks && t.micro_batches > 0, kOp, s, ": ", t.ranks, " ranks, ", t.stages,
        " stages, ", t.micro_batches, " micro-batches: wanted at least a stage for each rank, and a micro-batch");
  check(t.rank_of.size() == static_cast<size_t>(t.stages), kOp, s, ": rank_of has ", t.rank_of.size(), " entries for ",
        t.stages, " stages");
  check(t.actions.size() == static_cast<size_t>(t.ranks), kOp, s, ": there are actions of ", t.actions.size(),
        " ranks, wanted ", t.ranks);
  for (int stage = 0; stage < t.stages; ++stage) {
    const int rank = t.rank_of[static_cast<size_t>(stage)];
    check(rank >= 0 && rank < t.ranks, kOp, s, ": stage ", stage, " is on rank ", rank, " of ", t.ranks);
  }
  for (int rank = 0; rank < t.ranks; ++rank)
    check(!t.stages_of(rank).empty(), kOp, s, ": rank ", rank, " has no stage");
}

Places placed(const Table& t) {
  Places places(t);
  for (int rank = 0; rank < t.ranks; ++rank) {
    const std::vector<Action>& all = t.actions[static_cast<size_t>(rank)];
    for (size_t i = 0; i < all.size(); ++i) {
      const Action& a = all[i];
      check(a.stage >= 0 && a.stage < t.stages && a.micro >= 0 && a.micro < t.micro_batches &&
                static_cast<int>(a.pass) <= static_cast<int>(Pass::weight_gradient),
            kOp, t.schedule, ": rank ", rank, " has ", to_text(a), ", and there are ", t.stages, " stages and ",
            t.micro_batches, " micro-batches");
      const int owner = t.rank_of[static_cast<size_t>(a.stage)];
      check(owner == rank, kOp, t.schedule, ": rank ", rank, " has ", to_text(a), ", which is on rank ", owner);
      check(t.trains || a.pass == Pass::forward, kOp, t.schedule, ": rank ", rank, " has ", to_text(a),
            ", and only forward passes are made");
      int& at = places.of(a);
      check(at < 0, kOp, t.schedule, ": ", to_text(a), " stands twice on rank ", rank);
      at = static_cast<int>(i);
    }
  }
  return places;
}

void check_whole(const Table& t, Places& places) {
  for (int stage = 0; stage < t.stages; ++stage) {
    for (int m = 0; m < t.micro_batches; ++m) {
      const auto stands = [&](Pass pass) { return places.of(pass, stage, m) >= 0; };
      const auto missing = [&](Pass pass) {
        throw ValueError(std::string(kOp), cat(t.schedule, ": ", to_text(Action{pass, stage, m}),
                                               " is missing on rank ", t.rank_of[static_cast<size_t>(stage)]));
      };
      if (!stands(Pass::forward)) missing(Pass::forward);
      if (!t.trains) continue;
      const bool halves = stands(Pass::input_gradient) || stands(Pass::weight_gradient);
      check(!halves || !stands(Pass::backward), kOp, t.schedule, ": ", to_text(Action{Pass::backward, stage, m}),
            " stands beside ",
            to_text(Action{stands(Pass::input_gradient) ? Pass::input_gradient : Pass::weight_gradient, stage, m}),
            ", which is a part of it");
      if (!halves && !stands(Pass::backward)) missing(Pass::backward);
      if (halves && !stands(Pass::input_gradient)) missing(Pass::input_gradient);
      if (halves && !stands(Pass::weight_gradient)) missing(Pass::weight_gradient);
    }
  }
}

// What one rank needs of itself.
void check_order(const Table& t, Places& places) {
  const auto before = [&](const Action& first, const Action& then) {
    check(places.of(first) < places.of(then), kOp, t.schedule, ": ", to_text(then), " stands before ", to_text(first),
          " on rank ", t.rank_of[static_cast<size_t>(then.stage)]);
  };
  for (int stage = 0; stage < t.stages; ++stage) {
    const bool same =
        stage + 1 < t.stages && t.rank_of[static_cast<size_t>(stage)] == t.rank_of[static_cast<size_t>(stage + 1)];
    for (int m = 0; m < t.micro_batches; ++m) {
      const Action forward{Pass::forward, stage, m};
      if (same) before(forward, {Pass::forward, stage + 1, m});
      if (!t.trains) continue;
      const Action back = places.backward_action(stage, m);
      before(forward, back);
      if (back.pass == Pass::input_gradient) before(back, {Pass::weight_gradient, stage, m});
      if (same) before(places.backward_action(stage + 1, m), back);
    }
  }
}

// Messages are taken in the order in which they were sent.
void check_messages(const Table& t) {
  std::vector<std::vector<int>> forward(static_cast<size_t>(t.stages)), backward(static_cast<size_t>(t.stages));
  for (const auto& all : t.actions) {
    for (const Action& a : all) {
      if (a.pass == Pass::forward) forward[static_cast<size_t>(a.stage)].push_back(a.micro);
      if (a.pass == Pass::backward || a.pass == Pass::input_gradient)
        backward[static_cast<size_t>(a.stage)].push_back(a.micro);
    }
  }
  const auto same = [&](const std::vector<int>& sent, const std::vector<int>& taken, Pass pass, int from, int to) {
    for (size_t i = 0; i < sent.size(); ++i)
      check(sent[i] == taken[i], kOp, t.schedule, ": ", to_text(Action{pass, to, taken[i]}), " stands where stage ",
            from, " has sent micro-batch ", sent[i]);
  };
  for (size_t s = 0; s + 1 < forward.size(); ++s) {
    if (t.rank_of[s] == t.rank_of[s + 1]) continue;
    same(forward[s], forward[s + 1], Pass::forward, static_cast<int>(s), static_cast<int>(s) + 1);
    same(backward[s + 1], backward[s], Pass::backward, static_cast<int>(s) + 1, static_cast<int>(s));
  }
}

std::vector<int> live_of(const Table& t) {
  std::vector<int> most;
  for (const auto& all : t.actions) {
    int now = 0, peak = 0;
    for (const Action& a : all) {
      if (a.pass == Pass::forward) peak = std::max(peak, ++now);
      if (!t.trains || a.pass == Pass::backward || a.pass == Pass::weight_gradient) --now;
    }
    most.push_back(peak);
  }
  return most;
}

}  // namespace

char letter_of(Pass pass) {
  return "FBIW"[static_cast<int>(pass)];
}

std::string to_text(const Action& a) {
  return cat(letter_of(a.pass), " of micro-batch ", a.micro, " at stage ", a.stage);
}

std::vector<int> Table::stages_of(int rank) const {
  std::vector<int> own;
  for (size_t s = 0; s < rank_of.size(); ++s)
    if (rank_of[s] == rank) own.push_back(static_cast<int>(s));
  return own;
}

std::string to_text(const Table& t) {
  std::string text;
  for (const auto& all : t.actions) {
    std::string line;
    for (const Action& a : all) {
      line += cat(line.empty() ? "" : " ", letter_of(a.pass), a.micro);
      if (t.stages > t.ranks) line += cat('.', a.stage);
    }
    text += line + '\n';
  }
  return text;
}

namespace detail {
void check_actions(const Table& t) {
  check_sizes(t);
  Places places = placed(t);
  check_whole(t, places);
  check_order(t, places);
  check_messages(t);
}
}  // namespace detail

Proof prove(const Table& t, int buffers) {
  check(buffers >= 0, kOp, "buffers must not be negative, got ", buffers);
  detail::check_actions(t);
  Proof proof{buffers, live_of(t)};
  if (buffers > 0) {
    detail::TableRun(t, {StageCost{}}, 0, buffers).run();
    return proof;
  }
  detail::TableRun(t, {StageCost{}}, 0, 0).run();
  // More room never makes ranks wait for each other that did not.
  int least = 1, most = t.micro_batches;
  while (least < most) {
    const int half = (least + most) / 2;
    if (detail::TableRun(t, {StageCost{}}, 0, half).ends())
      most = half;
    else
      least = half + 1;
  }
  proof.buffers = least;
  return proof;
}

}  // namespace strata::distributed::pipeline
