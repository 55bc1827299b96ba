#include "strata/core/error.h"
#include "strata/ops/elementwise/map_cuda.h"

namespace strata {

void map_cuda(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params) {
  static const CudaMaps table = [] {
    CudaMaps t{};
    add_unary_maps(t);
    add_activation_maps(t);
    add_arithmetic_maps(t);
    add_comparison_maps(t);
    add_special_maps(t);
    return t;
  }();
  const DType type = in.begin()[in.size() - 1]->dtype();
  const CudaMap kernel = table[static_cast<size_t>(f)][static_cast<size_t>(type)];
  if (kernel == nullptr)
    throw DTypeError("map", cat("no elementwise CUDA kernel ", static_cast<int>(f), " for ", type));
  kernel(y, in.begin(), params);
}

}  // namespace strata
