#include "strata/nn/layers.h"

#include <cmath>
#include <optional>
#include <utility>

#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/position_dropout_inl.h"
#include "strata/nn/table_lookup_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {
thread_local std::optional<DType> t_deferred;
}  // namespace

detail::DeferredWeights::DeferredWeights(DType dtype) : before_(std::exchange(t_deferred, dtype)) {}
detail::DeferredWeights::~DeferredWeights() {
  t_deferred = before_;
}
std::optional<DType> detail::DeferredWeights::dtype() {
  return t_deferred;
}

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias)
    : Module("Linear",
             cat("in_features=", in_features, ", out_features=", out_features, with_bias ? "" : ", bias=false")) {
  check(in_features >= 0 && out_features >= 0, "Linear", "sizes are at least 0, got ", in_features, " and ",
        out_features);
  if (const std::optional<DType> later = detail::DeferredWeights::dtype()) {
    const NoGrad guard;
    const memory::TagScope tag(memory::Tag::parameter);
    weight = register_parameter("weight",
                                empty({{}, *later, Device::meta(), std::nullopt}).expand({out_features, in_features}));
  } else {
    weight = new_parameter("weight", {out_features, in_features});
  }
  if (with_bias) bias = new_parameter("bias", {out_features});
  reset_parameters();
}

void Linear::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, weight.size(1))));
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) const {
  return linear(x, weight, bias);
}

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_index)
    : Module("Embedding", cat(num_embeddings, ", ", embedding_dim)) {
  check(num_embeddings > 0 && embedding_dim > 0, "Embedding", "sizes are at least 1, got ", num_embeddings, " and ",
        embedding_dim);
  if (padding_index) {
    check<IndexError>(*padding_index >= -num_embeddings && *padding_index < num_embeddings, "Embedding",
                      "padding_index ", *padding_index, " is not in [", -num_embeddings, ", ", num_embeddings, ")");
    padding_index_ = *padding_index < 0 ? *padding_index + num_embeddings : *padding_index;
  }
  weight = new_parameter("weight", {num_embeddings, embedding_dim});
  reset_parameters();
}

void Embedding::reset_parameters() {
  init::normal_(weight);
  NoGrad guard;
  if (padding_index_ && !weight.is_meta()) weight.select(0, *padding_index_).zero_();
}

Tensor Embedding::forward(const Tensor& indices) const {
  if (const auto rows = detail::lookup_of(weight)) return rows->forward(indices, weight, padding_index_);
  return embedding(indices, weight, padding_index_);
}

EmbeddingBag::EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const std::string& mode,
                           std::optional<int64_t> padding_index)
    : Module("EmbeddingBag", cat(num_embeddings, ", ", embedding_dim, ", mode=", mode)), mode_(mode) {
  check(num_embeddings > 0 && embedding_dim > 0, "EmbeddingBag", "sizes are at least 1, got ", num_embeddings, " and ",
        embedding_dim);
  check(mode == "mean" || mode == "sum" || mode == "max", "EmbeddingBag", "mode '", mode, "' must be mean, sum or max");
  if (padding_index) {
    check<IndexError>(*padding_index >= -num_embeddings && *padding_index < num_embeddings, "EmbeddingBag",
                      "padding_index ", *padding_index, " is not in [", -num_embeddings, ", ", num_embeddings, ")");
    padding_index_ = *padding_index < 0 ? *padding_index + num_embeddings : *padding_index;
  }
  weight = new_parameter("weight", {num_embeddings, embedding_dim});
  reset_parameters();
}

void EmbeddingBag::reset_parameters() {
  init::normal_(weight);
  NoGrad guard;
  if (padding_index_ && !weight.is_meta()) weight.select(0, *padding_index_).zero_();
}

Tensor EmbeddingBag::forward(const Tensor& indices, const Tensor& offsets) const {
  return embedding_bag(indices, weight, offsets, mode_, {}, false, padding_index_);
}

Dropout::Dropout(double p) : Module("Dropout", cat("p=", p)), p_(p) {
  check(p >= 0 && p <= 1, "Dropout", "p is a probability, got ", p);
}

Tensor Dropout::forward(const Tensor& x) const {
  return is_training() && p_ > 0 ? detail::dropped(x, p_) : x;
}

Flatten::Flatten(int64_t start_dim, int64_t end_dim)
    : Module("Flatten", cat(start_dim, ", ", end_dim)), start_(start_dim), end_(end_dim) {}

Tensor ReLU::forward(const Tensor& x) const {
  return relu(x);
}

GELU::GELU(std::string approximate) : Module("GELU", approximate), approximate_(std::move(approximate)) {
  check(approximate_ == "none" || approximate_ == "tanh", "GELU", "approximate is 'none' or 'tanh', got '",
        approximate_, "'");
}
Tensor GELU::forward(const Tensor& x) const {
  return gelu(x, approximate_);
}

Tensor SiLU::forward(const Tensor& x) const {
  return silu(x);
}

Softmax::Softmax(int64_t dim) : Module("Softmax", cat("dim=", dim)), dim_(dim) {}

}  // namespace strata::nn
