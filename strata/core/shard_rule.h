#pragma once
// What a record says of sharded arguments. strata/core/placement.h says what a placement is, docs/design/placements.md
// how a call goes.

#include <concepts>
#include <string_view>

namespace strata {

class Sharding;

/// Which placements of a call's tensor arguments give which placements of its results, for one axis of a mesh. Text, or
/// a function that adds each possibility to a Sharding (strata/core/sharding.h) for what text cannot say.
///
/// Text gives each tensor argument of the schema, and each result, its dimensions: "m k, n k -> m n".
///   - A letter may be sharded: then it is, wherever it stands. Where a result lacks it, that result is Partial(sum).
///   - `k!` is never sharded. `...` stands for any number of dimensions, `...!` for such as are never sharded.
///   - `_` is an argument that is always whole; a list of tensors is one argument.
///   - `~ b h t s` is an argument that may lack leading dimensions. Where a letter's other sizes are not 1, one of
///     size 1 is whole (it is broadcast).
///   - `+ n` is an argument that is added to a result: where a letter vanishes it counts once, not on every rank.
///   - ` | ` separates the forms for arguments of other numbers of dimensions; what fits none is whole.
/// Or it is one of the rules that many records share, with the names of those arguments that it reads: "elementwise",
/// "elementwise linear" (a sum passes through), "elementwise random" (numbers belong to elements), "along dim" (all
/// dimensions but that one), "reduce dims", "reduce dims sum", "rows normalized_shape", "pairs reduction", "view",
/// "expand", "permute", "transpose" and others that strata/core/shard_rules.cpp lists; "whole": every argument is.
struct ShardRule {
  std::string_view text;
  void (*function)(Sharding&) = nullptr;
  // clang-format off
  constexpr ShardRule() = default;
  constexpr ShardRule(const char* t) : text(t) {}
  template <class F>
    requires std::convertible_to<F, void (*)(Sharding&)> && (!std::convertible_to<F, const char*>)
  constexpr ShardRule(F f) : function(f) {}
  constexpr bool empty() const { return text.empty() && !function; }
};
// clang-format on
}  // namespace strata
