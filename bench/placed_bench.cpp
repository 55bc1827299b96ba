// What a call with sharded arguments costs on the host beside the same call on plain ones of this rank's size: its plan
// is looked up, and the results become handles; `own_plan_ns` is without kept plans, where each call asks the rule and
// chooses a possibility. Nothing is sent. Two ranks as threads, small tensors; a JSON object a line, in nanoseconds.
//     taskset -c 1 placed_bench

#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "bench/clock.h"
#include "strata/core/node.h"
#include "strata/core/placed_plans_inl.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace {
using namespace strata;
using distributed::distribute;

struct Case {
  const char* name;
  std::function<void()> plain, sharded;
};

void measure() {
  const NoGrad guard;
  const Tensor x = ones({4, 8}), w = ones({16, 8}), part = ones({8, 8}), norm = ones({8});
  const Tensor rows = distribute(x, "S(0)"), whole = distribute(x, "R"), columns = distribute(w, "S(0)");
  const Tensor few = ones({2, 8});
  const std::vector<Case> cases{
      {"add, rows cut", [&] { add(few, few); }, [&] { add(rows, rows); }},
      {"linear, weight cut", [&] { linear(x, part); }, [&] { linear(whole, columns); }},
      {"rms_norm, rows cut", [&] { rms_norm(few, {8}, norm); }, [&] { rms_norm(rows, {8}, norm); }},
      {"transpose, rows cut", [&] { few.transpose(0, 1); }, [&] { rows.transpose(0, 1); }},
      {"view, rows cut",
       [&] {
         few.view({2, 2, 4});
       },
       [&] {
         rows.view({4, 2, 4});
       }},
      {"cat, rows cut",
       [&] {
         cat({few, few}, 1);
       },
       [&] {
         cat({rows, rows}, 1);
       }},
  };
  strata::detail::PlacedPlans& plans = strata::detail::PlacedPlans::mine();
  for (const Case& c : cases) {
    const double plain = best_seconds_of_short(c.plain) * 1e9, sharded = best_seconds_of_short(c.sharded) * 1e9;
    plans.off = true;
    const double own = best_seconds_of_short(c.sharded) * 1e9;
    plans.off = false;
    std::printf("{\"call\": \"%s\", \"plain_ns\": %.0f, \"sharded_ns\": %.0f, \"own_plan_ns\": %.0f}\n", c.name, plain,
                sharded, own);
  }
}
}  // namespace

int main() {
  // The second rank has nothing to do: no call here sends.
  distributed::run_as_ranks(distributed::Mesh("tp=2"), [](int rank) {
    if (rank == 0) measure();
  });
}
