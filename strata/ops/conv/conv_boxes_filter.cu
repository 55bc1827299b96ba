// Launches of conv_boxes_filter_kernel.cuh.

#include "strata/ops/conv/conv_boxes_filter_kernel.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

template <class Element>
struct Elements {
  using T = Element;
};

template <class T, int Tall>
void launch(const FilterBoxes& g, int bytes) {
  constexpr auto kernel = filter_boxes_kernel<Elements<T>, Tall>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared),
             "convolution_weight", "cudaFuncSetAttribute");
  const auto blocks = static_cast<unsigned>(g.work.rows * g.work.tiles * g.work.shares);
  kernel<<<blocks, 128 * (Tall + 1), static_cast<size_t>(bytes), stream()>>>(g);
}

}  // namespace

bool boxes_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (!fits_boxes(s, t, device, x, y)) return false;
  const FilterPlan p = plan_filter(s, fits_runs(s), properties(device.index).multiprocessors);
  if (p.tall == 0) return false;
  FilterBoxes g{};
  g.work = p.work;
  g.x = p.work.places.runs ? run_map(s, t, x, kPixels) : box_map(t, x, p.x);
  g.y = box_map(t, y, p.y);
  const Tensor sums = workspace(DType::f32, device, p.work.shares * p.results);
  g.sums = static_cast<float*>(sums.raw_data());
  const auto run = [&]<class T>() {
    p.tall == 1 ? launch<T, 1>(g, p.bytes) : p.tall == 2 ? launch<T, 2>(g, p.bytes) : launch<T, 3>(g, p.bytes);
  };
  t == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Half>();
  add_filter_shares(s, t, g.sums, p.work.shares, static_cast<int>(s.kh * s.kw), static_cast<int>(s.ic), w);
  return true;
}

}  // namespace strata::conv_cuda
