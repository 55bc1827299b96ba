// Whisper (Radford et al., arXiv:2212.04356).

#include "strata/models/encoder_decoder_parts_inl.h"

namespace strata::records {

const Family& whisper();

namespace {

// Of one part: keys that begin with "encoder" or "decoder".
void read_part(const ConfigReader& c, ModelSpec& part, const char* layers_key, const char* heads_key,
               const char* width_key, bool reads) {
  // transformers calls the encoder's numbers by other names too.
  const JsonKey layers_name = reads ? JsonKey{layers_key, "num_hidden_layers"} : JsonKey(layers_key);
  const JsonKey heads_name =
      reads ? JsonKey{heads_key, "num_attention_heads", "num_key_value_heads"} : JsonKey(heads_key);
  const int64_t layers = c.size(layers_name, 4), heads = c.size(heads_name, 6);
  if (part.dim % heads != 0) c.refuse(heads_name, cat("does not divide d_model ", part.dim));
  if (layers > 4096) c.refuse(layers_name, "is above 4096");
  nn::LayerSpec l;
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = part.dim / heads,
                 .value_size = part.dim / heads,
                 .causal = !reads,
                 .key_bias = false,
                 .dropout = c.number("attention_dropout", 0)};
  l.feed_forward = {.width = c.size(width_key, 1536),
                    .activation = parts::read_activation(c, "activation_function", "gelu"),
                    .dropout = c.number("activation_dropout", 0)};
  l.dropout = part.embedding_dropout;
  part.layers.assign(static_cast<size_t>(layers), l);
  part.final_norm = l.norm;
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s, reads, writes;
  s.kind = ModelKind::encoder_decoder;
  reads.kind = ModelKind::encoder;
  reads.dim = writes.dim = c.size({"d_model", "hidden_size"}, 384);
  if (reads.dim % 2 != 0 || reads.dim < 4) c.refuse({"d_model", "hidden_size"}, "is to be even, and at least 4");
  reads.audio = AudioSpec{.bins = c.size("num_mel_bins", 80)};
  reads.context = reads.learned_positions = c.size("max_source_positions", 1500);
  writes.context = writes.learned_positions = c.size("max_target_positions", 448);
  writes.vocab = c.size("vocab_size", 51865);
  writes.tied = c.flag("tie_word_embeddings", true);
  reads.embedding_dropout = writes.embedding_dropout = c.number("dropout", 0);
  read_part(c, reads, "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", true);
  read_part(c, writes, "decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", false);
  s.parts = {reads, writes};
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"}) c.expect(key, 0.0);
  c.expect("is_encoder_decoder", true);
  c.expect("is_decoder", false);
  c.expect("add_cross_attention", false);
  // A factor that no version multiplies by; what generation begins with; a classifier's head; noise in training; and
  // how times of words are found.
  for (const char* key :
       {"scale_embedding", "init_std", "forced_decoder_ids", "use_weighted_layer_sum", "classifier_proj_size",
        "apply_spec_augment", "mask_time_prob", "mask_time_length", "mask_time_min_masks", "mask_feature_prob",
        "mask_feature_length", "mask_feature_min_masks", "median_filter_width"})
    c.ignore(key);
  return s;
}

std::string config(const ModelSpec& s) {
  const ModelSpec &reads = s.parts[0], &writes = s.parts[1];
  const nn::LayerSpec &in = reads.layers.front(), &out = writes.layers.front();
  parts::Json j;
  j["model_type"] = "whisper";
  j["architectures"] = {"WhisperForConditionalGeneration"};
  j["vocab_size"] = writes.vocab;
  j["num_mel_bins"] = reads.audio->bins;
  j["d_model"] = reads.dim;
  j["encoder_layers"] = reads.layers.size();
  j["encoder_attention_heads"] = in.attention.heads;
  j["encoder_ffn_dim"] = in.feed_forward.width;
  j["decoder_layers"] = writes.layers.size();
  j["decoder_attention_heads"] = out.attention.heads;
  j["decoder_ffn_dim"] = out.feed_forward.width;
  j["activation_function"] = parts::activation_name(in.feed_forward.activation);
  j["max_source_positions"] = reads.context;
  j["max_target_positions"] = writes.context;
  j["dropout"] = in.dropout;
  j["attention_dropout"] = in.attention.dropout;
  j["activation_dropout"] = in.feed_forward.dropout;
  j["tie_word_embeddings"] = writes.tied;
  j["is_encoder_decoder"] = true;
  return j.dump(2);
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  std::vector<WeightRow> rows;
  const ModelSpec &reads = s.parts[0], &writes = s.parts[1];
  const int64_t dim = reads.dim;
  const auto add = [&](const std::string& ours, const std::string& theirs, const Shape& shape) {
    rows.push_back(weight_row(ours, theirs, shape));
  };
  add("conv1.weight", "model.encoder.conv1.weight", {dim, reads.audio->bins, 3});
  add("conv1.bias", "model.encoder.conv1.bias", {dim});
  add("conv2.weight", "model.encoder.conv2.weight", {dim, dim, 3});
  add("conv2.bias", "model.encoder.conv2.bias", {dim});
  add("encoder_positions", "model.encoder.embed_positions.weight", {reads.context, dim});
  const auto part = [&](const ModelSpec& p, const std::string& name, const std::string& cross) {
    const std::string theirs = "model." + name;
    parts::add_stack(rows, p, name + ".",
                     {.layer = theirs + ".layers.{}.",
                      .self = "self_attn.",
                      .cross = cross,
                      .q = "q_proj",
                      .k = "k_proj",
                      .v = "v_proj",
                      .out = "out_proj",
                      .norm1 = "self_attn_layer_norm",
                      .norm2 = "encoder_attn_layer_norm",
                      .norm3 = "final_layer_norm",
                      .up = "fc1",
                      .gate = {},
                      .down = "fc2"});
    parts::add_norm(rows, *p.final_norm, name + "_norm", theirs + ".layer_norm", dim);
  };
  part(reads, "encoder", {});
  add("token_embedding.weight", "model.decoder.embed_tokens.weight", {writes.vocab, dim});
  add("position_embedding.weight", "model.decoder.embed_positions.weight", {writes.context, dim});
  part(writes, "decoder", "encoder_attn.");
  add(writes.tied ? "token_embedding.weight" : "head.weight", "proj_out.weight", {writes.vocab, dim});
  rows.back().repeats = writes.tied;
  return rows;
}

}  // namespace

const Family& whisper() {
  static const Family family{
      .name = "whisper",
      .title = "Whisper",
      .kind = ModelKind::encoder_decoder,
      .model_types = {"whisper"},
      .architectures = {"WhisperForConditionalGeneration"},
      .spec = spec,
      .config = config,
      .weights = weights,
      .base_prefix = "model.",
      .samples = {
          {"plain", R"({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
                  "vocab_size": 96, "num_mel_bins": 16, "d_model": 48, "encoder_layers": 2,
                  "encoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_layers": 3,
                  "decoder_attention_heads": 3, "decoder_ffn_dim": 96, "max_source_positions": 50,
                  "max_target_positions": 96, "decoder_start_token_id": 90, "pad_token_id": 0, "bos_token_id": 1,
                  "eos_token_id": 2, "num_hidden_layers": 2})"},
          {"untied", R"({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
                  "vocab_size": 96, "num_mel_bins": 20, "d_model": 32, "encoder_layers": 1,
                  "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_layers": 2,
                  "decoder_attention_heads": 4, "decoder_ffn_dim": 64, "max_source_positions": 25,
                  "max_target_positions": 96, "activation_function": "relu", "tie_word_embeddings": false,
                  "decoder_start_token_id": 90, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})"},
      }};
  return family;
}

}  // namespace strata::records
