// Convolutions of volumes, and transposed ones whose results have several phases, on Hopper's tensor cores.

#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_gather.cuh"

namespace strata::conv_cuda {

void run_phases_gather(DType t, Device device, Gather& g, int64_t n) {
  run_gather<true, true>(t, device, g, n);
}

bool fits_volume(const VolumeSizes& s, DType t, Device device) {
  constexpr int64_t kMost = int64_t{1} << 28;
  if (t == DType::f64 || (t == DType::f32 && !allow_tf32_convolutions())) return false;
  if (properties(device.index).major != 9 || s.groups < 1 || s.groups >= 65536) return false;
  const int64_t widest = std::max(pad_channels(s.ic / s.groups, t), pad_channels(s.oc / s.groups, t));
  if (s.n * s.ic * s.oc == 0 || s.kernel[0] + s.kernel[1] + s.kernel[2] > kMostTapBits) return false;
  double x = static_cast<double>(s.n), y = x, taps = 1, places = x, phases = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (s.in[i] < 1 || s.out[i] < 1) return false;
    if (s.padding[i] + s.in[i] >= kMost || s.kernel[i] * s.dilation[i] >= kMost || s.out[i] * s.stride[i] >= kMost)
      return false;
    x *= static_cast<double>(s.in[i]), y *= static_cast<double>(s.out[i]), taps *= static_cast<double>(s.kernel[i]);
    // Of the transpose: those of y, and what phases reach further.
    places *= static_cast<double>(s.out[i] + s.dilation[i] + 2), phases *= static_cast<double>(s.stride[i]);
  }
  const auto most = static_cast<double>(4 * kMost);
  // Elements of the operands, and rows of the product.
  const double wide = static_cast<double>(s.groups * widest), filter = taps * static_cast<double>(widest);
  return x * wide < most && y * wide < most && places < most && phases <= 512 && taps < 65536 &&
         filter * static_cast<double>(std::max(s.ic, s.oc)) < most && wide < (1 << 22) &&
         static_cast<double>(s.groups) * static_cast<double>(s.ic + s.oc) * phases < most;
}

void volume_forward(const VolumeSizes& s, DType t, Device device, const void* x, bool last, const void* w,
                    const void* bias, void* y) {
  const int64_t icg = s.ic / s.groups;
  Tensor source, filters;
  Gather g = forward_gather(s, pad_channels(icg, t));
  g.source = innermost(t, device, x, s.n, s.groups, icg, VolumeSizes::product(s.in), last, source);
  g.filters = turn_filters(t, device, w, s.oc, icg, VolumeSizes::product(s.kernel), filters);
  g.bias = bias, g.dst = y;
  run_gather<true, false>(t, device, g, s.n);
}

void volume_transpose(const VolumeSizes& s, DType t, Device device, const void* y, bool last, const void* w,
                      const void* bias, void* x) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  Tensor source;
  const Tensor filters = turn(t, device, w, s.groups, 1, ocg, icg * VolumeSizes::product(s.kernel));
  const void* const gathered = innermost(t, device, y, s.n, s.groups, ocg, VolumeSizes::product(s.out), last, source);
  if (has_bare_places(s)) fill(t, bias, s.n, s.ic, VolumeSizes::product(s.in), x);
  for (Gather& g : transpose_gathers(s, pad_channels(ocg, t))) {
    g.source = gathered, g.filters = filters.raw_data(), g.bias = bias, g.dst = x;
    has_phases(g) ? run_gather<true, true>(t, device, g, s.n) : run_gather<true, false>(t, device, g, s.n);
  }
}

}  // namespace strata::conv_cuda
