#pragma once
// The options of attention where positions lie in parts: which are served, and how the records are called with them.

#include <optional>
#include <string>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_definition_record.h"

namespace strata::distributed::detail {

// The records' arguments behind their tensors, in the schemas' order.
#define STRATA_CONTEXT_ARGUMENTS                                                                         \
  bool causal, std::optional<double> scale, int64_t window, double dropout_p, std::optional<RngKey> key, \
      double soft_cap, const std::string &group
#define STRATA_CONTEXT_NAMES causal, scale, window, dropout_p, key, soft_cap, group

/// What they are for attention of all positions.
inline strata::detail::AttentionArguments context_arguments(STRATA_CONTEXT_ARGUMENTS) {
  return {{causal, scale, window, 0}, dropout_p, key.value_or(RngKey{}), {}, soft_cap, {}, {}, {}};
}

/// What `op`, a record with these arguments, gives; with dropout by numbers of the default generator. Throws ValueError
/// naming the option that is not served.
template <class ContextOp>
auto call_with_options(const ContextOp& op, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o, const std::string& group) {
  check(!o.alibi_slopes.defined() && !o.sinks.defined() && !o.key_lengths.defined() && o.query_offset == 0, name,
        "alibi_slopes, sinks, key_lengths and query_offset are not served where positions lie in parts");
  if (o.dropout_p == 0) return op(q, k, v, o.is_causal, o.scale, o.window, o.dropout_p, {}, o.logit_soft_cap, group);
  return op.drawn(default_generator(), q, k, v, o.is_causal, o.scale, o.window, o.dropout_p, {}, o.logit_soft_cap,
                  group);
}

}  // namespace strata::distributed::detail
