#include "strata/dist/pipeline/schedules.h"

#include <algorithm>
#include <string>

#include "strata/core/error.h"
#include "strata/dist/pipeline/table_run_inl.h"

namespace strata::distributed::pipeline {
namespace {

using Actions = std::vector<Action>;
using Lists = std::vector<Actions>;

// Forward passes in their order, backward ones in theirs: `ahead` of the first, then one of each by turns.
Actions alternate(const Actions& forward, const Actions& backward, int ahead) {
  Actions all;
  const size_t warm = std::min(static_cast<size_t>(ahead), forward.size());
  for (size_t i = 0; i < forward.size() + warm; ++i) {
    if (i < forward.size()) all.push_back(forward[i]);
    if (i >= warm) all.push_back(backward[i - warm]);
  }
  return all;
}

Actions passes(Pass pass, int stage, int micro_batches) {
  Actions all;
  for (int m = 0; m < micro_batches; ++m) all.push_back({pass, stage, m});
  return all;
}

Lists gpipe(int ranks, int, int micro_batches, int) {
  Lists lists;
  for (int r = 0; r < ranks; ++r)
    lists.push_back(
        alternate(passes(Pass::forward, r, micro_batches), passes(Pass::backward, r, micro_batches), micro_batches));
  return lists;
}

Lists one_f_one_b(int ranks, int, int micro_batches, int) {
  Lists lists;
  for (int r = 0; r < ranks; ++r)
    lists.push_back(
        alternate(passes(Pass::forward, r, micro_batches), passes(Pass::backward, r, micro_batches), ranks - 1 - r));
  return lists;
}

// Groups of as many micro-batches as there are ranks go through all of a rank's stages before the next group.
Lists interleaved(int ranks, int chunks, int micro_batches, int patience) {
  Lists lists;
  for (int r = 0; r < ranks; ++r) {
    Actions forward, backward;
    for (int first = 0; first < micro_batches; first += ranks) {
      const int end = std::min(first + ranks, micro_batches);
      for (int c = 0; c < chunks; ++c) {
        for (int m = first; m < end; ++m) {
          forward.push_back({Pass::forward, c * ranks + r, m});
          backward.push_back({Pass::backward, (chunks - 1 - c) * ranks + r, m});
        }
      }
    }
    const int ahead = (chunks == 1 ? 1 : 2) * (ranks - 1 - r) + (chunks - 1) * ranks;
    lists.push_back(alternate(forward, backward, ahead + patience));
  }
  return lists;
}

Lists breadth_first(int ranks, int chunks, int micro_batches, int) {
  Lists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Actions& all = lists[static_cast<size_t>(r)];
    for (int c = 0; c < chunks; ++c)
      for (const Action& a : passes(Pass::forward, c * ranks + r, micro_batches)) all.push_back(a);
    for (int c = chunks; c-- > 0;)
      for (const Action& a : passes(Pass::backward, c * ranks + r, micro_batches)) all.push_back(a);
  }
  return lists;
}

// 1F1B with I for B. Rank r makes W as many micro-batches behind I as it may keep beyond what 1F1B keeps there: r.
Lists zb_h1(int ranks, int, int micro_batches, int) {
  Lists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Actions& all = lists[static_cast<size_t>(r)];
    int weights = 0;
    for (const Action& a : alternate(passes(Pass::forward, r, micro_batches),
                                     passes(Pass::input_gradient, r, micro_batches), ranks - 1 - r)) {
      all.push_back(a);
      if (a.pass == Pass::input_gradient && a.micro >= r) all.push_back({Pass::weight_gradient, r, weights++});
    }
    while (weights < micro_batches) all.push_back({Pass::weight_gradient, r, weights++});
  }
  return lists;
}

// Two stages a rank, the second ones on the way back, so that a micro-batch's gradient begins where it came in. What a
// rank keeps is bounded by that of its warm-up: the same on all.
Lists zb_v(int ranks, int, int micro_batches, int) {
  Lists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Actions& all = lists[static_cast<size_t>(r)];
    const int stage[2] = {r, 2 * ranks - 1 - r};
    int done[2][4] = {};
    const auto add = [&](Pass pass, int way) {
      const int m = done[way][static_cast<int>(pass)]++;
      if (m < micro_batches) all.push_back({pass, stage[way], m});
    };
    const auto both = [&](int way) {
      add(Pass::input_gradient, way);
      add(Pass::weight_gradient, way);
    };
    const auto count = [&](Pass pass, int way) { return done[way][static_cast<int>(pass)]; };
    // The order is that of as many micro-batches as fill it; those that are not there are left out.
    const int full = std::max(micro_batches, 2 * ranks - 1);
    for (int i = 0; i < 2 * (ranks - r) - 1; ++i) add(Pass::forward, 0);
    for (int i = 0; i < r; ++i) {
      add(Pass::forward, 1);
      add(Pass::forward, 0);
    }
    for (int i = 0; i < ranks - r; ++i) {
      add(Pass::forward, 1);
      both(1);
    }
    while (count(Pass::forward, 1) < full) {
      if (count(Pass::forward, 0) < full) add(Pass::forward, 0);
      both(0);
      add(Pass::forward, 1);
      both(1);
    }
    for (int i = 0; i < r; ++i) {
      add(Pass::input_gradient, 0);
      add(Pass::input_gradient, 1);
    }
    while (count(Pass::input_gradient, 0) < full) {
      add(Pass::input_gradient, 0);
      add(Pass::weight_gradient, 0);
    }
    for (const int way : {1, 0})
      while (count(Pass::weight_gradient, way) < full) add(Pass::weight_gradient, way);
  }
  return lists;
}

constexpr ScheduleRecord kRecords[] = {
    {.name = "gpipe",
     .doc = "All forward passes, then all backward ones (Huang et al., arXiv:1811.06965). Keeps every micro-batch's "
            "activations; a (p-1)/(m+p-1) part of the time is lost, for p ranks and m micro-batches.",
     .order = gpipe},
    {.name = "1f1b",
     .doc = "A backward pass as soon as one can be made, then by turns (Narayanan et al., arXiv:1806.03377, "
            "2006.09503). Loses what gpipe loses, and rank r keeps the activations of at most p-r micro-batches.",
     .order = one_f_one_b},
    {.name = "interleaved",
     .doc = "1F1B with several stages a rank (Narayanan et al., arXiv:2104.04473): p micro-batches go through all v "
            "stages of a rank before the next. Loses (p-1)/(vm+p-1), for v times the messages. Best where m is a "
            "multiple of p.",
     .most_stages = 0,
     .order = interleaved},
    {.name = "breadth-first",
     .doc = "Several stages a rank, all micro-batches through one before the next (Lamy-Poirier, arXiv:2211.05953). "
            "Loses what interleaved loses, also with few micro-batches; gradients of a stage come together, so they "
            "can travel early; keeps every micro-batch's activations.",
     .most_stages = 0,
     .order = breadth_first},
    {.name = "zb-h1",
     .doc = "1F1B whose gradients of weights wait until the rank would have nothing else to do (Qi et al., "
            "arXiv:2401.10241). Loses p-1 times F+I-W for each step, a third of 1F1B's where all three are equal, and "
            "keeps the activations of at most p micro-batches on each rank.",
     .splits = true,
     .order = zb_h1},
    {.name = "zb-v",
     .doc = "Two stages a rank, the second ones in the opposite order, with gradients of weights apart (Qi et al., "
            "arXiv:2405.15362): where F, I and W take equally long, ranks wait only at the beginning and the end. "
            "Keeps the activations of 2p micro-batches of half a rank's layers; the first and the last stage are on "
            "rank 0.",
     .least_stages = 2,
     .most_stages = 2,
     .splits = true,
     .back = true,
     .order = zb_v},
};

bool is_free_of_deadlock(const Table& t) {
  return detail::TableRun(t, {StageCost{}}, 0, 0).ends();
}

}  // namespace

std::span<const ScheduleRecord> schedule_records() {
  return kRecords;
}

const ScheduleRecord& schedule_record(std::string_view name) {
  std::string have;
  for (const ScheduleRecord& r : kRecords) {
    if (r.name == name) return r;
    have += cat(have.empty() ? "" : ", ", r.name);
  }
  throw ValueError("pipeline", cat("there is no schedule '", name, "' (there are: ", have, ")"));
}

Table make_table(std::string_view schedule, int ranks, int micro_batches, int stages_per_rank) {
  const ScheduleRecord& record = schedule_record(schedule);
  constexpr int kMost = 1 << 20;  // actions of a rank, about
  check(ranks >= 1 && micro_batches >= 1 && stages_per_rank >= 0 && ranks <= kMost && micro_batches <= kMost &&
            stages_per_rank <= kMost / micro_batches,
        "pipeline", "wanted 1 to ", kMost, " ranks and micro-batches, got ", ranks, " ranks, ", micro_batches,
        " micro-batches and ", stages_per_rank, " stages a rank");
  const int chunks = stages_per_rank == 0 ? record.least_stages : stages_per_rank;
  check(chunks >= record.least_stages && (record.most_stages == 0 || chunks <= record.most_stages), "pipeline",
        record.name, " has ", record.most_stages == 0 ? "at least " : "", record.least_stages,
        record.least_stages == 1 ? " stage" : " stages", " a rank, got ", chunks);
  Table t{.schedule = std::string(record.name),
          .ranks = ranks,
          .stages = ranks * chunks,
          .micro_batches = micro_batches,
          .rank_of = {},
          .actions = {}};
  for (int s = 0; s < t.stages; ++s) {
    const int turn = s / ranks, at = s % ranks;
    t.rank_of.push_back(record.back && turn % 2 == 1 ? ranks - 1 - at : at);
  }
  for (int patience = 0;; ++patience) {
    t.actions = record.order(ranks, chunks, micro_batches, patience);
    if (patience == chunks * micro_batches || is_free_of_deadlock(t)) return t;
  }
}

Table forward_table(const Table& table, int micro_batches) {
  Table t{.schedule = "forward",
          .ranks = table.ranks,
          .stages = table.stages,
          .micro_batches = micro_batches,
          .trains = false,
          .rank_of = table.rank_of,
          .actions = std::vector<Actions>(static_cast<size_t>(table.ranks))};
  for (int s = 0; s < t.stages; ++s)
    for (const Action& a : passes(Pass::forward, s, micro_batches))
      t.actions[static_cast<size_t>(t.rank_of[static_cast<size_t>(s)])].push_back(a);
  return t;
}

}  // namespace strata::distributed::pipeline
