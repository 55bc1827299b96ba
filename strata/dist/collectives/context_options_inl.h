#pragma once
// The options of attention where positions lie in parts: which are served, and how the records are called with them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/dist/group.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_definition_record.h"

namespace strata::distributed::detail {

// The records' arguments behind their tensors, in the schemas' order.
#define STRATA_CONTEXT_ARGUMENTS                                                                         \
  bool causal, std::optional<double> scale, int64_t window, double dropout_p, std::optional<RngKey> key, \
      double soft_cap, const std::string &group, const Dims &heads
#define STRATA_CONTEXT_NAMES causal, scale, window, dropout_p, key, soft_cap, group, heads

/// Dropout's numbers of `all` queries and keys of own heads, which are `heads` = [first, how many] of more of them
/// where that is not empty.
inline WeightNumbers context_numbers(const Dims& heads, int64_t own, int64_t all) {
  WeightNumbers w = WeightNumbers::whole(heads.empty() ? own : heads[1], all, all);
  if (!heads.empty()) w.first = heads[0] * w.head;
  return w;
}

/// Of how many heads the call draws numbers.
inline int64_t context_heads(const Tensor& q, const Dims& heads) {
  return heads.empty() ? q.size(1) : heads[1];
}

/// What they are for attention of all positions.
inline strata::detail::AttentionArguments context_arguments(STRATA_CONTEXT_ARGUMENTS, const Tensor& q, int64_t ranks) {
  strata::detail::AttentionArguments a{
      {causal, scale, window, 0}, dropout_p, key.value_or(RngKey{}), {}, soft_cap, {}, {}, {}};
  if (heads.empty() || dropout_p == 0) return a;
  const WeightNumbers w = context_numbers(heads, q.size(1), q.size(2) * ranks);
  a.numbers = {w.first, w.batch, w.head, w.query};
  return a;
}

/// Throws what attention throws, and ValueError unless q's heads are some of `heads`.
inline void check_context_inputs(const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS,
                                 std::string_view op) {
  const Dims none{};
  strata::detail::check_attention_inputs(
      q, k, v, {}, context_arguments(causal, scale, window, dropout_p, key, soft_cap, group, none, q, 1), op);
  check<ShapeError>(q.size(2) == k.size(2), op, "q has ", q.size(2), " positions, k has ", k.size(2),
                    ": every rank has its part of the same ones");
  if (heads.empty()) return;
  check(heads.size() == 2 && heads[0] >= 0 && heads[1] >= q.size(1) && heads[0] <= heads[1] - q.size(1), op,
        "heads are the first and how many there are, of which q has ", q.size(1), ", got ", heads);
  const double all = static_cast<double>(q.size(2)) * distributed::group(group).size();
  check(static_cast<double>(std::max<int64_t>(q.size(0), 1)) * static_cast<double>(heads[1]) * all * all < 0x1p62, op,
        "there are no numbers for the weights of ", heads[1], " heads");
}

/// What `op`, a record with these arguments, gives; with dropout by numbers of the default generator. Throws ValueError
/// naming the option that is not served.
template <class ContextOp>
auto call_with_options(const ContextOp& op, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o, const std::string& group, const Dims& heads) {
  check(!o.alibi_slopes.defined() && !o.sinks.defined() && !o.key_lengths.defined() && o.query_offset == 0, name,
        "alibi_slopes, sinks, key_lengths and query_offset are not served where positions lie in parts");
  if (o.dropout_p == 0)
    return op(q, k, v, o.is_causal, o.scale, o.window, o.dropout_p, {}, o.logit_soft_cap, group, heads);
  return op.drawn(default_generator(), q, k, v, o.is_causal, o.scale, o.window, o.dropout_p, {}, o.logit_soft_cap,
                  group, heads);
}

}  // namespace strata::distributed::detail
