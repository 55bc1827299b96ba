#pragma once
// Where a tensor's bytes live. `meta` tensors have shape and dtype but no bytes: ops on them only infer.

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

/// Kinds of memory.
enum class DeviceType : uint8_t { cpu, cuda, meta };
/// How many there are.
inline constexpr int kNumDeviceTypes = 3;

/// A kind of memory and, for cuda, which card. `Device::cpu()`, `Device::cuda(0)`, `Device::meta()`.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  /// @name The devices by name, and questions about them
  static constexpr Device cpu() { return {DeviceType::cpu, 0}; }
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, static_cast<int8_t>(index)}; }
  static constexpr Device meta() { return {DeviceType::meta, 0}; }
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  constexpr bool is_meta() const { return type == DeviceType::meta; }
  friend constexpr bool operator==(Device, Device) = default;
};

/// "cpu", "cuda:0", "meta".
std::string to_string(Device d);
/// Inverse of to_string; "cuda" means "cuda:0". Throws ValueError.
Device parse_device(std::string_view text);

}  // namespace strata
