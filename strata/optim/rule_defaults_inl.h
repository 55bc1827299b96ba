#pragma once
// Around the files <optimizer>_rule.inc, each of which defines rules as structs: the arithmetic of one element,
// apply(), and what the number t of the update, counted from 1, makes of the constants, complete(). A device's loops
// include them into a namespace of their own (all_rules.inc) with these functions of its numbers:
//   muladd(a, b, c) a b + c, negmuladd(a, b, c) c - a b, each rounded once; add sub mul quotient root absolute negated;
//   if_greater(a, b, x, y) x where a > b, else y; if_zero(a, x, y) x where a is 0, else y; with_sign(x, s) |x| as s has
//   it.
// A product is never an argument of add() or sub(): some compilers round that once, others twice.
// `k`, whose k[i] is constant i and k.on(i) whether it is not 0. So the same lines are compiled for every device.

#include <cmath>
#include <concepts>
#include <cstdint>

#define STRATA_RULE(name, type)
/// Of a rule whose constants do not depend on the count.
#define STRATA_RULE_NO_COUNT        \
  template <std::same_as<double> D> \
  static constexpr void complete(D*, D) {}

namespace strata::optim {

/// x^n for a whole n >= 0 by squaring, for complete(): every device gives the same number, which pow() does not promise.
template <std::same_as<double> D>
constexpr D whole_power(D x, D n) {
  D y = 1;
  for (auto left = static_cast<uint64_t>(n); left != 0; left /= 2, x *= x)
    if (left % 2 == 1) y *= x;
  return y;
}

/// Whether the rule changes gradients and nothing else.
template <class R>
inline constexpr bool writes_grad = requires {
  R::writes_grad;
};
/// Whether what the rule reads as a gradient is one, which a factor scales.
template <class R>
inline constexpr bool reads_gradient = !requires {
  R::reads_gradient;
};

/// Which of the rule's states are never negative, a bit for each; with `static constexpr unsigned nonnegative`.
template <class R>
inline constexpr unsigned nonnegative = [] {
  if constexpr (requires { R::nonnegative; }) {
    return R::nonnegative;
  } else {
    return 0u;
  }
}();
/// Whether its states may be in 8 bits: not with `static constexpr bool exact_states`, where small steps add up or an
/// element's state must stay as it is.
template <class R>
inline constexpr bool in_eight_bits = R::states > 0 && !requires {
  R::exact_states;
};

}  // namespace strata::optim
