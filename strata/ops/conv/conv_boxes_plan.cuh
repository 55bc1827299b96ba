#pragma once
// How forward and transposed convolutions of channels-last images are cut into tiles for conv_boxes_kernel.cuh. Numbers
// alone: on the processor too.

#include <algorithm>
#include <iterator>
#include <vector>

#include "strata/ops/conv/conv_boxes_kernel.cuh"

namespace strata::conv_cuda {

/// Elements of the result that have the same taps, `rows` x `columns` of an image: every sh-th and sw-th of a
/// transposed convolution with strides, else all.
struct PhasePlan {
  Phase phase;
  int64_t rows, columns;
  BoxMap result;
};

/// A convolution, or its transpose, as products over windows of a source: result (y, x) of a phase takes the source
/// from (y step_y + first_y, x step_x + first_x) on.
struct Windows {
  int64_t n, channels, results;  // images; channels of the source and of the result
  int64_t height, width;         // of the source
  int64_t step_y, step_x, dilation_h, dilation_w;
  bool dense;  // one phase, whose results lie one after the other
  std::vector<PhasePlan> phases;
};

/// The windows of y = x * w.
inline Windows forward_windows(const ConvSizes& s) {
  const auto i = [](int64_t v) { return static_cast<int>(v); };
  Windows w{s.n, s.ic, s.oc, s.ih, s.iw, s.sh, s.sw, s.dh, s.dw, true, {}};
  w.phases.push_back({{i(-s.ph), i(-s.pw), i(s.kh), i(s.kw), 0, i(s.kw), 1},
                      s.oh,
                      s.ow,
                      {s.oc, s.ow, s.oh, s.n, s.oc, s.oc * s.ow, s.oc * s.ow * s.oh, 0, 0}});
  return w;
}

/// The windows of x = the transpose applied to y; none where a phase has no taps or no elements, or there are too many
/// phases. Result py + r sh of a column gets y[r + (py + ph - a) / sh] for the taps a that make this whole: with a =
/// a0 + sh (K - 1 - u) for u < K, successive rows of y (the phases of a sub-pixel convolution, Shi et al.,
/// arXiv:1609.07009).
inline Windows transposed_windows(const ConvSizes& s) {
  const auto i = [](int64_t v) { return static_cast<int>(v); };
  Windows w{s.n, s.oc, s.ic, s.oh, s.ow, 1, 1, s.dh, s.dw, s.sh == 1 && s.sw == 1, {}};
  if (s.sh * s.sw > kMostPhases || s.sh > s.ih || s.sw > s.iw || (s.sh > 1 && s.dh > 1) || (s.sw > 1 && s.dw > 1))
    return w;
  for (int64_t py = 0; py < s.sh; ++py) {
    for (int64_t px = 0; px < s.sw; ++px) {
      const int64_t a0 = (py + s.ph) % s.sh, b0 = (px + s.pw) % s.sw;
      const int64_t kh = (s.kh - a0 + s.sh - 1) / s.sh, kw = (s.kw - b0 + s.sw - 1) / s.sw;
      if (s.kh <= a0 || s.kw <= b0) {
        w.phases.clear();
        return w;
      }
      PhasePlan p{};
      p.rows = (s.ih - py + s.sh - 1) / s.sh, p.columns = (s.iw - px + s.sw - 1) / s.sw;
      p.phase.kernel_h = i(kh), p.phase.kernel_w = i(kw);
      p.phase.first_y = i((py + s.ph - a0) / s.sh - (kh - 1) * s.dh);
      p.phase.first_x = i((px + s.pw - b0) / s.sw - (kw - 1) * s.dw);
      p.phase.tap = i((a0 + s.sh * (kh - 1)) * s.kw + b0 + s.sw * (kw - 1));
      p.phase.tap_row = i(-s.sh * s.kw), p.phase.tap_column = i(-s.sw);
      const int64_t row = s.iw * s.ic;
      p.result = {s.ic, p.columns, p.rows, s.n, s.sw * s.ic, s.sh * row, s.ih * row, 0, 0, 1, py * row + px * s.ic};
      w.phases.push_back(p);
    }
  }
  // The most taps first: what is left to the end is short.
  std::stable_sort(w.phases.begin(), w.phases.end(), [](const PhasePlan& a, const PhasePlan& b) {
    return a.phase.kernel_h * a.phase.kernel_w > b.phase.kernel_h * b.phase.kernel_w;
  });
  return w;
}

/// How a box of pixels comes: rows of an image, rows of several images, or runs of pixels (im2col).
enum class BoxWay { rows, images, runs };

struct BoxPlan {
  int shape = -1;  // of kBoxShapes; none fits
  BoxWay way = BoxWay::rows;
  int box_rows = 0, loaded = 0, arriving = 0;  // rows of a box's image; bytes
  int images = 1;
  int pixel_stages = 0, filter_stages = 0, bytes = 0;
  int64_t tiles_m = 0, tiles_of_phase = 0;
  double cost = 0;  // clocks
};

/// Buffers for as many taps ahead as shared memory holds; false where there is room for less than two of each.
inline bool choose_stages(BoxPlan& p, const BoxShape& shape, int taps) {
  const int kept = kept_bytes(shape.tall * shape.wide, shape.columns), room = kMostShared - kept;
  const int pixels = shape.wide * p.loaded, filters = shape.tall * 64 * kRowBytes;
  int deepest = 0;
  for (int stages = 2; stages <= kMostStages && stages * pixels < room; ++stages) {
    const int others = std::min(kMostStages, (room - stages * pixels) / filters);
    const int depth = std::min((stages - 1) * taps + 1, others);
    if (others < 2 || depth <= deepest) continue;
    deepest = depth, p.pixel_stages = stages, p.filter_stages = others;
  }
  p.bytes = kept + p.pixel_stages * pixels + p.filter_stages * filters;
  return deepest > 0;
}

/// Rows from an image to the next one in a box of several, such that windows read their own image, or what is zero
/// above the next one; and rows of zeros wanted below the last.
struct Standing {
  int64_t rows = 0, zeros = 0;
};
inline Standing standing(const Windows& w) {
  Standing all;
  const auto each_load = [&](auto&& f) {
    for (const PhasePlan& p : w.phases) {
      const int64_t parities = std::min<int64_t>(w.step_y, p.phase.kernel_h);
      for (int64_t q = 0; q < parities; ++q) {
        const int64_t first = p.phase.first_y + (w.step_y > 1 ? q : 0), parity = first & (w.step_y - 1);
        const int64_t top = (first - parity) / w.step_y, taps = (p.phase.kernel_h - q + parities - 1) / parities;
        const int64_t height = (w.height - parity + w.step_y - 1) / w.step_y;
        f(p.rows, top, p.rows - 1 + (taps - 1) * (w.step_y > 1 ? 1 : w.dilation_h) + top, height);
      }
    }
  };
  // From `top` to `last`: all within an image's own rows; or all of them lie above the next one, and what is beyond
  // them are zeros above that one.
  each_load([&](int64_t rows, int64_t top, int64_t last, int64_t height) {
    const int64_t own = last + 1 - top, shared = std::max(height - top, last + 1);
    all.rows = std::max({all.rows, rows, std::min(own, shared)});
  });
  each_load(
      [&](int64_t, int64_t top, int64_t last, int64_t) { all.zeros = std::max(all.zeros, last - top + 1 - all.rows); });
  return all;
}

/// The plan of one shape and way, or none.
inline BoxPlan plan_boxes(const Windows& w, int shape_number, BoxWay way, bool may_run, int multiprocessors) {
  const BoxShape& shape = kBoxShapes[shape_number];
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  BoxPlan p;
  const bool runs = way == BoxWay::runs;
  if (w.phases.empty() || (runs && !(may_run && w.dense))) return p;
  // Each parity is an image of its own.
  const bool strided = w.step_y > 1 || w.step_x > 1;
  if (!runs && strided &&
      (w.step_y > 2 || w.step_x > 2 || w.height < w.step_y || w.width < w.step_x || (w.step_y > 1 && w.dilation_h > 1)))
    return p;
  int64_t rows = 0, columns = 0, further = 0, most_taps = 1;
  for (const PhasePlan& phase : w.phases) {
    rows = std::max(rows, phase.rows), columns = std::max(columns, phase.columns);
    const int64_t taps = up(phase.phase.kernel_h, w.step_y);
    if (runs) continue;
    further = std::max(further, (taps - 1) * (w.step_y > 1 ? 1 : w.dilation_h)), most_taps = std::max(most_taps, taps);
  }
  const int64_t box_rows = shape.columns / 8;
  if (box_rows + further > 256) return p;
  p.way = way, p.loaded = static_cast<int>(box_rows + further) * kUnit, p.arriving = p.loaded;
  p.box_rows = static_cast<int>(box_rows);
  int64_t boxes = w.n * up(rows, box_rows) * up(columns, 8);
  if (runs) boxes = up(w.n * rows * columns, shape.columns);
  if (way == BoxWay::images) {
    const Standing at = standing(w);
    p.images = static_cast<int>(std::min({w.n, box_rows / at.rows, int64_t{256}}));
    if (p.images < 2 || at.rows * p.images + std::max<int64_t>(at.zeros, 0) > box_rows + further) return BoxPlan();
    p.box_rows = static_cast<int>(at.rows), p.arriving = p.images * p.box_rows * kUnit;
    boxes = up(w.n, p.images) * up(columns, 8);
  }
  p.tiles_m = up(w.results, 64 * shape.tall), p.tiles_of_phase = p.tiles_m * up(boxes, shape.wide);
  const auto phases = static_cast<int64_t>(w.phases.size());
  if (p.tiles_of_phase * phases > (1 << 28) || !choose_stages(p, shape, static_cast<int>(most_taps))) return BoxPlan();

  constexpr double kProducts = 0.8, kBytes = 36, kTile = 2500;  // of the peak; a clock; clocks beside the sum
  double clocks = 0;
  for (const PhasePlan& phase : w.phases) {
    const int64_t chunks = up(w.channels, 64), taps = int64_t{phase.phase.kernel_h} * phase.phase.kernel_w;
    const int64_t loads = runs ? taps : phase.phase.kernel_w * std::min<int64_t>(w.step_y, phase.phase.kernel_h);
    const auto products = static_cast<double>(chunks * taps * 2 * shape.tall * shape.wide * shape.columns);
    const auto bytes =
        static_cast<double>(chunks * (loads * shape.wide * p.arriving + taps * shape.tall * 64 * kRowBytes));
    clocks += std::max(products / kProducts, bytes / kBytes) + kTile;
  }
  p.cost = static_cast<double>(up(p.tiles_of_phase * phases, multiprocessors)) * clocks / static_cast<double>(phases);
  p.shape = shape_number;
  return p;
}

/// The cheapest by a count of clocks: products, or what comes from L2, whichever is more; of those that `choice`
/// leaves.
inline BoxPlan plan_boxes(const Windows& w, bool may_run, int multiprocessors, const ConvChoice& choice) {
  BoxPlan best;
  for (int i = 0; i < static_cast<int>(std::size(kBoxShapes)); ++i) {
    for (const BoxWay way : {BoxWay::rows, BoxWay::runs, BoxWay::images}) {
      if ((choice.shape >= 0 && choice.shape != i) || (choice.way >= 0 && choice.way != static_cast<int>(way)))
        continue;
      const BoxPlan p = plan_boxes(w, i, way, may_run, multiprocessors);
      if (p.shape >= 0 && (best.shape < 0 || p.cost < best.cost)) best = p;
    }
  }
  return best;
}

/// What the kernel is told of a plan, and the maps of a source by boxes (not of runs) and of the results.
inline BoxWork work_of(const Windows& w, const BoxPlan& p) {
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto i = [](int64_t v) { return static_cast<int>(v); };
  int64_t rows = 0, columns = 0;
  for (const PhasePlan& phase : w.phases) rows = std::max(rows, phase.rows), columns = std::max(columns, phase.columns);
  BoxWork g{};
  Places& at = g.places;
  at.runs = p.way == BoxWay::runs, at.box_rows = p.box_rows, at.images = p.images;
  at.across = i(at.runs ? columns : up(columns, 8));
  at.down = i(at.runs ? rows : p.way == BoxWay::images ? 1 : up(rows, p.box_rows));
  at.by_image = FastDivisor(static_cast<uint32_t>(at.across * at.down));
  at.by_row = FastDivisor(static_cast<uint32_t>(at.across));
  at.step_y = i(w.step_y), at.step_x = i(w.step_x);
  for (size_t k = 0; k < w.phases.size(); ++k) g.phases[k] = w.phases[k].phase;
  g.m = i(w.results), g.tiles_m = i(p.tiles_m), g.tiles_of_phase = i(p.tiles_of_phase);
  g.tiles = i(p.tiles_of_phase) * i(static_cast<int64_t>(w.phases.size()));
  g.chunks = i(up(w.channels, 64));
  g.dilation_h = i(w.dilation_h), g.dilation_w = i(w.dilation_w);
  g.parities = at.runs ? 1 : i(w.step_y);
  g.loaded = p.loaded, g.arriving = p.arriving;
  g.pixel_stages = p.pixel_stages, g.filter_stages = p.filter_stages;
  return g;
}
/// Of the pixels of each parity, as BoxWork's `sources` are numbered; one where the strides are 1.
inline std::vector<BoxMap> source_maps(const Windows& w, const BoxPlan& p) {
  std::vector<BoxMap> maps;
  const int64_t row = w.channels * w.width;
  for (int64_t y = 0; y < 2; ++y) {
    for (int64_t x = 0; x < 2; ++x) {
      const int64_t top = std::min(y, w.step_y - 1), left = std::min(x, w.step_x - 1);
      maps.push_back({w.channels, (w.width - left + w.step_x - 1) / w.step_x,
                      (w.height - top + w.step_y - 1) / w.step_y, w.n, w.channels * w.step_x, row * w.step_y,
                      row * w.height, 8, p.way == BoxWay::images ? p.box_rows : p.loaded / kUnit, p.images,
                      top * row + left * w.channels});
    }
  }
  return maps;
}
inline std::vector<BoxMap> result_maps(const Windows& w, const BoxPlan& p) {
  std::vector<BoxMap> maps;
  for (const PhasePlan& phase : w.phases) {
    maps.push_back(phase.result);
    if (p.way == BoxWay::runs) {
      const int64_t total = w.n * phase.rows * phase.columns;
      maps.back() = {w.results, total, 1, 1, w.results, 1, 1, kBoxShapes[p.shape].columns, 1};
    } else {
      maps.back().box_columns = 8, maps.back().box_rows = p.box_rows, maps.back().box_images = p.images;
    }
  }
  return maps;
}

}  // namespace strata::conv_cuda
