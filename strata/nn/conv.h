#pragma once
// Convolution and pooling layers. Layouts are [N, C, L], [N, C, H, W] and [N, C, D, H, W]; names and initialisation are
// PyTorch's.

#include "strata/nn/module.h"

namespace strata::nn {

/// Lists with one entry serve every spatial dimension.
struct ConvOptions {
  Dims stride = {1};
  Dims padding = {0};
  Dims dilation = {1};
  int64_t groups = 1;
  bool bias = true;
  Dims output_padding = {0};  ///< transposed convolutions only
};

/// What the convolutions share. Parameters: weight [out, in / groups, kernel ..] (transposed: [in, out / groups,
/// kernel ..]) and bias [out], uniform in +- 1 / sqrt(fan_in).
class Conv : public Module {
 public:
  /// Draws the parameters again.
  void reset_parameters();
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  Tensor forward(const Tensor& x) const;

  Tensor weight, bias;

 protected:
  /// Throws ValueError for sizes below 1 and groups that do not divide both channel counts.
  Conv(std::string_view kind, int spatial, bool transposed, int64_t in, int64_t out, const Dims& kernel,
       const ConvOptions& options);

 private:
  int spatial_;
  bool transposed_;
  ConvOptions options_;
};

/// [N, C, L] -> [N, out, L'] (cross-correlation, as everywhere in the field).
class Conv1d : public Conv {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : Conv("Conv1d", 1, false, in_channels, out_channels, {kernel_size}, options) {}
};
/// [N, C, H, W] -> [N, out, H', W'].
class Conv2d : public Conv {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options = {})
      : Conv("Conv2d", 2, false, in_channels, out_channels, kernel_size, options) {}
  Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : Conv2d(in_channels, out_channels, Dims{kernel_size}, options) {}
};
/// [N, C, D, H, W] -> [N, out, D', H', W'].
class Conv3d : public Conv {
 public:
  Conv3d(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options = {})
      : Conv("Conv3d", 3, false, in_channels, out_channels, kernel_size, options) {}
  Conv3d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : Conv3d(in_channels, out_channels, Dims{kernel_size}, options) {}
};
/// The gradient of Conv1d as a layer: [N, C, L] -> [N, out, L'], upsampling by its stride.
class ConvTranspose1d : public Conv {
 public:
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : Conv("ConvTranspose1d", 1, true, in_channels, out_channels, {kernel_size}, options) {}
};
/// The same for [N, C, H, W].
class ConvTranspose2d : public Conv {
 public:
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options = {})
      : Conv("ConvTranspose2d", 2, true, in_channels, out_channels, kernel_size, options) {}
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : ConvTranspose2d(in_channels, out_channels, Dims{kernel_size}, options) {}
};
/// The same for [N, C, D, H, W].
class ConvTranspose3d : public Conv {
 public:
  ConvTranspose3d(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options = {})
      : Conv("ConvTranspose3d", 3, true, in_channels, out_channels, kernel_size, options) {}
  ConvTranspose3d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : ConvTranspose3d(in_channels, out_channels, Dims{kernel_size}, options) {}
};

/// The largest element of each window; `stride` 0 takes the kernel's size.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(int64_t kernel_size, int64_t stride = 0, int64_t padding = 0);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t kernel_, stride_, padding_;
};
/// The mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(int64_t kernel_size, int64_t stride = 0, int64_t padding = 0);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t kernel_, stride_, padding_;
};
/// Means of windows chosen so that the result has `output_size`.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(const Dims& output_size);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  Dims size_;
};
/// MaxPool2d for [N, C, D, H, W].
class MaxPool3d : public Module {
 public:
  explicit MaxPool3d(int64_t kernel_size, int64_t stride = 0, int64_t padding = 0);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t kernel_, stride_, padding_;
};
/// AvgPool2d for [N, C, D, H, W].
class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(int64_t kernel_size, int64_t stride = 0, int64_t padding = 0);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t kernel_, stride_, padding_;
};
/// AdaptiveAvgPool2d for [N, C, D, H, W].
class AdaptiveAvgPool3d : public Module {
 public:
  explicit AdaptiveAvgPool3d(const Dims& output_size);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  Dims size_;
};

}  // namespace strata::nn
