// Attention over positions that lie in parts, by an exchange of heads and positions.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/context_attention.h"
#include "strata/dist/collectives/context_options_inl.h"
#include "strata/dist/group.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/shape/shape.h"

namespace strata::distributed {
namespace {

using Text = const std::string&;

// As many heads of keys as every rank can have a part of.
Tensor shared_out(const Tensor& t, int64_t ranks) {
  const int64_t heads = t.size(1);
  return heads % ranks == 0 ? t : repeat_interleave(t, ranks / heads, 1);
}

Tensor exchanged(const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS) {
  constexpr std::string_view kOp = "ulysses_attention";
  const Group& g = distributed::group(group);
  const int64_t n = g.size();
  detail::check_context_inputs(q, k, v, STRATA_CONTEXT_NAMES, kOp);
  strata::detail::AttentionArguments a = detail::context_arguments(STRATA_CONTEXT_NAMES, q, n);
  const int64_t own = q.size(1), kv_heads = k.size(1);
  check(own % n == 0, kOp, "the ", n, " ranks of ", group, " do not divide the ", own, " heads of q");
  check(kv_heads % n == 0 || n % kv_heads == 0, kOp, "the ", kv_heads, " heads of k and the ", n, " ranks of ", group,
        " do not divide each other");
  if (dropout_p > 0) {  // weights are dropped by the numbers that they have in one call of all heads
    const WeightNumbers w = detail::context_numbers(heads, own, q.size(2) * n);
    a.numbers = {w.first + g.rank() * (own / n) * w.head, w.batch, w.head, w.query};
  }
  const auto heads_here = [&](const Tensor& t) { return all_to_all(t, 1, 2, group); };
  const Tensor y = std::get<0>(strata::detail::attention_with_lse(heads_here(q), heads_here(shared_out(k, n)),
                                                                  heads_here(shared_out(v, n)), {}, a));
  return all_to_all(y, 2, 1, group);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, double,
                std::optional<RngKey>, double, Text, const Dims&)>
    ulysses_attention_op{{
        .schema =
            "ulysses_attention(Tensor q, Tensor k, Tensor v, bool is_causal=false, float? scale=None, int window=0, "
            "float dropout_p=0.0, RngKey? key=None, float logit_soft_cap=0.0, str group=\"world\", int[] heads=[]) -> "
            "Tensor",
        .shard = "unplaced",
        .doc =
            "Attention over a sequence whose positions lie in parts on the group's n ranks, the r-th with positions "
            "r T/n to (r + 1) T/n (Jacobs et al., arXiv:2309.14509): q [B, H, T/n, D], k [B, Hkv, T/n, D], v [B, Hkv, "
            "T/n, Dv]. One all_to_all each gives a rank all positions of H/n heads, one behind attention its positions "
            "of all heads: [B, H, T/n, Dv], as scaled_dot_product_attention gives. n divides H, and divides Hkv or is "
            "a "
            "multiple of it: heads of keys and values are then copied. With the same key on every rank the weights are "
            "dropped that one call of all positions drops; heads = [first, all] says which q has where others have the "
            "others. ShapeError, DTypeError, ValueError when the arguments do "
            "not fit.",
        .example = "Tensor q = ones({1, 2, 4, 8});\n"
                   "assert(distributed::ulysses_attention(q, q, q, {.is_causal = true}).shape() == q.shape());  // a "
                   "job of one",
        .composed = exchanged,
        .draws =
            [](const Tensor& q, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, double dropout_p,
               std::optional<RngKey>, double, Text group, const Dims& heads) {
              const int64_t all = q.size(2) * distributed::group(group).size();
              return dropout_p > 0 ? random_blocks(q.size(0) * detail::context_heads(q, heads) * all * all) : 0;
            },
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              s.add(s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}));
              s.add(s.tensor({1, 4, 6, 3}), s.tensor({1, 2, 6, 3}), s.tensor({1, 2, 6, 5}), true, 0.3, 4, 0.25,
                    RngKey{7, 3}, 2.5)
                  .named("grouped heads, window, dropout, soft cap");
              s.add(s.tensor({2, 2, 6, 4}), s.tensor({2, 1, 6, 4}), s.tensor({2, 1, 6, 4}), true, none, 0, 0.4,
                    RngKey{7, 3}, 0.0, "world", Dims{2, 6})
                  .named("some of the heads");
              s.invalid<ValueError>("heads are the first and how many", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}),
                                    s.tensor({1, 2, 4, 8}), false, none, 0, 0.0, none, 0.0, "world", Dims{1, 2});
              s.invalid<ShapeError>("has 4 positions", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 6, 8}),
                                    s.tensor({1, 2, 6, 8}));
              s.invalid<ValueError>("there is no group", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}),
                                    s.tensor({1, 2, 4, 8}), false, none, 0, 0.0, none, 0.0, "sideways");
            },
        .reference =
            [](const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS) {
              return std::get<0>(strata::detail::attention_by_loops(
                  q, k, v, {}, detail::context_arguments(STRATA_CONTEXT_NAMES, q, 1)));
            },
        .tolerance = 16,
        .tolerance_reason = "as of scaled_dot_product_attention, which it calls",
    }};

}  // namespace

Tensor ulysses_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, Text group,
                         const Dims& heads) {
  return detail::call_with_options(ulysses_attention_op, "ulysses_attention", q, k, v, o, group, heads);
}

}  // namespace strata::distributed
