#include "strata/models/encoder_decoder_parts_inl.h"

namespace strata::parts {
namespace {

// Rows of one block.
class Block {
 public:
  Block(std::vector<WeightRow>& rows, const ModelSpec& part, std::string ours, std::string theirs)
      : rows_(rows), dim_(part.dim), ours_(std::move(ours)), theirs_(std::move(theirs)) {}

  void norm(const nn::NormSpec& norm, const std::string& ours, const std::string& theirs) {
    add_norm(rows_, norm, ours_ + ours, theirs_ + theirs, dim_);
  }
  void linear(const std::string& ours, const std::string& theirs, int64_t out, int64_t in, bool bias,
              const WeightView& view = {}) {
    rows_.push_back(weight_row(ours_ + ours + ".weight", theirs_ + theirs + ".weight", {out, in}, view));
    if (bias) rows_.push_back(weight_row(ours_ + ours + ".bias", theirs_ + theirs + ".bias", {out}, view));
  }
  // Keys, whose bias may stand in no file.
  void keys(const std::string& ours, const std::string& theirs, int64_t out, const nn::AttentionSpec& a,
            const WeightView& view) {
    linear(ours, theirs, out, dim_, a.bias && a.key_bias, view);
    if (a.bias && !a.key_bias) rows_.push_back(weight_row(ours_ + ours + ".bias", {}, {out}, view));
  }

 private:
  std::vector<WeightRow>& rows_;
  int64_t dim_;
  std::string ours_, theirs_;
};

}  // namespace

void add_norm(std::vector<WeightRow>& rows, const nn::NormSpec& norm, const std::string& ours,
              const std::string& theirs, int64_t dim) {
  rows.push_back(weight_row(ours + ".weight", theirs + ".weight", {dim}));
  if (norm.kind == nn::NormSpec::Kind::layer && norm.bias)
    rows.push_back(weight_row(ours + ".bias", theirs + ".bias", {dim}));
}

void add_stack(std::vector<WeightRow>& rows, const ModelSpec& part, std::string_view ours, const StackNames& n) {
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const nn::LayerSpec& l = part.layers[i];
    const nn::AttentionSpec& a = l.attention;
    std::string theirs = n.layer;
    theirs.replace(theirs.find("{}"), 2, cat(i));
    Block block(rows, part, cat(ours, i, '.'), theirs);
    const PackedRows p = packed_rows(a);
    block.norm(l.norm, "norm1", n.norm1);
    block.linear("attn.qkv", n.self + n.q, p.q_rows, part.dim, a.bias, p.q);
    block.keys("attn.qkv", n.self + n.k, p.k_rows, a, p.k);
    block.linear("attn.qkv", n.self + n.v, p.v_rows, part.dim, a.bias, p.v);
    block.linear("attn.out", n.self + n.out, part.dim, a.heads * a.value_size, a.out_bias);
    const bool crosses = !n.cross.empty();
    if (crosses) {
      block.norm(l.norm, "norm2", n.norm2);
      block.linear("cross.q", n.cross + n.q, p.q_rows, part.dim, a.bias);
      block.keys("cross.kv", n.cross + n.k, p.k_rows, a, WeightView().narrow(0, 0, p.k_rows));
      block.linear("cross.kv", n.cross + n.v, p.v_rows, part.dim, a.bias, WeightView().narrow(0, p.k_rows, p.v_rows));
      block.linear("cross.out", n.cross + n.out, part.dim, a.heads * a.value_size, a.out_bias);
    }
    block.norm(l.norm, crosses ? "norm3" : "norm2", n.norm3);
    const nn::FeedForwardSpec& f = l.feed_forward;
    if (f.gated) {
      block.linear("mlp.gate_up", n.gate, f.width, part.dim, f.bias, WeightView().narrow(0, 0, f.width));
      block.linear("mlp.gate_up", n.up, f.width, part.dim, f.bias, WeightView().narrow(0, f.width, f.width));
    } else {
      block.linear("mlp.up", n.up, f.width, part.dim, f.bias);
    }
    block.linear("mlp.down", n.down, part.dim, f.width, f.bias);
  }
}

}  // namespace strata::parts
