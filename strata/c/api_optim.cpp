// Optimizers and learning-rate schedules, by their records.

#include <nlohmann/json.hpp>

#include "strata/c/handles.h"
#include "strata/c/optimizer_inl.h"
#include "strata/io/json.h"
#include "strata/io/safetensors.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"

using namespace strata;
using namespace strata::c;

namespace {

optim::Optimizer& of(const strata_optimizer* optimizer, const char* function) {
  need(optimizer, function, "the optimizer");
  return *optimizer->made;
}

nlohmann::json parse_options(const char* text, const char* function) {
  if (text == nullptr) return nlohmann::json::object();
  nlohmann::json all = io::parse_json(text, "options");
  check(all.is_object(), function, "options are a JSON object, got ", text);
  return all;
}

optim::OptionValues option_values(const char* text, const char* function) {
  const nlohmann::json all = parse_options(text, function);
  optim::OptionValues values;
  for (const auto& [key, v] : all.items()) {
    check(v.is_boolean() || v.is_number(), function, "option ", key, " is true, false or a number, got ", v.dump());
    if (v.is_boolean())
      values.emplace(key, v.get<bool>());
    else if (v.is_number_integer())
      values.emplace(key, v.get<int64_t>());
    else
      values.emplace(key, v.get<double>());
  }
  return values;
}

std::vector<std::pair<std::string, optim::ScheduleValue>> schedule_values(const char* text, const char* function) {
  const nlohmann::json all = parse_options(text, function);
  std::vector<std::pair<std::string, optim::ScheduleValue>> values;
  for (const auto& [key, v] : all.items()) {
    if (v.is_string()) {
      values.emplace_back(key, v.get<std::string>());
    } else if (v.is_array()) {
      std::vector<double> numbers;
      for (const auto& x : v) {
        check(x.is_number(), function, "option ", key, " is a list of numbers, got ", v.dump());
        numbers.push_back(x.get<double>());
      }
      values.emplace_back(key, std::move(numbers));
    } else {
      check(v.is_number(), function, "option ", key, " is a number, a text or a list of numbers, got ", v.dump());
      values.emplace_back(key, v.get<double>());
    }
  }
  return values;
}

std::vector<optim::AnyGroup> groups_of(const strata_param_group* groups, size_t num_groups, const char* function) {
  check(num_groups > 0, function, "there is no group of parameters");
  need(groups, function, "the groups");
  std::vector<optim::AnyGroup> all(num_groups);
  size_t number = 0;
  for (size_t g = 0; g < num_groups; ++g) {
    const strata_param_group& from = groups[g];
    if (from.num_params > 0) need(from.params, function, "a group's parameters");
    check((from.names == nullptr) == (groups[0].names == nullptr), function,
          "all groups name their parameters, or none does; group ", g, " is not like group 0");
    all[g].options = option_values(from.options, function);
    for (size_t i = 0; i < from.num_params; ++i, ++number) {
      if (from.names) need(from.names[i], function, "a parameter's name");
      all[g].params.emplace_back(from.names ? from.names[i] : std::to_string(number),
                                 need_tensor(from.params[i], function));
    }
  }
  return all;
}

}  // namespace

const char* strata_describe_optimizers(void) {
  return guarded_or<const char*>("", [] {
    thread_local std::string text;
    text = optim::optimizers_json();
    return text.c_str();
  });
}
const char* strata_describe_schedules(void) {
  return guarded_or<const char*>("", [] {
    thread_local std::string text;
    text = optim::schedules_json();
    return text.c_str();
  });
}

strata_status strata_optimizer_create(const char* name, const strata_param_group* groups, size_t num_groups,
                                      strata_optimizer** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_create";
    need(name, kName, "the name");
    need(out, kName, "out");
    auto optimizer = std::make_unique<strata_optimizer>();
    optimizer->made = optim::make_optimizer(name, groups_of(groups, num_groups, kName));
    *out = optimizer.release();
  });
}

strata_optimizer* strata_optimizer_retain(strata_optimizer* optimizer) {
  return retain(optimizer);
}
void strata_optimizer_release(strata_optimizer* optimizer) {
  release(optimizer);
}

strata_status strata_optimizer_step(strata_optimizer* optimizer, double max_norm, double* norm) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_step";
    optim::Optimizer& o = of(optimizer, kName);
    check(max_norm >= 0, kName, "max_norm must not be negative, got ", max_norm);
    if (max_norm == 0) return o.step();
    const double before = o.step_clipped(max_norm);
    if (norm) *norm = before;
  });
}

strata_status strata_optimizer_zero_grad(strata_optimizer* optimizer) {
  return guarded([&] { of(optimizer, "strata_optimizer_zero_grad").zero_grad(); });
}

strata_status strata_optimizer_set_options(strata_optimizer* optimizer, size_t group, const char* options) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_set_options";
    optim::Optimizer& o = of(optimizer, kName);
    check<IndexError>(group < o.num_groups(), kName, "there are ", o.num_groups(), " groups, no number ", group);
    optim::set_options(o, group, option_values(options, kName));
  });
}

strata_status strata_optimizer_set_lr(strata_optimizer* optimizer, double lr) {
  return guarded([&] { of(optimizer, "strata_optimizer_set_lr").set_lr(lr); });
}

strata_status strata_optimizer_lr(const strata_optimizer* optimizer, size_t group, double* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_lr";
    const optim::Optimizer& o = of(optimizer, kName);
    need(out, kName, "out");
    check<IndexError>(group < o.num_groups(), kName, "there are ", o.num_groups(), " groups, no number ", group);
    *out = o.lr(group);
  });
}

strata_status strata_optimizer_save(const strata_optimizer* optimizer, const char* path) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_save";
    const optim::Optimizer& o = of(optimizer, kName);
    need(path, kName, "the path");
    io::save_safetensors(path, o.state_dict());
  });
}

strata_status strata_optimizer_load(strata_optimizer* optimizer, const char* path) {
  return guarded([&] {
    constexpr const char* kName = "strata_optimizer_load";
    optim::Optimizer& o = of(optimizer, kName);
    need(path, kName, "the path");
    o.load_state_dict(io::SafetensorsFile(path).tensors());
  });
}

strata_status strata_schedule_lr(const char* name, const char* options, int64_t step, double base, double* lr,
                                 double* momentum) {
  return guarded([&] {
    constexpr const char* kName = "strata_schedule_lr";
    need(name, kName, "the name");
    need(lr, kName, "lr");
    check(step >= 0, kName, "steps count from 0, got ", step);
    const optim::LrSchedule schedule(name, schedule_values(options, kName));
    const double rate = schedule(step, base);
    if (momentum) *momentum = schedule.momentum(step);
    *lr = rate;
  });
}
