#include "strata/models/image_encoder.h"

#include <cmath>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/nn/init.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr const char* kOp = "ImageEncoder";

const ModelSpec& checked(const ModelSpec& spec) {
  check_spec(spec);
  check(spec.kind == ModelKind::image_encoder && spec.image, kOp, "wants the spec of an encoder of images");
  return spec;
}

const ModelSpec& checked_pair(const ModelSpec& spec) {
  check_spec(spec);
  check(spec.kind == ModelKind::pair && spec.pair && spec.parts.size() == 2, "ContrastivePair",
        "wants the spec of a pair");
  return spec;
}

Tensor of_length_one(const Tensor& x) {
  return x / sqrt(sum(square(x), {1}, true));
}

}  // namespace

ImageEncoder::ImageEncoder(const ModelSpec& spec)
    : Module(kOp),
      dropout(register_module("dropout", nn::Dropout(checked(spec).embedding_dropout))),
      blocks(register_module("blocks", nn::ModuleList<nn::TransformerBlock>())),
      spec_(spec) {
  const ImageSpec& i = *spec.image;
  const int64_t dim = spec.dim;
  const auto drawn = [&](const char* name, const Shape& shape) {
    return nn::init::normal_(new_parameter(name, shape), 0, 0.02);
  };
  patch_weight = drawn("patch_weight", {dim, i.channels, i.patch, i.patch});
  if (i.patch_bias) patch_bias = nn::init::zeros_(new_parameter("patch_bias", {dim}));
  if (i.class_token) class_token = drawn("class_token", {dim});
  if (i.register_tokens > 0) register_tokens = drawn("register_tokens", {i.register_tokens, dim});
  if (i.mask_token) mask_token = nn::init::zeros_(new_parameter("mask_token", {dim}));
  position_embedding = drawn("position_embedding", {spec.learned_positions, dim});
  if (spec.embedding_norm) embedding_norm = register_module("embedding_norm", nn::Norm(dim, *spec.embedding_norm));
  for (const nn::LayerSpec& layer : spec.layers) blocks.push_back(nn::TransformerBlock(dim, layer));
  if (spec.final_norm) norm = register_module("norm", nn::Norm(dim, *spec.final_norm));
  if (spec.pooler) pooler = register_module("pooler", nn::Linear(dim, dim));
  if (!spec.encoder_head) return;
  const int64_t width = spec.encoder_head->patches ? 2 * dim : dim, labels = spec.encoder_head->labels;
  head = register_module("head", nn::Linear(width, labels, false)).weight;
  head_bias = register_parameter("head_bias", zeros({labels}));
}

// Positions of the class token and of rows x columns patches, [places, dim].
Tensor ImageEncoder::positions(int64_t rows, int64_t columns) const {
  const ImageSpec& i = *spec_.image;
  const int64_t own_rows = i.height / i.patch, own_columns = i.width / i.patch;
  if (rows == own_rows && columns == own_columns) return position_embedding;
  const int64_t first = i.class_token ? 1 : 0, dim = spec_.dim;
  const Tensor grid = position_embedding.narrow(0, first, own_rows * own_columns)
                          .view({1, own_rows, own_columns, dim})
                          .permute({0, 3, 1, 2})
                          .to(DType::f32);
  const Tensor resized = interpolate(grid, Dims{rows, columns}, {}, "bicubic", false, false, i.smooth_positions)
                             .to(position_embedding.dtype())
                             .permute({0, 2, 3, 1})
                             .reshape({rows * columns, dim});
  return first == 0 ? resized : cat({position_embedding.narrow(0, 0, 1), resized}, 0);
}

Tensor ImageEncoder::hidden(const Tensor& pixels, const Tensor& masked) const {
  const ImageSpec& i = *spec_.image;
  check<ShapeError>(pixels.dim() == 4 && pixels.size(1) == i.channels, kOp, "pixels are [B, ", i.channels,
                    ", H, W], got ", pixels);
  const int64_t batch = pixels.size(0), dim = spec_.dim;
  check<ShapeError>(
      pixels.size(2) > 0 && pixels.size(3) > 0 && pixels.size(2) % i.patch == 0 && pixels.size(3) % i.patch == 0, kOp,
      "patches of ", i.patch, " do not divide an image of ", pixels);
  const int64_t rows = pixels.size(2) / i.patch, columns = pixels.size(3) / i.patch;
  Tensor x = conv2d(pixels, patch_weight, patch_bias, {i.patch}).flatten(2).transpose(1, 2);  // [B, patches, dim]
  if (masked.defined()) {
    check(mask_token.defined(), kOp, "this model has no mask token");
    check<ShapeError>(masked.shape() == Shape({batch, rows * columns}), kOp, "masked is ", masked, ", wanted [", batch,
                      ", ", rows * columns, "]");
    x = where(masked.unsqueeze(2), mask_token.view({1, 1, dim}).expand(x.shape()), x);
  }
  const auto everywhere = [&](const Tensor& t, int64_t n) { return t.view({1, n, dim}).expand({batch, n, dim}); };
  if (class_token.defined()) x = cat({everywhere(class_token, 1), x}, 1);
  x = x + positions(rows, columns);
  if (register_tokens.defined()) {
    // They have no positions, and stand behind the class token.
    const int64_t first = class_token.defined() ? 1 : 0;
    x = cat({x.narrow(1, 0, first), everywhere(register_tokens, i.register_tokens), x.narrow(1, first, rows * columns)},
            1);
  }
  if (embedding_norm) x = (*embedding_norm)(x);
  nn::Residual r{dropout(x), {}};
  for (size_t b = 0; b < blocks.size(); ++b) {
    memory::ModuleScope at(cat("blocks.", b));
    r = blocks[b].step(r);
  }
  return norm ? nn::add_norm(*norm, r).first : r.sum();
}

Tensor ImageEncoder::pooled(const Tensor& hidden) const {
  const Tensor first = hidden.select(1, 0);
  return pooler ? tanh((*pooler)(first)) : first;
}

Tensor ImageEncoder::logits(const Tensor& hidden) const {
  check(spec_.encoder_head.has_value(), kOp, "this model has no head");
  Tensor x = hidden.select(1, 0);
  if (spec_.encoder_head->patches) {
    const int64_t before = 1 + spec_.image->register_tokens;
    x = cat({x, mean(hidden.narrow(1, before, hidden.size(1) - before), {1})}, 1);
  }
  return linear(x, head, head_bias);
}

Tensor ImageEncoder::forward(const Tensor& pixels) const {
  const Tensor h = hidden(pixels);
  return spec_.encoder_head ? logits(h) : h;
}

ContrastivePair::ContrastivePair(const ModelSpec& spec)
    : Module("ContrastivePair"),
      text(register_module("text", TextEncoder(checked_pair(spec).parts[0]))),
      image(register_module("image", ImageEncoder(spec.parts[1]))),
      text_projection(register_module("text_projection", nn::Linear(spec.parts[0].dim, spec.pair->projection, false))),
      image_projection(
          register_module("image_projection", nn::Linear(spec.parts[1].dim, spec.pair->projection, false))),
      logit_scale(register_parameter("logit_scale", full({}, std::log(1 / 0.07)))),
      spec_(spec) {}

Tensor ContrastivePair::text_vectors(const Tensor& tokens, const Tensor& padding, bool raw) const {
  const Tensor h = text.hidden(tokens, padding);
  const int64_t batch = tokens.size(0), dim = h.size(2);
  // A model whose configuration says 2 counts its end token as the largest there is.
  const Tensor end =
      spec_.pair->end_token == 2 ? argmax(tokens, 1) : argmax((tokens == spec_.pair->end_token).to(DType::i64), 1);
  const Tensor x = gather(h, 1, end.view({batch, 1, 1}).expand({batch, 1, dim})).select(1, 0);
  const Tensor y = text_projection(x);
  return raw ? y : of_length_one(y);
}

Tensor ContrastivePair::image_vectors(const Tensor& pixels, bool raw) const {
  const Tensor y = image_projection(image.pooled(image.hidden(pixels)));
  return raw ? y : of_length_one(y);
}

Tensor ContrastivePair::scores(const Tensor& text_vectors, const Tensor& image_vectors) const {
  return matmul(text_vectors, image_vectors.t()) * exp(logit_scale);
}

}  // namespace strata
