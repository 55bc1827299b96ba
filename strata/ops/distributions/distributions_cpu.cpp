#include "strata/core/parallel.h"
#include "strata/ops/distributions/distributions_kernel.h"

namespace strata {

void sample_cpu(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.numel() == 0) return;
  const double *p = a.data<double>(), *q = b.defined() ? b.data<double>() : p;
  double* out = y.data<double>();
  parallel_for(0, y.numel(), 512, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = sampler::element(kind, key, static_cast<uint64_t>(i), p[i], q[i]);
  });
}

}  // namespace strata
