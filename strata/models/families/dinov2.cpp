// DINOv2 (Oquab et al., arXiv:2304.07193), with register tokens too (Darcet et al., arXiv:2309.16588).

#include "strata/models/image_parts_inl.h"

namespace strata::records {

const Family& dinov2();

namespace {

const std::vector<std::string_view> kClasses{"Dinov2Model", "Dinov2ForImageClassification", "Dinov2WithRegistersModel",
                                             "Dinov2WithRegistersForImageClassification"};

// Of the gated form two thirds of the width, up to a multiple of 8.
int64_t width_of(int64_t dim, int64_t ratio, bool gated) {
  const int64_t width = dim * ratio;
  return gated ? (static_cast<int64_t>(static_cast<double>(width) * 2 / 3) + 7) / 8 * 8 : width;
}

ModelSpec spec(const ConfigReader& c) {
  const std::vector<std::string> said = c.texts("architectures").value_or(std::vector<std::string>{});
  const bool labels = !said.empty() && (said.front() == kClasses[1] || said.front() == kClasses[3]);
  const bool registers = c.text("model_type", "dinov2") == "dinov2_with_registers";
  ModelSpec s = parts::read_vit(c, registers ? 16 : 14, 1e-6, "gelu");
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
  if (registers) s.image->register_tokens = c.size("num_register_tokens", 4);
  s.image->mask_token = c.flag("use_mask_token", true);
  c.expect("drop_path_rate", 0.0);
  // The first is what weights begin at; the others are of a backbone's outputs.
  for (const char* key :
       {"layerscale_value", "out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states"})
    c.ignore(key);
  if (labels)
    s.encoder_head = {
        .kind = EncoderHeadSpec::Kind::labels, .labels = parts::read_labels(c), .patches = true, .dense = false};
  else
    for (const char* key : {"num_labels", "id2label", "label2id"}) c.ignore(key);
  return s;
}

std::string config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  const bool registers = s.image->register_tokens > 0, gated = l.feed_forward.gated;
  int64_t ratio = 1;
  while (ratio < 1024 && width_of(s.dim, ratio, gated) < l.feed_forward.width) ++ratio;
  check(width_of(s.dim, ratio, gated) == l.feed_forward.width, "dinov2", "a feed-forward width of ",
        l.feed_forward.width, " is no multiple of ", s.dim);
  parts::Json j;
  j["model_type"] = registers ? "dinov2_with_registers" : "dinov2";
  j["architectures"] = {kClasses[(registers ? 2 : 0) + (s.encoder_head ? 1 : 0)]};
  j["hidden_size"] = s.dim;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["mlp_ratio"] = ratio;
  j["use_swiglu_ffn"] = gated;
  j["hidden_act"] = gated ? "gelu" : parts::activation_name(l.feed_forward.activation);
  j["layer_norm_eps"] = l.norm.eps;
  j["qkv_bias"] = l.attention.bias;
  j["attention_probs_dropout_prob"] = l.attention.dropout;
  j["hidden_dropout_prob"] = s.embedding_dropout;
  j["use_mask_token"] = s.image->mask_token;
  if (registers) j["num_register_tokens"] = s.image->register_tokens;
  parts::write_image_sizes(j, *s.image);
  if (s.encoder_head) parts::write_labels(j, s.encoder_head->labels);
  return j.dump(2);
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  return parts::image_weights(s, {.prefix = s.image->register_tokens > 0 ? "dinov2_with_registers." : "dinov2.",
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

}  // namespace

const Family& dinov2() {
  static const Family family{
      .name = "dinov2",
      .title = "DINOv2",
      .kind = ModelKind::image_encoder,
      .model_types = {"dinov2", "dinov2_with_registers"},
      .architectures = kClasses,
      .spec = spec,
      .config = config,
      .weights = weights,
      .base_prefix = "dinov2.",
      .samples = {
          {"plain", R"({"model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 64,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 24,
                  "patch_size": 4})"},
          {"gated", R"({"model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
                  "use_swiglu_ffn": true, "use_mask_token": false})"},
          {"labels", R"({"model_type": "dinov2", "architectures": ["Dinov2ForImageClassification"], "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 3, "image_size": 16, "patch_size": 8,
                  "id2label": {"0": "a", "1": "b", "2": "c"}})"},
          {"registers", R"({"model_type": "dinov2_with_registers", "architectures": ["Dinov2WithRegistersModel"],
                  "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
                  "patch_size": 4, "num_register_tokens": 3})"},
      }};
  return family;
}

}  // namespace strata::records
