// Launches of conv_boxes_filter_kernel.cuh.

#include "strata/ops/conv/conv_boxes_filter_kernel.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

template <class Element>
struct Elements {
  using T = Element;
};

template <class T, int Tall, Shared kShared>
void launch(const FilterBoxes& g, int bytes) {
  constexpr auto kernel = filter_boxes_kernel<Elements<T>, Tall, kShared>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared),
             "convolution_weight", "cudaFuncSetAttribute");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(g.work.rows * g.work.tiles * g.work.shares));
  config.blockDim = dim3(128 * (Tall + 1));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream();
  config.attrs = &cluster, config.numAttrs = kShared == Shared::nothing ? 0 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, g), "convolution_weight", "cudaLaunchKernelEx");
}
template <class T, int Tall>
void launch(Shared shared, const FilterBoxes& g, int bytes) {
  shared == Shared::x   ? launch<T, Tall, Shared::x>(g, bytes)
  : shared == Shared::y ? launch<T, Tall, Shared::y>(g, bytes)
                        : launch<T, Tall, Shared::nothing>(g, bytes);
}

}  // namespace

bool boxes_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (!fits_boxes(s, t, device, x, y)) return false;
  const FilterPlan p = plan_filter(s, fits_runs(s), properties(device.index).multiprocessors, conv_choice());
  if (p.tall == 0) return false;
  FilterBoxes g{};
  g.work = p.work;
  g.x = p.work.places.runs ? run_map(s, t, x, kPixels) : box_map(t, x, p.x);
  g.y = box_map(t, y, p.y);
  const Tensor sums = workspace(DType::f32, device, p.work.shares * p.results);
  g.sums = static_cast<float*>(sums.raw_data());
  const auto run = [&]<class T>() {
    p.tall == 1   ? launch<T, 1, Shared::nothing>(g, p.bytes)
    : p.tall == 2 ? launch<T, 2>(p.shared, g, p.bytes)
                  : launch<T, 3>(p.shared, g, p.bytes);
  };
  t == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Half>();
  add_filter_shares(s, t, g.sums, p.work.shares, static_cast<int>(s.kh * s.kw), static_cast<int>(s.ic), w);
  return true;
}

}  // namespace strata::conv_cuda
