#pragma once
// Decoder-only language models, built from a spec: a run's settings, or what a model from elsewhere says of itself.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strata/models/model_config.h"
#include "strata/models/spec.h"
#include "strata/models/token_decoder.h"
#include "strata/nn/attention.h"
#include "strata/nn/container.h"
#include "strata/nn/init.h"
#include "strata/nn/transformer.h"

namespace strata {

/// Tokens in, logits of the following token out. Token tensors are i64 [B, T] with T <= context().
///
///     ModelConfig c;
///     c.vocab = 256;
///     auto model = make_model(c);
///     Tensor loss = model->loss(inputs, targets);
///     loss.backward();
///
/// Parameters in order: token_embedding.weight [vocab, dim], position_embedding.weight (learned positions), blocks.N.*
/// (nn::TransformerBlock), norm.*, head.weight [vocab, dim] unless tied, head_bias.
class LanguageModel : public nn::Module, public TokenDecoder {
  std::optional<nn::init::SkipDraws> parts_{std::in_place};  // before them: initialise() draws their weights anew

 public:
  /// Weights are drawn as GPT-2's: N(0, 0.02), the layers that write to the residual stream divided by sqrt(2 layers),
  /// biases 0. Throws what check_spec does, and ValueError for a spec that is no decoder's.
  explicit LanguageModel(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }
  /// Most positions: those of spec().context; of a model without learned positions a longer text is taken too.
  int64_t context() const override { return spec_.context; }
  int64_t vocab() const override { return spec_.vocab; }
  Device device() const override { return token_embedding.weight.device(); }
  nn::Module& as_module() override { return *this; }

  /// Logits [B, T, vocab] of the token after each position. `padding` [B, T], boolean, where given: true at what is no
  /// token, at the beginnings or ends of rows; positions are counted without it, and what it has is not seen.
  /// Throws ShapeError, IndexError for a token >= vocab.
  Tensor forward(const Tensor& tokens, const Tensor& padding = {}) const;
  /// What the output layer reads, [B, T, dim]; forward() is logits() of it.
  Tensor hidden(const Tensor& tokens, const Tensor& padding = {}) const;
  /// Mean cross entropy (nats per token, a f32 scalar) of `targets` [B, T], the tokens that follow `tokens`; in
  /// training with what the layers' experts add (nn::ExpertsSpec::balance_loss, z_loss).
  Tensor loss(const Tensor& tokens, const Tensor& targets) const;
  /// The same of rows that hold several texts, none of which sees another: `positions` and `documents`, i64 [B, T],
  /// count from 0 within each text and number the texts of a row (data::PackedRows). Targets of -100 are not learned.
  Tensor packed_loss(const Tensor& tokens, const Tensor& targets, const Tensor& positions,
                     const Tensor& documents) const;
  /// The log-probability of each row's targets, those of -100 left out: f32 [B]. Rows may end in padding.
  Tensor log_probabilities(const Tensor& tokens, const Tensor& targets) const;

  /// @name A pass in pieces
  /// loss() and packed_loss() are begin_pass(), pass_blocks() of all blocks and end_pass(), call by call: for who lets
  /// several batches through some of the blocks before the next blocks come.
  /// @{
  /// A batch as loss() takes it, or, with positions and documents, packed_loss().
  struct Rows {
    Tensor tokens, targets;
    Tensor positions = {}, documents = {};
  };
  /// What comes into the first block. Throws ShapeError, IndexError.
  nn::Residual begin_pass(const Rows& rows) const;
  /// What comes out of the blocks [begin, end). Throws ValueError where there are no such blocks.
  nn::Residual pass_blocks(const nn::Residual& r, const Rows& rows, int64_t begin, int64_t end) const;
  /// The loss of what came out of the last block.
  Tensor end_pass(const nn::Residual& r, const Rows& rows) const;
  /// @}

  /// A part of loss(), for pipelines: blocks `first` to `last` of what those before them gave. `in` is the tokens [B,
  /// T] where `embeds`, else x [B, T, dim]; with `targets` [B, T] the loss of what the last block gives, else that, [B,
  /// T, dim]. One part after the other is loss(), but for the order of a sum at the cuts. With `halves` x is not added
  /// up there, but both halves of the residual stream one behind the other, [2, B, T, dim]: then loss and gradients
  /// have the bits of loss(). What these blocks' experts add to the loss is in it where there are targets; else it is
  /// left in `added`, a scalar, undefined where it is nothing. Throws ValueError for a range that is none and for
  /// experts' losses that nobody takes, ShapeError.
  Tensor part(const Tensor& in, bool embeds, int64_t first, int64_t last, const Tensor& targets = {},
              bool halves = false, Tensor* added = nullptr) const;

  /// The first `blocks` of the blocks keep only their inputs for backward, which computes them again (checkpoint()):
  /// the same gradients to the bit, for about a third more of those blocks' time. The model must live, at its place,
  /// until backward. None at first. Throws ValueError unless 0 <= blocks <= layers.
  void set_recomputed_blocks(int64_t blocks);
  int64_t recomputed_blocks() const { return recomputed_; }

  /// From now on feed-forward parts and the loss are computed for so many tokens of a batch at a time, and again in
  /// backward (tiled()): what is widest never stands whole, neither a feed-forward part's middle nor the logits. The
  /// same loss and gradients up to rounding, for one more forward pass of these parts. 0: for all. The model must live,
  /// at its place, until backward. Throws ValueError for a negative number.
  void set_tile(int64_t tokens);
  int64_t tile() const { return tile_; }

  /// From now on gated feed-forward parts make what goes into their last product again in backward, from what is kept
  /// anyhow: the same bits, less memory (nn::FeedForward::set_gate_again). Experts are not. Off at first.
  void set_gate_again(bool yes);

  /// From now on rows of tokens and targets are this rank's part of sequences that the ranks of the group share, as
  /// distributed::context_part(tokens, 1, ..) gives it; results are of its positions, the loss their mean. Attention
  /// sees all positions. Of models without a mask of their own: padding and packed rows are refused (ValueError). What
  /// has a cache is as ever. Nothing given: rows are whole again.
  void set_context_parallel(const std::optional<distributed::ContextParallel>& context) { parts_of_ = context; }
  const std::optional<distributed::ContextParallel>& context_parallel() const { return parts_of_; }

  /// @name With a cache: as TokenDecoder says
  /// @{
  /// Of models whose rotary positions change with the length (dynamic, longrope), the capacity is the length that
  /// decides.
  ModelCache make_cache(int64_t batch, int64_t capacity = 0, int64_t source = 0) const override;
  [[noreturn]] void read_source(ModelCache& cache, const Tensor& encoded, const Tensor& padding = {}) const override;
  Tensor hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts = {}) const override;
  Tensor logits(const Tensor& hidden) const override;
  /// @}

  /// The names of its embeddings and of its output layer: what optimizers for linear maps leave to others.
  std::set<std::string> table_names() const;

  nn::Embedding token_embedding;                    ///< [vocab, dim]
  std::optional<nn::Embedding> position_embedding;  ///< learned positions
  nn::Dropout dropout;                              ///< on the embeddings
  nn::ModuleList<nn::TransformerBlock> blocks;
  std::optional<nn::Norm> norm;  ///< before the output layer

 private:
  void initialise();
  void make_head();
  // Vectors of tokens at positions [B, T], or at 0, 1, .. where undefined, or at those that this rank has of all.
  Tensor embed(const Tensor& tokens, const Tensor& positions, bool parts) const;
  // Of tokens without a cache; and how many positions they are part of.
  void check_room(const Tensor& tokens) const;
  int64_t whole_time(int64_t time) const;
  nn::Residual run(nn::Residual r, const nn::Places& places, ModelCache* cache, size_t begin, size_t end) const;
  Tensor end_blocks(const nn::Residual& r) const;
  // Of tokens at `positions`, 0, 1, .. where undefined, that see what is `seen`; turns are in the precision of `like`.
  nn::Places places_at(int64_t time, const Tensor& positions, const Tensor& seen, const Tensor& like) const;
  void check_rows(const Rows& rows) const;
  // What hidden() is without a cache: tokens at `positions`, 0, 1, .. where undefined, that see what is `seen`. What
  // the layers add to the loss is left in `loss` where that is given.
  Tensor hidden_at(const Tensor& tokens, const Tensor& positions, const Tensor& seen, Tensor* loss = nullptr) const;
  // The cross entropy of what hidden() gave.
  Tensor head_loss(const Tensor& hidden, const Tensor& targets, const std::string& reduction) const;

  ModelSpec spec_;
  std::vector<nn::RotaryTables> rotary_;
  Tensor head_, head_bias_;             // [vocab, dim], [vocab]
  std::optional<nn::Linear> head_map_;  // whose weight head_ is, unless tied
  int64_t recomputed_ = 0, tile_ = 0;
  std::optional<distributed::ContextParallel> parts_of_;
};

/// Leaves this rank its part of the experts of every block that has weights here, of the ranks along `axis`, a group of
/// the mesh (nn::Experts::spread), and balances their loads over `batch`, the group of the ranks that have rows of
/// their own. Empty text: not. Throws ValueError.
///
///     share_experts(*model, "ep", "dp+ep");
void share_experts(LanguageModel& model, const std::string& axis, const std::string& batch);

/// The model of a run's settings, model_spec(config). Throws ValueError.
std::shared_ptr<LanguageModel> make_model(const ModelConfig& config);

}  // namespace strata
