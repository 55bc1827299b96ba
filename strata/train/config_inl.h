#pragma once
// What reading and writing settings have in common.

#include <string_view>

#include "strata/train/config.h"

namespace strata::detail {

/// A key's name without its section.
inline std::string_view leaf(std::string_view name) {
  return name.substr(name.find('.') + 1);
}

/// The setting that `key` names, of which T is the type.
template <class T>
T& field(TrainConfig& c, const ConfigKey& key) {
  return *static_cast<T*>(key.field(c));
}

}  // namespace strata::detail
