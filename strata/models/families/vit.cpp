// Vision transformers (Dosovitskiy et al., arXiv:2010.11929).

#include "strata/models/image_parts_inl.h"

namespace strata::records {

const Family& vit();

namespace {

const std::vector<std::string_view> kClasses{"ViTModel", "ViTForImageClassification"};

ModelSpec spec(const ConfigReader& c) {
  const std::vector<std::string> said = c.texts("architectures").value_or(std::vector<std::string>{});
  const bool labels = !said.empty() && said.front() == kClasses[1];
  ModelSpec s = parts::read_vit(c, 16, 1e-12, "gelu");
  const bool bias = c.flag("qkv_bias", true);
  const double attention = c.number("attention_probs_dropout_prob", 0), dropout = c.number("hidden_dropout_prob", 0);
  const int64_t width = c.size("intermediate_size", 3072);
  for (nn::LayerSpec& l : s.layers) {
    l.attention.bias = bias;
    l.attention.dropout = attention;
    l.feed_forward.width = width;
    l.dropout = dropout;
  }
  s.embedding_dropout = dropout;
  s.pooler = !labels;
  if (const auto size = c.maybe_size("pooler_output_size"); s.pooler && size && *size != s.dim)
    c.refuse("pooler_output_size", cat("is taken as hidden_size ", s.dim, " alone"));
  c.expect("pooler_act", "tanh");
  c.ignore("encoder_stride");
  if (labels)
    s.encoder_head = {.kind = EncoderHeadSpec::Kind::labels, .labels = parts::read_labels(c), .dense = false};
  else
    for (const char* key : {"num_labels", "id2label", "label2id"}) c.ignore(key);
  return s;
}

std::string config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  parts::Json j;
  j["model_type"] = "vit";
  j["architectures"] = {kClasses[s.encoder_head ? 1 : 0]};
  j["hidden_size"] = s.dim;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["intermediate_size"] = l.feed_forward.width;
  j["hidden_act"] = parts::activation_name(l.feed_forward.activation);
  j["layer_norm_eps"] = l.norm.eps;
  j["qkv_bias"] = l.attention.bias;
  j["attention_probs_dropout_prob"] = l.attention.dropout;
  j["hidden_dropout_prob"] = l.dropout;
  parts::write_image_sizes(j, *s.image);
  if (s.encoder_head) parts::write_labels(j, s.encoder_head->labels);
  return j.dump(2);
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  return parts::image_weights(s, {.prefix = "vit.",
                                  .class_token = "embeddings.cls_token",
                                  .patch = "embeddings.patch_embeddings.projection",
                                  .positions = "embeddings.position_embeddings",
                                  .one = {1, 1, s.dim},
                                  .positions_shape = {1, s.learned_positions, s.dim},
                                  .layer = "encoder.layer.{}.",
                                  .q = "attention.attention.query",
                                  .k = "attention.attention.key",
                                  .v = "attention.attention.value",
                                  .out = "attention.output.dense",
                                  .norm1 = "layernorm_before",
                                  .norm2 = "layernorm_after",
                                  .up = "intermediate.dense",
                                  .down = "output.dense",
                                  .norm = "layernorm",
                                  .pooler = "pooler.dense"});
}

}  // namespace

const Family& vit() {
  static const Family family{
      .name = "vit",
      .title = "ViT",
      .kind = ModelKind::image_encoder,
      .model_types = {"vit"},
      .architectures = kClasses,
      .spec = spec,
      .config = config,
      .weights = weights,
      .base_prefix = "vit.",
      .samples = {
          {"plain", R"({"model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 64, "num_hidden_layers": 3,
                  "num_attention_heads": 4, "intermediate_size": 96, "image_size": 24, "patch_size": 4})"},
          {"labels", R"({"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 80, "image_size": [16, 24],
                  "patch_size": 8, "num_channels": 1, "qkv_bias": false, "hidden_act": "gelu_pytorch_tanh",
                  "id2label": {"0": "a", "1": "b", "2": "c"}})"},
      }};
  return family;
}

}  // namespace strata::records
