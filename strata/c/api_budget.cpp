// Training loops within a budget of memory.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/c/handles.h"
#include "strata/c/optimizer_inl.h"
#include "strata/io/json.h"
#include "strata/nn/module_tree.h"
#include "strata/train/budget_scope.h"

using namespace strata;
using namespace strata::c;

struct strata_budget {
  std::unique_ptr<strata_optimizer, decltype(&strata_optimizer_release)> optimizer{nullptr, strata_optimizer_release};
  std::optional<BudgetScope> scope;
};

namespace {

BudgetScope& of(strata_budget* budget, const char* function) {
  need(budget, function, "the budget");
  return *budget->scope;
}

// The keys are those of [memory].
MemoryConfig memory_of(const char* options, const char* function) {
  std::vector<std::string> settings;
  if (options) {
    const nlohmann::json all = io::parse_json(options, "options");
    check(all.is_object(), function, "options are a JSON object, got ", options);
    for (const auto& [key, v] : all.items()) {
      check(v.is_string() || v.is_boolean(), function, "option ", key, " is a text, true or false, got ", v.dump());
      settings.push_back("memory." + key + "=" + (v.is_string() ? v.get<std::string>() : v.dump()));
    }
  }
  return parse_config("", function, settings).memory;
}

}  // namespace

strata_status strata_budget_begin(strata_optimizer* optimizer, const char* options, strata_budget** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_budget_begin";
    need(optimizer, kName, "the optimizer");
    need(out, kName, "out");
    auto budget = std::make_unique<strata_budget>();
    budget->scope.emplace(nn::module_tree(optimizer->made->params()), *optimizer->made, memory_of(options, kName));
    budget->optimizer.reset(strata_optimizer_retain(optimizer));
    *out = budget.release();
  });
}

strata_status strata_budget_step(strata_budget* budget, double max_norm, double* norm) {
  return guarded([&] {
    constexpr const char* kName = "strata_budget_step";
    BudgetScope& scope = of(budget, kName);
    optim::Optimizer& o = *budget->optimizer->made;
    check(max_norm >= 0, kName, "max_norm must not be negative, got ", max_norm);
    scope.step([&] {
      if (max_norm == 0) return o.step();
      const double before = o.step_clipped(max_norm);
      if (norm) *norm = before;
    });
  });
}

const char* strata_budget_describe(strata_budget* budget) {
  return guarded_or<const char*>("", [&] {
    thread_local std::string text;
    text = of(budget, "strata_budget_describe").describe();
    return text.c_str();
  });
}

int64_t strata_budget_peak(strata_budget* budget) {
  return guarded_or<int64_t>(-1, [&] { return of(budget, "strata_budget_peak").peak(); });
}

strata_status strata_budget_end(strata_budget* budget) {
  return guarded([&] {
    if (budget == nullptr) return;
    const std::unique_ptr<strata_budget> ends(budget);
    ends->scope->close();
  });
}
