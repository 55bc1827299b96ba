// Ranks that share a model train it in less memory than its weights take.

#include <algorithm>

#include "strata/memory/allocator.h"
#include "strata/train/rank_runs_test_util.h"
#include "strata/train/run.h"

namespace strata {
namespace {

class Start : public RankRunsTest {
 protected:
  Start() {
    c_.model.family = "llama";
    c_.model.layers = 12;
    c_.model.dim = 128;
    c_.model.heads = c_.model.kv_heads = 4;
    c_.model.ffn_dim = 384;
    c_.optim.optimizer = "sgd";  // weights and gradients alone
    c_.optim.number("momentum") = 0;
    c_.steps = 2;
    c_.eval_every = 0;
  }
};

TEST_F(Start, NoRankOfASharedModelEverHasAllOfIt) {
  const std::map<std::string, Change> ways{
      {"tp", [](TrainConfig& c) { c.parallel.tp = 4; }},
      {"pp", [](TrainConfig& c) { c.parallel.pp = 4; }},
      {"ep_zero3",
       [](TrainConfig& c) {
         c.model.experts = 8, c.model.experts_per_token = 2, c.parallel.dp = c.parallel.ep = 4, c.parallel.zero = 3;
       }},
  };
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) {
      TrainConfig c = c_;
      change(c);
      c.model.vocab = 256;
      int64_t whole = 0;
      {
        const DeviceScope dry(Device::meta());
        for (const Tensor& t : make_model(c)->parameters()) whole += t.nbytes();
      }
      const int64_t live = memory::stats(Device::cpu()).live_total;
      const int64_t before = memory::set_limit(live + whole * 19 / 20);
      try {
        run(name, change);
      } catch (const Error& e) {
        throw std::runtime_error(cat(name, " in ", whole * 19 / 20, " bytes: ", e.what()));
      }
      memory::set_limit(before);
    }
  });
}

}  // namespace
}  // namespace strata
