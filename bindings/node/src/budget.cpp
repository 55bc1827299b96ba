// Budgets of memory around a loop: st.memoryBudget, which is BudgetScope of C++. lib/budget.js says where steps end.

#include "strata/train/budget_scope.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/tape_lock.h"
#include "strata/core/error.h"
#include "strata/core/op_base.h"
#include "strata/memory/allocator.h"
#include "strata/memory/pressure.h"
#include "strata/nn/module_tree.h"

namespace strata::node {
namespace {

constexpr std::string_view kName = "memoryBudget";

// Tensors that JavaScript has dropped hold memory until it collects, and it does not know that there is a bound.
struct Garbage {
  Env& env;  // of the thread
  const std::thread::id thread;
  JsRef collect;        // a function
  int64_t handed_then;  // Env::handed when it was called last

  int64_t handed() const { return env.handed - handed_then; }
  void run() noexcept {
    handed_then = env.handed;
    const Scope scope(env);
    napi_value ignored = nullptr;
    try {
      // Where it does not return, because JavaScript is being ended, the next call from there finds out.
      (void)napi_call_function(env.env, env.undefined(), collect.get(env), 0, nullptr, &ignored);
    } catch (...) {
      return;
    }
  }
};

// Where a request finds no room it is collected: before anything is moved where there may be much to find (`patient`),
// and when nobody else has given anything.
class Collector final : public memory::Reliever {
 public:
  Collector(std::shared_ptr<Garbage> garbage, bool patient) : garbage_(std::move(garbage)), patient_(patient) {}
  bool relieve(Device device, int64_t bytes) noexcept override {
    if (garbage_->thread != std::this_thread::get_id()) return false;
    const int64_t before = memory::stats(device).live_total, since = garbage_->handed();
    if (since == 0 || (patient_ && since < std::max(bytes, before / 8))) return false;
    garbage_->run();
    return memory::stats(device).live_total < before;
  }

 private:
  const std::shared_ptr<Garbage> garbage_;
  const bool patient_;
};

// And before calls of steps that are recorded: a plan is to know when tensors end, not when JavaScript collects.
class Tidy final : public CallObserver {
 public:
  explicit Tidy(std::shared_ptr<Garbage> garbage) : garbage_(std::move(garbage)) {}
  void before(const strata::Call&) override {
    constexpr int64_t kLeast = int64_t{1} << 20;
    if (garbage_->handed() >= kLeast) garbage_->run();
  }

 private:
  const std::shared_ptr<Garbage> garbage_;
};

struct Budget {
  std::shared_ptr<optim::Optimizer> optimizer;  // the last to go: the scope speaks of it
  std::shared_ptr<Garbage> garbage;
  std::shared_ptr<Collector> first, last;
  std::optional<Tidy> tidy;
  std::optional<ObserverScope> tidying;
  std::optional<BudgetScope> scope;
  bool planned = false;

  // Before the scope is made: who is asked first was added first, who sees calls first came first.
  void begin() {
    first = std::make_shared<Collector>(garbage, true);
    memory::add_reliever(first);
    tidy.emplace(garbage);
    tidying.emplace(*tidy);
  }
  // Those who are asked last were added last; a scope's own come anew with its plan.
  void ask_last() {
    planned = scope->planned();
    if (planned) tidying.reset();
    last = std::make_shared<Collector>(garbage, false);
    memory::add_reliever(last);
  }
  void end() {
    scope.reset();
    tidying.reset();
    first.reset();
    last.reset();
    garbage.reset();
    optimizer.reset();
  }
};
using BudgetRef = std::shared_ptr<Budget>;

Budget& budget_of(Call& c) {
  Budget& b = **c.env.handle<BudgetRef>(c[0]);
  check(b.scope.has_value(), kName, "the budget has ended");
  return b;
}
BudgetScope& scope_of(Call& c) {
  return *budget_of(c).scope;
}

// An object of texts, as settings of [memory].
MemoryConfig config_of(Env& env, napi_value keys) {
  std::vector<std::string> settings;
  for (const std::string& key : env.texts(env.made(napi_get_property_names, keys), kName, "a key"))
    settings.push_back("memory." + key + "=" + env.text(env.get(keys, key.c_str()), kName, key));
  return parse_config("", kName, settings).memory;
}

// budgetBegin(paths of modules, their kinds, names of parameters, the parameters, optimizer or null, keys, collect)
napi_value begin(Call& c) {
  Env& env = c.env;
  const std::vector<std::string> paths = env.texts(c[0], kName, "a module's path"),
                                 kinds = env.texts(c[1], kName, "a module's kind"),
                                 names = env.texts(c[2], kName, "a parameter's name");
  const TensorList tensors = tensors_of(env, c[3], kName, "the parameters");
  check(paths.size() == kinds.size() && names.size() == tensors.size(), kName, "lists differ in length");
  std::vector<std::pair<std::string, std::string>> modules;
  for (size_t i = 0; i < paths.size(); ++i) modules.emplace_back(paths[i], kinds[i]);
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (size_t i = 0; i < names.size(); ++i) parameters.emplace_back(names[i], tensors[i]);
  auto made = std::make_shared<Budget>();
  made->garbage.reset(new Garbage{env, std::this_thread::get_id(), JsRef(env, c[6]), 0});
  if (c.has(4)) made->optimizer = *env.handle<std::shared_ptr<optim::Optimizer>>(c[4]);
  const MemoryConfig memory = config_of(env, c[5]);
  {
    const TapeGuard guard(env.mail.get());
    const nn::Module model = nn::module_tree(parameters, modules);
    made->begin();
    if (made->optimizer)
      made->scope.emplace(model, *made->optimizer, memory);
    else
      made->scope.emplace(model, memory);
    made->ask_last();
  }
  return env.boxed(std::move(made));
}

napi_value before_update(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  scope_of(c).before_update();
  return c.env.undefined();
}
napi_value after_update(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  Budget& b = budget_of(c);
  b.scope->after_update();
  if (b.planned != b.scope->planned()) b.ask_last();
  return c.env.undefined();
}
napi_value update_failed(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  scope_of(c).update_failed();
  return c.env.undefined();
}

// budgetState(budget): {planned, peak, text, advice, plan}
napi_value state(Call& c) {
  Env& env = c.env;
  const BudgetScope& scope = scope_of(c);
  const TierPlan& p = scope.plan();
  napi_value plan = env.object(), o = env.object();
  const auto place = [&](const char* key, Place where) { env.set(plan, key, env.string(name_of(where))); };
  const auto bytes = [&](const char* key, int64_t n) { env.set(plan, key, env.number(static_cast<double>(n))); };
  place("weights", p.parameters);
  place("state", p.state);
  place("activations", p.activations);
  bytes("leaving", p.leaving);
  bytes("kept", p.kept);
  bytes("recomputed", p.recomputed);
  bytes("peakDevice", p.peak.device);
  bytes("peakHost", p.peak.host);
  bytes("peakDisk", p.peak.disk);
  bytes("peakWithout", p.peak_without);
  env.set(plan, "seconds", env.number(p.seconds));
  env.set(plan, "secondsWithout", env.number(p.seconds_without));
  env.set(plan, "bound", env.string(p.bound));
  env.set(plan, "fits", env.boolean(p.fits));
  env.set(o, "planned", env.boolean(scope.planned()));
  env.set(o, "peak", env.number(static_cast<double>(scope.peak())));
  env.set(o, "text", env.string(scope.describe()));
  env.set(o, "advice", env.string(scope.advice()));
  env.set(o, "plan", plan);
  return o;
}

// budgetEnd(budget): a second time does nothing.
napi_value end(Call& c) {
  Budget& b = **c.env.handle<BudgetRef>(c[0]);
  if (!b.scope) return c.env.undefined();
  const TapeGuard guard(c.env.mail.get());
  struct Last {
    Budget& budget;
    ~Last() { budget.end(); }
  } last{b};
  b.scope->close();
  return c.env.undefined();
}

}  // namespace

void add_budgets(Env& env, napi_value exports) {
  env.add(exports, {{"budgetBegin", entry<begin>},
                    {"budgetBefore", entry<before_update>},
                    {"budgetAfter", entry<after_update>},
                    {"budgetFailed", entry<update_failed>},
                    {"budgetState", entry<state>},
                    {"budgetEnd", entry<end>}});
}

}  // namespace strata::node
