#include "strata/ops/pool/integer_pool_kernel.h"

#include <algorithm>
#include <limits>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/pool/pool_common_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::pool {
namespace {

// The least number of the dtype: what never wins.
Scalar lowest(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return int64_t{0};
    case DType::i8:
      return int64_t{-128};
    case DType::i16:
      return int64_t{-32768};
    case DType::i32:
      return -(int64_t{1} << 31);
    default:
      return std::numeric_limits<int64_t>::min();
  }
}

// Windows as further dimensions: [.., out.., kernel..], padding being `fill`.
Tensor windows(std::string_view op, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, bool ceil_mode, Scalar fill) {
  check<DTypeError>(x.dtype() != DType::boolean, op, "does not take bool");
  check_window(op, kernel, stride, padding, dilation);
  const int n = kernel.size();
  const Dims in = spatial_of(op, x, n), out = pooled_sizes(op, in, kernel, stride, padding, dilation, ceil_mode);
  Dims pads;
  for (int d = n - 1; d >= 0; --d) {
    const int64_t reach = (out[d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1;
    pads.push_back(padding[d]);
    pads.push_back(std::max<int64_t>(reach - in[d] - padding[d], 0));
  }
  Tensor y = pad(x, pads, "constant", fill);
  const int64_t first = x.dim() - n;
  for (int d = 0; d < n; ++d) {
    y = unfold(y, first + d, dilation[d] * (kernel[d] - 1) + 1, stride[d]);
    y = slice(y, -1, 0, y.size(-1), dilation[d]);
    y = narrow(y, first + d, 0, out[d]);
  }
  return y;
}

Dims last(int n) {
  Dims d;
  for (int i = n; i > 0; --i) d.push_back(-i);
  return d;
}

}  // namespace

Tensor max_pool_integers(std::string_view op, const Tensor& x, const Dims& kernel, const Dims& stride,
                         const Dims& padding, const Dims& dilation, bool ceil_mode) {
  return amax(windows(op, x, kernel, stride, padding, dilation, ceil_mode, lowest(x.dtype())), last(kernel.size()));
}

Tensor avg_pool_integers(std::string_view op, const Tensor& x, const Dims& kernel, const Dims& stride,
                         const Dims& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  check<DTypeError>(x.dtype() != DType::boolean, op, "does not take bool");
  const Dims ones = Dims::filled(kernel.size(), 1), all = last(kernel.size());
  const auto sums = [&](const Tensor& t) {
    return sum(windows(op, t, kernel, stride, padding, ones, ceil_mode, 0), all);
  };
  const Tensor total = sums(x.to(DType::i64));
  if (divisor) return trunc_divide(total, full_like(total, *divisor)).to(x.dtype());
  // How many places count: those of the input, or with padding around it as far as that reaches.
  Shape plane = spatial_of(op, x, kernel.size());
  plane.insert(0, 1);
  Tensor places = full(plane, int64_t{1}, DType::i64).to(x.device());
  Dims around, nothing = Dims::filled(kernel.size(), 0);
  for (int d = kernel.size() - 1; d >= 0; --d)
    for (int side = 0; side < 2; ++side) around.push_back(padding[d]);
  if (count_include_pad) places = pad(places, around, "constant", 1);
  const Dims& kept = count_include_pad ? nothing : padding;
  Tensor counts = windows(op, places, kernel, stride, kept, ones, ceil_mode, 0);
  const Dims out = spatial_of(op, total, kernel.size());
  for (int d = 0; d < kernel.size(); ++d) counts = narrow(counts, d + 1, 0, out[d]);
  return trunc_divide(total, expand(sum(counts, all), total.shape())).to(x.dtype());
}

}  // namespace strata::pool
