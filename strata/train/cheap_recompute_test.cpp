// train.recompute = cheap: less memory, the same bits, in each layout.

#include <map>

#include "strata/memory/allocator.h"
#include "strata/train/estimate.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

class CheapRecompute : public RankRunsTest {
 protected:
  CheapRecompute() {
    c_.model.family = "llama";
    c_.model.layers = 4;
    c_.model.dim = 32;
    c_.model.heads = 4;
    c_.model.kv_heads = 2;
    c_.model.ffn_dim = 256;
    c_.model.context = 32;
    c_.batch = 8;
    c_.steps = 3;
    c_.eval_every = 0;
  }
  // Of one layer, whose last product reads as much.
  int64_t inner(int64_t element) const { return c_.batch * c_.model.context * c_.model.ffn_dim * element; }
};

TEST_F(CheapRecompute, TakesLessMemoryAsTheEstimateSays) {
  for (const char* dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    c_.dtype = dtype;
    int64_t took[2], said[2];
    for (const bool cheap : {false, true}) {
      c_.recompute = cheap ? "cheap" : "none";
      const int64_t before = memory::stats(Device::cpu()).live_total;
      took[cheap] = train(c_, {.out = folder_ + dtype + c_.recompute, .log = nullptr}).peak_memory - before;
      said[cheap] = estimate_memory(c_).peak;
    }
    EXPECT_EQ(weights(std::string(dtype) + "none"), weights(std::string(dtype) + "cheap"));
    const int64_t each = inner(c_.dtype == "f32" ? 4 : 2);
    EXPECT_GE(took[0] - took[1], 3 * each);
    EXPECT_GE(said[0] - said[1], 3 * each);
    EXPECT_LE(said[0] - said[1], 4 * each);
  }
}

TEST_F(CheapRecompute, HasTheBitsOfEachLayout) {
  const std::map<std::string, Change> layouts{
      {"zero3", [](TrainConfig& c) { c.parallel.zero = 3; }},
      {"tp_zero3", [](TrainConfig& c) { c.parallel.tp = 2, c.parallel.zero = 3; }},
      {"cp", [](TrainConfig& c) { c.parallel.cp = 2; }},
      {"pp", [](TrainConfig& c) { c.parallel.pp = 2, c.parallel.schedule = "zb-h1"; }},
      {"blocks", [](TrainConfig& c) { c.parallel.zero = 3, c.parallel.recompute = true; }},
      {"exact", [](TrainConfig& c) { c.parallel.exact = 4; }},
      {"tile", [](TrainConfig& c) { c.tile = 16; }},
  };
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : layouts)
      for (const char* recompute : {"none", "cheap"})
        run(name + recompute, [&](TrainConfig& c) { change(c), c.recompute = recompute; });
  });
  if (is_rank()) return;
  for (const auto& [name, change] : layouts) EXPECT_EQ(weights(name + "none"), weights(name + "cheap")) << name;
}

TEST_F(CheapRecompute, IsRefusedBesideABudget) {
  c_.recompute = "cheap";
  c_.memory.device = "1GiB";
  EXPECT_NE(
      message<ValueError>([&] { train(c_, {.out = folder_ + "budget", .log = nullptr}); }).find("train.recompute"),
      std::string::npos);
  EXPECT_NE(message<ValueError>([] { parse_config("", "test", {"train.recompute=blocks"}); }).find("train.recompute"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
