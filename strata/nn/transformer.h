#pragma once
// Blocks of transformers, built from a LayerSpec: those of GPT-2, Llama, Gemma, GPT-NeoX, BERT and their kin.

#include <memory>
#include <optional>
#include <utility>

#include "strata/nn/attention.h"
#include "strata/nn/experts.h"
#include "strata/nn/norm.h"

namespace strata::distributed {
class Work;
}

namespace strata::nn {

/// Sizes of the blocks of decoders that are trained here.
struct BlockOptions {
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  ///< a divisor of heads; 0 takes heads
  int64_t ffn_dim = 0;   ///< 0 takes 4 dim (GPT) or 8/3 dim rounded up to a multiple of 64 (Llama)
  double dropout = 0;    ///< on attention weights and on what each branch adds
  double norm_eps = 1e-5;
};
/// GPT-2's block (Radford et al. 2019): LayerNorm, biases, GELU. Throws ValueError unless heads divides dim.
LayerSpec gpt_layer(const BlockOptions& options);
/// Llama's (Touvron et al., arXiv:2302.13971): RMSNorm, the first rotary positions of the model, grouped-query
/// attention, SwiGLU, no biases. Throws ValueError unless heads divides dim.
LayerSpec llama_layer(const BlockOptions& options);

/// The residual stream between two halves of blocks, before it is added up: x = stream + branch. The addition is left
/// to the norm that follows, which does both in one pass.
struct Residual {
  Tensor branch;
  Tensor stream;     ///< undefined at the start: x = branch
  Tensor loss = {};  ///< what the layers before add to the model's loss, a scalar; undefined: nothing
  /// Of NormPlacement::ladder with tensor parallelism: `branch` is a sum that still travels, and is not looked at
  /// before this was waited for. Null: it is there.
  std::shared_ptr<distributed::Work> arriving = {};

  /// The same when `branch` is there.
  Residual settled() const;
  /// x itself.
  Tensor sum() const;
};

/// norm(x) and x of a residual stream, in one pass. Waits for what is arriving.
std::pair<Tensor, Tensor> add_norm(const Norm& norm, const Residual& r);

/// down(act(up(x))), or down(act(a) * b) where gate_up(x) is a beside b. Parameters: up.weight [width, dim] or
/// gate_up.weight [2 width, dim], down.weight [dim, width], and their biases; of experts those of Experts, under
/// "experts".
class FeedForward : public Module {
 public:
  FeedForward(int64_t dim, const FeedForwardSpec& spec);
  /// What experts add to the model's loss is added to `loss` where that is given.
  Tensor forward(const Tensor& x, Tensor* loss = nullptr) const;
  Tensor operator()(const Tensor& x, Tensor* loss = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, loss); });
  }
  const FeedForwardSpec& spec() const { return spec_; }
  /// From now on so many rows of x are computed at a time, and again in backward: tiled(). 0: all. Experts are not.
  void set_tile(int64_t rows) { tile_ = rows; }
  /// From now on what goes into `down` of a gated part is made again in backward from what gate_up gave, which is kept
  /// for its gradient anyhow: the same bits for one more pass over that memory, and a third less kept (MadeAgain). Not
  /// where dropout lies between.
  void set_gate_again(bool yes) { gate_again_ = yes; }

  std::optional<Linear> up;       ///< where it is not gated
  std::optional<Linear> gate_up;  ///< where it is
  std::optional<Linear> down;     ///< without experts
  std::optional<Experts> experts;

 private:
  Tensor compute(const Tensor& x) const;

  FeedForwardSpec spec_;
  int64_t tile_ = 0;
  bool gate_again_ = false;
};

/// A block: attention and a feed-forward part, their norms where LayerSpec::placement has them. Parameters in order:
/// norm1, attn, norm2, mlp, then norm3 and norm4 (sandwich), scale1 and scale2 (layer_scale).
///
///     const TransformerBlock block(64, spec.layers[0]);
///     const Tensor y = block(x);                            // x [B, T, 64]
class TransformerBlock : public Module {
 public:
  TransformerBlock(int64_t dim, const LayerSpec& spec);
  Tensor forward(const Tensor& x, const Places& places = {}, KvCache* cache = nullptr) const;
  Tensor operator()(const Tensor& x, const Places& places = {}, KvCache* cache = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, places, cache); });
  }
  /// The same without the last addition, for a stack of blocks. Of NormPlacement::ladder with what is arriving left so.
  Residual step(const Residual& r, const Places& places = {}, KvCache* cache = nullptr) const;
  const LayerSpec& spec() const { return spec_; }

  Norm norm1;
  SelfAttention attn;
  std::optional<Norm> norm2;  ///< not with NormPlacement::parallel
  FeedForward mlp;
  Dropout dropout;
  std::optional<Norm> norm3, norm4;  ///< behind attention and the feed-forward part: NormPlacement::sandwich
  Tensor scale1, scale2;             ///< [dim]: LayerSpec::layer_scale

 private:
  Residual ladder(const Residual& r, const Places& places, KvCache* cache) const;

  LayerSpec spec_;
};

}  // namespace strata::nn
