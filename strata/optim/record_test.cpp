// Every record: each option at several values against a double-precision version of the published formula that knows
// the record's options by name alone, the state's round trip, what is refused.

#include "strata/optim/record.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "strata/core/error.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {

using Named = std::map<std::string, double>;
using State = std::map<std::string, Doubles>;

// Options as doubles, those that are not given at their defaults.
Named numbers(const OptimizerRecord& r, const OptionValues& given) {
  Named all;
  for (const OptimizerOption& o : r.options) {
    const auto it = given.find(o.name);
    all[std::string(o.name)] =
        std::visit([](auto v) { return static_cast<double>(v); }, it == given.end() ? o.get(r.defaults) : it->second);
  }
  return all;
}

// One element's update number t, textbook form; `s` are its states.
using Formula = std::function<void(Named o, double& p, double g, int t, std::map<std::string, double>& s)>;

void adam_like(Named& o, double& p, double& g, int t, std::map<std::string, double>& s, bool decoupled) {
  if (decoupled) {
    p -= o["lr"] * o["weight_decay"] * p;
  } else {
    g += o["weight_decay"] * p;
  }
  s["m"] = o["beta1"] * s["m"] + (1 - o["beta1"]) * g;
  s["v"] = o["beta2"] * s["v"] + (1 - o["beta2"]) * g * g;
  s["most"] = std::max(s["most"], s["v"]);
  s["m1"] = s["m"] / (1 - std::pow(o["beta1"], t));
  s["v1"] = (o.contains("amsgrad") && o["amsgrad"] != 0 ? s["most"] : s["v"]) / (1 - std::pow(o["beta2"], t));
}
double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}

const std::map<std::string, Formula>& formulas() {
  using S = std::map<std::string, double>;
  static const std::map<std::string, Formula> all = {
      {"adam",
       [](Named o, double& p, double g, int t, S& s) {
         adam_like(o, p, g, t, s, false);
         p -= o["lr"] * s["m1"] / (std::sqrt(s["v1"]) + o["eps"]);
       }},
      {"adamw",
       [](Named o, double& p, double g, int t, S& s) {
         adam_like(o, p, g, t, s, true);
         p -= o["lr"] * s["m1"] / (std::sqrt(s["v1"]) + o["eps"]);
       }},
      {"sgd",
       [](Named o, double& p, double g, int t, S& s) {
         g += o["weight_decay"] * p;
         s["b"] = t == 1 ? g : o["momentum"] * s["b"] + (1 - o["dampening"]) * g;
         p -= o["lr"] * (o["momentum"] == 0 ? g : o["nesterov"] != 0 ? g + o["momentum"] * s["b"] : s["b"]);
       }},
      {"lion",
       [](Named o, double& p, double g, int, S& s) {
         const double c = o["beta1"] * s["m"] + (1 - o["beta1"]) * g;
         p -= o["lr"] * (sign(c) + o["weight_decay"] * p);
         s["m"] = o["beta2"] * s["m"] + (1 - o["beta2"]) * g;
       }},
      {"rmsprop",
       [](Named o, double& p, double g, int, S& s) {
         g += o["weight_decay"] * p;
         s["v"] = o["alpha"] * s["v"] + (1 - o["alpha"]) * g * g;
         s["a"] = o["alpha"] * s["a"] + (1 - o["alpha"]) * g;
         const double variance = s["v"] - (o["centered"] != 0 ? s["a"] * s["a"] : 0);
         s["b"] = o["momentum"] * s["b"] + g / (std::sqrt(variance) + o["eps"]);
         p -= o["lr"] * s["b"];
       }},
      {"adagrad",
       [](Named o, double& p, double g, int t, S& s) {
         g += o["weight_decay"] * p;
         if (t == 1) s["sum"] = o["initial_accumulator_value"];
         s["sum"] += g * g;
         p -= o["lr"] / (1 + (t - 1) * o["lr_decay"]) * g / (std::sqrt(s["sum"]) + o["eps"]);
       }},
      {"adadelta",
       [](Named o, double& p, double g, int, S& s) {
         g += o["weight_decay"] * p;
         s["v"] = o["rho"] * s["v"] + (1 - o["rho"]) * g * g;
         const double d = std::sqrt(s["u"] + o["eps"]) / std::sqrt(s["v"] + o["eps"]) * g;
         s["u"] = o["rho"] * s["u"] + (1 - o["rho"]) * d * d;
         p -= o["lr"] * d;
       }},
      {"adamax",
       [](Named o, double& p, double g, int t, S& s) {
         g += o["weight_decay"] * p;
         s["m"] = o["beta1"] * s["m"] + (1 - o["beta1"]) * g;
         s["u"] = std::max(o["beta2"] * s["u"], std::abs(g) + o["eps"]);
         p -= o["lr"] / (1 - std::pow(o["beta1"], t)) * s["m"] / s["u"];
       }},
      {"nadam",
       [](Named o, double& p, double g, int t, S& s) {
         adam_like(o, p, g, t, s, o["decoupled_weight_decay"] != 0);
         const auto mu = [&](int k) { return o["beta1"] * (1 - 0.5 * std::pow(0.96, k * o["momentum_decay"])); };
         if (t == 1) s["product"] = 1;
         s["product"] *= mu(t);
         p -= o["lr"] * ((1 - mu(t)) / (1 - s["product"]) * (g) + mu(t + 1) / (1 - s["product"] * mu(t + 1)) * s["m"]) /
              (std::sqrt(s["v1"]) + o["eps"]);
       }},
      {"radam",
       [](Named o, double& p, double g, int t, S& s) {
         adam_like(o, p, g, t, s, o["decoupled_weight_decay"] != 0);
         const double b = std::pow(o["beta2"], t), most = 2 / (1 - o["beta2"]) - 1, now = most - 2 * t * b / (1 - b);
         const double r = std::sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now));
         p -= o["lr"] * s["m1"] * (now > 5 ? r * std::sqrt(1 - b) / (std::sqrt(s["v"]) + o["eps"]) : 1);
       }},
      {"rprop",
       [](Named o, double& p, double g, int t, S& s) {
         if (t == 1) s["size"] = o["lr"];
         const double turned = sign(g) * sign(s["last"]);
         s["size"] = std::clamp(s["size"] * (turned > 0   ? o["eta_plus"]
                                             : turned < 0 ? o["eta_minus"]
                                                          : 1),
                                o["step_size_min"], o["step_size_max"]);
         if (turned < 0) g = 0;
         s["last"] = g;
         p -= sign(g) * s["size"];
       }},
      {"asgd",
       [](Named o, double& p, double g, int t, S& s) {
         g += o["weight_decay"] * p;
         const double eta = o["lr"] / std::pow(1 + o["lambd"] * o["lr"] * (t - 1), o["alpha"]);
         p = p * (1 - o["lambd"] * eta) - eta * g;
         s["ax"] += (p - s["ax"]) / std::max(1.0, t - 1 - o["t0"]);
       }},
      {"sparse_adam",
       [](Named o, double& p, double g, int t, S& s) {  // every row has a gradient here
         o["weight_decay"] = 0;
         adam_like(o, p, g, t, s, false);
         p -= o["lr"] * std::sqrt(1 - std::pow(o["beta2"], t)) / (1 - std::pow(o["beta1"], t)) * s["m"] /
              (std::sqrt(s["v"]) + o["eps"]);
       }},
  };
  return all;
}

// Others than the default, in range.
std::vector<OptionValue> values_of(const OptimizerOption& o) {
  using Kind = OptimizerOption::Kind;
  if (o.kind == Kind::boolean) return {true, false};
  if (o.kind != Kind::number) return {int64_t{3}};
  std::vector<OptionValue> values;
  for (const double x : {0.0, 0.05, 0.3, 0.9, 1.5, 4.0})
    if (o.range.holds(x) && !(o.name.starts_with("eps") && x == 0)) values.emplace_back(x);
  return values;
}

// What an option needs beside it to mean anything.
OptionValues beside(const OptimizerRecord& r, std::string_view name) {
  OptionValues o;
  if (name == "nesterov" || name == "dampening") o["momentum"] = 0.5;
  if (name == "centered") o["alpha"] = 0.9;
  if (name == "decoupled_weight_decay") o["weight_decay"] = 0.3;
  if (name == "step_size_min") o["step_size_max"] = 5.0;
  if (name == "step_size_max") o["step_size_min"] = 0.0;
  if (r.name == "asgd") o["t0"] = name == "t0" ? 1e6 : 2.0;
  return o;
}

TEST(OptimizerRecords, EveryFusedRuleIsItsFormulaAtEveryOption) {
  size_t rules = 0;
  for (const OptimizerRecord* r : optimizer_records()) {
    if (!r->rule) continue;
    ++rules;
    const auto formula = formulas().find(std::string(r->name));
    ASSERT_NE(formula, formulas().end()) << r->name << " has no formula in this test";
    for (const OptimizerOption& option : r->options) {
      if (option.name == "master_weights") break;  // the rest is LowPrecision's
      for (const OptionValue& value : values_of(option)) {
        OptionValues given = beside(*r, option.name);
        given.insert_or_assign(std::string(option.name), value);
        const std::string what = strata::cat(r->name, '.', option.name);
        Tensor p = start({37}, DType::f64);
        const auto o = make_optimizer(r->name, {{{{"p", p}}, given}});
        Doubles want = values(p);
        std::vector<std::map<std::string, double>> states(want.size());
        Samples random(DType::f64, 7);
        for (int t = 1; t <= 12; ++t) {
          const Tensor g = random.tensor(p.shape());
          p.set_grad(g);
          o->step();
          const Doubles gs = values(g);
          for (size_t i = 0; i < want.size(); ++i) formula->second(numbers(*r, given), want[i], gs[i], t, states[i]);
        }
        const Doubles got = values(p);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 1e-9 * (1 + std::abs(want[i]))) << what << " at element " << i;
        EXPECT_EQ(r->values(o->raw_options(0)).at(std::string(option.name)), value) << what;
      }
    }
  }
  EXPECT_EQ(rules, formulas().size());
}

TEST(OptimizerRecords, StatesSurviveARoundTripAndHaveTheNamesOfTheRecord) {
  for (const OptimizerRecord* r : optimizer_records()) {
    Tensor p = start({6, 5}), q = leaf(p);
    const auto one = make_optimizer(r->name, {{{{"p", p}}}});
    auto two = make_optimizer(r->title, {{{{"p", q}}}});
    EXPECT_EQ(two->name(), r->name);
    EXPECT_EQ(two->record(), r);
    EXPECT_TRUE(one->capturable()) << r->name;
    Samples random(DType::f32, 5);
    for (int t = 0; t < 4; ++t) {
      const Tensor g = random.tensor(p.shape());
      p.set_grad(g);
      q.set_grad(g);
      one->step();
      two->step();
      StateDict saved;
      for (const auto& [key, tensor] : two->state_dict()) {
        saved.emplace(key, clone(tensor));
        EXPECT_TRUE(std::ranges::any_of(r->states, [&](const OptimizerState& s) { return cat("p.", s.name) == key; }))
            << r->name << " does not name " << key;
      }
      two = make_optimizer(r->name, {{{{"p", q}}}});
      two->load_state_dict(saved);
    }
    EXPECT_EQ(values(p), values(q)) << r->name;
  }
}

TEST(OptimizerRecords, WhatIsWrongNamesOptimizerAndOption) {
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "";
  };
  for (const OptimizerRecord* r : optimizer_records()) {
    Tensor p = start();
    const auto o = make_optimizer(r->name, {{{{"p", p}}}});
    const OptionValues before = r->values(o->raw_options(0));
    for (const OptimizerOption& option : r->options) {
      if (option.kind != OptimizerOption::Kind::number) continue;
      for (const double x : {-1e300, 1e300, static_cast<double>(NAN)}) {
        if (option.range.holds(x)) continue;
        const std::string got = message([&] { set_options(*o, 0, {{std::string(option.name), x}}); });
        EXPECT_EQ(got.substr(0, r->title.size() + option.name.size() + 2), cat(r->title, ": ", option.name)) << got;
        EXPECT_NE(message([&] { make_optimizer(r->name, {{{{"p", p}}, {{std::string(option.name), x}}}}); }), "");
      }
    }
    EXPECT_NE(message([&] { set_options(*o, 0, {{"rate", 1.0}}); }).find("no option 'rate'"), std::string::npos);
    EXPECT_NE(message([&] { set_options(*o, 0, {{"lr", true}}); }).find("lr wants a number"), std::string::npos);
    EXPECT_EQ(r->values(o->raw_options(0)), before) << r->name << " changed by what it refused";
    EXPECT_THROW(set_options(*o, 1, {}), IndexError);
  }
  EXPECT_NE(message([] { optimizer_record("adma"); }).find("adadelta adafactor"), std::string::npos);
}

TEST(OptimizerRecords, RowsThatAreNotUsedStay) {
  Tensor p = start({4, 3});
  const Doubles before = values(p);
  const auto o = make_optimizer("sparse_adam", {{{{"p", p}}, {{"lr", 0.1}}}});
  for (int step = 0; step < 3; ++step) {
    Tensor g = zeros({4, 3});
    g.data<float>()[3 * (step % 2)] = 1;  // rows 0 and 1 in turn
    p.set_grad(g);
    o->step();
  }
  const Doubles after = values(p), moments = values(o->state_dict().at("p.exp_avg"));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(after[i] == before[i], i != 0 && i != 3) << i;
    EXPECT_EQ(moments[i] == 0, i != 0 && i != 3) << i;
  }
}

}  // namespace
}  // namespace strata::optim
