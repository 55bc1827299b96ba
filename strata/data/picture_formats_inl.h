#pragma once
// Formats of pictures, each read by the library of its name.

#include <cstddef>
#include <span>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::data {

constexpr int64_t kMostPixels = 100'000'000;

/// As parse_picture().
Tensor parse_png(std::span<const std::byte> file, std::string_view name);
Tensor parse_jpeg(std::span<const std::byte> file, std::string_view name);

}  // namespace strata::data
