// Forward and transposed convolutions of channels-last tensors: how the work is cut, and what the kernels are given.

#include "strata/ops/conv/conv_boxes_kernel.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {

extern template void run_boxes<BFloat16>(int shape, bool across, const Boxes& g, int blocks, int bytes);
extern template void run_boxes<Half>(int shape, bool across, const Boxes& g, int blocks, int bytes);

namespace {

struct Plan {
  int shape = -1;
  bool runs = false;
  int loaded = 0, pixel_stages = 0, filter_stages = 0, bytes = 0;
  int64_t tiles_m = 0, tiles = 0;
  double cost = 0;
};

// Buffers for as many taps ahead as shared memory holds; false where there is room for less than two of each.
bool choose_stages(Plan& p, const BoxShape& shape, int taps) {
  const int kept = shape.tall * shape.wide * shape.columns * kRowBytes, room = kMostShared - kUnit - kept;
  const int pixels = shape.wide * p.loaded, filters = shape.tall * 64 * kRowBytes;
  int deepest = 0;
  for (int stages = 2; stages <= kMostStages && stages * pixels < room; ++stages) {
    const int others = std::min(kMostStages, (room - stages * pixels) / filters);
    const int depth = std::min((stages - 1) * taps + 1, others);
    if (others < 2 || depth <= deepest) continue;
    deepest = depth, p.pixel_stages = stages, p.filter_stages = others;
  }
  p.bytes = kUnit + kept + p.pixel_stages * pixels + p.filter_stages * filters;
  return deepest > 0;
}

// The cheapest shape by a count of clocks: products, or what comes from L2, whichever is more.
Plan plan(const ConvSizes& s, int multiprocessors) {
  Plan best;
  const bool may_box = s.sh == 1 && s.sw == 1, may_run = fits_runs(s);
  for (int i = 0; i < static_cast<int>(std::size(kBoxShapes)); ++i) {
    for (const bool runs : {false, true}) {
      if (runs ? !may_run : !may_box) continue;
      const BoxShape& shape = kBoxShapes[i];
      const int rows = shape.columns / 8;
      const int64_t further = runs ? 0 : (s.kh - 1) * s.dh;
      if (rows + further > 256) continue;
      Plan p;
      p.shape = i, p.runs = runs;
      p.loaded = static_cast<int>(rows + further) * kUnit;
      const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
      const int64_t boxes = runs ? up(s.n * s.oh * s.ow, shape.columns) : s.n * up(s.oh, rows) * up(s.ow, 8);
      p.tiles_m = up(s.oc, 64 * shape.tall), p.tiles = p.tiles_m * up(boxes, shape.wide);
      if (p.tiles > (1 << 28) || !choose_stages(p, shape, runs ? 1 : static_cast<int>(s.kh))) continue;
      const int64_t chunks = up(s.ic, 64), taps = s.kh * s.kw, loads = runs ? taps : s.kw;
      constexpr double kProducts = 0.8, kBytes = 36, kTile = 2500;  // of the peak; a clock; clocks beside the sum
      const double products = static_cast<double>(chunks * taps * 2 * shape.tall * shape.wide * shape.columns);
      const auto bytes =
          static_cast<double>(chunks * (loads * shape.wide * p.loaded + taps * shape.tall * 64 * kRowBytes));
      p.cost =
          static_cast<double>(up(p.tiles, multiprocessors)) * (std::max(products / kProducts, bytes / kBytes) + kTile);
      if (best.shape < 0 || p.cost < best.cost) best = p;
    }
  }
  return best;
}

// y [n, oh, ow, oc] = filters times windows of x; filters [oc][taps][ic] with strides, one of `out` and `in` is 1.
bool gather_boxes(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const FilterLayout& f,
                  bool backwards, const void* bias, void* y) {
  const int processors = properties(device.index).multiprocessors;
  const Plan p = plan(s, processors);
  if (p.shape < 0) return false;
  const BoxShape& shape = kBoxShapes[p.shape];
  const int rows = shape.columns / 8;
  const bool across = f.in != 1;
  Boxes g{};
  const BoxMap pixels{s.ic, s.iw, s.ih, s.n, s.ic, s.ic * s.iw, s.ic * s.iw * s.ih};
  g.source = p.runs ? run_map(s, t, x, shape.columns) : box_map(t, x, pixels, 8, p.loaded / kUnit);
  const int64_t taps = s.kh * s.kw;
  g.filters = across ? box_map(t, w, {s.oc, taps, s.ic, 1, f.tap, f.in, 1}, 1, 64)
                     : box_map(t, w, {s.ic, taps, s.oc, 1, f.tap, f.out, 1}, 1, 64 * shape.tall);
  const int64_t total = s.n * s.oh * s.ow;
  g.result = p.runs ? box_map(t, y, {s.oc, total, 1, 1, s.oc, 1, 1}, shape.columns, 1)
                    : box_map(t, y, {s.oc, s.ow, s.oh, s.n, s.oc, s.oc * s.ow, s.oc * s.ow * s.oh}, 8, rows);
  g.bias = bias;
  Places& at = g.places;
  at.runs = p.runs, at.box_rows = rows;
  at.across = static_cast<int>(p.runs ? s.ow : (s.ow + 7) / 8);
  at.down = static_cast<int>(p.runs ? s.oh : (s.oh + rows - 1) / rows);
  at.by_image = FastDivisor(static_cast<uint32_t>(at.across * at.down));
  at.by_row = FastDivisor(static_cast<uint32_t>(at.across));
  at.first_y = static_cast<int>(-s.ph), at.first_x = static_cast<int>(-s.pw);
  at.step_y = static_cast<int>(s.sh), at.step_x = static_cast<int>(s.sw);
  g.m = static_cast<int>(s.oc), g.tiles_m = static_cast<int>(p.tiles_m), g.tiles = static_cast<int>(p.tiles);
  g.chunks = static_cast<int>((s.ic + 63) / 64);
  g.kernel_h = static_cast<int>(s.kh), g.kernel_w = static_cast<int>(s.kw);
  g.dilation_h = static_cast<int>(s.dh), g.dilation_w = static_cast<int>(s.dw);
  g.backwards = backwards;
  g.loaded = p.loaded, g.pixel_stages = p.pixel_stages, g.filter_stages = p.filter_stages;
  const int blocks = static_cast<int>(std::min<int64_t>(p.tiles, processors));
  t == DType::bf16 ? run_boxes<BFloat16>(p.shape, across, g, blocks, p.bytes)
                   : run_boxes<Half>(p.shape, across, g, blocks, p.bytes);
  return true;
}

}  // namespace

bool boxes_forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const FilterLayout& layout,
                   const void* bias, void* y) {
  if (!fits_boxes(s, t, device, x, y)) return false;
  if (layout.in == 1 && aligned16(w)) return gather_boxes(s, t, device, x, w, layout, false, bias, y);
  if (layout.tap != 1) return false;
  Tensor keep;
  const void* const turned = turn_filters(t, device, w, s.oc, s.ic, s.kh * s.kw, keep);
  return gather_boxes(s, t, device, x, turned, channels_last_filter(s), false, bias, y);
}

bool boxes_transpose(const ConvSizes& s, DType t, Device device, const void* y, const void* w,
                     const FilterLayout& layout, const void* bias, void* x) {
  if (s.sh != 1 || s.sw != 1 || !fits_boxes(s, t, device, y, x)) return false;
  // The convolution of y that this is.
  ConvSizes g = s;
  g.ic = s.oc, g.oc = s.ic, g.ih = s.oh, g.iw = s.ow, g.oh = s.ih, g.ow = s.iw;
  g.ph = (s.kh - 1) * s.dh - s.ph, g.pw = (s.kw - 1) * s.dw - s.pw;
  if (layout.in == 1 && aligned16(w)) {
    return gather_boxes(g, t, device, y, w, {layout.in, layout.out, layout.tap}, true, bias, x);
  }
  if (layout.tap != 1) return false;
  const int64_t taps = s.kh * s.kw;
  const Tensor turned = turn(t, device, w, 1, 1, s.oc, s.ic * taps);  // [ic, taps, oc]
  return gather_boxes(g, t, device, y, turned.raw_data(), {taps * s.oc, 1, s.oc}, true, bias, x);
}

}  // namespace strata::conv_cuda
