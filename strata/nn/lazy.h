#pragma once
// Layers that find the size of their input at the first call: PyTorch's Lazy modules. Until then they have no
// parameters; build the optimizer after it.

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "strata/nn/conv.h"
#include "strata/nn/layers.h"
#include "strata/nn/norm.h"

namespace strata::nn {

/// A layer that is made at its first call, from the size of x along `kDim`, with x's device. Its parameters and buffers
/// are this module's own, so that names are as if it had been made at once.
template <class Layer, int kDim>
class LazyModule : public Module {
 public:
  bool is_initialized() const { return made_->layer.has_value(); }
  /// The layer. Throws ValueError before the first call.
  const Layer& layer() const {
    check(is_initialized(), kind(), "has no parameters before its first call");
    return *made_->layer;
  }
  Tensor forward(const Tensor& x) const {
    if (!is_initialized()) initialize(x);
    made_->layer->train(is_training());
    return made_->layer->forward(x);
  }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 protected:
  /// `make` is called with the size, once.
  template <class Make>
  LazyModule(std::string_view kind, Make make)
      : Module(kind, "uninitialized"), made_(std::make_shared<SlotOf<Make>>(std::move(make))) {}

 private:
  // Shared by all handles to the module.
  struct Slot {
    virtual ~Slot() = default;
    virtual Layer make(int64_t size) = 0;
    std::optional<Layer> layer;
  };
  template <class Make>
  struct SlotOf final : Slot {
    explicit SlotOf(Make f) : fn(std::move(f)) {}
    Layer make(int64_t size) override { return fn(size); }
    Make fn;
  };

  void initialize(const Tensor& x) const {
    constexpr int least = kDim < 0 ? -kDim : kDim + 1;
    check<ShapeError>(x.dim() >= least && x.size(kDim) > 0, kind(), "finds its size along dimension ", kDim,
                      " of the input, got ", x);
    const DeviceScope there(x.device());
    Layer layer = made_->make(x.size(kDim));
    LazyModule self = *this;
    for (const auto& [name, t] : layer.named_parameters()) self.register_parameter(name, t);
    for (const auto& [name, t] : layer.named_buffers()) self.register_buffer(name, t);
    self.set_detail(cat("of ", layer.to_string()));
    made_->layer = std::move(layer);
  }

  std::shared_ptr<Slot> made_;
};

/// Linear whose in_features are the input's last size.
class LazyLinear : public LazyModule<Linear, -1> {
 public:
  explicit LazyLinear(int64_t out_features, bool bias = true)
      : LazyModule("LazyLinear", [=](int64_t in) { return Linear(in, out_features, bias); }) {}
};
/// Conv1d whose in_channels are the input's.
class LazyConv1d : public LazyModule<Conv1d, 1> {
 public:
  LazyConv1d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConv1d", [=](int64_t in) { return Conv1d(in, out_channels, kernel_size, options); }) {}
};
/// Conv2d whose in_channels are the input's.
class LazyConv2d : public LazyModule<Conv2d, 1> {
 public:
  LazyConv2d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConv2d", [=](int64_t in) { return Conv2d(in, out_channels, kernel_size, options); }) {}
};
/// Conv3d whose in_channels are the input's.
class LazyConv3d : public LazyModule<Conv3d, 1> {
 public:
  LazyConv3d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConv3d", [=](int64_t in) { return Conv3d(in, out_channels, kernel_size, options); }) {}
};
/// ConvTranspose1d whose in_channels are the input's.
class LazyConvTranspose1d : public LazyModule<ConvTranspose1d, 1> {
 public:
  LazyConvTranspose1d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConvTranspose1d",
                   [=](int64_t in) { return ConvTranspose1d(in, out_channels, kernel_size, options); }) {}
};
/// ConvTranspose2d whose in_channels are the input's.
class LazyConvTranspose2d : public LazyModule<ConvTranspose2d, 1> {
 public:
  LazyConvTranspose2d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConvTranspose2d",
                   [=](int64_t in) { return ConvTranspose2d(in, out_channels, kernel_size, options); }) {}
};
/// ConvTranspose3d whose in_channels are the input's.
class LazyConvTranspose3d : public LazyModule<ConvTranspose3d, 1> {
 public:
  LazyConvTranspose3d(int64_t out_channels, int64_t kernel_size, const ConvOptions& options = {})
      : LazyModule("LazyConvTranspose3d",
                   [=](int64_t in) { return ConvTranspose3d(in, out_channels, kernel_size, options); }) {}
};
/// BatchNorm1d whose num_features are the input's channels.
class LazyBatchNorm1d : public LazyModule<BatchNorm1d, 1> {
 public:
  explicit LazyBatchNorm1d(const BatchNormOptions& options = {})
      : LazyModule("LazyBatchNorm1d", [=](int64_t channels) { return BatchNorm1d(channels, options); }) {}
};
/// BatchNorm2d whose num_features are the input's channels.
class LazyBatchNorm2d : public LazyModule<BatchNorm2d, 1> {
 public:
  explicit LazyBatchNorm2d(const BatchNormOptions& options = {})
      : LazyModule("LazyBatchNorm2d", [=](int64_t channels) { return BatchNorm2d(channels, options); }) {}
};
/// BatchNorm3d whose num_features are the input's channels.
class LazyBatchNorm3d : public LazyModule<BatchNorm3d, 1> {
 public:
  explicit LazyBatchNorm3d(const BatchNormOptions& options = {})
      : LazyModule("LazyBatchNorm3d", [=](int64_t channels) { return BatchNorm3d(channels, options); }) {}
};

}  // namespace strata::nn
