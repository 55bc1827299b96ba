#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {

Tensor detail::integer_convolution(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
  const int n = stride.size();
  check_geometry(op, Geometry{stride, padding, dilation, groups}, n);
  check<DTypeError>(
      x.dtype() != DType::boolean && weight.dtype() == x.dtype() && (!bias.defined() || bias.dtype() == x.dtype()), op,
      "x, weight and bias must have one dtype other than bool, got ", x, " and ", weight);
  const int64_t out_channels = weight.size(0), share = weight.size(1);
  check<ShapeError>(x.size(1) == share * groups && out_channels % groups == 0, op, "x is ", x, " and weight is ",
                    weight, " with ", groups, " groups, wants x [n, ", groups, " times ", share, ", ..]");
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{out_channels}, op, "bias is ", bias, ", wanted [",
                    out_channels, "]");
  Dims pads;
  for (int d = n - 1; d >= 0; --d)
    for (int side = 0; side < 2; ++side) pads.push_back(padding[d]);
  Tensor windows = pad(x, pads);  // then [batch, in, out.., kernel..]
  int64_t taps = share, places = 1;
  Dims order{0, 1};
  for (int d = 0; d < n; ++d) {
    const int64_t kernel = weight.size(2 + d), reach = extent(kernel, dilation[d]);
    check<ShapeError>(kernel >= 1 && windows.size(2 + d) >= reach, op, "weight ", weight, " with dilation ", dilation,
                      " does not fit ", x, " with padding ", padding);
    windows = slice(unfold(windows, 2 + d, reach, stride[d]), -1, 0, reach, dilation[d]);
    taps *= kernel;
  }
  Shape result{x.size(0), out_channels};
  for (int d = 0; d < n; ++d) order.push_back(2 + n + d);
  for (int d = 0; d < n; ++d) {
    order.push_back(2 + d);
    result.push_back(windows.size(2 + d));
    places *= windows.size(2 + d);
  }
  const Tensor columns = permute(windows, order).reshape({x.size(0), groups, taps, places});
  const Tensor y = matmul(weight.reshape({1, groups, out_channels / groups, taps}), columns).reshape(result);
  if (!bias.defined()) return y;
  Shape spread = Shape::filled(y.dim(), 1);
  spread[1] = out_channels;
  return y + bias.reshape(spread);
}

}  // namespace strata
