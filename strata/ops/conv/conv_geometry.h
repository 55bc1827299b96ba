#pragma once
// The options that every convolution takes, and their checks.

#include <string_view>

#include "strata/core/dims.h"
#include "strata/core/error.h"

namespace strata {

/// No size and no option may be larger, so that the sums and products of the size formulas fit.
inline constexpr int64_t kMostConv = (int64_t{1} << 31) - 1;

/// One entry for each spatial dimension.
struct Geometry {
  Dims stride, padding, dilation;
  int64_t groups;
};

/// Throws ValueError naming `op` for a list of another length or a value out of range.
inline void check_geometry(std::string_view op, const Geometry& g, int64_t spatial) {
  const auto all = [&](const Dims& d, int64_t least, std::string_view name) {
    check(d.size() == spatial, op, name, " ", d, " needs ", spatial, " entries");
    for (int64_t v : d)
      check(v >= least && v <= kMostConv, op, name, " must be at least ", least, " and at most ", kMostConv, ", got ",
            d);
  };
  all(g.stride, 1, "stride");
  all(g.padding, 0, "padding");
  all(g.dilation, 1, "dilation");
  check(g.groups >= 1 && g.groups <= kMostConv, op, "groups must be at least 1 and at most ", kMostConv, ", got ",
        g.groups);
}

/// Throws ShapeError naming `op` for spatial sizes that are too large to compute with.
inline void check_spatial(std::string_view op, const Dims& sizes) {
  for (int64_t v : sizes)
    check<ShapeError>(v <= kMostConv, op, "spatial sizes may be at most ", kMostConv, ", got ", sizes);
}

/// Inputs from the first to the last that a kernel touches.
inline int64_t extent(int64_t kernel, int64_t dilation) {
  return dilation * (kernel - 1) + 1;
}

}  // namespace strata
