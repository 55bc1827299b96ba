#pragma once
// Names in PEFT's files.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/nn/lora.h"

namespace strata::peft {

inline constexpr std::string_view kConfigFile = "/adapter_config.json", kTensorFile = "/adapter_model.safetensors";
inline constexpr uint64_t kMostConfig = uint64_t{16} << 20;
/// Before every tensor's name.
inline constexpr std::string_view kPrefix = "base_model.model.";
/// The tensors of a module, behind its name.
inline constexpr std::string_view kDown = ".lora_A.weight", kUp = ".lora_B.weight",
                                  kMagnitude = ".lora_magnitude_vector";

/// The module and which of its tensors; nothing for a tensor that is saved whole. `name` is without the prefix.
inline std::optional<std::pair<std::string, std::string_view>> split(std::string_view name) {
  for (const std::string_view end : {kDown, kUp, kMagnitude})
    if (name.ends_with(end)) return std::pair(std::string(name.substr(0, name.size() - end.size())), end);
  return std::nullopt;
}

/// Whether a part of experts has a tensor for each of them in files, and the module of one.
bool is_each(std::string_view part);
std::string of_expert(const std::string& part, int64_t expert);
/// The modules of files that have the tensors of parts that are all of an expert weight, by the part's name: those of
/// one module stand in one another, "experts.base_layer" of gate_up_proj in "experts" of down_proj. Those that are not
/// `adapted` are left out.
std::map<std::string, std::string> wrappers(const std::vector<nn::LinearMap>& experts,
                                            const std::function<bool(const std::string& part)>& adapted);
/// Whether the configuration's target_parameters name a part.
bool is_target(const std::vector<std::string>& targets, std::string_view part);
/// How an adapter of all experts lies in a file.
struct Stacked {
  int64_t count, rank, in, out;
  bool swapped = false;  ///< as PEFT before 0.19 took a weight [count, out, in]: `in` and `out` are one another
  Shape down() const { return {count * rank, swapped ? out : in}; }
  Shape up() const { return {swapped ? in : out, rank * count}; }
  /// A [count, rank, in] and B [count, out, rank] of the file's lora_A and lora_B.
  std::pair<Tensor, Tensor> ours(const Tensor& lora_a, const Tensor& lora_b) const;
};
/// Whether tensors of these shapes are swapped, by the shapes, or where these say nothing by the version of PEFT.
bool is_swapped(const Stacked& as, const Shape& lora_a, const Shape& lora_b, std::string_view peft_version);
/// lora_A and lora_B of a file, of A and B; not swapped.
std::pair<Tensor, Tensor> stacked(const Tensor& a, const Tensor& b);

/// The first of them, for messages.
std::string listed(const std::vector<std::string>& lines);

}  // namespace strata::peft
