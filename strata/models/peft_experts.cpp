// Adapters of experts in PEFT's files.

#include <charconv>

#include "strata/core/error.h"
#include "strata/models/peft_inl.h"
#include "strata/ops/view/view.h"

namespace strata::peft {
namespace {

constexpr std::string_view kEach = ".*.";

std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

// Before 0.19, which wrote no version before 0.18.
bool is_before_swap(std::string_view version) {
  int64_t major = 0, minor = 0;
  const char *at = version.data(), *const end = at + version.size();
  const auto first = std::from_chars(at, end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return true;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  return second.ec != std::errc() || (major == 0 && minor < 19);
}

}  // namespace

bool is_each(std::string_view part) {
  return part.find(kEach) != std::string_view::npos;
}
std::string of_expert(const std::string& part, int64_t expert) {
  std::string name = part;
  return name.replace(name.find(kEach), kEach.size(), cat('.', expert, '.'));
}

std::map<std::string, std::string> wrappers(const std::vector<nn::LinearMap>& experts,
                                            const std::function<bool(const std::string& part)>& adapted) {
  std::map<std::string, std::vector<std::string>> of_module;
  for (const nn::LinearMap& m : experts)
    for (const nn::LinearPart& p : m.parts)
      if (!is_each(p.name) && adapted(p.name)) of_module[module_of(p.name)].push_back(p.name);
  std::map<std::string, std::string> names;
  for (const auto& [module, parts] : of_module) {
    std::string at = module;
    for (size_t i = parts.size(); i-- > 0; at += ".base_layer") names[parts[i]] = at;
  }
  return names;
}

bool is_target(const std::vector<std::string>& targets, std::string_view part) {
  for (const std::string& t : targets)
    if (part == t || (part.size() > t.size() && part.ends_with(t) && part[part.size() - t.size() - 1] == '.'))
      return true;
  return false;
}

bool is_swapped(const Stacked& as, const Shape& lora_a, const Shape& lora_b, std::string_view peft_version) {
  Stacked other = as;
  other.swapped = true;
  if (lora_a != other.down() || lora_b != other.up()) return false;
  return as.in != as.out || is_before_swap(peft_version);
}

std::pair<Tensor, Tensor> Stacked::ours(const Tensor& lora_a, const Tensor& lora_b) const {
  const Tensor down = lora_a.contiguous().view({count, rank, lora_a.size(1)});
  const Tensor up = lora_b.contiguous().view({lora_b.size(0), rank, count});
  if (swapped) return {up.permute({2, 1, 0}), down.transpose(1, 2)};
  return {down, up.permute({2, 0, 1})};
}

std::pair<Tensor, Tensor> stacked(const Tensor& a, const Tensor& b) {
  return {a.contiguous().view({a.size(0) * a.size(1), a.size(2)}),
          b.permute({1, 2, 0}).contiguous().view({b.size(1), b.size(2) * b.size(0)})};
}

}  // namespace strata::peft
