// CLIP (Radford et al., arXiv:2103.00020): a decoder's blocks over text, a vision transformer over images, and a layer
// each into one space.

#include "strata/models/image_parts_inl.h"

namespace strata::records {

const Family& clip();

namespace {

ModelSpec text_spec(const ConfigReader& c) {
  ModelSpec s;
  s.kind = ModelKind::encoder;
  s.vocab = c.size("vocab_size", 49408);
  s.dim = c.size("hidden_size", 512);
  s.context = s.learned_positions = c.size("max_position_embeddings", 77);
  const int64_t layers = c.size("num_hidden_layers", 12), heads = c.size("num_attention_heads", 8);
  if (s.dim % heads != 0) c.refuse("num_attention_heads", cat("does not divide hidden_size ", s.dim));
  if (layers > 4096) c.refuse("num_hidden_layers", "is above 4096");
  nn::LayerSpec l;
  l.norm = {.eps = c.number("layer_norm_eps", 1e-5)};
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = s.dim / heads,
                 .value_size = s.dim / heads,
                 .dropout = c.number("attention_dropout", 0)};
  l.feed_forward = {.width = c.size("intermediate_size", 2048),
                    .activation = parts::read_activation(c, "hidden_act", "quick_gelu")};
  s.layers.assign(static_cast<size_t>(layers), l);
  s.final_norm = l.norm;
  return s;
}

ModelSpec image_spec(const ConfigReader& c) {
  ModelSpec s = parts::read_vit(c, 32, 1e-5, "quick_gelu");
  const double dropout = c.number("attention_dropout", 0);
  const int64_t width = c.size("intermediate_size", 3072);
  for (nn::LayerSpec& l : s.layers) {
    l.attention.dropout = dropout;
    l.feed_forward.width = width;
  }
  s.embedding_norm = s.final_norm;
  s.image->patch_bias = false;
  return s;
}

ModelSpec spec(const ConfigReader& c) {
  const ConfigReader none("{}", c.source());
  const ConfigReader text = c.object("text_config").value_or(none), image = c.object("vision_config").value_or(none);
  ModelSpec s;
  s.kind = ModelKind::pair;
  s.pair = PairSpec{.projection = c.size("projection_dim", 512), .end_token = text.integer("eos_token_id", 49407)};
  s.parts = {text_spec(text), image_spec(image)};
  for (const ConfigReader& part : {text, image})
    for (const char* key : {"model_type", "projection_dim", "initializer_factor", "dropout", "logit_scale_init_value"})
      part.ignore(key);
  for (const char* key : {"logit_scale_init_value", "initializer_factor", "text_config_dict", "vision_config_dict"})
    c.ignore(key);
  return s;
}

parts::Json part_config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  parts::Json j;
  j["hidden_size"] = s.dim;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["intermediate_size"] = l.feed_forward.width;
  j["hidden_act"] = parts::activation_name(l.feed_forward.activation);
  j["layer_norm_eps"] = l.norm.eps;
  j["attention_dropout"] = l.attention.dropout;
  return j;
}

std::string config(const ModelSpec& s) {
  parts::Json text = part_config(s.parts[0]), image = part_config(s.parts[1]), j;
  text["model_type"] = "clip_text_model";
  text["vocab_size"] = s.parts[0].vocab;
  text["max_position_embeddings"] = s.parts[0].learned_positions;
  text["eos_token_id"] = s.pair->end_token;
  image["model_type"] = "clip_vision_model";
  parts::write_image_sizes(image, *s.parts[1].image);
  text["projection_dim"] = image["projection_dim"] = s.pair->projection;
  j["model_type"] = "clip";
  j["architectures"] = {"CLIPModel"};
  j["projection_dim"] = s.pair->projection;
  j["text_config"] = text;
  j["vision_config"] = image;
  return j.dump(2);
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  std::vector<WeightRow> rows;
  const ModelSpec &text = s.parts[0], &image = s.parts[1];
  const auto add = [&](const std::string& ours, const std::string& theirs, const Shape& shape,
                       const WeightView& view = {}) { rows.push_back(weight_row(ours, theirs, shape, view)); };
  const auto both = [&](const std::string& ours, const std::string& theirs, const Shape& shape) {
    add(ours + ".weight", theirs + ".weight", shape);
    add(ours + ".bias", theirs + ".bias", {shape[0]});
  };
  add("logit_scale", "logit_scale", {});
  add("text_projection.weight", "text_projection.weight", {s.pair->projection, text.dim});
  add("image_projection.weight", "visual_projection.weight", {s.pair->projection, image.dim});
  add("text.token_embedding.weight", "text_model.embeddings.token_embedding.weight", {text.vocab, text.dim});
  add("text.position_embedding.weight", "text_model.embeddings.position_embedding.weight",
      {text.learned_positions, text.dim});
  for (size_t i = 0; i < text.layers.size(); ++i) {
    const std::string ours = cat("text.blocks.", i, '.'), theirs = cat("text_model.encoder.layers.", i, '.');
    const parts::PackedRows packed = parts::packed_rows(text.layers[i].attention);
    for (const auto& [name, view] : {std::pair("q", packed.q), std::pair("k", packed.k), std::pair("v", packed.v)}) {
      add(ours + "attn.qkv.weight", cat(theirs, "self_attn.", name, "_proj.weight"), {text.dim, text.dim}, view);
      add(ours + "attn.qkv.bias", cat(theirs, "self_attn.", name, "_proj.bias"), {text.dim}, view);
    }
    const int64_t width = text.layers[i].feed_forward.width;
    both(ours + "attn.out", theirs + "self_attn.out_proj", {text.dim, text.dim});
    both(ours + "norm1", theirs + "layer_norm1", {text.dim});
    both(ours + "norm2", theirs + "layer_norm2", {text.dim});
    both(ours + "mlp.up", theirs + "mlp.fc1", {width, text.dim});
    both(ours + "mlp.down", theirs + "mlp.fc2", {text.dim, width});
  }
  both("text.norm", "text_model.final_layer_norm", {text.dim});
  for (WeightRow row : parts::image_weights(image, {.prefix = "vision_model.",
                                                   .class_token = "embeddings.class_embedding",
                                                   .patch = "embeddings.patch_embedding",
                                                   .positions = "embeddings.position_embedding.weight",
                                                   .one = {image.dim},
                                                   .positions_shape = {image.learned_positions, image.dim},
                                                   .embedding_norm = "pre_layrnorm",
                                                   .layer = "encoder.layers.{}.",
                                                   .q = "self_attn.q_proj",
                                                   .k = "self_attn.k_proj",
                                                   .v = "self_attn.v_proj",
                                                   .out = "self_attn.out_proj",
                                                   .norm1 = "layer_norm1",
                                                   .norm2 = "layer_norm2",
                                                   .up = "mlp.fc1",
                                                   .down = "mlp.fc2",
                                                   .norm = "post_layernorm"})) {
    row.parameter = "image." + row.parameter;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

const Family& clip() {
  static const Family family{
      .name = "clip",
      .title = "CLIP",
      .kind = ModelKind::pair,
      .model_types = {"clip"},
      .architectures = {"CLIPModel"},
      .spec = spec,
      .config = config,
      .weights = weights,
      .buffers = {"embeddings.position_ids"},
      .samples = {
          {"plain", R"({"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 24,
                  "text_config": {"vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "intermediate_size": 80, "max_position_embeddings": 32,
                  "eos_token_id": 95},
                  "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 96, "image_size": 24, "patch_size": 8}})"},
          {"largest", R"({"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 32,
                  "text_config": {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16,
                  "eos_token_id": 2, "hidden_act": "gelu"},
                  "vision_config": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "intermediate_size": 64, "image_size": 16, "patch_size": 4, "hidden_act": "gelu"}})"},
      }};
  return family;
}

}  // namespace strata::records
