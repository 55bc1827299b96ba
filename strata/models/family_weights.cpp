// The tensors of decoders with Llama's names.

#include "strata/models/family_parts_inl.h"

namespace strata::parts {
namespace {

class Rows {
 public:
  Rows(const ModelSpec& spec, const LlamaNames& names) : spec_(spec), names_(names) {}

  std::vector<WeightRow> all() {
    add("token_embedding.weight", "model.embed_tokens.weight", {spec_.vocab, spec_.dim}, "token_embd.weight");
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const nn::LayerSpec& l = spec_.layers[i];
      ours_ = cat("blocks.", i, '.');
      theirs_ = cat("model.layers.", i, '.');
      gguf_ = cat("blk.", i, '.');
      norms(l);
      if (l.attention.latent)
        latent(l.attention);
      else
        attention(l.attention);
      linear("attn.out", "self_attn.o_proj", "attn_output", spec_.dim, l.attention.heads * l.attention.value_size,
             l.attention.out_bias);
      if (l.feed_forward.experts)
        experts(*l.feed_forward.experts);
      else
        feed_forward(l.feed_forward);
    }
    ours_ = theirs_ = gguf_ = {};
    norm("norm", "model.norm", "output_norm", spec_.dim);
    add(spec_.tied ? "token_embedding.weight" : "head.weight", "lm_head.weight", {spec_.vocab, spec_.dim},
        "output.weight")
        .repeats = spec_.tied;
    return std::move(rows_);
  }

 private:
  WeightRow& add(std::string_view ours, std::string_view theirs, const Shape& shape, std::string_view gguf,
                 const WeightView& view = {}) {
    return rows_.emplace_back(weight_row(cat(ours_, ours), theirs.empty() ? std::string() : cat(theirs_, theirs), shape,
                                         view, gguf.empty() ? std::string() : cat(gguf_, gguf)));
  }
  void norm(std::string_view ours, std::string_view theirs, std::string_view gguf, int64_t width) {
    add(cat(ours, ".weight"), cat(theirs, ".weight"), {width}, cat(gguf, ".weight")).gguf_plus = names_.gguf_plus;
  }
  // [out, in], and [out] where there are biases: rows of ours that `view` takes.
  void linear(std::string_view ours, std::string_view theirs, std::string_view gguf, int64_t out, int64_t in, bool bias,
              const WeightView& view = {}) {
    const auto ending = [](std::string_view name, const char* end) {
      return name.empty() ? std::string() : cat(name, end);
    };
    add(ending(ours, ".weight"), ending(theirs, ".weight"), {out, in}, ending(gguf, ".weight"), view);
    if (bias) add(ending(ours, ".bias"), ending(theirs, ".bias"), {out}, ending(gguf, ".bias"), view);
  }

  void norms(const nn::LayerSpec& l) {
    const bool sandwich = l.placement == nn::NormPlacement::sandwich;
    norm("norm1", "input_layernorm", "attn_norm", spec_.dim);
    norm("norm2", sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm", "ffn_norm", spec_.dim);
    if (!sandwich) return;
    norm("norm3", "post_attention_layernorm", "post_attention_norm", spec_.dim);
    norm("norm4", "post_feedforward_layernorm", "post_ffw_norm", spec_.dim);
  }

  void attention(const nn::AttentionSpec& a) {
    const PackedRows p = packed_rows(a);
    if (a.query_key_norm) {
      norm("attn.q_norm", "self_attn.q_norm", "attn_q_norm", a.head_size);
      norm("attn.k_norm", "self_attn.k_norm", "attn_k_norm", a.head_size);
    }
    if (names_.joined)
      return linear("attn.qkv", "self_attn.qkv_proj", "attn_qkv", p.q_rows + p.k_rows + p.v_rows, spec_.dim, a.bias);
    const auto turned = [&](size_t from, const WeightView& view, int64_t heads) {
      if (!names_.gguf_pairs) return;
      for (size_t i = from; i < rows_.size(); ++i)
        rows_[i].gguf_view = gguf_rotary_rows(view, heads, a.head_size, i == from ? Shape{spec_.dim} : Shape{});
    };
    size_t from = rows_.size();
    linear("attn.qkv", "self_attn.q_proj", "attn_q", p.q_rows, spec_.dim, a.bias, p.q);
    turned(from, p.q, a.heads);
    from = rows_.size();
    linear("attn.qkv", "self_attn.k_proj", "attn_k", p.k_rows, spec_.dim, a.bias, p.k);
    turned(from, p.k, a.kv_heads);
    linear("attn.qkv", "self_attn.v_proj", "attn_v", p.v_rows, spec_.dim, a.bias, p.v);
  }

  void latent(const nn::AttentionSpec& a) {
    const nn::LatentSpec& l = *a.latent;
    const int64_t q = a.heads * a.head_size, first = l.q_rank > 0 ? l.q_rank : q;
    const WeightView whole;
    linear("attn.qkv", l.q_rank > 0 ? "self_attn.q_a_proj" : "self_attn.q_proj", l.q_rank > 0 ? "attn_q_a" : "attn_q",
           first, spec_.dim, a.bias, whole.narrow(0, 0, first));
    const int64_t rest = l.kv_rank + l.rope_size;
    linear("attn.qkv", "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", rest, spec_.dim, a.bias,
           whole.narrow(0, first, rest));
    if (l.q_rank > 0) {
      add("attn.q_norm.weight", "self_attn.q_a_layernorm.weight", {l.q_rank}, "attn_q_a_norm.weight");
      linear("attn.q_up", "self_attn.q_b_proj", "attn_q_b", q, l.q_rank, false);
    }
    add("attn.k_norm.weight", "self_attn.kv_a_layernorm.weight", {l.kv_rank}, "attn_kv_a_norm.weight");
    // GGUF has the rows of keys and of values apart, and the keys' the other way round, as a product behind attention
    // takes them.
    const int64_t plain = a.head_size - l.rope_size, both = plain + a.value_size;
    linear("attn.kv_up", "self_attn.kv_b_proj", {}, a.heads * both, l.kv_rank, false);
    const WeightView heads = whole.view({a.heads, both, l.kv_rank});
    add("attn.kv_up.weight", {}, {a.heads, l.kv_rank, plain}, "attn_k_b.weight",
        heads.narrow(1, 0, plain).permute({0, 2, 1}));
    add("attn.kv_up.weight", {}, {a.heads, a.value_size, l.kv_rank}, "attn_v_b.weight",
        heads.narrow(1, plain, a.value_size));
  }

  // Two of theirs, of `n` rows each, lie one below the other in ours.
  void halves(std::string_view ours, std::string_view gate, std::string_view up, std::string_view gguf_gate,
              std::string_view gguf_up, int64_t n, bool bias) {
    linear(ours, gate, gguf_gate, n, spec_.dim, bias, WeightView().narrow(0, 0, n));
    linear(ours, up, gguf_up, n, spec_.dim, bias, WeightView().narrow(0, n, n));
  }

  void feed_forward(const nn::FeedForwardSpec& f) {
    if (names_.joined)
      linear("mlp.gate_up", "mlp.gate_up_proj", "ffn_up", 2 * f.width, spec_.dim, f.bias);
    else
      halves("mlp.gate_up", "mlp.gate_proj", "mlp.up_proj", "ffn_gate", "ffn_up", f.width, f.bias);
    linear("mlp.down", "mlp.down_proj", "ffn_down", spec_.dim, f.width, f.bias);
  }

  // In files each expert has matrices of its own; in a GGUF file, as here, all have one tensor.
  void experts(const nn::ExpertsSpec& e) {
    const std::string block = cat(names_.experts_block, '.');
    const auto named = [&](const char* name) {
      return names_.gguf_experts ? std::string_view(name) : std::string_view();
    };
    add("mlp.experts.router", block + "gate.weight", {e.count, spec_.dim}, named("ffn_gate_inp.weight"));
    if (e.correction_bias)
      add("mlp.experts.correction_bias", block + "gate.e_score_correction_bias", {e.count}, named("exp_probs_b.bias"));
    const WeightView whole, gates = whole.narrow(1, 0, e.width), ups = whole.narrow(1, e.width, e.width);
    for (int64_t i = 0; i < e.count; ++i) {
      const auto matrix = [&](const char* ours, std::string_view theirs, const Shape& shape, const WeightView& view) {
        WeightRow& row = add(cat("mlp.experts.", ours), cat(block, "experts.", i, '.', theirs, ".weight"), shape, {},
                             view.select(0, i));
        row.stacked = cat(theirs_, "mlp.experts.", ours, "_proj");  // whatever the block was called before
        row.expert = i;
      };
      matrix("gate_up", names_.expert_gate, {e.width, spec_.dim}, gates);
      matrix("gate_up", names_.expert_up, {e.width, spec_.dim}, ups);
      matrix("down", names_.expert_down, {spec_.dim, e.width}, whole);
    }
    if (names_.gguf_experts) {
      add("mlp.experts.gate_up", {}, {e.count, e.width, spec_.dim}, "ffn_gate_exps.weight", gates);
      add("mlp.experts.gate_up", {}, {e.count, e.width, spec_.dim}, "ffn_up_exps.weight", ups);
      add("mlp.experts.down", {}, {e.count, spec_.dim, e.width}, "ffn_down_exps.weight");
    }
    if (e.shared_width == 0) return;
    const std::string shared = cat(block, "shared_experts.");
    halves("mlp.experts.shared_gate_up", shared + "gate_proj", shared + "up_proj", named("ffn_gate_shexp"),
           named("ffn_up_shexp"), e.shared_width, false);
    linear("mlp.experts.shared_down", shared + "down_proj", named("ffn_down_shexp"), spec_.dim, e.shared_width, false);
  }

  const ModelSpec& spec_;
  const LlamaNames& names_;
  std::vector<WeightRow> rows_;
  std::string ours_, theirs_, gguf_;  // what names of the layer begin with
};

}  // namespace

PackedRows packed_rows(const nn::AttentionSpec& a) {
  const int64_t q = a.heads * a.head_size, k = a.kv_heads * a.head_size, v = a.kv_heads * a.value_size;
  const WeightView whole;
  return {whole.narrow(0, 0, q), whole.narrow(0, q, k), whole.narrow(0, q + k, v), q, k, v};
}

std::vector<WeightRow> llama_weights(const ModelSpec& spec, const LlamaNames& names) {
  return Rows(spec, names).all();
}

}  // namespace strata::parts
