#pragma once
// ModelSpec: all that decides what a network computes, as plain data. A run's settings make one, and so does the
// config.json of a model from elsewhere (strata/models/family.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/models/model_config.h"
#include "strata/nn/layer_spec.h"

namespace strata {

/// What a model is for.
enum class ModelKind : uint8_t {
  decoder,          ///< tokens to logits of the next
  encoder,          ///< tokens to vectors
  image_encoder,    ///< pixels to vectors
  encoder_decoder,  ///< parts[0] reads, parts[1] writes
  pair,             ///< parts[0] and parts[1] give vectors of one space
};

/// How an image becomes vectors.
struct ImageSpec {
  int64_t channels = 3;
  int64_t height = 0, width = 0;  ///< that the positions are for
  int64_t patch = 0;              ///< side of a square patch
  bool patch_bias = true;
  bool class_token = true;
  int64_t register_tokens = 0;  ///< more learned tokens, after the class token
  bool mask_token = false;
  bool smooth_positions = false;  ///< positions are resized with antialiasing

  bool operator==(const ImageSpec&) const = default;
};

/// What an encoder ends in, beyond its hidden states.
struct EncoderHeadSpec {
  /// Logits of each place's token, or of labels for the whole text.
  enum class Kind : uint8_t { tokens, labels };
  Kind kind = Kind::tokens;
  int64_t labels = 0;    ///< Kind::labels
  bool pooled = false;   ///< labels are of the pooled vector, else of the first place's
  bool patches = false;  ///< of an image: beside the first place's vector, the mean of the patches'
  bool dense = true;     ///< a layer [dim, dim], `activation`, and `norm` where there is one, stand before
  nn::Activation activation = nn::Activation::gelu;
  std::optional<nn::NormSpec> norm = {};

  bool operator==(const EncoderHeadSpec&) const = default;
};

/// How two encoders give vectors of one space (CLIP; Radford et al., arXiv:2103.00020).
struct PairSpec {
  int64_t projection = 0;  ///< size of the vectors
  int64_t end_token = 0;   ///< a text's vector is that of the first place of this token; 2: of the largest token

  bool operator==(const PairSpec&) const = default;
};

/// Positions by distance (T5; Raffel et al., arXiv:1910.10683): to a score a number is added that is learned for each
/// head and bucket of distances, one for each of the near ones, the far ones together. All layers have the same.
struct RelativeSpec {
  int64_t buckets = 32;    ///< where both directions are seen, half of them for each
  int64_t distance = 128;  ///< from which on all are one bucket

  bool operator==(const RelativeSpec&) const = default;
};

/// How sound becomes vectors (Whisper; Radford et al., arXiv:2212.04356): two convolutions over frames of log-mel
/// numbers, of which the second takes every other place; then positions by a table of sines.
struct AudioSpec {
  int64_t bins = 80;  ///< numbers of a frame

  bool operator==(const AudioSpec&) const = default;
};

/// A whole model.
///
///     const ModelSpec spec = model_spec(config);      // of a run's [model] section
///     LanguageModel model(spec);
struct ModelSpec {
  ModelKind kind = ModelKind::decoder;
  int64_t vocab = 0;
  int64_t dim = 0;      ///< width of the residual stream
  int64_t context = 0;  ///< most positions; what the model was made for where it has no learned positions
  std::vector<nn::LayerSpec> layers = {};

  int64_t learned_positions = 0;  ///< rows of the table of positions; 0: none
  int64_t position_offset = 0;    ///< the row of position 0
  int64_t token_types = 0;        ///< rows of the table of token types; 0: none
  std::vector<nn::RotarySpec> rotary = {};
  std::optional<nn::NormSpec> embedding_norm = {};
  double embedding_scale = 1;  ///< embeddings are multiplied by it
  double embedding_dropout = 0;

  std::optional<nn::NormSpec> final_norm = {};
  bool tied = false;          ///< the output layer is the token embedding
  bool head_bias = false;     ///< of the output layer
  double logit_soft_cap = 0;  ///< where > 0: a logit s is logit_soft_cap * tanh(s / logit_soft_cap)
  double logit_scale = 1;     ///< logits are multiplied by it

  bool positions_skip_padding = false;  ///< an encoder counts positions without what is padding (RoBERTa)
  bool pooler = false;                  ///< tanh of a layer [dim, dim] over the first place's vector
  std::optional<EncoderHeadSpec> encoder_head = {};
  std::optional<ImageSpec> image = {};
  std::optional<AudioSpec> audio = {};        ///< then learned_positions are the table of sines
  std::optional<RelativeSpec> relative = {};  ///< of encoder_decoder's parts
  std::optional<PairSpec> pair = {};
  std::vector<ModelSpec> parts = {};  ///< of ModelKind::encoder_decoder and pair

  bool operator==(const ModelSpec&) const = default;
};

/// Of a run's settings; config.vocab must be set. Throws ValueError for a family that is neither "gpt" nor "llama", and
/// what check_spec throws.
ModelSpec model_spec(const ModelConfig& config);

/// What is wrong with a run's settings of experts, naming the key; empty where nothing is.
std::string unfit_experts(const ModelConfig& config);

/// Throws ValueError naming the field unless sizes are positive and below 2^31, heads divide, indices are in range and
/// numbers finite: what no configuration can mean. Modules built from a checked spec fail for want of memory alone.
void check_spec(const ModelSpec& spec);

/// The spec as text, a line for each field that is not at its default; equal layers are one line.
std::string to_string(const ModelSpec& spec);

}  // namespace strata
