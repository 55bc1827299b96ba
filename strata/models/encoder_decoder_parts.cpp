#include "strata/models/encoder_decoder_parts_inl.h"

namespace strata::parts {
namespace {

// Rows of one block.
class Block {
 public:
  Block(std::vector<WeightRow>& rows, const ModelSpec& part, std::string ours, std::string theirs, std::string gguf)
      : rows_(rows), dim_(part.dim), ours_(std::move(ours)), theirs_(std::move(theirs)), gguf_(std::move(gguf)) {}

  // The last of the names is GGUF's.
  void norm(const nn::NormSpec& norm, const std::string& ours, const std::string& theirs, const char* there) {
    add_norm(rows_, norm, ours_ + ours, theirs_ + theirs, dim_, gguf_.empty() ? std::string() : gguf_ + there);
  }
  void linear(const std::string& ours, const std::string& theirs, const char* there, int64_t out, int64_t in, bool bias,
              const WeightView& view = {}) {
    rows_.push_back(weight_row(ours_ + ours + ".weight", theirs_ + theirs + ".weight", {out, in}, view,
                               gguf_.empty() ? std::string() : cat(gguf_, there, ".weight")));
    if (bias) rows_.push_back(weight_row(ours_ + ours + ".bias", theirs_ + theirs + ".bias", {out}, view));
  }
  // Keys, whose bias may stand in no file.
  void keys(const std::string& ours, const std::string& theirs, const char* there, int64_t out,
            const nn::AttentionSpec& a, const WeightView& view) {
    linear(ours, theirs, there, out, dim_, a.bias && a.key_bias, view);
    if (a.bias && !a.key_bias) rows_.push_back(weight_row(ours_ + ours + ".bias", {}, {out}, view));
  }

 private:
  std::vector<WeightRow>& rows_;
  int64_t dim_;
  std::string ours_, theirs_, gguf_;
};

}  // namespace

void add_norm(std::vector<WeightRow>& rows, const nn::NormSpec& norm, const std::string& ours,
              const std::string& theirs, int64_t dim, const std::string& gguf) {
  rows.push_back(
      weight_row(ours + ".weight", theirs + ".weight", {dim}, {}, gguf.empty() ? std::string() : gguf + ".weight"));
  if (norm.kind == nn::NormSpec::Kind::layer && norm.bias)
    rows.push_back(weight_row(ours + ".bias", theirs + ".bias", {dim}));
}

void add_stack(std::vector<WeightRow>& rows, const ModelSpec& part, std::string_view ours, const StackNames& n) {
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const nn::LayerSpec& l = part.layers[i];
    const nn::AttentionSpec& a = l.attention;
    const auto numbered = [&](std::string name) {
      if (!name.empty()) name.replace(name.find("{}"), 2, cat(i));
      return name;
    };
    Block block(rows, part, cat(ours, i, '.'), numbered(n.layer), numbered(n.gguf));
    const PackedRows p = packed_rows(a);
    block.norm(l.norm, "norm1", n.norm1, "attn_norm");
    block.linear("attn.qkv", n.self + n.q, "attn_q", p.q_rows, part.dim, a.bias, p.q);
    block.keys("attn.qkv", n.self + n.k, "attn_k", p.k_rows, a, p.k);
    block.linear("attn.qkv", n.self + n.v, "attn_v", p.v_rows, part.dim, a.bias, p.v);
    block.linear("attn.out", n.self + n.out, "attn_o", part.dim, a.heads * a.value_size, a.out_bias);
    const bool crosses = !n.cross.empty();
    if (crosses) {
      block.norm(l.norm, "norm2", n.norm2, "cross_attn_norm");
      block.linear("cross.q", n.cross + n.q, "cross_attn_q", p.q_rows, part.dim, a.bias);
      block.keys("cross.kv", n.cross + n.k, "cross_attn_k", p.k_rows, a, WeightView().narrow(0, 0, p.k_rows));
      block.linear("cross.kv", n.cross + n.v, "cross_attn_v", p.v_rows, part.dim, a.bias,
                   WeightView().narrow(0, p.k_rows, p.v_rows));
      block.linear("cross.out", n.cross + n.out, "cross_attn_o", part.dim, a.heads * a.value_size, a.out_bias);
    }
    block.norm(l.norm, crosses ? "norm3" : "norm2", n.norm3, "ffn_norm");
    const nn::FeedForwardSpec& f = l.feed_forward;
    if (f.gated) {
      block.linear("mlp.gate_up", n.gate, "ffn_gate", f.width, part.dim, f.bias, WeightView().narrow(0, 0, f.width));
      block.linear("mlp.gate_up", n.up, "ffn_up", f.width, part.dim, f.bias, WeightView().narrow(0, f.width, f.width));
    } else {
      block.linear("mlp.up", n.up, "ffn_up", f.width, part.dim, f.bias);
    }
    block.linear("mlp.down", n.down, "ffn_down", part.dim, f.width, f.bias);
  }
}

}  // namespace strata::parts
