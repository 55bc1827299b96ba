// The records that training experts adds: places within capacities, weights of given experts, and what the router pays
// for uneven loads and large logits.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/dispatch_kernel.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/experts/scores_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Text = const std::string&;
using Pair = std::tuple<Tensor, Tensor>;

constexpr int64_t kMostExperts = 8192;  // whose counts a block of a card has in its shared memory

template <void (*compute)(const SlotsCall&)>
void slots_there(Tensor& experts, Tensor& slots, const Tensor& chosen, const Tensor& scores, int64_t rows,
                 int64_t capacity, bool reroute) {
  const Tensor dense = chosen.contiguous(),
               by = to(scores, scores.dtype() == DType::f64 ? DType::f64 : DType::f32).contiguous();
  compute({.tokens = chosen.size(0),
           .k = chosen.size(1),
           .count = scores.size(1),
           .rows = rows,
           .capacity = capacity,
           .reroute = reroute,
           .dtype = by.dtype(),
           .scores = by.raw_data(),
           .chosen = static_cast<const int64_t*>(dense.raw_data()),
           .experts = static_cast<int64_t*>(experts.raw_data()),
           .slots = static_cast<int64_t*>(slots.raw_data())});
}

// One choice after the other, round by round: what the kernels do, with sets in place of marks.
Pair slots_by_rounds(const Tensor& chosen, const Tensor& scores, int64_t rows, int64_t capacity, bool reroute) {
  const std::vector<int64_t> wanted = chosen.to_vector<int64_t>();
  const std::vector<double> s = scores.to_vector<double>();
  const int64_t k = chosen.size(1), count = scores.size(1), tokens = chosen.size(0);
  std::vector<int64_t> experts = wanted, slots(wanted.size(), -1);
  for (int64_t first = 0; rows > 0 && first < tokens; first += rows) {
    std::vector<int64_t> taken(static_cast<size_t>(count), 0);
    struct Choice {
      int64_t token, j, expert;
    };
    std::vector<Choice> waiting;
    for (int64_t j = 0; j < k; ++j)
      for (int64_t t = first; t < first + rows; ++t) waiting.push_back({t, j, wanted[static_cast<size_t>(t * k + j)]});
    while (!waiting.empty()) {
      std::vector<Choice> refused;
      for (const Choice& c : waiting) {
        int64_t& n = taken[static_cast<size_t>(c.expert)];
        if (n >= capacity) {
          refused.push_back(c);
          continue;
        }
        experts[static_cast<size_t>(c.token * k + c.j)] = c.expert;
        slots[static_cast<size_t>(c.token * k + c.j)] = n++;
      }
      waiting.clear();
      if (!reroute) break;
      // The experts that each token has, or names in this round.
      std::vector<std::vector<int64_t>> has(static_cast<size_t>(tokens));
      for (int64_t i = first * k; i < (first + rows) * k; ++i)
        if (slots[static_cast<size_t>(i)] >= 0)
          has[static_cast<size_t>(i / k)].push_back(experts[static_cast<size_t>(i)]);
      std::ranges::sort(refused, [](const Choice& a, const Choice& b) { return a.j < b.j; });
      for (const Choice& c : refused) {
        std::vector<int64_t>& own = has[static_cast<size_t>(c.token)];
        int64_t best = -1;
        for (int64_t e = 0; e < count; ++e) {
          if (taken[static_cast<size_t>(e)] >= capacity || std::ranges::find(own, e) != own.end()) continue;
          if (best < 0 || s[static_cast<size_t>(c.token * count + e)] > s[static_cast<size_t>(c.token * count + best)])
            best = e;
        }
        if (best < 0) continue;
        own.push_back(best);
        waiting.push_back({c.token, c.j, best});
      }
      std::ranges::sort(waiting,
                        [](const Choice& a, const Choice& b) { return a.j != b.j ? a.j < b.j : a.token < b.token; });
    }
  }
  return {from_span<int64_t>(experts, chosen.shape()), from_span<int64_t>(slots, chosen.shape())};
}

const Op<Pair(const Tensor&, const Tensor&, int64_t, int64_t, bool)> expert_slots_op{{
    .schema =
        "expert_slots(Tensor chosen, Tensor scores, int rows, int capacity, bool reroute=false) -> (Tensor experts, "
        "Tensor slots)",
    .shard = "whole",
    .doc =
        "Places for tokens at experts that take `capacity` of each `rows` tokens that follow each other. Choices "
        "`chosen` [N, k], i64, of the experts of scores [N, E] are taken in order: first choices of a group's tokens, "
        "then second ones. Slots, i64 [N, k], are places from 0 to capacity - 1, or -1 for a choice that finds its "
        "expert full (Lepikhin et al., arXiv:2006.16668); experts are `chosen`. With reroute such a choice goes to "
        "the expert with room of the highest score that the token is not at yet, which `experts` then names, and is "
        "left out only where there is none (after arXiv:2402.12399, with any expert for those of one device). N is a "
        "multiple of rows, E at most 8192. Equal scores: the smaller number. No gradient.",
    .example = "Tensor chosen = from_span<int64_t>(std::vector<int64_t>{0, 0, 0}, {3, 1});\n"
               "auto [experts, slots] = expert_slots(chosen, zeros({3, 2}), 3, 2, true);\n"
               "assert(experts.to_vector<int64_t>() == std::vector<int64_t>({0, 0, 1}));\n"
               "assert(slots.to_vector<int64_t>() == std::vector<int64_t>({0, 1, 0}));",
    .infer = [](const Tensor& chosen, const Tensor& scores, int64_t rows, int64_t capacity,
                bool) -> std::array<TensorMeta, 2> {
      constexpr std::string_view kOp = "expert_slots";
      check<DTypeError>(chosen.dtype() == DType::i64, kOp, "needs i64 choices, got ", chosen);
      check<DTypeError>(is_floating(scores.dtype()), kOp, "needs floating scores, got ", scores);
      check<ShapeError>(chosen.dim() == 2 && scores.dim() == 2 && chosen.size(0) == scores.size(0), kOp, "choices are ",
                        chosen, ", scores ", scores, ", wanted [N, k] and [N, E]");
      check(scores.size(1) >= 1 && scores.size(1) <= kMostExperts, kOp, "there are ", scores.size(1),
            " experts, wanted 1 to ", kMostExperts);
      check(rows >= 1 && chosen.size(0) % rows == 0, kOp, "groups of ", rows, " rows do not divide ", chosen.size(0));
      check(capacity >= 1 && capacity < (int64_t{1} << 31), kOp, "capacity is ", capacity);
      return {like(chosen), like(chosen)};
    },
    .kernels = {.cpu = slots_there<expert_slots_cpu>, .cuda = STRATA_CUDA_KERNEL(slots_there<expert_slots_cuda>)},
    .cost =
        [](const Tensor& chosen, const Tensor& scores, int64_t, int64_t, bool) {
          return Cost{static_cast<double>(chosen.numel() * scores.size(1)),
                      static_cast<double>(3 * chosen.nbytes() + scores.nbytes())};
        },
    .samples =
        [](Samples& s) {
          for (const bool reroute : {false, true}) {
            s.add(s.integers({12, 1}, 0, 3), s.tensor({12, 3}), 6, 2, reroute).not_differentiable();
            s.add(s.integers({80, 2}, 0, 5), s.tensor({80, 5}), 40, 16, reroute)
                .not_differentiable()
                .named("two choices");
            s.add(s.integers({40, 1}, 0, 2), s.tensor({40, 40}), 40, 1, reroute).not_differentiable().named("one each");
          }
          s.add(s.integers({4, 2}, 0, 1), s.tensor({4, 1}), 2, 1, true).not_differentiable().named("no other expert");
          s.invalid<ValueError>("do not divide", s.integers({5, 1}, 0, 2), s.tensor({5, 2}), 3, 2);
          s.invalid<ValueError>("capacity is 0", s.integers({4, 1}, 0, 2), s.tensor({4, 2}), 2, 0);
          s.invalid<ShapeError>("choices are", s.integers({4, 1}, 0, 2), s.tensor({5, 2}), 2, 1);
          if (s.benchmarking()) s.bench(s.integers({16384, 2}, 0, 64), s.tensor({16384, 64}), 2048, 64, true);
        },
    .reference = slots_by_rounds,
}};

const Op<Tensor(const Tensor&, const Tensor&, Text, bool, double)> expert_weights_op{{
    .schema =
        "expert_weights(Tensor logits, Tensor experts, str scoring=\"softmax\", bool normalize=true, float scale=1) "
        "-> Tensor",
    .doc =
        "What route_experts weights experts with, of experts that are given: f32 [N, k] (f64 for f64 logits), for "
        "logits [N, E] and i64 experts [N, k]. Scores are the softmax or sigmoid of the logits; with normalize a row's "
        "are divided by their sum; then times scale.",
    .example = "Tensor e = from_span<int64_t>(std::vector<int64_t>{1, 0}, {1, 2});\n"
               "assert(expert_weights(zeros({1, 4}), e)[0][1].item() == 0.5);",
    .composed =
        [](const Tensor& logits, const Tensor& experts, Text scoring, bool normalize, double scale) {
          return experts::weights_of(experts::scores_of(logits, scoring), experts, normalize, scale);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 8}), s.integers({5, 2}, 0, 8));
          s.add(s.tensor({5, 8}), s.integers({5, 3}, 0, 8), "sigmoid", false, 2.5);
          s.invalid<ValueError>("scoring is", s.tensor({2, 4}), s.integers({2, 1}, 0, 4), "tanh");
        },
    .reference =
        [](const Tensor& logits, const Tensor& experts, Text scoring, bool normalize, double scale) {
          const std::vector<double> x = logits.to_vector<double>();
          const std::vector<int64_t> at = experts.to_vector<int64_t>();
          const int64_t rows = logits.size(0), count = logits.size(1), k = experts.size(1);
          std::vector<double> w;
          for (int64_t n = 0; n < rows; ++n) {
            double all = 0, taken = normalize ? 1e-20 : 1;
            const auto score = [&](int64_t e) {
              const double v = x[static_cast<size_t>(n * count + e)];
              return scoring == "softmax" ? std::exp(v) : 1 / (1 + std::exp(-v));
            };
            for (int64_t e = 0; e < count; ++e) all += score(e);
            const double by = scoring == "softmax" ? all : 1;
            for (int64_t j = 0; normalize && j < k; ++j) taken += score(at[static_cast<size_t>(n * k + j)]) / by;
            for (int64_t j = 0; j < k; ++j) w.push_back(score(at[static_cast<size_t>(n * k + j)]) / by / taken * scale);
          }
          return from_span<double>(w, experts.shape());
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, Text)> balance_loss_op{{
    .schema = "balance_loss(Tensor logits, Tensor counts, str scoring=\"softmax\") -> Tensor",
    .doc =
        "What a router pays for uneven loads (Fedus et al., arXiv:2101.03961, equations 4 to 6): E times the sum over "
        "the E experts of the share of choices that went to each, of counts [E], and the mean over the rows of logits "
        "[N, E] of its score: 1 where loads are even, E at most, a f32 scalar (f64 for f64). Scores are the softmax, "
        "or "
        "the sigmoid divided by the row's sum (arXiv:2412.19437, equations 17 to 20). Gradients reach the logits "
        "through the scores alone, so counts may be those of more rows than are here (arXiv:2501.11873). No rows: 0.",
    .example = "Tensor counts = from_span<int64_t>(std::vector<int64_t>{3, 3}, {2});\n"
               "assert(balance_loss(zeros({6, 2}), counts).item() == 1);",
    .composed =
        [](const Tensor& logits, const Tensor& counts, Text scoring) {
          check<ShapeError>(logits.dim() == 2 && counts.dim() == 1 && counts.size(0) == logits.size(1), "balance_loss",
                            "logits are ", logits, ", counts ", counts, ", wanted [N, E] and [E]");
          Tensor scores = experts::scores_of(logits, scoring);
          if (scoring != "softmax") scores = scores / (sum(scores, {1}, true) + 1e-20);
          const Tensor share = counts.detach().to(scores.dtype());
          const double rows = static_cast<double>(std::max<int64_t>(logits.size(0), 1));
          const Tensor mean = sum(scores, {0}) * (1 / rows);
          return sum(mean * (share / clamp(sum(share), 1, std::nullopt))) * static_cast<double>(logits.size(1));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 4}), s.integers({4}, 0, 9));
          s.add(s.tensor({6, 4}), s.integers({4}, 0, 9), "sigmoid");
          s.add(s.tensor({0, 3}), s.integers({3}, 0, 1)).named("no rows");
          s.invalid<ShapeError>("counts", s.tensor({6, 4}), s.integers({3}, 0, 9));
          s.invalid<ValueError>("scoring is", s.tensor({2, 4}), s.integers({4}, 0, 4), "tanh");
        },
    .reference =
        [](const Tensor& logits, const Tensor& counts, Text scoring) {
          const std::vector<double> x = logits.to_vector<double>(), c = counts.to_vector<double>();
          const size_t rows = static_cast<size_t>(logits.size(0)), count = c.size();
          double all = 0, loss = 0;
          for (const double v : c) all += v;
          for (size_t n = 0; n < rows; ++n) {
            double total = 0, weighted = 0;
            for (size_t e = 0; e < count; ++e) {
              const double v = x[n * count + e], score = scoring == "softmax" ? std::exp(v) : 1 / (1 + std::exp(-v));
              total += score;
              weighted += score * c[e];
            }
            loss += weighted / total;
          }
          return from_span<double>(
              std::vector<double>{
                  rows == 0 || all == 0 ? 0.0 : loss / static_cast<double>(rows) / all * static_cast<double>(count)},
              {});
        },
}};

const Op<Tensor(const Tensor&)> router_z_loss_op{{
    .schema = "router_z_loss(Tensor logits) -> Tensor",
    .doc = "What a router pays for large logits (Zoph et al., arXiv:2202.08906, equation 5): the mean over the rows of "
           "logits "
           "[N, E] of the square of the logarithm of the sum of their exponentials, a f32 scalar (f64 for f64). No "
           "rows: 0.",
    .example = "assert(router_z_loss(zeros({3, 1})).item() == 0);",
    .composed =
        [](const Tensor& logits) {
          check<ShapeError>(logits.dim() == 2 && logits.size(1) > 0, "router_z_loss", "logits are ", logits,
                            ", wanted [N, experts]");
          const Tensor wide = logits.dtype() == DType::f64 ? logits : logits.to(DType::f32);
          const Tensor z = logsumexp(wide, {1});
          return sum(z * z) * (1 / static_cast<double>(std::max<int64_t>(logits.size(0), 1)));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 4}));
          s.add(s.tensor({0, 3})).named("no rows");
          s.invalid<ShapeError>("logits are", s.tensor({4}));
        },
    .reference =
        [](const Tensor& logits) {
          const std::vector<double> x = logits.to_vector<double>();
          const size_t rows = static_cast<size_t>(logits.size(0)), count = static_cast<size_t>(logits.size(1));
          double loss = 0;
          for (size_t n = 0; n < rows; ++n) {
            double total = 0;
            for (size_t e = 0; e < count; ++e) total += std::exp(x[n * count + e]);
            loss += std::log(total) * std::log(total);
          }
          return from_span<double>(std::vector<double>{rows == 0 ? 0.0 : loss / static_cast<double>(rows)}, {});
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> expert_slots(const Tensor& chosen, const Tensor& scores, int64_t rows, int64_t capacity,
                                        bool reroute) {
  return expert_slots_op(chosen, scores, rows, capacity, reroute);
}
Tensor expert_weights(const Tensor& logits, const Tensor& experts, const RouteOptions& o) {
  return expert_weights_op(logits, experts, std::string(o.scoring), o.normalize, o.scale);
}
Tensor balance_loss(const Tensor& logits, const Tensor& counts, std::string_view scoring) {
  return balance_loss_op(logits, counts, std::string(scoring));
}
Tensor router_z_loss(const Tensor& logits) {
  return router_z_loss_op(logits);
}

}  // namespace strata
