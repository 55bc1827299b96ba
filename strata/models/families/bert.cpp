// BERT (Devlin et al., arXiv:1810.04805).

#include "strata/models/encoder_parts_inl.h"

namespace strata::records {

const Family& bert();

namespace {

const std::vector<std::string_view> kClasses{"BertModel", "BertForMaskedLM", "BertForSequenceClassification"};

ModelSpec spec(const ConfigReader& c) {
  const parts::EncoderClass kind = parts::encoder_class(c, kClasses);
  ModelSpec s = parts::read_bert(c, kind);
  s.pooler = kind != parts::EncoderClass::tokens;
  if (kind == parts::EncoderClass::tokens)
    s.encoder_head = {.activation = s.layers.front().feed_forward.activation, .norm = s.embedding_norm};
  if (kind == parts::EncoderClass::labels) {
    s.encoder_head->pooled = true;
    s.encoder_head->dense = false;
  }
  return s;
}

std::string config(const ModelSpec& s) {
  const size_t kind = !s.encoder_head ? 0 : s.encoder_head->kind == EncoderHeadSpec::Kind::tokens ? 1 : 2;
  return parts::write_bert("bert", kClasses[kind], s).dump(2);
}

}  // namespace

const Family& bert() {
  static const Family family{
      .name = "bert",
      .title = "BERT",
      .kind = ModelKind::encoder,
      .model_types = {"bert"},
      .architectures = kClasses,
      .spec = spec,
      .config = config,
      .weights =
          [](const ModelSpec& s) {
            return parts::encoder_weights(s, {.prefix = "bert.",
                                              .token_dense = "cls.predictions.transform.dense",
                                              .token_norm = "cls.predictions.transform.LayerNorm",
                                              .token_bias = "cls.predictions.bias",
                                              .token_head = "cls.predictions.decoder",
                                              .label_head = "classifier"});
          },
      .base_prefix = "bert.",
      .buffers = {"embeddings.position_ids", "cls.predictions.decoder.bias"},
      .samples = {
          {"plain", R"({"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 96, "hidden_size": 64,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96,
                  "max_position_embeddings": 64})"},
          {"tokens", R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 96,
                  "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 80,
                  "hidden_act": "relu", "max_position_embeddings": 64, "type_vocab_size": 3, "layer_norm_eps": 1e-6})"},
          {"labels", R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 96,
                  "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80,
                  "max_position_embeddings": 64, "id2label": {"0": "no", "1": "maybe", "2": "yes"}})"},
      }};
  return family;
}

}  // namespace strata::records
