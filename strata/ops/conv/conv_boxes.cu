// Forward and transposed convolutions of channels-last tensors: how the work is cut, and what the kernels are given.

#include "strata/ops/conv/conv_boxes_plan.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {

extern template void run_boxes<BFloat16>(int shape, bool across, const Boxes& g, int blocks, int bytes);
extern template void run_boxes<Half>(int shape, bool across, const Boxes& g, int blocks, int bytes);

namespace {

// y = filters times windows of x; filters [results][taps][channels] with strides, one of `out` and `in` is 1. `runs`:
// the convolution whose windows these are where its pixels may come in runs.
bool gather_boxes(const Windows& w, const ConvSizes* runs, int64_t taps, DType t, Device device, const void* x,
                  const void* filters, const FilterLayout& f, const void* bias, void* y) {
  const int processors = properties(device.index).multiprocessors;
  const BoxPlan p = plan_boxes(w, runs != nullptr && fits_runs(*runs), processors, conv_choice());
  if (p.shape < 0) return false;
  const BoxShape& shape = kBoxShapes[p.shape];
  const bool across = f.in != 1;
  Boxes g{};
  g.work = work_of(w, p);
  if (p.way == BoxWay::runs) {
    g.sources[0] = run_map(*runs, t, x, shape.columns);
  } else {
    const std::vector<BoxMap> maps = source_maps(w, p);
    for (size_t i = 0; i < maps.size(); ++i) g.sources[i] = box_map(t, x, maps[i]);
  }
  g.filters = across ? box_map(t, filters, {w.results, taps, w.channels, 1, f.tap, f.in, 1, 1, 64})
                     : box_map(t, filters, {w.channels, taps, w.results, 1, f.tap, f.out, 1, 1, 64 * shape.tall});
  const std::vector<BoxMap> results = result_maps(w, p);
  for (size_t i = 0; i < results.size(); ++i) g.results[i] = box_map(t, y, results[i]);
  g.bias = bias;
  const int blocks = std::min(g.work.tiles, processors);
  t == DType::bf16 ? run_boxes<BFloat16>(p.shape, across, g, blocks, p.bytes)
                   : run_boxes<Half>(p.shape, across, g, blocks, p.bytes);
  return true;
}

}  // namespace

bool boxes_forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const FilterLayout& layout,
                   const void* bias, void* y) {
  if (!fits_boxes(s, t, device, x, y)) return false;
  const Windows windows = forward_windows(s);
  const int64_t taps = s.kh * s.kw;
  if (layout.in == 1 && aligned16(w)) return gather_boxes(windows, &s, taps, t, device, x, w, layout, bias, y);
  if (layout.tap != 1) return false;
  Tensor keep;
  const void* const turned = turn_filters(t, device, w, s.oc, s.ic, taps, keep);
  return gather_boxes(windows, &s, taps, t, device, x, turned, channels_last_filter(s), bias, y);
}

bool boxes_transpose(const ConvSizes& s, DType t, Device device, const void* y, const void* w,
                     const FilterLayout& layout, const void* bias, void* x) {
  const Windows windows = transposed_windows(s);
  if (windows.phases.empty() || !fits_boxes(s, t, device, y, x)) return false;
  // The convolution of y that this is, without strides.
  ConvSizes same = s;
  same.ic = s.oc, same.oc = s.ic, same.ih = s.oh, same.iw = s.ow, same.oh = s.ih, same.ow = s.iw;
  same.ph = (s.kh - 1) * s.dh - s.ph, same.pw = (s.kw - 1) * s.dw - s.pw;
  const ConvSizes* const runs = windows.dense ? &same : nullptr;
  const int64_t taps = s.kh * s.kw;
  if (layout.in == 1 && aligned16(w))
    return gather_boxes(windows, runs, taps, t, device, y, w, {layout.in, layout.out, layout.tap}, bias, x);
  if (layout.tap != 1) return false;
  const Tensor turned = turn(t, device, w, 1, 1, s.oc, s.ic * taps);  // [ic, taps, oc]
  return gather_boxes(windows, runs, taps, t, device, y, turned.raw_data(), {taps * s.oc, 1, s.oc}, bias, x);
}

}  // namespace strata::conv_cuda
