#include "strata/models/tensor_parallel.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "shard_plan";

class Planner {
 public:
  explicit Planner(int64_t ranks) : ranks_(ranks) {}

  void block(const std::string& name, const nn::TransformerBlock& b) {
    attention(name + "attn", b.attn);
    feed_forward(name + "mlp", b.mlp);
  }
  void table(const std::string& name) {
    rows(name + ".weight", Placement::sharded(0));
    plan.tables.push_back(name);
  }
  void rows(const std::string& name, const Placement& p) { plan.weights.push_back({name, p}); }

  distributed::ShardPlan plan;

 private:
  // A product whose results are cut, its bias with it.
  void results(const std::string& name, const nn::Linear& l, const Placement& p) {
    rows(name + ".weight", p);
    if (l.bias.defined()) rows(name + ".bias", p);
  }
  void inputs(const std::string& name, int64_t unit) {
    Placement p = Placement::sharded(1);
    p.unit = unit;
    rows(name + ".weight", p);
  }

  // A branch whose exchanges lie beside its first and last product.
  void ends(const std::string& name, std::string_view first, std::string_view last) {
    plan.branches.push_back(name);
    plan.first.push_back(cat(name, first));
    plan.last.push_back(cat(name, last));
  }

  void attention(const std::string& name, const nn::SelfAttention& a) {
    const nn::AttentionSpec& s = a.spec();
    check(!s.latent, kOp, name, " has latent attention, whose weights are not cut");
    check(s.head_size == s.value_size, kOp, name, " has values of ", s.value_size, " numbers beside keys of ",
          s.head_size, ": its weights are not cut");
    check(s.heads % ranks_ == 0 && s.kv_heads % ranks_ == 0, kOp, ranks_, " ranks do not divide the heads of ", name,
          ": ", s.heads, " of queries, ", s.kv_heads, " of keys and values");
    Placement heads = Placement::sharded(0);
    heads.unit = s.head_size;
    heads.segments = {s.heads * s.head_size, s.kv_heads * s.head_size, s.kv_heads * s.value_size};
    results(name + ".qkv", a.qkv, heads);
    inputs(name + ".out", s.value_size);
    ends(name, ".qkv", ".out");
  }

  void feed_forward(const std::string& name, const nn::FeedForward& f) {
    const nn::FeedForwardSpec& s = f.spec();
    if (s.experts) return;  // not cut within: each rank's positions go to where they are (nn::Experts::spread)
    check(s.width >= ranks_, kOp, ranks_, " ranks do not share the width of ", name, ", ", s.width);
    Placement width = Placement::sharded(0);
    if (s.gated) {
      width.segments = {s.width, s.width};
      results(name + ".gate_up", *f.gate_up, width);
      inputs(name + ".down", 1);
      return ends(name, ".gate_up", ".down");
    }
    results(name + ".up", *f.up, width);
    inputs(name + ".down", 1);
    // Both products are one op, which keeps less for backward.
    plan.branches.push_back(name);
  }

  int64_t ranks_;
};

}  // namespace

distributed::ShardPlan shard_plan(const LanguageModel& model, int64_t ranks) {
  check(ranks >= 1, kOp, "there must be a rank, got ", ranks);
  check(model.vocab() >= ranks, kOp, ranks, " ranks do not share a vocabulary of ", model.vocab());
  Planner p(ranks);
  p.table("token_embedding");
  for (size_t i = 0; i < model.blocks.size(); ++i) p.block(cat("blocks.", i, "."), model.blocks[i]);
  for (const auto& [name, t] : model.named_parameters())
    if (name == "head.weight" || name == "head_bias") p.rows(name, Placement::sharded(0));
  return std::move(p.plan);
}

}  // namespace strata
