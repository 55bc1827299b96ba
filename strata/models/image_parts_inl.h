#pragma once
// What records of image encoders share.

#include "strata/models/encoder_parts_inl.h"

namespace strata::parts {

/// image_size and patch_size: numbers, or lists of two; a patch is a square.
void read_image_sizes(const ConfigReader& config, ModelSpec& spec, int64_t size, int64_t patch);
/// image_size (a list where it is no square), patch_size and num_channels.
void write_image_sizes(Json& config, const ImageSpec& image);

/// A patch encoder whose blocks have norms before: sizes, heads, activation under `activation_key`. Also reads
/// image_size, patch_size, num_channels.
ModelSpec read_vit(const ConfigReader& config, int64_t patch, double eps, std::string_view activation);

/// Names in the files of an image encoder.
struct ImageNames {
  std::string prefix;  ///< "vit."
  std::string class_token, register_tokens, mask_token, patch, positions;
  Shape one;         ///< the shape of class_token there
  Shape mask_shape;  ///< and of mask_token
  Shape positions_shape;
  std::string embedding_norm, layer, q, k, v, out, norm1, norm2, scale1, scale2, up, gate_up, down, norm, pooler;
};
std::vector<WeightRow> image_weights(const ModelSpec& spec, const ImageNames& names);

/// DINOv2, with register tokens where model_type says so.
ModelSpec read_dinov2(const ConfigReader& config);
std::string write_dinov2(const ModelSpec& spec);
std::vector<WeightRow> dinov2_weights(const ModelSpec& spec);

}  // namespace strata::parts
