#include "strata/optim/record.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "strata/core/error.h"
#include "strata/optim/kernels.h"
#include "strata/optim/optimizer_list.h"

namespace strata::optim {
namespace {

using Kind = OptimizerOption::Kind;

std::string_view kind_name(Kind kind) {
  return kind == Kind::number ? "a number" : kind == Kind::boolean ? "true or false" : "a whole number";
}
// Of an option, as text: true, 5, 0.001.
std::string shown(const OptionValue& v) {
  if (const bool* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  return std::visit([](auto x) { return cat(x); }, v);
}

}  // namespace

std::string OptionRange::text() const {
  const bool up = max == std::numeric_limits<double>::infinity();
  if (up && min == 0) return above ? "must be positive" : "must not be negative";
  if (up) return above ? cat("must be above ", min) : cat("must be at least ", min);
  return cat("lies in ", above ? '(' : '[', min, ", ", max, below ? ')' : ']');
}

OptionValue OptimizerOption::get(const void* options) const {
  const void* at = field(const_cast<void*>(options));  // the accessor is that of set()
  switch (kind) {
    case Kind::boolean:
      return *static_cast<const bool*>(at);
    case Kind::count:
      return int64_t{*static_cast<const int*>(at)};
    case Kind::seed:
      return static_cast<int64_t>(*static_cast<const uint64_t*>(at));
    case Kind::number:
      break;
  }
  return *static_cast<const double*>(at);
}

void OptimizerOption::set(void* options, const OptionValue& value, std::string_view optimizer) const {
  void* at = field(options);
  const auto wrong = [&] {
    throw ValueError(optimizer, cat(name, " wants ", kind_name(kind), ", got ", shown(value)));
  };
  const bool* truth = std::get_if<bool>(&value);
  const int64_t* whole = std::get_if<int64_t>(&value);
  const double* real = std::get_if<double>(&value);
  switch (kind) {
    case Kind::boolean:
      if (!truth) wrong();
      *static_cast<bool*>(at) = *truth;
      return;
    case Kind::count:
      if (!whole || *whole < std::numeric_limits<int>::min() || *whole > std::numeric_limits<int>::max()) wrong();
      *static_cast<int*>(at) = static_cast<int>(*whole);
      return;
    case Kind::seed:
      if (!whole) wrong();
      *static_cast<uint64_t*>(at) = static_cast<uint64_t>(*whole);
      return;
    case Kind::number:
      if (truth) wrong();
      *static_cast<double*>(at) = real ? *real : static_cast<double>(*whole);
      return;
  }
}

const OptimizerOption* OptimizerRecord::option(std::string_view option_name) const {
  for (const OptimizerOption& o : options)
    if (o.name == option_name) return &o;
  return nullptr;
}

void OptimizerRecord::validate(const void* given) const {
  for (const OptimizerOption& o : options) {
    if (o.kind != Kind::number && o.kind != Kind::count) continue;
    const OptionValue v = o.get(given);
    const double x = o.kind == Kind::number ? std::get<double>(v) : static_cast<double>(std::get<int64_t>(v));
    check(o.range.holds(x), title, o.name, ' ', o.range.text(), ", got ", x);
  }
  if (together) together(given);
  LowPrecision low;
  const auto flag = [&](std::string_view low_name) { return std::get<bool>(option(low_name)->get(given)); };
  low.master_weights = flag("master_weights");
  low.stochastic_rounding = flag("stochastic_rounding");
  low.low_state = flag("low_state");
  low.compensated_weights = flag("compensated_weights");
  low.state_8bit = flag("state_8bit");
  low.validate();
}

void OptimizerRecord::assign(void* to, const OptionValues& given) const {
  for (const auto& [key, value] : given) {
    const OptimizerOption* o = option(key);
    if (!o) {
      std::string all;
      for (const OptimizerOption& known : options) all += cat(' ', known.name);
      throw ValueError(title, cat("there is no option '", key, "'; there are:", all));
    }
    o->set(to, value, title);
  }
}

OptionValues OptimizerRecord::values(const void* given) const {
  OptionValues all;
  for (const OptimizerOption& o : options) all.emplace(o.name, o.get(given));
  return all;
}

std::span<const OptimizerRecord* const> optimizer_records() {
  static const auto all = [] {
#define STRATA_OPTIMIZER(folder) &records::folder(),
    std::array list{STRATA_OPTIMIZERS};
#undef STRATA_OPTIMIZER
    std::ranges::sort(list, {}, [](const OptimizerRecord* r) { return r->name; });
    return list;
  }();
  return all;
}

const OptimizerRecord& optimizer_record(std::string_view name) {
  std::string names;
  for (const OptimizerRecord* r : optimizer_records()) {
    if (r->name == name || r->title == name) return *r;
    names += cat(' ', r->name);
  }
  throw ValueError("optim", cat("there is no optimizer '", name, "'; there are:", names));
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<AnyGroup>& groups) {
  const OptimizerRecord& record = optimizer_record(name);
  return record.make(record, groups);
}

std::vector<AnyGroup> training_groups(const OptimizerRecord& record, const NamedTensors& params,
                                      const OptionValues& options, const std::set<std::string>& tables) {
  std::vector<AnyGroup> groups;
  if (record.groups) {
    groups = record.groups(params, options, tables);
  } else {
    auto [matrices, vectors] = split_by_rank(params);
    OptionValues undecayed = options;
    if (record.option("weight_decay")) undecayed["weight_decay"] = 0.0;
    groups = {{matrices, options}, {vectors, undecayed}};
  }
  if (const auto it = options.find("state_8bit"); it == options.end() || it->second != OptionValue(true)) return groups;
  // Rows that a step does not use make gradients very uneven: tables keep moments in f32 (Dettmers et al., 2022).
  for (size_t i = 0, n = groups.size(); i < n; ++i) {
    AnyGroup whole{{}, groups[i].options, groups[i].lr_scale};
    whole.options["state_8bit"] = false;
    std::erase_if(groups[i].params, [&](const auto& p) {
      if (tables.contains(p.first)) whole.params.push_back(p);
      return tables.contains(p.first);
    });
    if (!whole.params.empty()) groups.push_back(std::move(whole));
  }
  return groups;
}

void set_options(Optimizer& optimizer, size_t group, const OptionValues& values) {
  const OptimizerRecord* record = optimizer.record();
  check(record != nullptr, optimizer.name(), "has no record of its options");
  check<IndexError>(group < optimizer.num_groups(), optimizer.name(), "there is no group ", group, " of ",
                    optimizer.num_groups());
  void* options = const_cast<void*>(optimizer.raw_options(group));  // this function is how they are changed by name
  const OptionValues before = record->values(options);
  try {
    record->assign(options, values);
    record->validate(options);
  } catch (...) {
    record->assign(options, before);
    throw;
  }
}

// ---- what an optimizer does that its record describes ----

Optimizer::Optimizer(const OptimizerRecord& record) : name_(record.name), record_(&record) {}

bool Optimizer::fused() const {
  return record_ && record_->rule;
}
bool Optimizer::one_run() const {
  return record_ && record_->rule;
}

std::vector<Optimizer::StateSpec> Optimizer::states_of(const OptimizerRecord& record, const void* options, double lr,
                                                       const Param& p) {
  std::vector<StateSpec> spec;
  size_t moments = 0;
  for (const OptimizerState& s : record.states) {
    if (s.kind == OptimizerState::Kind::own || (s.when && !s.when(options))) continue;
    if (s.kind == OptimizerState::Kind::count) {
      spec.push_back({s.name, {}, DType::i64});
    } else if (s.kind == OptimizerState::Kind::rate) {
      spec.push_back({s.name, {}, DType::f64, s.after(options, lr, 0), s.after});
    } else {
      add_moment(spec, s.name, p, s.fill ? s.fill(options, lr) : 0, record.rule(options), moments++);
    }
  }
  return spec;
}

std::vector<Optimizer::StateSpec> Optimizer::state_spec(const Param& p) const {
  check(record_ != nullptr, name_, "has neither a record nor state_spec()");
  return states_of(*record_, raw_options(p.group), lr(p.group), p);
}

void Optimizer::update(const std::vector<Param*>& active, double grad_scale) {
  check(fused(), name_, "has neither a fused rule nor update()");
  using Kind = OptimizerState::Kind;
  const std::vector<OptimizerState>& states = record_->states;
  size_t first = 0;  // after the count and the rate
  std::optional<size_t> rate;
  for (; first < states.size() && (states[first].kind == Kind::count || states[first].kind == Kind::rate); ++first)
    if (states[first].kind == Kind::rate) rate = first;
  std::map<Rule, std::vector<Slab>> runs;
  for (Param* p : active) {
    const void* options = raw_options(p->group);
    std::vector<Slab>& slabs = runs[record_->rule(options)];
    slabs.push_back(slab_of(*p, first));
    Slab& s = slabs.back();
    if (rate) {
      s.rate = static_cast<double*>(p->state[*rate].raw_data());
      if (s.tensors) s.tensors->rate = p->state[*rate];
    }
    s.k[0] = grad_scale;
    record_->constants(s.k, options, lr(p->group), p->first);
  }
  for (const auto& [rule, slabs] : runs) run(rule, slabs);
}

}  // namespace strata::optim
