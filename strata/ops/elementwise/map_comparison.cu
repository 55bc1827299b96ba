#include "strata/ops/elementwise/map.cuh"

#define STRATA_MAP_COMPARISON
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {
// where(): the first operand is the condition.
struct Choose {
  template <class T>
  __device__ T operator()(bool c, T a, T b) const {
    return c ? a : b;
  }
};
template <class T>
void where(Tensor& y, const Tensor* const* in, const MapParams&) {
  cuda::elementwise<T, bool, T, T>("where", y, Choose{}, *in[0], *in[1], *in[2]);
}
}  // namespace

void add_comparison_maps(CudaMaps& table) {
  Rows rows(table);
  comparison_rows(rows);
  for (const DType t : kAllDTypes)
    dispatch_all(t, "where",
                 [&]<class T>() { table[static_cast<size_t>(Map::where)][static_cast<size_t>(t)] = where<T>; });
}
}  // namespace strata
