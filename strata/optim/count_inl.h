#pragma once
// Constants that change with the number of the update: the same lines on the host and on a device.

#include "strata/optim/kernels.h"
#include "strata/optim/rule_defaults_inl.h"

namespace strata::optim {
namespace counted {
#define STRATA_RULE_FN static
#include "strata/optim/all_rules.inc"
#undef STRATA_RULE_FN
}  // namespace counted

/// Completes `k` for update number t >= 1. constexpr so that it compiles for devices, a template because compilers
/// check a plain constexpr function for calls that cannot be.
template <std::same_as<double> D>
constexpr void complete(Rule rule, D* k, D t) {
  switch (rule) {
#define STRATA_ONE_RULE(name, type) \
  case Rule::name:                  \
    return counted::type::complete(k, t);
    STRATA_RULES
#undef STRATA_ONE_RULE
  }
}

}  // namespace strata::optim
