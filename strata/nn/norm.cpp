#include "strata/nn/norm.h"

#include "strata/core/node.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/norm/norm.h"

namespace strata::nn {

LayerNorm::LayerNorm(const Shape& normalized_shape, double eps, bool elementwise_affine, bool with_bias)
    : Module("LayerNorm", cat(normalized_shape, ", eps=", eps)), shape_(normalized_shape), eps_(eps) {
  if (!elementwise_affine) return;
  weight = init::ones_(new_parameter("weight", shape_));
  if (with_bias) bias = init::zeros_(new_parameter("bias", shape_));
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, shape_, weight, bias, eps_);
}

RMSNorm::RMSNorm(const Shape& normalized_shape, double eps, bool elementwise_affine)
    : Module("RMSNorm", cat(normalized_shape, ", eps=", eps)), shape_(normalized_shape), eps_(eps) {
  if (elementwise_affine) weight = init::ones_(new_parameter("weight", shape_));
}

Tensor RMSNorm::forward(const Tensor& x) const {
  return rms_norm(x, shape_, weight, eps_);
}

Norm::Norm(int64_t dim, const NormSpec& spec)
    : Module(spec.kind == NormSpec::Kind::rms ? "RMSNorm" : "LayerNorm", cat(Shape{dim}, ", eps=", spec.eps)),
      spec_(spec) {
  weight = init::constant_(new_parameter("weight", {dim}), spec.one_plus ? 0 : 1);
  if (spec.kind == NormSpec::Kind::layer && spec.bias) bias = init::zeros_(new_parameter("bias", {dim}));
}

// In the precision of statistics: 1 + weight of bf16 would lose what the weight says.
Tensor Norm::factor() const {
  return spec_.one_plus ? weight.to(statistic_dtype(weight.dtype())) + 1 : weight;
}

Tensor Norm::forward(const Tensor& x) const {
  if (spec_.kind == NormSpec::Kind::rms) return rms_norm(x, weight.shape(), factor(), spec_.eps);
  return layer_norm(x, weight.shape(), factor(), bias, spec_.eps);
}

std::pair<Tensor, Tensor> Norm::add(const Tensor& branch, const Tensor& stream) const {
  auto [normed, sum] = spec_.kind == NormSpec::Kind::rms ? add_rms_norm(branch, stream, factor(), spec_.eps)
                                                         : add_layer_norm(branch, stream, factor(), bias, spec_.eps);
  return {std::move(normed), std::move(sum)};
}

GroupNorm::GroupNorm(int64_t num_groups, int64_t num_channels, double eps, bool affine)
    : Module("GroupNorm", cat(num_groups, ", ", num_channels, ", eps=", eps)), groups_(num_groups), eps_(eps) {
  check(num_groups > 0 && num_channels % num_groups == 0, "GroupNorm", num_groups, " groups do not divide ",
        num_channels, " channels");
  if (!affine) return;
  weight = init::ones_(new_parameter("weight", {num_channels}));
  bias = init::zeros_(new_parameter("bias", {num_channels}));
}

Tensor GroupNorm::forward(const Tensor& x) const {
  return group_norm(x, groups_, weight, bias, eps_);
}

BatchNorm::BatchNorm(std::string_view kind, int64_t min_rank, int64_t max_rank, int64_t features,
                     const BatchNormOptions& options)
    : Module(kind, cat(features, ", eps=", options.eps, ", momentum=", options.momentum)),
      min_rank_(min_rank),
      max_rank_(max_rank),
      options_(options) {
  if (options.affine) {
    weight = init::ones_(new_parameter("weight", {features}));
    bias = init::zeros_(new_parameter("bias", {features}));
  }
  if (!options.track_running_stats) return;
  running_mean = register_buffer("running_mean", zeros({features}));
  running_var = register_buffer("running_var", ones({features}));
  num_batches_tracked = register_buffer("num_batches_tracked", zeros({}, DType::i64));
}

Tensor BatchNorm::forward(const Tensor& x) const {
  check<ShapeError>(x.dim() >= min_rank_ && x.dim() <= max_rank_, kind(), "wants ", min_rank_,
                    min_rank_ == max_rank_ ? std::string() : cat(" to ", max_rank_), " dimensions, got ", x);
  const bool training = is_training() || !running_mean.defined();
  if (is_training() && num_batches_tracked.defined() && !x.is_meta()) {
    Tensor count = num_batches_tracked;
    count.add_(Scalar(1));
  }
  return batch_norm(x, running_mean, running_var, weight, bias, training, options_.momentum, options_.eps);
}

}  // namespace strata::nn
