#include "strata/nn/conv.h"

#include <cmath>

#include "strata/nn/init.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/pool/pool.h"

namespace strata::nn {

Conv::Conv(std::string_view kind, int spatial, bool transposed, int64_t in, int64_t out, const Dims& kernel,
           const ConvOptions& options)
    : Module(kind,
             cat(in, ", ", out, ", kernel_size=", kernel, ", stride=", options.stride, ", padding=", options.padding)),
      spatial_(spatial),
      transposed_(transposed),
      options_(options) {
  check(in > 0 && out > 0 && options.groups > 0, kind, "channels and groups are at least 1, got ", in, ", ", out,
        " and ", options.groups);
  check(in % options.groups == 0 && out % options.groups == 0, kind, options.groups, " groups do not divide ", in,
        " and ", out, " channels");
  check(kernel.size() == 1 || kernel.size() == spatial, kind, "kernel_size has one entry or ", spatial, ", got ",
        kernel);
  Shape shape = transposed ? Shape{in, out / options.groups} : Shape{out, in / options.groups};
  for (int i = 0; i < spatial; ++i) {
    const int64_t k = kernel[kernel.size() == 1 ? 0 : i];
    check(k > 0, kind, "kernel_size is at least 1, got ", kernel);
    shape.push_back(k);
  }
  weight = new_parameter("weight", shape);
  if (options.bias) bias = new_parameter("bias", {out});
  reset_parameters();
}

void Conv::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).first));
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Conv::forward(const Tensor& x) const {
  const ConvOptions& o = options_;
  if (transposed_) {
    if (spatial_ == 1)
      return conv_transpose1d(x, weight, bias, o.stride, o.padding, o.output_padding, o.groups, o.dilation);
    if (spatial_ == 2)
      return conv_transpose2d(x, weight, bias, o.stride, o.padding, o.output_padding, o.groups, o.dilation);
    return conv_transpose3d(x, weight, bias, o.stride, o.padding, o.output_padding, o.groups, o.dilation);
  }
  if (spatial_ == 1) return conv1d(x, weight, bias, o.stride, o.padding, o.dilation, o.groups);
  if (spatial_ == 2) return conv2d(x, weight, bias, o.stride, o.padding, o.dilation, o.groups);
  return conv3d(x, weight, bias, o.stride, o.padding, o.dilation, o.groups);
}

MaxPool2d::MaxPool2d(int64_t kernel_size, int64_t stride, int64_t padding)
    : Module("MaxPool2d", cat("kernel_size=", kernel_size)),
      kernel_(kernel_size),
      stride_(stride > 0 ? stride : kernel_size),
      padding_(padding) {}
Tensor MaxPool2d::forward(const Tensor& x) const {
  return max_pool2d(x, {kernel_}, {stride_}, {padding_});
}

AvgPool2d::AvgPool2d(int64_t kernel_size, int64_t stride, int64_t padding)
    : Module("AvgPool2d", cat("kernel_size=", kernel_size)),
      kernel_(kernel_size),
      stride_(stride > 0 ? stride : kernel_size),
      padding_(padding) {}
Tensor AvgPool2d::forward(const Tensor& x) const {
  return avg_pool2d(x, {kernel_}, {stride_}, {padding_});
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(const Dims& output_size)
    : Module("AdaptiveAvgPool2d", strata::to_string(output_size)), size_(output_size) {}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) const {
  return adaptive_avg_pool2d(x, size_);
}

MaxPool3d::MaxPool3d(int64_t kernel_size, int64_t stride, int64_t padding)
    : Module("MaxPool3d", cat("kernel_size=", kernel_size)),
      kernel_(kernel_size),
      stride_(stride > 0 ? stride : kernel_size),
      padding_(padding) {}
Tensor MaxPool3d::forward(const Tensor& x) const {
  return max_pool3d(x, {kernel_}, {stride_}, {padding_});
}

AvgPool3d::AvgPool3d(int64_t kernel_size, int64_t stride, int64_t padding)
    : Module("AvgPool3d", cat("kernel_size=", kernel_size)),
      kernel_(kernel_size),
      stride_(stride > 0 ? stride : kernel_size),
      padding_(padding) {}
Tensor AvgPool3d::forward(const Tensor& x) const {
  return avg_pool3d(x, {kernel_}, {stride_}, {padding_});
}

AdaptiveAvgPool3d::AdaptiveAvgPool3d(const Dims& output_size)
    : Module("AdaptiveAvgPool3d", strata::to_string(output_size)), size_(output_size) {}
Tensor AdaptiveAvgPool3d::forward(const Tensor& x) const {
  return adaptive_avg_pool3d(x, size_);
}

}  // namespace strata::nn
