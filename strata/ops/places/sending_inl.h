#pragma once
// scatter_reduce's call with one dimension at least. Included by scatter_reduce*.cpp.

#include <string>
#include <string_view>

#include "strata/core/op.h"
#include "strata/ops/index/join_inl.h"
#include "strata/ops/view/view.h"

namespace strata::sending {

inline constexpr std::string_view kName = "scatter_reduce";

inline Join join_of(const std::string& reduce) {
  if (reduce == "sum") return Join::sum;
  if (reduce == "prod") return Join::prod;
  if (reduce == "mean") return Join::mean;
  if (reduce == "amax") return Join::amax;
  check(reduce == "amin", kName, "reduce must be sum, prod, mean, amax or amin, got \"", reduce, "\"");
  return Join::amin;
}

// The same call with one dimension where there was none, and src cut to what index names.
struct Sending {
  Tensor x, index, src;
  int64_t dim;
};
inline Tensor as_row(const Tensor& t) {
  return t.dim() == 0 ? reshape(t, {1}) : t;
}
inline Sending plain(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Sending c{as_row(x), as_row(index), as_row(src), wrap_dim(dim, x.dim(), kName)};
  for (int64_t d = 0; d < c.index.dim(); ++d)
    if (c.src.shape()[d] != c.index.shape()[d]) c.src = slice(c.src, d, 0, c.index.shape()[d]);
  return c;
}

}  // namespace strata::sending
