// The record of routing, and the order of rows by expert.

#include "strata/ops/experts/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/scores_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
constexpr std::string_view kOp = "route_experts";

void check_route(const Tensor& logits, int64_t k, const Tensor& bias, const std::string& scoring, int64_t groups,
                 int64_t top_groups, const std::string& group_score) {
  check<ShapeError>(logits.dim() == 2, kOp, "logits are ", logits, ", wanted [N, experts]");
  check<DTypeError>(is_floating(logits.dtype()), kOp, "needs floating logits, got ", logits);
  const int64_t experts = logits.size(1);
  check(scoring == "softmax" || scoring == "sigmoid", kOp, "scoring is softmax or sigmoid, got '", scoring, "'");
  check(group_score == "max" || group_score == "top2", kOp, "group_score is max or top2, got '", group_score, "'");
  check(groups >= 1 && experts % groups == 0, kOp, groups, " groups do not divide ", experts, " experts");
  check(top_groups >= 1 && top_groups <= groups, kOp, top_groups, " of ", groups, " groups cannot be chosen");
  check(group_score == "max" || groups == 1 || experts / groups >= 2, kOp, "groups of one expert have no two best");
  check(k >= 1 && k <= experts / groups * top_groups, kOp, k, " experts cannot be chosen among ",
        experts / groups * top_groups);
  if (!bias.defined()) return;
  check<ShapeError>(bias.dim() == 1 && bias.size(0) == experts, kOp, "bias is ", bias, ", wanted [", experts, "]");
}

Pair route(const Tensor& logits, int64_t k, const Tensor& bias, const std::string& scoring, int64_t groups,
           int64_t top_groups, const std::string& group_score, bool normalize, double scale) {
  check_route(logits, k, bias, scoring, groups, top_groups, group_score);
  const Tensor scores = experts::scores_of(logits, scoring);
  Tensor choice = scores.detach();
  if (bias.defined()) choice = choice + bias.detach().to(choice.dtype());
  if (groups > 1) {
    const int64_t rows = logits.size(0), each = logits.size(1) / groups;
    const Tensor grouped = choice.view({rows, groups, each});
    const Tensor best = group_score == "max" ? amax(grouped, {2}) : sum(std::get<0>(topk(grouped, 2, 2)), {2});
    const Tensor kept = std::get<1>(topk(best, top_groups, 1));
    const Tensor mask = scatter(zeros_like(best), 1, kept, ones_like(best).narrow(1, 0, top_groups));
    choice = where((mask > 0.0).unsqueeze(2), grouped, full_like(grouped, -std::numeric_limits<double>::infinity()))
                 .view({rows, logits.size(1)});
  }
  const Tensor chosen = std::get<1>(topk(choice, k, 1));
  return {experts::weights_of(scores, chosen, normalize, scale), chosen};
}

const Op<Pair(const Tensor&, int64_t, const Tensor&, const std::string&, int64_t, int64_t, const std::string&, bool,
              double)>
    route_op{{
        .schema =
            "route_experts(Tensor logits, int k, Tensor? bias=None, str scoring=\"softmax\", int groups=1, int "
            "top_groups=1, str group_score=\"max\", bool normalize=true, float scale=1) -> (Tensor weights, Tensor "
            "experts)",
        .doc =
            "The k experts that each row of logits [N, E] goes to, best first, i64 [N, k], and the weights of their "
            "results, f32 [N, k] (f64 for f64 logits). Scores are the softmax or sigmoid of the logits in f32; bias "
            "[E] is "
            "added to them for the choice alone (arXiv:2408.15664). With groups a token chooses among the experts of "
            "its "
            "top_groups best groups, scored by their max or by the sum of their two best (arXiv:2405.04434, "
            "arXiv:2412.19437). With normalize the weights of a row are divided by their sum; then times scale. Equal "
            "scores: the smaller number. Gradients reach the logits through the weights.",
        .example =
            "auto [weights, experts] = route_experts(from_span<float>(std::vector<float>{1, 3, 2}, {1, 3}), 2);\n"
            "assert(experts[0][0].item() == 1 && experts[0][1].item() == 2);",
        .composed = route,
        .autocast = Autocast::full,
        .cost =
            [](const Tensor& logits, int64_t k, const Tensor&, const std::string&, int64_t, int64_t, const std::string&,
               bool, double) {
              const auto n = static_cast<double>(logits.numel());
              return Cost{5 * n, static_cast<double>(logits.nbytes()) + static_cast<double>(logits.size(0) * k) * 12};
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({5, 8}), 2);
              s.add(s.tensor({5, 8}), 3, std::nullopt, "softmax", 1, 1, "max", false, 2.5).named("not normalised");
              s.add(s.tensor({6, 12}), 3, std::nullopt, "softmax", 4, 2, "max", false, 1.0).named("groups");
              s.add(s.tensor({6, 12}), 4, s.tensor({12}), "sigmoid", 3, 2, "top2", true, 2.5)
                  .named("sigmoid, bias, groups");
              s.add(s.tensor({0, 4}), 1).named("no rows");
              s.add(s.tensor({3, 1}), 1).named("one expert");
              s.invalid<ValueError>("cannot be chosen among", s.tensor({2, 4}), 5);
              s.invalid<ValueError>("do not divide", s.tensor({2, 4}), 1, std::nullopt, "softmax", 3);
              s.invalid<ValueError>("scoring is", s.tensor({2, 4}), 1, std::nullopt, "tanh");
              s.invalid<ShapeError>("bias is", s.tensor({2, 4}), 1, s.tensor({3}));
              if (s.benchmarking()) s.bench(s.tensor({16384, 128}), 8);
            },
        .reference = [](const Tensor& logits, int64_t k, const Tensor& bias, const std::string& scoring, int64_t groups,
                        int64_t top_groups, const std::string& group_score, bool normalize, double scale) -> Pair {
          const int64_t rows = logits.size(0), experts = logits.size(1), each = experts / groups;
          const std::vector<double> x = logits.to_vector<double>(),
                                    add = bias.defined() ? bias.to_vector<double>()
                                                         : std::vector<double>(static_cast<size_t>(experts), 0.0);
          std::vector<double> weights;
          std::vector<int64_t> chosen;
          const auto best_first = [](std::vector<int64_t> of, const std::vector<double>& by, int64_t keep) {
            std::stable_sort(of.begin(), of.end(), [&](int64_t a, int64_t b) {
              return by[static_cast<size_t>(a)] > by[static_cast<size_t>(b)];
            });
            of.resize(static_cast<size_t>(keep));
            return of;
          };
          for (int64_t r = 0; r < rows; ++r) {
            std::vector<double> score(x.begin() + r * experts, x.begin() + (r + 1) * experts);
            double total = 0;
            const double most = *std::max_element(score.begin(), score.end());
            for (double& v : score) v = scoring == "softmax" ? std::exp(v - most) : 1 / (1 + std::exp(-v));
            for (const double v : score) total += v;
            if (scoring == "softmax")
              for (double& v : score) v /= total;
            std::vector<double> choice = score, group(static_cast<size_t>(groups));
            for (size_t i = 0; i < choice.size(); ++i) choice[i] += add[i];
            for (int64_t g = 0; g < groups; ++g) {
              std::vector<double> of(choice.begin() + g * each, choice.begin() + (g + 1) * each);
              std::sort(of.rbegin(), of.rend());
              group[static_cast<size_t>(g)] = group_score == "max" || each < 2 ? of[0] : of[0] + of[1];
            }
            std::vector<int64_t> all(static_cast<size_t>(groups));
            std::iota(all.begin(), all.end(), 0);
            std::vector<int64_t> among;
            std::vector<int64_t> kept = best_first(all, group, top_groups);
            std::sort(kept.begin(), kept.end());
            for (const int64_t g : kept)
              for (int64_t i = 0; i < each; ++i) among.push_back(g * each + i);
            double sum = normalize ? 1e-20 : 1;
            const std::vector<int64_t> best = best_first(among, choice, k);
            if (normalize)
              for (const int64_t e : best) sum += score[static_cast<size_t>(e)];
            for (const int64_t e : best) {
              chosen.push_back(e);
              weights.push_back(score[static_cast<size_t>(e)] / sum * scale);
            }
          }
          return {from_span<double>(weights, {rows, k}), from_span<int64_t>(chosen, {rows, k})};
        },
    }};

}  // namespace

std::tuple<Tensor, Tensor> route_experts(const Tensor& logits, int64_t k, const RouteOptions& o, const Tensor& bias) {
  return route_op(logits, k, bias, std::string(o.scoring), o.groups, o.top_groups, std::string(o.group_score),
                  o.normalize, o.scale);
}

ExpertOrder order_by_expert(const Tensor& experts, int64_t count) {
  check<DTypeError>(experts.dtype() == DType::i64, "order_by_expert", "needs i64 experts, got ", experts);
  check(count >= 1, "order_by_expert", "there are ", count, " experts");
  const NoGrad guard;
  // Fewer bits take fewer passes of a card's sort.
  const DType narrow = count <= 256 ? DType::u8 : DType::i32;
  const Tensor all = experts.reshape({-1});
  const auto [sorted, order] = sort(experts.device().is_cuda() ? all.to(narrow) : all);
  DeviceScope there(experts.device());
  // Where the order brings each: its inverse.
  const Tensor place = scatter(empty_like(order), 0, order, arange(order.size(0), DType::i64));
  const Tensor numbers = arange(count + 1, DType::i64);
  return {order, place, searchsorted(sorted.to(DType::i64), numbers)};
}

}  // namespace strata
