#include "strata/models/image_parts_inl.h"

namespace strata::parts {
namespace {

std::pair<int64_t, int64_t> two(const ConfigReader& c, const char* key, int64_t absent) {
  if (c.is_list(key)) {
    const std::vector<int64_t> sizes = c.integers(key).value_or(std::vector<int64_t>{});
    if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1) c.refuse(key, "is a number or two");
    return {sizes[0], sizes[1]};
  }
  const int64_t size = c.size(key, absent);
  return {size, size};
}

const std::vector<std::string_view> kDinov2Classes{"Dinov2Model", "Dinov2ForImageClassification",
                                                   "Dinov2WithRegistersModel",
                                                   "Dinov2WithRegistersForImageClassification"};

// Of the gated form two thirds of the width, up to a multiple of 8.
int64_t width_of(int64_t dim, int64_t ratio, bool gated) {
  const int64_t width = dim * ratio;
  return gated ? (static_cast<int64_t>(static_cast<double>(width) * 2 / 3) + 7) / 8 * 8 : width;
}

}  // namespace

void read_image_sizes(const ConfigReader& c, ModelSpec& s, int64_t size, int64_t patch) {
  ImageSpec image;
  std::tie(image.height, image.width) = two(c, "image_size", size);
  const auto [high, wide] = two(c, "patch_size", patch);
  if (high != wide) c.refuse("patch_size", "is a square's side");
  image.patch = high;
  image.channels = c.size("num_channels", 3);
  if (image.patch > image.height || image.patch > image.width) c.refuse("patch_size", "is larger than the image");
  s.image = image;
  s.learned_positions = (image.height / image.patch) * (image.width / image.patch) + 1;
}

void write_image_sizes(Json& j, const ImageSpec& image) {
  if (image.height == image.width)
    j["image_size"] = image.height;
  else
    j["image_size"] = {image.height, image.width};
  j["patch_size"] = image.patch;
  j["num_channels"] = image.channels;
}

ModelSpec read_vit(const ConfigReader& c, int64_t patch, double eps, std::string_view activation) {
  ModelSpec s;
  s.kind = ModelKind::image_encoder;
  s.dim = c.size("hidden_size", 768);
  const int64_t layers = c.size("num_hidden_layers", 12), heads = c.size("num_attention_heads", 12);
  if (s.dim % heads != 0) c.refuse("num_attention_heads", cat("does not divide hidden_size ", s.dim));
  if (layers > 4096) c.refuse("num_hidden_layers", "is above 4096");
  nn::LayerSpec l;
  l.norm = {.eps = c.number("layer_norm_eps", eps)};
  l.attention = {
      .heads = heads, .kv_heads = heads, .head_size = s.dim / heads, .value_size = s.dim / heads, .causal = false};
  l.feed_forward.activation = read_activation(c, "hidden_act", activation);
  s.layers.assign(static_cast<size_t>(layers), l);
  s.final_norm = l.norm;
  read_image_sizes(c, s, 224, patch);
  return s;
}

std::vector<WeightRow> image_weights(const ModelSpec& s, const ImageNames& n) {
  std::vector<WeightRow> rows;
  const ImageSpec& image = *s.image;
  const auto add = [&](const std::string& ours, const std::string& theirs, const Shape& shape,
                       const WeightView& view = {}) { rows.push_back(weight_row(ours, theirs, shape, view)); };
  const auto linear = [&](const std::string& ours, const std::string& theirs, int64_t in, int64_t out) {
    add(ours + ".weight", theirs + ".weight", {out, in});
    add(ours + ".bias", theirs + ".bias", {out});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    add(ours + ".weight", theirs + ".weight", {s.dim});
    add(ours + ".bias", theirs + ".bias", {s.dim});
  };
  add("class_token", n.prefix + n.class_token, n.one);
  if (image.register_tokens > 0)
    add("register_tokens", n.prefix + n.register_tokens, {1, image.register_tokens, s.dim});
  if (image.mask_token) add("mask_token", n.prefix + n.mask_token, n.mask_shape);
  add("position_embedding", n.prefix + n.positions, n.positions_shape);
  add("patch_weight", n.prefix + n.patch + ".weight", {s.dim, image.channels, image.patch, image.patch});
  if (image.patch_bias) add("patch_bias", n.prefix + n.patch + ".bias", {s.dim});
  if (s.embedding_norm) norm("embedding_norm", n.prefix + n.embedding_norm);
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const nn::LayerSpec& l = s.layers[i];
    const std::string ours = cat("blocks.", i, '.');
    std::string theirs = n.prefix + n.layer;
    theirs.replace(theirs.find("{}"), 2, cat(i));
    const PackedRows packed = packed_rows(l.attention);
    for (const auto& [name, view, count] :
         {std::tuple(n.q, packed.q, packed.q_rows), std::tuple(n.k, packed.k, packed.k_rows),
          std::tuple(n.v, packed.v, packed.v_rows)}) {
      add(ours + "attn.qkv.weight", theirs + name + ".weight", {count, s.dim}, view);
      if (l.attention.bias) add(ours + "attn.qkv.bias", theirs + name + ".bias", {count}, view);
    }
    linear(ours + "attn.out", theirs + n.out, s.dim, s.dim);
    norm(ours + "norm1", theirs + n.norm1);
    norm(ours + "norm2", theirs + n.norm2);
    const int64_t width = l.feed_forward.width;
    if (l.feed_forward.gated)
      linear(ours + "mlp.gate_up", theirs + n.gate_up, s.dim, 2 * width);
    else
      linear(ours + "mlp.up", theirs + n.up, s.dim, width);
    linear(ours + "mlp.down", theirs + n.down, width, s.dim);
    if (l.layer_scale) {
      add(ours + "scale1", theirs + n.scale1, {s.dim});
      add(ours + "scale2", theirs + n.scale2, {s.dim});
    }
  }
  if (s.final_norm) norm("norm", n.prefix + n.norm);
  if (s.pooler) linear("pooler", n.prefix + n.pooler, s.dim, s.dim);
  if (!s.encoder_head) return rows;
  const int64_t labels = s.encoder_head->labels;
  add("head.weight", "classifier.weight", {labels, s.encoder_head->patches ? 2 * s.dim : s.dim});
  add("head_bias", "classifier.bias", {labels});
  return rows;
}

ModelSpec read_dinov2(const ConfigReader& c) {
  const std::vector<std::string> said = c.texts("architectures").value_or(std::vector<std::string>{});
  const bool labels = !said.empty() && (said.front() == kDinov2Classes[1] || said.front() == kDinov2Classes[3]);
  const bool registers = c.text("model_type", "dinov2") == "dinov2_with_registers";
  ModelSpec s = read_vit(c, registers ? 16 : 14, 1e-6, "gelu");
  const bool bias = c.flag("qkv_bias", true), gated = c.flag("use_swiglu_ffn", false);
  const double attention = c.number("attention_probs_dropout_prob", 0), dropout = c.number("hidden_dropout_prob", 0);
  const int64_t ratio = c.size("mlp_ratio", 4);
  if (ratio > 1024) c.refuse("mlp_ratio", "is above 1024");
  for (nn::LayerSpec& l : s.layers) {
    l.attention.bias = bias;
    l.attention.dropout = attention;
    l.feed_forward.gated = gated;
    if (gated) l.feed_forward.activation = nn::Activation::silu;
    l.feed_forward.width = width_of(s.dim, ratio, gated);
    l.layer_scale = true;
  }
  s.embedding_dropout = dropout;
  if (registers) {
    s.image->register_tokens = c.size("num_register_tokens", 4);
    s.image->smooth_positions = true;
  }
  // With registers there always is one.
  s.image->mask_token = registers || c.flag("use_mask_token", true);
  c.expect("drop_path_rate", 0.0);
  // The first is what weights begin at; the others are of a backbone's outputs.
  for (const char* key :
       {"layerscale_value", "out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states"})
    c.ignore(key);
  if (labels)
    s.encoder_head = {.kind = EncoderHeadSpec::Kind::labels, .labels = read_labels(c), .patches = true, .dense = false};
  else
    for (const char* key : {"num_labels", "id2label", "label2id"}) c.ignore(key);
  return s;
}

std::string write_dinov2(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  const bool registers = s.image->register_tokens > 0, gated = l.feed_forward.gated;
  int64_t ratio = 1;
  while (ratio < 1024 && width_of(s.dim, ratio, gated) < l.feed_forward.width) ++ratio;
  check(width_of(s.dim, ratio, gated) == l.feed_forward.width, "dinov2", "a feed-forward width of ",
        l.feed_forward.width, " is no multiple of ", s.dim);
  Json j;
  j["model_type"] = registers ? "dinov2_with_registers" : "dinov2";
  j["architectures"] = {kDinov2Classes[(registers ? 2 : 0) + (s.encoder_head ? 1 : 0)]};
  j["hidden_size"] = s.dim;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["mlp_ratio"] = ratio;
  j["use_swiglu_ffn"] = gated;
  j["hidden_act"] = gated ? "gelu" : activation_name(l.feed_forward.activation);
  j["layer_norm_eps"] = l.norm.eps;
  j["qkv_bias"] = l.attention.bias;
  j["attention_probs_dropout_prob"] = l.attention.dropout;
  j["hidden_dropout_prob"] = s.embedding_dropout;
  if (!registers) j["use_mask_token"] = s.image->mask_token;
  if (registers) j["num_register_tokens"] = s.image->register_tokens;
  write_image_sizes(j, *s.image);
  if (s.encoder_head) write_labels(j, s.encoder_head->labels);
  return j.dump(2);
}

std::vector<WeightRow> dinov2_weights(const ModelSpec& s) {
  return image_weights(s, {.prefix = s.image->register_tokens > 0 ? "dinov2_with_registers." : "dinov2.",
                           .class_token = "embeddings.cls_token",
                           .register_tokens = "embeddings.register_tokens",
                           .mask_token = "embeddings.mask_token",
                           .patch = "embeddings.patch_embeddings.projection",
                           .positions = "embeddings.position_embeddings",
                           .one = {1, 1, s.dim},
                           .mask_shape = {1, s.dim},
                           .positions_shape = {1, s.learned_positions, s.dim},
                           .layer = "encoder.layer.{}.",
                           .q = "attention.attention.query",
                           .k = "attention.attention.key",
                           .v = "attention.attention.value",
                           .out = "attention.output.dense",
                           .norm1 = "norm1",
                           .norm2 = "norm2",
                           .scale1 = "layer_scale1.lambda1",
                           .scale2 = "layer_scale2.lambda1",
                           .up = "mlp.fc1",
                           .gate_up = "mlp.weights_in",
                           .down = s.layers.front().feed_forward.gated ? "mlp.weights_out" : "mlp.fc2",
                           .norm = "layernorm"});
}

}  // namespace strata::parts
