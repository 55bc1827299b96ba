// Ranks that share a model train it in less memory than its weights take.

#include <algorithm>

#include "strata/generate/text_model_test_util.h"
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
    c_.model.vocab = 256;
    c_.optim.optimizer = "sgd";  // weights and gradients alone
    c_.optim.number("momentum") = 0;
    c_.steps = 2;
    c_.eval_every = 0;
  }
  // A model of that size as a folder of Hugging Face.
  void write_base() const {
    const std::string config = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 96,
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 12, "num_attention_heads": 4,
        "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "hidden_act": "silu"})";
    const Family& family = family_named("llama");
    const ModelSpec spec = read_spec(family, ConfigReader(config, "config.json"));
    manual_seed(3);
    save_pretrained(LanguageModel(spec), family, spec, folder_ + "base", {.config = config});
    io::write_file(folder_ + "base/tokenizer.json", character_tokenizer());
    io::write_file(folder_ + "base/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  }
  // Trains within nineteen twentieths of what the weights take; those that were there at once would be more.
  void run_in_less(const std::string& name, const Change& change) {
    TrainConfig c = c_;
    change(c);
    int64_t whole = 0;
    {
      const DeviceScope dry(Device::meta());
      for (const Tensor& t : make_model(c)->parameters()) whole += t.nbytes();
    }
    const int64_t room = whole * 19 / 20, live = memory::stats(Device::cpu()).live_total;
    const int64_t before = memory::set_limit(live + room);
    try {
      run(name, change);
    } catch (const Error& e) {
      throw std::runtime_error(cat(name, " in ", room, " bytes: ", e.what()));
    }
    memory::set_limit(before);
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
    for (const auto& [name, change] : ways) run_in_less(name, change);
  });
}

// Weights that are read as they come are those that are read at once, where there is room for that.
TEST_F(Start, NorOfOneThatIsReadFromAFolder) {
  if (!is_rank()) write_base();
  const std::map<std::string, Change> ways{
      {"tp", [](TrainConfig& c) { c.parallel.tp = 4; }},
      {"pp", [](TrainConfig& c) { c.parallel.pp = 4; }},
  };
  c_.init = folder_ + "base";
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) {
      run(name + "_at_once", change);
      run_in_less(name, change);
    }
  });
  for (const auto& [name, change] : ways) expect_same(name + "_at_once", name, 0);
}

}  // namespace
}  // namespace strata
