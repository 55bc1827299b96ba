#pragma once
// Functions of rows that are computed a tile of rows at a time, so that what lies within them never stands whole.

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/autograd/checkpoint.h"
#include "strata/core/error.h"
#include "strata/ops/join/join.h"

namespace strata {

/// fn(x, more...), which computes each place of dimension `dim` for itself, in tiles of `size` places, each under
/// checkpoint(): of forward the inputs are kept alone, and backward computes a tile again before it goes through it.
/// What fn makes within itself is in memory for one tile at a time. The price is one more forward pass of fn; sums over
/// places, such as weights' gradients, are taken tile by tile, so they differ by rounding (Bekman et al., ALST,
/// arXiv:2506.13996). All tensors have as many places; the results are joined along dim. With size 0 or where one tile
/// is all it is fn itself. An fn that takes a number first gets the first place of its tile. Throws ValueError for a
/// negative size, ShapeError where the tensors have other numbers.
///
///     Tensor y = tiled(0, 1024, [&](const Tensor& rows) { return mlp(rows); }, x);  // x [N, dim]
template <class F, class... More>
Tensor tiled(int64_t dim, int64_t size, F fn, const Tensor& x, const More&... more) {
  check(size >= 0, "tiled", "a tile has ", size, " places");
  const int64_t places = x.size(dim);
  (check<ShapeError>(more.size(dim) == places, "tiled", "x is ", x, ", and what goes with it ", more), ...);
  constexpr bool kTold = std::is_invocable_v<F, int64_t, const Tensor&, const More&...>;
  if (size == 0 || size >= places) {
    if constexpr (kTold)
      return fn(int64_t{0}, x, more...);
    else
      return fn(x, more...);
  }
  const std::vector<TensorList> parts{split(x, size, dim), split(more, size, dim)...};
  TensorList results;
  for (size_t i = 0; i < parts[0].size(); ++i)
    results.push_back([&]<size_t... at>(std::index_sequence<at...>) {
      if constexpr (kTold)
        return checkpoint(fn, static_cast<int64_t>(i) * size, parts[at][i]...);
      else
        return checkpoint(fn, parts[at][i]...);
    }(std::make_index_sequence<1 + sizeof...(more)>()));
  return cat(results, dim);
}

}  // namespace strata
