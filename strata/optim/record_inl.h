#pragma once
// What records are written with: members of a struct of options, and functions of it.

#include <type_traits>

#include "strata/optim/kernels.h"
#include "strata/optim/record.h"

namespace strata::optim {

template <auto Field>
struct MemberOf;
template <class Options, class T, T Options::*Field>
struct MemberOf<Field> {
  using Struct = Options;
  using Type = T;
};
/// An option that is a member: option<&AdamOptions::eps>("eps", "Added to the denominator.", kNotNegative).
template <auto Field>
OptimizerOption option(std::string_view name, std::string_view doc, OptionRange range = {}, std::string_view key = {}) {
  using Kind = OptimizerOption::Kind;
  using Member = MemberOf<Field>;
  constexpr Kind kind = std::is_same_v<typename Member::Type, bool>  ? Kind::boolean
                        : std::is_same_v<typename Member::Type, int> ? Kind::count
                                                                     : Kind::number;
  return {name,  doc, kind, [](void* o) -> void* { return &(static_cast<typename Member::Struct*>(o)->*Field); },
          range, key};
}
/// A function of a struct of options, for a field of a record.
template <class Options, auto F>
auto of(const void* o) {
  return F(*static_cast<const Options*>(o));
}
/// The constants of a fused rule.
template <class Options, auto F>
void constants_of(double* k, const void* o, double lr, bool first) {
  F(k, *static_cast<const Options*>(o), lr, first);
}
/// Completes a record: the defaults, the constructor, the options of LowPrecision.
template <class Class, class Options>
OptimizerRecord finished(OptimizerRecord r) {
  static const Options defaults;
  r.defaults = &defaults;
  r.make = [](const OptimizerRecord& record, const std::vector<AnyGroup>& groups) -> std::unique_ptr<Optimizer> {
    std::vector<ParamGroup<Options>> made;
    for (const AnyGroup& g : groups) {
      made.push_back({g.params, {}, g.lr_scale});
      record.assign(&made.back().options, g.options);
    }
    return std::make_unique<Class>(made);
  };
  using Kind = OptimizerOption::Kind;
  const auto low = [&](std::string_view name, std::string_view doc, Kind kind, void* (*field)(void*),
                       OptionRange range = {}) {
    r.options.push_back({name, doc, kind, field, range, "-"});
  };
  low("master_weights", "Parameters of 16 bits are the rounding of weights in f32 that the state has.", Kind::boolean,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.master_weights; });
  low("compensated_weights", "The state has what parameters of bf16 lack of weights in f32, in 16 bits.", Kind::boolean,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.compensated_weights; });
  low("stochastic_rounding", "Parameters of bf16 are rounded up or down at random, exact on average.", Kind::boolean,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.stochastic_rounding; });
  low("low_state", "Moments of bf16 parameters are kept in bf16 too.", Kind::boolean,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.low_state; });
  low("state_8bit", "Moments are kept in 8 bits, with a scale for each block of 256.", Kind::boolean,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.state_8bit; });
  low(
      "min_8bit_size", "Parameters of fewer elements keep moments in f32 under state_8bit.", Kind::count,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.min_8bit_size; }, kNotNegative);
  low("rounding_seed", "Seed of the stochastic rounding.", Kind::seed,
      [](void* o) -> void* { return &static_cast<Options*>(o)->low.seed; });
  return r;
}

}  // namespace strata::optim
