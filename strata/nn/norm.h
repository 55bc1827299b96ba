#pragma once
// Normalisation layers. Parameter and buffer names and initial values (weights 1, biases 0) are PyTorch's.

#include <utility>

#include "strata/nn/layer_spec.h"
#include "strata/nn/module.h"

namespace strata::nn {

/// Normalises the last dimensions to mean 0 and variance 1, then weight and bias of shape `normalized_shape`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized_shape, double eps = 1e-5, bool elementwise_affine = true,
                     bool bias = true);
  explicit LayerNorm(int64_t dim, double eps = 1e-5) : LayerNorm(Shape{dim}, eps) {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  double eps() const { return eps_; }

  Tensor weight, bias;

 private:
  Shape shape_;
  double eps_;
};

/// Divides the last dimensions by their root mean square, then weight.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(const Shape& normalized_shape, double eps = 1e-6, bool elementwise_affine = true);
  explicit RMSNorm(int64_t dim, double eps = 1e-6) : RMSNorm(Shape{dim}, eps) {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  double eps() const { return eps_; }

  Tensor weight;

 private:
  Shape shape_;
  double eps_;
};

/// The norm of a spec over a last dimension of `dim`. Parameters: weight [dim], and bias [dim] where the spec has one.
///
///     const Norm norm(64, {.kind = NormSpec::Kind::rms, .eps = 1e-6});
class Norm : public Module {
 public:
  Norm(int64_t dim, const NormSpec& spec);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  /// norm(stream + branch) and that sum, in one pass.
  std::pair<Tensor, Tensor> add(const Tensor& branch, const Tensor& stream) const;
  const NormSpec& spec() const { return spec_; }

  Tensor weight, bias;

 private:
  Tensor factor() const;
  NormSpec spec_;
};

/// Normalises groups of channels of each item of [N, C, ...]; weight and bias are [C].
class GroupNorm : public Module {
 public:
  /// Throws ValueError unless num_groups divides num_channels.
  GroupNorm(int64_t num_groups, int64_t num_channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

  Tensor weight, bias;

 private:
  int64_t groups_;
  double eps_;
};

/// Of BatchNorm1d and BatchNorm2d; the defaults are PyTorch's.
struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the newest batch in the running statistics
  bool affine = true;
  bool track_running_stats = true;
};

/// Normalises each channel over the batch in training, by the running statistics in evaluation. Buffers:
/// running_mean [C], running_var [C], num_batches_tracked [] (i64).
class BatchNorm : public Module {
 public:
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  /// Throws ShapeError for a rank that the layer does not take.
  Tensor forward(const Tensor& x) const;

  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  BatchNorm(std::string_view kind, int64_t min_rank, int64_t max_rank, int64_t features,
            const BatchNormOptions& options);

 private:
  int64_t min_rank_, max_rank_;
  BatchNormOptions options_;
};
/// [N, C] or [N, C, L].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", 2, 3, num_features, options) {}
};
/// [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", 4, 4, num_features, options) {}
};
/// [N, C, D, H, W].
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm3d", 5, 5, num_features, options) {}
};

}  // namespace strata::nn
