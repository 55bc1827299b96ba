#pragma once
// Encoders of images: patches to vectors that have seen the whole image (ViT and its kin), and text and images in one
// space (CLIP).

#include <optional>

#include "strata/models/spec.h"
#include "strata/models/text_encoder.h"
#include "strata/nn/container.h"
#include "strata/nn/transformer.h"

namespace strata {

/// Pixels [B, channels, H, W] to hidden states [B, places, dim]: the class token's place, the register tokens', then
/// the patches' row by row. H and W are multiples of the patch; where they differ from the spec's, the positions are
/// resized by bicubic interpolation, as transformers does. Built from a spec of ModelKind::image_encoder.
///
///     const ImageEncoder model(spec);
///     const Tensor h = model.hidden(pixels);                 // [B, 1 + H / 16 * W / 16, dim]
///
/// Parameters in order: patch_weight [dim, channels, patch, patch], patch_bias, class_token [dim], register_tokens
/// [n, dim], mask_token [dim], position_embedding [places, dim], embedding_norm.*, blocks.N.*, norm.*, pooler.*,
/// head.weight, head_bias.
class ImageEncoder : public nn::Module {
 public:
  /// Throws what check_spec does, and ValueError for a spec that is no encoder's of images.
  explicit ImageEncoder(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }

  /// What the last block (and norm) gives. `masked` [B, patches], boolean, where given: patches that the mask token
  /// stands for. Throws ShapeError; ValueError for `masked` without a mask token.
  Tensor hidden(const Tensor& pixels, const Tensor& masked = {}) const;
  /// The pooler's vector [B, dim] of hidden(), where there is one, else the first place's.
  Tensor pooled(const Tensor& hidden) const;
  /// Logits [B, labels] of hidden(). Throws ValueError for a spec without a head.
  Tensor logits(const Tensor& hidden) const;
  /// logits() where there is a head, else hidden().
  Tensor forward(const Tensor& pixels) const;

  Tensor patch_weight, patch_bias, class_token, register_tokens, mask_token, position_embedding;
  std::optional<nn::Norm> embedding_norm;
  nn::Dropout dropout;
  nn::ModuleList<nn::TransformerBlock> blocks;
  std::optional<nn::Norm> norm;
  std::optional<nn::Linear> pooler;
  Tensor head, head_bias;

 private:
  Tensor positions(int64_t rows, int64_t columns) const;
  ModelSpec spec_;
};

/// Text and images as vectors of one space. Built from a spec of ModelKind::pair.
///
///     const ContrastivePair model(spec);
///     const Tensor scores = model.scores(model.text_vectors(tokens), model.image_vectors(pixels));   // [texts,
///     images]
///
/// Parameters: text.*, image.*, text_projection.weight, image_projection.weight, logit_scale [].
class ContrastivePair : public nn::Module {
 public:
  explicit ContrastivePair(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }

  /// [B, projection], of length 1 unless `raw`. A text ends at PairSpec::end_token.
  Tensor text_vectors(const Tensor& tokens, const Tensor& padding = {}, bool raw = false) const;
  Tensor image_vectors(const Tensor& pixels, bool raw = false) const;
  /// exp(logit_scale) times their products: [texts, images].
  Tensor scores(const Tensor& text_vectors, const Tensor& image_vectors) const;

  TextEncoder text;
  ImageEncoder image;
  nn::Linear text_projection, image_projection;
  Tensor logit_scale;

 private:
  ModelSpec spec_;
};

}  // namespace strata
