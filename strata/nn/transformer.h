#pragma once
// Decoder blocks: GPT-2's (LayerNorm, GELU; Radford et al. 2019) and Llama's (RMSNorm, SwiGLU, rotary positions;
// Touvron et al., arXiv:2302.13971).

#include <utility>

#include "strata/nn/attention.h"
#include "strata/nn/norm.h"

namespace strata::nn {

/// Sizes of a decoder block.
struct BlockOptions {
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  ///< a divisor of heads; 0 takes heads
  int64_t ffn_dim = 0;   ///< 0 takes 4 dim (GPT) or 8/3 dim rounded up to a multiple of 64 (Llama)
  double dropout = 0;    ///< on attention weights and on what each branch adds
  double norm_eps = 1e-5;
  double rope_base = 10000;  ///< Llama only
};

/// The residual stream between two halves of blocks, before it is added up: x = stream + branch. The addition is left
/// to the norm that follows, which does both in one pass.
struct Residual {
  Tensor branch;
  Tensor stream;  ///< undefined at the start: x = branch
};

/// GPT-2's feed-forward layer: down(gelu(up(x))), tanh form.
class GptMlp : public Module {
 public:
  GptMlp(int64_t dim, int64_t ffn_dim);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  Linear up, down;
};

/// Llama's feed-forward layer: down(silu(a) * b) where gate_up(x) is a beside b; no biases.
class LlamaMlp : public Module {
 public:
  LlamaMlp(int64_t dim, int64_t ffn_dim);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  Linear gate_up, down;
};

/// x + attn(norm1(x)), then + mlp(norm2(.)): x [B, T, dim] -> the same shape.
template <class Norm, class Mlp>
class DecoderBlock : public Module {
 public:
  Tensor forward(const Tensor& x, KvCache* cache = nullptr) const;
  Tensor operator()(const Tensor& x, KvCache* cache = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, cache); });
  }
  /// The same without the last addition, for a stack of blocks.
  Residual step(const Residual& r, KvCache* cache = nullptr) const;

  Norm norm1;
  SelfAttention attn;
  Norm norm2;
  Mlp mlp;
  Dropout dropout;

 protected:
  DecoderBlock(std::string_view kind, const BlockOptions& o, const SelfAttentionOptions& attention, int64_t ffn_dim);
};

/// GPT-2's block: LayerNorm, biases, GELU.
class GptBlock : public DecoderBlock<LayerNorm, GptMlp> {
 public:
  explicit GptBlock(const BlockOptions& options);
};

/// Llama's block: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.
class LlamaBlock : public DecoderBlock<RMSNorm, LlamaMlp> {
 public:
  explicit LlamaBlock(const BlockOptions& options);
};

/// norm(stream + branch) and that sum, in one pass.
std::pair<Tensor, Tensor> add_norm(const LayerNorm& norm, const Residual& r);
std::pair<Tensor, Tensor> add_norm(const RMSNorm& norm, const Residual& r);

}  // namespace strata::nn
