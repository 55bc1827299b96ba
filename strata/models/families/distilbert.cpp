// DistilBERT (Sanh et al., arXiv:1910.01108): BERT without token types and pooler.

#include "strata/models/encoder_parts_inl.h"

namespace strata::records {

const Family& distilbert();

namespace {

const std::vector<std::string_view> kClasses{"DistilBertModel", "DistilBertForMaskedLM",
                                             "DistilBertForSequenceClassification"};

ModelSpec spec(const ConfigReader& c) {
  const parts::EncoderClass kind = parts::encoder_class(c, kClasses);
  ModelSpec s;
  s.kind = ModelKind::encoder;
  s.vocab = c.size("vocab_size", 30522);
  s.dim = c.size("dim", 768);
  s.context = s.learned_positions = c.size("max_position_embeddings", 512);
  const int64_t layers = c.size("n_layers", 6), heads = c.size("n_heads", 12);
  if (s.dim % heads != 0) c.refuse("n_heads", cat("does not divide dim ", s.dim));
  if (layers > 4096) c.refuse("n_layers", "is above 4096");
  nn::LayerSpec l;
  l.placement = nn::NormPlacement::after;
  l.norm = {.eps = 1e-12};
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = s.dim / heads,
                 .value_size = s.dim / heads,
                 .causal = false,
                 .dropout = c.number("attention_dropout", 0.1)};
  l.feed_forward = {.width = c.size("hidden_dim", 3072), .activation = parts::read_activation(c, "activation", "gelu")};
  l.dropout = s.embedding_dropout = c.number("dropout", 0.1);
  s.layers.assign(static_cast<size_t>(layers), l);
  s.embedding_norm = l.norm;
  s.tied = kind == parts::EncoderClass::tokens && c.flag("tie_word_embeddings", true);
  // The table of sines is stored with the weights.
  for (const char* key :
       {"tie_word_embeddings", "sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout"})
    c.ignore(key);
  c.expect("is_encoder_decoder", false);
  if (kind == parts::EncoderClass::tokens) s.encoder_head = {.activation = l.feed_forward.activation, .norm = l.norm};
  if (kind == parts::EncoderClass::labels)
    s.encoder_head = {
        .kind = EncoderHeadSpec::Kind::labels, .labels = parts::read_labels(c), .activation = nn::Activation::relu};
  else
    for (const char* key : {"num_labels", "id2label", "label2id"}) c.ignore(key);
  return s;
}

std::string config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  const size_t kind = !s.encoder_head ? 0 : s.encoder_head->kind == EncoderHeadSpec::Kind::tokens ? 1 : 2;
  parts::Json j;
  j["model_type"] = "distilbert";
  j["architectures"] = {kClasses[kind]};
  j["vocab_size"] = s.vocab;
  j["dim"] = s.dim;
  j["n_layers"] = s.layers.size();
  j["n_heads"] = l.attention.heads;
  j["hidden_dim"] = l.feed_forward.width;
  j["activation"] = parts::activation_name(l.feed_forward.activation);
  j["dropout"] = l.dropout;
  j["attention_dropout"] = l.attention.dropout;
  j["max_position_embeddings"] = s.learned_positions;
  if (kind == 1) j["tie_word_embeddings"] = s.tied;
  if (kind == 2) parts::write_labels(j, s.encoder_head->labels);
  return j.dump(2);
}

}  // namespace

const Family& distilbert() {
  static const Family family{
      .name = "distilbert",
      .title = "DistilBERT",
      .kind = ModelKind::encoder,
      .model_types = {"distilbert"},
      .architectures = kClasses,
      .spec = spec,
      .config = config,
      .weights =
          [](const ModelSpec& s) {
            return parts::encoder_weights(s, {.prefix = "distilbert.",
                                              .layer = "transformer.layer.{}.",
                                              .q = "attention.q_lin",
                                              .k = "attention.k_lin",
                                              .v = "attention.v_lin",
                                              .out = "attention.out_lin",
                                              .norm1 = "sa_layer_norm",
                                              .up = "ffn.lin1",
                                              .down = "ffn.lin2",
                                              .norm2 = "output_layer_norm",
                                              .token_dense = "vocab_transform",
                                              .token_norm = "vocab_layer_norm",
                                              .token_bias = "vocab_projector.bias",
                                              .token_head = "vocab_projector",
                                              .label_dense = "pre_classifier",
                                              .label_head = "classifier"});
          },
      .base_prefix = "distilbert.",
      .buffers = {"embeddings.position_ids"},
      .samples = {
          {"plain", R"({"model_type": "distilbert", "architectures": ["DistilBertModel"], "vocab_size": 96, "dim": 64,
                  "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "max_position_embeddings": 64})"},
          {"tokens", R"({"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "vocab_size": 96,
                  "dim": 48, "n_layers": 2, "n_heads": 2, "hidden_dim": 80, "max_position_embeddings": 64,
                  "sinusoidal_pos_embds": true})"},
          {"labels", R"({"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"],
                  "vocab_size": 96, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 80, "activation": "relu",
                  "max_position_embeddings": 64, "id2label": {"0": "a", "1": "b", "2": "c"}})"},
      }};
  return family;
}

}  // namespace strata::records
