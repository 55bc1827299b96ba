// Language models whose weights are cut among ranks (threads here): what they compute, what travels, what is refused.

#include "strata/models/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/dist/recorder.h"
#include "strata/generate/sampling.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

using distributed::Mesh;
using distributed::ShardOptions;

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
void expect_near(const Tensor& got, const Tensor& want, double most, const std::string& what) {
  expect(got.shape() == want.shape(), what + ": " + got.to_string());
  const NoGrad guard;
  const double off = (got - want).abs().max().item();
  expect(off <= most, cat(what, " is off by ", off));
}

// How many exchanges along "tp" of each kind body() makes on each rank, "all_reduce 2". Ranks that are threads share
// one recorder, also with those of tests before.
std::string exchanges(const std::function<void()>& body) {
  const auto meet = [] { distributed::group("world").barrier(); };
  meet();
  double before = 0;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries()) before = std::max(before, e.begun);
  meet();
  body();
  meet();
  std::map<std::string, int> counts;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries())
    if (e.group == "tp" && e.begun > before) ++counts[e.what.substr(0, e.what.find(' '))];
  meet();
  std::string text;
  for (const auto& [what, count] : counts)
    text += cat(text.empty() ? "" : ", ", what, " ", count / distributed::size());
  return text;
}

size_t norm_parameters(const nn::Module& module) {
  size_t count = 0;
  for (const auto& [name, p] : module.named_parameters()) count += name.starts_with("norm");
  return count;
}

struct Whole {
  explicit Whole(const ModelConfig& config) : config(config) {
    manual_seed(3);
    model = make_model(config);
    x = pattern(3, 8, config.vocab, 0), y = pattern(3, 8, config.vocab, 1);
    Tensor l = model->loss(x, y);
    l.backward();
    loss = l.item();
    NoGrad guard;
    logits = model->forward(x);
  }
  // A copy on the rank that calls, cut.
  std::shared_ptr<LanguageModel> cut(int ranks, const ShardOptions& options) const {
    const nn::init::SkipDraws copied;
    auto own = make_model(config);
    own->load_state_dict(model->state_dict());
    distributed::shard_module(*own, shard_plan(*own, ranks), "tp", options);
    return own;
  }
  ModelConfig config;
  std::shared_ptr<LanguageModel> model;
  Tensor x, y, logits;
  double loss = 0;
};

class TensorParallel : public testing::TestWithParam<std::tuple<const char*, bool, bool>> {
 protected:
  ModelConfig config() const {
    ModelConfig c = tiny(std::get<0>(GetParam()), 21);
    c.tied_embeddings = std::get<1>(GetParam());
    return c;
  }
  ShardOptions options() const { return {.sequence = std::get<2>(GetParam())}; }
};

TEST_P(TensorParallel, LossGradientsAndLogitsAreThoseOfTheWhole) {
  const Whole whole(config());
  std::map<std::string, Tensor> want;
  for (const auto& [name, p] : whole.model->named_parameters()) want[name] = p.grad();
  distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
    const auto own = whole.cut(2, options());
    for (int pass = 1; pass <= 2; ++pass) {
      Tensor loss = own->loss(whole.x, whole.y);
      expect(std::abs(loss.item() - whole.loss) < 2e-6, cat("loss ", loss.item(), ", wanted ", whole.loss));
      loss.backward();
      for (const auto& [name, p] : own->named_parameters()) {
        expect(p.grad().defined(), name);
        expect(distributed::placements_of(p.grad()) == distributed::placements_of(p), name);
        expect_near(distributed::full_tensor(p.grad()), want.at(name) * pass, 3e-6 * pass, "the gradient of " + name);
      }
    }
    const NoGrad guard;
    expect_near(distributed::full_tensor(own->forward(whole.x)), whole.logits, 2e-6, "logits");
  });
}

TEST_P(TensorParallel, ABlockExchangesTwiceInEachDirection) {
  const Whole whole(config());
  const bool sequence = options().sequence;
  distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
    const auto own = whole.cut(2, options());
    const nn::TransformerBlock& block = own->blocks[1];
    nn::Places places;
    const nn::RotaryTables tables(nn::RotarySpec{.dims = 8});
    const Tensor x =
        distributed::distribute(whole.model->token_embedding.weight.detach().narrow(0, 0, 16).view({2, 8, 32}),
                                sequence ? "S(1)" : "R", "tp")
            .set_requires_grad();
    if (whole.config.family == "llama") places.turns.push_back(tables.rows(0, 8, 8, x));
    // GPT's feed-forward part is one op between its exchanges; the others lie beside the products.
    const std::string want = !sequence                        ? "all_reduce 2"
                             : whole.config.family == "gpt" ? "all_gather_matmul 1, gather 1, matmul_reduce_scatter 1, "
                                                                "reduce_scatter 1"
                                                              : "all_gather_matmul 2, matmul_reduce_scatter 2";
    Tensor y;
    const std::string forward = exchanges([&] { y = block(x, places); });
    expect(forward == want, "forward: " + forward);
    expect(distributed::placements_of(y) == (sequence ? "S(1)" : "R"), distributed::placements_of(y));
    // From a gradient that lies as the block's result.
    const Tensor g = y.detach();
    const std::string backward = exchanges([&] { y.backward(g); });
    // With positions in parts the gradients of norms are sums, too: one for each.
    const std::string norms = cat(", all_reduce ", norm_parameters(block));
    std::string with_norms = want;
    if (sequence) with_norms.insert(with_norms.find(','), norms);
    expect(backward == with_norms,
           "backward: " + backward);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel,
                         testing::Combine(testing::Values("gpt", "llama"), testing::Bool(), testing::Bool()));

TEST(ShardModule, KeepsAPartOfEachWeightAndTiesStay) {
  const Whole whole(tiny("llama", 21));
  distributed::run_as_ranks(Mesh("dp=2 tp=2"), [&](int rank) {
    const auto own = whole.cut(2, {});
    const std::map<std::string, std::string> lies{
        {"token_embedding.weight", "S(0)"},          {"blocks.0.attn.qkv.weight", "S(0,unit=8,segments=32+16+16)"},
        {"blocks.0.attn.out.weight", "S(1,unit=8)"}, {"blocks.0.mlp.gate_up.weight", "S(0,segments=128+128)"},
        {"blocks.0.mlp.down.weight", "S(1)"},        {"blocks.0.norm1.weight", ""}};
    std::map<std::string, Tensor> all;
    for (const auto& [name, p] : own->named_parameters()) all[name] = p;
    for (const auto& [name, text] : lies) expect(distributed::placements_of(all.at(name)) == text, name);
    expect(own->token_embedding.weight.same_as(all.at("token_embedding.weight")), "members show the parameters");
    expect(!all.contains("head.weight"), "tied");
    expect(all.at("token_embedding.weight").requires_grad(), "still a leaf");
    expect(distributed::local(all.at("token_embedding.weight")).size(0) == (rank % 2 == 0 ? 11 : 10), "uneven parts");
    for (const auto& [name, t] : whole.model->state_dict())
      expect_near(distributed::full_tensor(own->state_dict().at(name)), t, 0, name);
    // Values of the whole are cut when they come.
    nn::StateDict doubled;
    for (const auto& [name, t] : whole.model->state_dict()) doubled[name] = t.detach() * 2;
    own->load_state_dict(doubled);
    for (const auto& [name, t] : doubled) expect_near(distributed::full_tensor(own->state_dict().at(name)), t, 0, name);
    expect(distributed::placements_of(all.at("blocks.0.mlp.down.weight")) == "S(1)", "it lies as it did");
  });
}

TEST(ShardModule, RefusesByName) {
  const auto refused = [](const ModelConfig& config, int64_t ranks) {
    const auto model = make_model(config);
    return message<ValueError>([&] { shard_plan(*model, ranks); });
  };
  EXPECT_EQ(refused(tiny("llama", 21), 4),
            "shard_plan: 4 ranks do not divide the heads of blocks.0.attn: 4 of queries, 2 of keys and values");
  ModelConfig few = tiny("gpt", 21);
  few.heads = few.kv_heads = 32;
  few.ffn_dim = 8;
  EXPECT_EQ(refused(few, 16), "shard_plan: 16 ranks do not share the width of blocks.0.mlp, 8");
  EXPECT_EQ(refused(few, 32), "shard_plan: 32 ranks do not share a vocabulary of 21");
  distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
    const auto model = make_model(tiny("gpt", 21));
    const auto text = [&](const distributed::ShardPlan& plan) {
      return message<ValueError>([&] { distributed::shard_module(*model, plan, "tp"); });
    };
    expect(
        text({.weights = {{"no.weight", Placement::sharded(0)}}}) == "shard_module: there is no parameter 'no.weight'",
        "names");
    expect(text({.branches = {"blocks.7"}}) == "shard_module: there is no module 'blocks.7'", "modules");
    expect(text({.weights = {{"norm.weight", {}}}}) ==
               "shard_module: norm.weight cannot lie as R: a part of a dimension is wanted",
           "placements");
    for (const auto& [name, p] : model->named_parameters()) expect(!is_placed(p), "nothing was changed");
  });
}

// Logits by classes: a maximum and a sum of a few numbers a row travel, whatever the options, and the gradient needs
// nothing.
TEST(ShardedClasses, LogitsStayWhereTheyAre) {
  const Tensor logits = sin(arange(5 * 21).to(DType::f64)).view({5, 21}) * 3;
  const Tensor target = from_span<int64_t>(std::vector<int64_t>{0, 20, 3, 11, 10}, {5});
  for (const CrossEntropyOptions& o :
       std::vector<CrossEntropyOptions>{{},
                                        {.ignore_index = 3},
                                        {.reduction = "none", .label_smoothing = 0.1},
                                        {.ignore_index = 11, .reduction = "sum", .label_smoothing = 0.2}}) {
    Tensor whole = logits.clone().set_requires_grad();
    const Tensor want = cross_entropy(whole, target, o);
    want.backward(ones(want.shape(), DType::f64));
    distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
      Tensor x = distributed::distribute(logits, "S(1)", "tp").detach().set_requires_grad();
      Tensor loss;
      const std::string forward = exchanges([&] { loss = cross_entropy(x, target, o); });
      expect(forward == "all_reduce 2", "forward: " + forward);
      const Tensor g = ones(want.shape(), DType::f64);
      const std::string backward = exchanges([&] { loss.backward(g); });
      expect(backward.empty(), "backward: " + backward);
      expect_near(distributed::full_tensor(loss.detach()), want.detach(), 1e-12, "loss");
      expect(distributed::placements_of(x.grad()) == "S(1)", distributed::placements_of(x.grad()));
      expect_near(distributed::full_tensor(x.grad()), whole.grad(), 1e-12, "gradient");
    });
  }
  distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
    const Tensor x = distributed::distribute(logits, "S(1)", "tp");
    const Tensor wrong = from_span<int64_t>(std::vector<int64_t>{0, 1, 2, 3, 21}, {5});
    expect(
        message<IndexError>([&] { cross_entropy(x, wrong); }).find("21 is not one of 21 classes") != std::string::npos,
        "a target that is no class");
  });
}

// Of one rank everything stays as it is.
TEST(ShardModule, OneRankIsPlain) {
  const Whole whole(tiny("gpt", 21));
  distributed::run_as_ranks(Mesh("dp=2 tp=1"), [&](int) {
    const auto own = whole.cut(1, {});
    for (const auto& [name, p] : own->named_parameters()) expect(!is_placed(p), name);
    expect(own->loss(whole.x, whole.y).item() == whole.loss, "the same bits");
  });
}

TEST(TensorParallelText, IsWrittenByAllRanksTogether) {
  const Whole whole(tiny("llama", 21));
  const auto written = [&](const std::shared_ptr<LanguageModel>& model) {
    TokenSampler sampler(model, {1, 2, 3}, {.temperature = 0});
    std::vector<int32_t> ids;
    for (int i = 0; i < 8; ++i) ids.push_back(sampler.next());
    return ids;
  };
  whole.model->eval();
  const std::vector<int32_t> want = written(whole.model);
  distributed::run_as_ranks(Mesh("tp=2"), [&](int) {
    const auto own = whole.cut(2, {});
    own->eval();
    expect(written(own) == want, "the same tokens");
  });
}

}  // namespace
}  // namespace strata
