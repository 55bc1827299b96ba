#include <algorithm>
#include <cstring>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/generation/generation_kernels.h"

namespace strata::generation {

void cache_write_cpu(Tensor& y, const Tensor& x, const Tensor& starts, const Tensor& counts) {
  const int64_t heads = x.size(1), most = x.size(2), d = x.size(3), capacity = y.size(2);
  const Tensor start = starts.contiguous(), count = counts.defined() ? counts.contiguous() : counts;
  const auto* const first = start.data<int64_t>();
  const auto rows_of = [&](int64_t b) {
    return count.defined() ? std::clamp<int64_t>(count.data<int64_t>()[b], 0, most) : most;
  };
  for (int64_t b = 0; b < x.size(0); ++b)
    check<IndexError>(rows_of(b) == 0 || (first[b] >= 0 && first[b] <= capacity - rows_of(b)), "cache_write", "row ", b,
                      " writes ", rows_of(b), " places from ", first[b], " on; the cache has ", capacity);
  if (d == 0) return;  // no row has bytes, and there may be no memory
  const bool whole = (y.strides()[3] == 1 && x.strides()[3] == 1) || d == 1;
  dispatch_bytes(y.dtype(), [&]<class B>() {
    parallel_for(0, x.size(0) * heads, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, most * d)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k) {
                     const int64_t b = k / heads, h = k % heads;
                     for (int64_t t = 0; t < rows_of(b); ++t) {
                       B* const to = static_cast<B*>(y.raw_data()) + b * y.strides()[0] + h * y.strides()[1] +
                                     (first[b] + t) * y.strides()[2];
                       const B* const from = static_cast<const B*>(x.raw_data()) + b * x.strides()[0] +
                                             h * x.strides()[1] + t * x.strides()[2];
                       if (whole)
                         std::memcpy(to, from, static_cast<size_t>(d) * sizeof(B));
                       else
                         for (int64_t j = 0; j < d; ++j) to[j * y.strides()[3]] = from[j * x.strides()[3]];
                     }
                   }
                 });
  });
}

}  // namespace strata::generation
