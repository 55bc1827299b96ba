#pragma once
// Decoder-only language models, built from a run's settings.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strata/models/model_config.h"
#include "strata/nn/attention.h"
#include "strata/nn/container.h"
#include "strata/nn/init.h"
#include "strata/nn/transformer.h"

namespace strata {

/// What generation keeps between steps: keys and values of every layer.
struct ModelCache {
  std::vector<nn::KvCache> layers;
  int64_t length = 0;  ///< positions filled
};

/// Tokens in, logits of the following token out. Token tensors are i64 [B, T] with T <= context().
///
///     ModelConfig c;
///     c.vocab = 256;
///     auto model = make_model(c);
///     Tensor loss = model->loss(inputs, targets);
///     loss.backward();
class LanguageModel : public nn::Module {
  std::optional<nn::init::SkipDraws> parts_{std::in_place};  // before them: initialise() draws their weights anew

 public:
  virtual ~LanguageModel() = default;
  const ModelConfig& config() const { return config_; }
  int64_t context() const { return config_.context; }
  int64_t vocab() const { return config_.vocab; }
  /// Where its parameters are.
  Device device() const { return token_embedding.weight.device(); }

  /// Logits [B, T, vocab] of the token after each position. Throws ShapeError, IndexError for a token >= vocab.
  Tensor forward(const Tensor& tokens) const;
  /// Mean cross entropy (nats per token, a f32 scalar) of `targets` [B, T], the tokens that follow `tokens`.
  Tensor loss(const Tensor& tokens, const Tensor& targets) const;

  /// The first `blocks` of the blocks keep only their inputs for backward, which computes them again (checkpoint()):
  /// the same gradients to the bit, for about a third more of those blocks' time. The model must live, at its place,
  /// until backward. None at first. Throws ValueError unless 0 <= blocks <= config().layers.
  void set_recomputed_blocks(int64_t blocks);
  int64_t recomputed_blocks() const { return recomputed_; }

  /// An empty cache for `batch` texts, with room for context() positions.
  ModelCache make_cache(int64_t batch) const;
  /// Logits [B, vocab] after the last of `tokens`, which continue what is in the cache and are added to it. Nothing is
  /// recorded. Throws ValueError where the cache has no room.
  Tensor next_logits(const Tensor& tokens, ModelCache& cache) const;

  /// The names of its embeddings and of its output layer: what optimizers for linear maps leave to others.
  std::set<std::string> table_names() const;

  nn::Embedding token_embedding;  ///< [vocab, dim]

 protected:
  LanguageModel(std::string_view kind, const ModelConfig& config);
  /// What the output layer reads, [B, T, dim].
  virtual Tensor hidden(const Tensor& tokens, ModelCache* cache) const = 0;
  /// The token vectors of checked `tokens`, in the autocast precision where that is on.
  Tensor embed(const Tensor& tokens, const ModelCache* cache) const;
  /// GPT-2's initialisation: N(0, 0.02), the layers that write to the residual stream divided by sqrt(2 layers), biases
  /// 0.
  void initialise();
  /// Makes the output layer: its own, or the token embedding's weight.
  void make_head();

  ModelConfig config_;

 private:
  Tensor logits(const Tensor& x) const;
  Tensor head_;  // [vocab, dim]
  int64_t recomputed_ = 0;
};

/// GPT-2: learned positions, LayerNorm, GELU (Radford et al. 2019).
class Gpt final : public LanguageModel {
 public:
  explicit Gpt(const ModelConfig& config);
  nn::Embedding position_embedding;
  nn::Dropout dropout;
  nn::ModuleList<nn::GptBlock> blocks;
  nn::LayerNorm norm;

 protected:
  Tensor hidden(const Tensor& tokens, ModelCache* cache) const override;
};

/// Llama: rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases (Touvron et al., arXiv:2302.13971).
class Llama final : public LanguageModel {
 public:
  explicit Llama(const ModelConfig& config);
  nn::ModuleList<nn::LlamaBlock> blocks;
  nn::RMSNorm norm;

 protected:
  Tensor hidden(const Tensor& tokens, ModelCache* cache) const override;
};

/// The model of `config.family`; config.vocab must be set. Throws ValueError.
std::shared_ptr<LanguageModel> make_model(const ModelConfig& config);

}  // namespace strata
