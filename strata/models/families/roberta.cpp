// RoBERTa (Liu et al., arXiv:1907.11692): BERT whose positions begin behind the padding token's number.

#include "strata/models/encoder_parts_inl.h"

namespace strata::records {

const Family& roberta();

namespace {

const std::vector<std::string_view> kClasses{"RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"};

ModelSpec spec(const ConfigReader& c) {
  const parts::EncoderClass kind = parts::encoder_class(c, kClasses);
  ModelSpec s = parts::read_bert(c, kind);
  const int64_t padding = c.integer("pad_token_id", 1);
  if (padding < 0 || padding + 1 >= s.learned_positions) c.refuse("pad_token_id", "leaves no positions");
  s.position_offset = padding + 1;
  s.context = s.learned_positions - s.position_offset;
  s.positions_skip_padding = true;
  s.pooler = kind == parts::EncoderClass::model;
  if (kind == parts::EncoderClass::tokens)
    s.encoder_head = {.activation = nn::Activation::gelu, .norm = s.embedding_norm};
  if (kind == parts::EncoderClass::labels) s.encoder_head->activation = nn::Activation::tanh;
  return s;
}

std::string config(const ModelSpec& s) {
  const size_t kind = !s.encoder_head ? 0 : s.encoder_head->kind == EncoderHeadSpec::Kind::tokens ? 1 : 2;
  parts::Json j = parts::write_bert("roberta", kClasses[kind], s);
  j["pad_token_id"] = s.position_offset - 1;
  return j.dump(2);
}

}  // namespace

const Family& roberta() {
  static const Family family{
      .name = "roberta",
      .title = "RoBERTa",
      .kind = ModelKind::encoder,
      .model_types = {"roberta"},
      .architectures = kClasses,
      .spec = spec,
      .config = config,
      .weights =
          [](const ModelSpec& s) {
            return parts::encoder_weights(s, {.prefix = "roberta.",
                                              .token_dense = "lm_head.dense",
                                              .token_norm = "lm_head.layer_norm",
                                              .token_bias = "lm_head.bias",
                                              .token_head = "lm_head.decoder",
                                              .label_dense = "classifier.dense",
                                              .label_head = "classifier.out_proj"});
          },
      .base_prefix = "roberta.",
      .buffers = {"embeddings.position_ids", "lm_head.decoder.bias"},
      .samples = {
          {"plain", R"({"model_type": "roberta", "architectures": ["RobertaModel"], "vocab_size": 96,
                  "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96,
                  "max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1})"},
          {"tokens", R"({"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "vocab_size": 96,
                  "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 80,
                  "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1})"},
          {"labels", R"({"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"],
                  "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 80, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1,
                  "id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}})"},
      }};
  return family;
}

}  // namespace strata::records
