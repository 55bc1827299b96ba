#pragma once
// Names in PEFT's files.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// The first of them, for messages.
std::string listed(const std::vector<std::string>& lines);

}  // namespace strata::peft
