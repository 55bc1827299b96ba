#pragma once
// The everyday layers. Names, arguments, parameter names and initialisation are PyTorch's.
// Calling a layer is the same as its forward().

#include <optional>
#include <string>

#include "strata/nn/module.h"

namespace strata::nn {

/// x weight^T + bias: [.., in] -> [.., out]. Parameters: weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  /// Draws the parameters again, uniform in +- 1 / sqrt(in).
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

  Tensor weight, bias;
};

/// Rows of a table: indices [..] (i64) -> [.., dim]. Parameter: weight [vocabulary, dim], drawn from N(0, 1).
class Embedding : public Module {
 public:
  /// Row `padding_index`, where given, starts at 0 and gets no gradient.
  Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_index = {});
  void reset_parameters();
  /// Throws IndexError for an index out of range.
  Tensor forward(const Tensor& indices) const;
  Tensor operator()(const Tensor& indices) const { return called(*this, indices); }

  Tensor weight;

 private:
  std::optional<int64_t> padding_index_;
};

/// Sums, means or maxima of rows of a table, bag by bag: indices [bags, n] (i64) -> [bags, dim]. Parameter: weight
/// [vocabulary, dim], drawn from N(0, 1).
class EmbeddingBag : public Module {
 public:
  /// `mode` is "mean", "sum" or "max". Row `padding_index`, where given, starts at 0, counts nothing and gets no
  /// gradient.
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const std::string& mode = "mean",
               std::optional<int64_t> padding_index = {});
  void reset_parameters();
  /// With `offsets` (i64) indices are [n], and a bag begins at each. Throws as embedding_bag.
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}) const;
  Tensor operator()(const Tensor& indices, const Tensor& offsets = {}) const {
    return called(*this, indices, [&](const Tensor& t) { return forward(t, offsets); });
  }

  Tensor weight;

 private:
  std::string mode_;
  std::optional<int64_t> padding_index_;
};

/// In training, zeroes each element with probability p and divides the others by 1 - p; else the identity.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  double p_;
};

/// Dimensions start_dim to end_dim as one.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1);
  Tensor forward(const Tensor& x) const { return x.flatten(start_, end_); }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t start_, end_;
};

/// Returns what it gets: a place for a layer that may be there or not.
class Identity : public Module {
 public:
  Identity() : Module("Identity") {}
  Tensor forward(const Tensor& x) const { return x; }
  Tensor operator()(const Tensor& x) const { return x; }
};

/// @name Activations
/// @{
/// max(x, 0).
class ReLU : public Module {
 public:
  ReLU() : Module("ReLU") {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
};
/// `approximate` is "none" (exact) or "tanh".
class GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none");
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  std::string approximate_;
};
/// x sigmoid(x).
class SiLU : public Module {
 public:
  SiLU() : Module("SiLU") {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
};
/// tanh(x).
class Tanh : public Module {
 public:
  Tanh() : Module("Tanh") {}
  Tensor forward(const Tensor& x) const { return x.tanh(); }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
};
/// 1 / (1 + exp(-x)).
class Sigmoid : public Module {
 public:
  Sigmoid() : Module("Sigmoid") {}
  Tensor forward(const Tensor& x) const { return x.sigmoid(); }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
};
/// exp(x) over its sum along `dim`.
class Softmax : public Module {
 public:
  explicit Softmax(int64_t dim);
  Tensor forward(const Tensor& x) const { return x.softmax(dim_); }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  int64_t dim_;
};
/// @}

}  // namespace strata::nn
