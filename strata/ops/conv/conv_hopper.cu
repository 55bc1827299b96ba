// Convolutions on Hopper's tensor cores: operands are written with their channels innermost, then gathered
// (conv_gather_kernel.cuh). A transposed convolution is a gathering one over the elements of the result that share
// their place within the strides ("phases").

#include "strata/ops/conv/conv_gather.cuh"

namespace strata::conv_cuda {

bool hopper_forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias, void* y,
                    bool last) {
  if (!fits_hopper(s, t, device)) return false;
  const int64_t icg = s.ic / s.groups;
  Tensor source, filters;
  Gather g = forward_gather(as_volume(s), pad_channels(icg, t));
  g.last = last;
  g.source = innermost(t, device, x, s.n, s.groups, icg, s.ih * s.iw, last, source),
  g.filters = turn_filters(t, device, w, s.oc, icg, s.kh * s.kw, filters);
  g.bias = bias, g.dst = y;
  run_gather<false, false>(t, device, g, s.n);
  return true;
}

bool hopper_transpose(const ConvSizes& s, DType t, Device device, const void* y, const void* w, const void* bias,
                      void* x, bool last) {
  if (!fits_hopper(s, t, device) || s.sh * s.sw > 64) return false;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, taps = s.kh * s.kw;
  const VolumeSizes sizes = as_volume(s);
  Tensor source;
  // [groups, icg, taps, ocg]: of each group a matrix turned around.
  const Tensor filters = turn(t, device, w, s.groups, 1, ocg, icg * taps);
  const void* const gathered = innermost(t, device, y, s.n, s.groups, ocg, s.oh * s.ow, last, source);
  // Beforehand, in runs.
  if (has_bare_places(sizes))
    last ? fill(t, bias, s.n * s.ih * s.iw, s.ic, 1, x) : fill(t, bias, s.n, s.ic, s.ih * s.iw, x);
  for (Gather& g : transpose_gathers(sizes, pad_channels(ocg, t))) {
    g.last = last;
    g.source = gathered, g.filters = filters.raw_data(), g.bias = bias, g.dst = x;
    has_phases(g) ? run_phases_gather(t, device, g, s.n) : run_gather<false, false>(t, device, g, s.n);
  }
  return true;
}

}  // namespace strata::conv_cuda
