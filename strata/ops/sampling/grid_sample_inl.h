#pragma once
// Sampling at positions written with other ops, for gradients of gradients, and in plain loops. Included by
// grid_sample.cpp.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sampling/sampling_kernels.h"
#include "strata/ops/view/view.h"

namespace strata::sampling {

// ---- with other ops
// --------------------------------------------------------------------------------------------------

// One of the inputs that a coordinate asks for, each [batch, points]: which (a whole number), its weight, and what the
// weight changes by. These are undefined for a weight of 1.
struct Tap {
  Tensor at, weight, slope;
};

inline Tensor low_precision_as_f32(const Tensor& t) {
  return is_reduced_floating(t.dtype()) ? t.to(DType::f32) : t;
}

inline Tensor fold(const Tensor& at, double low, double high) {
  if (high <= low) return at * 0;
  const double span = high - low;
  const Tensor from = abs(at + -low), rest = fmod(from, span);
  const Tensor forth = eq(remainder(floor(from * (1 / span)), 2), zeros_like(from));
  return where(forth, rest, rsub(rest, span)) + low;
}
// 1 or -1: which way fold() goes.
inline Tensor fold_sign(const Tensor& at, double low, double high) {
  if (high <= low) return zeros_like(at);
  const Tensor from = abs(at + -low), none = zeros_like(at), one = ones_like(at);
  const Tensor forth = eq(remainder(floor(from * (1 / (high - low))), 2), none);
  return where(lt(at, full_like(at, low)), -one, one) * where(forth, one, -one);
}

inline std::pair<double, double> mirrors(const Call& c, int64_t size) {
  const double last = static_cast<double>(size - 1);
  return c.align_corners ? std::pair(0.0, last) : std::pair(-0.5, last + 0.5);
}

inline Tensor inside(const Call& c, Tensor at, int64_t size) {
  if (c.padding == Padding::zeros) return at;
  const auto [low, high] = mirrors(c, size);
  if (c.padding == Padding::reflection) at = fold(at, low, high);
  return clamp(at, 0, size - 1);
}
// What inside() changes by: a constant almost everywhere.
inline Tensor inside_slope(const Call& c, Tensor at, int64_t size) {
  NoGrad guard;
  Tensor slope = ones_like(at);
  if (c.padding == Padding::zeros) return slope;
  if (c.padding == Padding::reflection) {
    const auto [low, high] = mirrors(c, size);
    slope = fold_sign(at, low, high);
    at = fold(at, low, high);
  }
  const Tensor within = logical_and(gt(at, zeros_like(at)), lt(at, full_like(at, size - 1)));
  return where(within, slope, zeros_like(slope));
}

// The taps of coordinate g [batch, points], from -1 to 1, along a dimension of that size.
inline std::vector<Tap> taps_of(const Call& c, const Tensor& g, int64_t size) {
  const double n = static_cast<double>(size), scale = c.align_corners ? (n - 1) / 2 : n / 2;
  const Tensor place = (g + 1) * scale + (c.align_corners ? 0.0 : -0.5);
  std::vector<Tap> taps;
  if (c.mode == Mode::cubic) {
    const double a = -0.75;
    const Tensor low = floor(place).detach(), t = place - low,
                 from = low + t.detach() * 0;  // no number where there are no weights
    for (int k = 0; k < 4; ++k) {
      const Tensor x = k < 2 ? t + double(1 - k) : rsub(t, double(k - 1));
      const double sign = k < 2 ? scale : -scale;
      const bool near = k == 1 || k == 2;
      taps.push_back({inside(c, from + double(k - 1), size),
                      near ? (x * (a + 2) + -(a + 3)) * x * x + 1 : ((x * a + -5 * a) * x + 8 * a) * x + -4 * a,
                      (near ? (x * (3 * (a + 2)) + -2 * (a + 3)) * x : (x * (3 * a) + -10 * a) * x + 8 * a) * sign});
    }
    return taps;
  }
  const Tensor at = inside(c, place, size);
  if (c.mode == Mode::nearest) return {{round(at).detach(), {}, {}}};
  const Tensor low = floor(at).detach(), part = at - low, slope = inside_slope(c, place.detach(), size) * scale;
  return {{low, rsub(part, 1), -slope}, {low + 1, part, slope}};
}

// Which elements of a plane a choice of taps reads, [batch, points] i64 with -1 for none, and where that is not so.
struct Places {
  Tensor at, inside;
};
inline Places places_of(const Call& c, const std::vector<Tap>& choice) {
  Places p;
  for (int d = 0; d < c.dims; ++d) {
    const Tensor at = choice[static_cast<size_t>(d)].at.detach();
    const int64_t size = c.size[3 - c.dims + d];
    const Tensor within = logical_and(ge(at, zeros_like(at)), le(at, full_like(at, size - 1)));
    p.inside = p.inside.defined() ? logical_and(p.inside, within) : within;
    const Tensor row = where(within, at, zeros_like(at)).to(DType::i64);
    p.at = p.at.defined() ? p.at * size + row : row;
  }
  p.at = where(p.inside, p.at, full_like(p.at, -1));
  return p;
}

// Calls f(taps, one for each dimension) for every combination.
template <class F>
void for_choices(const std::vector<std::vector<Tap>>& taps, F&& f) {
  size_t total = 1;
  for (const auto& t : taps) total *= t.size();
  for (size_t n = 0; n < total; ++n) {
    std::vector<Tap> choice;
    size_t rest = n;
    for (const auto& t : taps) {
      choice.push_back(t[rest % t.size()]);
      rest /= t.size();
    }
    f(choice);
  }
}

// The product of the weights, dimension `slope_of` (-1: none) with its slope; 0 where nothing is read.
inline Tensor weight_of(const std::vector<Tap>& choice, const Tensor& inside, const Tensor& like, int slope_of = -1) {
  Tensor w;
  for (size_t d = 0; d < choice.size(); ++d) {
    const Tensor& factor = static_cast<int>(d) == slope_of ? choice[d].slope : choice[d].weight;
    if (factor.defined()) w = w.defined() ? w * factor : factor;
  }
  return w.defined() ? where(inside, w, zeros_like(w)) : inside.to(like.dtype());
}

inline std::vector<std::vector<Tap>> all_taps(const Call& c, const Tensor& grid) {
  std::vector<std::vector<Tap>> taps;
  const Tensor points = grid.reshape({c.batch, c.points, c.dims});
  for (int d = 0; d < c.dims; ++d)
    taps.push_back(taps_of(c, select(points, -1, c.dims - 1 - d), c.size[3 - c.dims + d]));
  return taps;
}

inline Tensor for_channels(const Call& c, const Tensor& places) {
  return expand(unsqueeze(places, 1), {c.batch, c.channels, c.points}).contiguous();
}

inline Tensor composed_input(const Call& c, const Tensor& given, const Tensor& grid, const Shape& result) {
  const Tensor g = low_precision_as_f32(given).reshape({c.batch, c.channels, c.points});
  Tensor sum;
  for_choices(all_taps(c, low_precision_as_f32(grid)), [&](const std::vector<Tap>& choice) {
    const Places p = places_of(c, choice);
    const Tensor weight = weight_of(choice, p.inside, g);
    const Tensor part = plane_scatter(g * unsqueeze(weight, 1), for_channels(c, p.at), {c.plane()});
    sum = sum.defined() ? sum + part : part;
  });
  return sum.reshape(result).to(given.dtype());
}

inline Tensor composed_grid(const Call& c, const Tensor& given, const Tensor& x, const Tensor& grid) {
  if (c.mode == Mode::nearest) return zeros_like(grid);
  const Tensor g = low_precision_as_f32(given).reshape({c.batch, c.channels, c.points}),
               planes = low_precision_as_f32(x).reshape({c.batch, c.channels, c.plane()});
  std::vector<Tensor> sums(static_cast<size_t>(c.dims));
  for_choices(all_taps(c, low_precision_as_f32(grid)), [&](const std::vector<Tap>& choice) {
    const Places p = places_of(c, choice);
    const Tensor read = strata::sum(plane_gather(planes, for_channels(c, p.at)) * g, {1});
    for (int d = 0; d < c.dims; ++d) {
      const Tensor part = read * weight_of(choice, p.inside, g, d);
      Tensor& sum = sums[static_cast<size_t>(c.dims - 1 - d)];  // the grid has columns first
      sum = sum.defined() ? sum + part : part;
    }
  });
  return stack(sums, -1).reshape(grid.shape()).to(grid.dtype());
}

// ---- in plain loops
// --------------------------------------------------------------------------------------------------

// How much each input along a dimension counts at coordinate g.
inline std::vector<double> shares(const Call& c, double g, int64_t size) {
  const double last = static_cast<double>(size - 1);
  double at = c.align_corners ? (g + 1) / 2 * last : (g + 1) / 2 * static_cast<double>(size) - 0.5;
  const auto moved = [&](double v) {
    const auto [low, high] = mirrors(c, size);
    if (c.padding == Padding::reflection) {
      if (high <= low) v = 0;
      while (v < low || v > high) v = v < low ? 2 * low - v : 2 * high - v;
    }
    return c.padding == Padding::zeros ? v : std::clamp(v, 0.0, last);
  };
  std::vector<double> share(static_cast<size_t>(size));
  const auto give = [&](double place, double weight) {
    if (place >= 0 && place <= last) share[static_cast<size_t>(place)] += weight;
  };
  if (c.mode == Mode::cubic) {
    for (double k = std::floor(at) - 2; k <= std::floor(at) + 3; ++k) {
      const double far = std::abs(at - k), a = -0.75;
      const double weight = far <= 1  ? (a + 2) * far * far * far - (a + 3) * far * far + 1
                            : far < 2 ? a * far * far * far - 5 * a * far * far + 8 * a * far - 4 * a
                                      : 0;
      if (weight != 0) give(moved(k), weight);
    }
    return share;
  }
  at = moved(at);
  if (c.mode == Mode::nearest) {
    give(std::nearbyint(at), 1);
  } else {
    for (int64_t j = 0; j < size; ++j) give(static_cast<double>(j), std::max(0.0, 1 - std::abs(at - double(j))));
  }
  return share;
}

inline Tensor sampled(const Call& c, const Tensor& x, const Tensor& grid, const Shape& result) {
  const naive::Array from(x), positions(grid);
  naive::Array y(result);
  const int64_t plane = c.plane();
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t point = i % c.points, image = i / c.points, item = image / c.channels;
    std::vector<double> share[3] = {{1.0}, {1.0}, {1.0}};
    for (int d = 0; d < c.dims; ++d) {
      const double g = positions.flat((item * c.points + point) * c.dims + c.dims - 1 - d);
      share[3 - c.dims + d] = shares(c, g, c.size[3 - c.dims + d]);
    }
    for (int64_t j = 0; j < plane; ++j) {
      const int64_t col = j % c.size[2], row = j / c.size[2] % c.size[1], deep = j / (c.size[2] * c.size[1]);
      const double weight =
          share[0][static_cast<size_t>(deep)] * share[1][static_cast<size_t>(row)] * share[2][static_cast<size_t>(col)];
      if (weight != 0) y.flat(i) += weight * from.flat(image * plane + j);
    }
  }
  return y;
}

}  // namespace strata::sampling
