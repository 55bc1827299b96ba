// Runs of models that read one text and write another.

#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/data/source_targets.h"
#include "strata/generate/text_generator.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/models/peft.h"
#include "strata/nn/lora.h"
#include "strata/train/estimate.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/rehearse.h"
#include "strata/train/run.h"
#include "strata/train/tier_plan.h"
#include "strata/train/train_data.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Seq2Seq : public TrainTest {
 protected:
  Seq2Seq() {
    // The words of a text from its end to its beginning.
    std::string rows;
    const std::string words[] = {"ab", "cd", "ef", "gh"};
    for (int i = 0; i < 64; ++i) {
      std::string input, target;
      for (int k = 0; k < 1 + i % 3; ++k) {
        const std::string& word = words[(i / (1 + k) + k) % 4];
        input += word;
        target = word + target;
      }
      rows += json{{"input", input}, {"target", target}}.dump() + "\n";
    }
    io::write_file(dir_ / "rows.jsonl", rows);
    write_model(64, 128);
    c_.init = dir_ / "t5";
    c_.data.path = dir_ / "rows.jsonl";
    c_.data.format = "seq2seq";
    c_.data.valid_fraction = 0.1;
    c_.batch = 16;
    c_.model.context = 32;
    c_.optim.lr = 1e-2;
    c_.optim.weight_decay = 0;
    c_.steps = 60;
  }
  // The folder t5.
  void write_model(int64_t dim, int64_t width) {
    const Family& family = family_named("t5");
    const std::string config =
        R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 96, "d_kv": 32,
        "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2, "decoder_start_token_id": 0,
        "is_encoder_decoder": true, "d_model": )" +
        std::to_string(dim) + ", \"d_ff\": " + std::to_string(width) + "}";
    const ModelSpec spec = read_spec(family, ConfigReader(config, "config.json"));
    manual_seed(3);
    fs::remove_all(dir_ / "t5");
    save_pretrained(make_module(spec).module(), family, spec, dir_ / "t5", {.config = config});
    io::write_file(dir_ / "t5/tokenizer.json", character_tokenizer());
    io::write_file(dir_ / "t5/tokenizer_config.json",
                   R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})");
  }
  TrainResult train_in(const std::string& name, bool resume = false) {
    return train(c_, {.out = dir_ / name, .resume = resume, .stop_requested = nullptr, .log = nullptr});
  }
  void expect_resumes(const std::string& name) {
    c_.steps = 6;
    c_.save_every = 3;
    train_in(name);
    fs::create_directories(dir_ / (name + "-again"));
    fs::copy(dir_ / (name + "/step-00000003"), dir_ / (name + "-again/step-00000003"), fs::copy_options::recursive);
    train_in(name + "-again", true);
    expect_same_checkpoints(dir_ / (name + "/step-00000006"), dir_ / (name + "-again/step-00000006"));
  }
  std::string said() {
    return message<ValueError>([&] { train_in("refused"); });
  }
};

TEST_F(Seq2Seq, LearnsToAnswer) {
  const TrainResult r = train_in("run");
  EXPECT_TRUE(r.finished);
  const auto all = metrics("run");
  EXPECT_LT(all.back().loss, 0.5 * all.front().loss) << all.front().loss;
  const TrainedModel trained = detail::load_trained_model_for({}, dir_ / "run", nullptr, Device::cpu());
  EXPECT_EQ(trained.model, nullptr);
  ASSERT_NE(trained.encoder_decoder, nullptr);
  EXPECT_EQ(trained.start, std::vector<int64_t>{0});
  // It answers "abcd" in the letters of the data; the tokenizer begins texts with 0, and 1 ends them.
  const Tensor source = from_span<int64_t>(std::vector<int64_t>{0, 68, 69, 70, 71, 1}, {6});
  TextGenerator writer(trained.encoder_decoder, trained.tokenizer);
  const Generated out = writer.generate(
      {{trained.start, {.max_tokens = 12, .min_tokens = 4, .temperature = 0, .stop_ids = {1}}, source}})[0];
  for (const int64_t id : out.completions[0].tokens)
    EXPECT_TRUE(id <= 1 || (id >= 68 && id <= 75)) << id << ": no letter of the data";
  const NoGrad guard;
  const std::vector<int64_t> read{0, 0, 70, 71, 68, 69}, learned{0, 70, 71, 68, 69, 1};  // "cdab"
  const double loss =
      trained.encoder_decoder
          ->loss(source.unsqueeze(0), from_span<int64_t>(read, {1, 6}), from_span<int64_t>(learned, {1, 6}))
          .item();
  EXPECT_LT(loss, 0.5 * all.front().loss);
  EXPECT_NE(message<ValueError>([&] { load_trained_model(dir_ / "run"); }).find("strata generate"), std::string::npos);
}

TEST_F(Seq2Seq, GoesOnToTheSameBits) {
  expect_resumes("whole");
  c_.accumulate = 2;
  c_.tune.method = "lora";
  c_.tune.dropout = 0.1;
  expect_resumes("lora");
  c_.tune.freeze = "";
  c_.tune.method = "full";
  c_.tune.freeze = "encoder token_embedding";
  expect_resumes("frozen");
}

TEST_F(Seq2Seq, AdaptersOfBothParts) {
  c_.tune.method = "lora";
  c_.tune.rank = 8;
  c_.tune.alpha = 16;
  const TrainResult r = train_in("lora");
  const auto all = metrics("lora");
  EXPECT_LT(r.last.loss, 0.9 * all.front().loss) << all.front().loss;
  const TrainedModel trained = detail::load_trained_model_for({}, dir_ / "lora", nullptr, Device::cpu());
  std::set<std::string> parts;
  for (const nn::AdaptedMap& map : nn::adapted_maps(*trained.encoder_decoder)) parts.insert(map.path.substr(0, 7));
  EXPECT_EQ(parts, (std::set<std::string>{"encoder", "decoder"}));
  // The folder of the adapter gives the base the same.
  const Pretrained base = load_pretrained(dir_ / "t5");
  load_adapter(dir_ / "lora/adapter", *base.encoder_decoder,
               adapter_names(*base.encoder_decoder, base.family->weights(base.spec)));
  const Tensor source = from_span<int64_t>(std::vector<int64_t>{0, 68, 69, 70, 1}, {1, 5});
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{0, 69, 68}, {1, 3});
  {
    const NoGrad guard;
    const Tensor got = base.encoder_decoder->forward(source, tokens),
                 want = trained.encoder_decoder->forward(source, tokens);
    EXPECT_EQ((got - want).abs().max().item(), 0);
  }
  EXPECT_NE(io::read_file(dir_ / "lora/adapter/adapter_config.json").find("SEQ_2_SEQ_LM"), std::string::npos);
  // Another run begins from this one, all of it.
  c_.init = dir_ / "lora";
  c_.tune.method = "full";
  c_.steps = 2;
  train_in("second");
  EXPECT_NEAR(metrics("second").front().loss, r.last.loss, 0.5 * r.last.loss + 0.2);
  const InitModel init = find_init(dir_ / "lora");
  EXPECT_EQ(init.folder, fs::absolute(dir_ / "t5").string());
  const TrainData data = open_train_data(c_, dir_ / "second");
  const data::Sample first{.index = 0, .epoch = 0};
  EXPECT_EQ(data.train->get_batch({&first, 1})[3].to_vector<int64_t>()[3], 1) << "a text of two letters, begun by 0";
}

TEST_F(Seq2Seq, LowPrecisionAndLowBits) {
  c_.dtype = "bf16";
  c_.steps = 30;
  train_in("bf16");
  EXPECT_LT(metrics("bf16").back().loss, 0.8 * metrics("bf16").front().loss);
  c_.dtype = "f32";
  c_.tune.method = "lora";
  c_.tune.quantize = "nf4";
  c_.steps = 30;
  train_in("nf4");
  EXPECT_LT(metrics("nf4").back().loss, metrics("nf4").front().loss);
}

// A dry run has the data's rows, or the longest that there may be.
TEST_F(Seq2Seq, EstimatesMemory) {
  const MemoryEstimate of_data = estimate_memory(c_);
  const std::shared_ptr<TokenDecoder> model = make_tuned_model(c_);
  const int64_t parameters = model->as_module().num_parameters();
  EXPECT_EQ(of_data.parameter_count, parameters);
  EXPECT_EQ(of_data.parameters, 4 * parameters);
  EXPECT_EQ(of_data.gradients, 4 * parameters);
  EXPECT_GE(of_data.optimizer, 8 * parameters);
  EXPECT_GT(of_data.activations, 0);
  const DryStep step = record_dry_step(c_);
  EXPECT_EQ(step.parameters, parameters);
  const TrainData data = open_train_data(c_, dir_ / "estimate", "");
  EXPECT_EQ(step.tokens, c_.batch * data.row_tokens);
  c_.data.path = "";
  const MemoryEstimate longest = estimate_memory(c_);
  EXPECT_GT(longest.activations, 2 * of_data.activations) << "rows of 32 tokens, those of the data are shorter";
  c_.data.path = dir_ / "rows.jsonl";
  c_.tune.method = "lora";
  int64_t trained = 0, tensors = 0;
  for (const Tensor& p : make_tuned_model(c_)->as_module().parameters())
    if (p.requires_grad()) {
      trained += p.nbytes();
      ++tensors;
    }
  const int64_t gradients = estimate_memory(c_).gradients;
  EXPECT_GE(gradients, trained);
  EXPECT_LE(gradients, trained + 4096 * tensors) << "each in whole pages at most";
  EXPECT_LT(trained, of_data.gradients);
}

TEST_F(Seq2Seq, BudgetsAreKeptAndChangeNoNumber) {
  write_model(256, 1024);
  c_.steps = 2;
  c_.save_every = 0;
  const TrainResult plain = train_in("plain");
  const int64_t all = plan_tiers(c_, {}, {}).peak_without;
  fs::create_directories(dir_ / "disk");
  const auto same_with = [&](const std::string& name, const MemoryConfig& memory) {
    SCOPED_TRACE(name);
    c_.memory = memory;
    const TrainResult r = train_in(name);
    expect_same_checkpoints(plain.checkpoint, r.checkpoint);
    return r.peak_memory;
  };
  MemoryConfig m;
  m.disk = dir_ / "disk";
  for (const double part : {0.9, 0.8}) {
    const auto bytes = static_cast<int64_t>(part * static_cast<double>(all));
    m.device = std::to_string(bytes);
    EXPECT_LE(same_with("of " + m.device, m), bytes);
  }
  m.device = "";
  m.state = m.parameters = "disk";
  same_with("weights and state on a disk", m);
  m.state = m.parameters = "auto";
  m.activations = "disk";
  same_with("activations on a disk", m);
  m.activations = "auto";
  m.recompute = "calls";
  m.device = std::to_string(all * 9 / 10);
  same_with("calls again", m);
}

TEST_F(Seq2Seq, Refusals) {
  c_.data.format = "text";
  EXPECT_NE(said().find("seq2seq"), std::string::npos) << said();
  c_.data.format = "seq2seq";
  c_.memory.recompute = "blocks";
  EXPECT_NE(said().find("memory.recompute"), std::string::npos) << said();
  c_.memory.recompute = "auto";
  write_text_model(dir_ / "llama");
  c_.init = dir_ / "llama";
  EXPECT_NE(said().find("continues texts"), std::string::npos) << said();
  c_.init = "";
  EXPECT_NE(said().find("model.init"), std::string::npos) << said();
  c_.init = dir_ / "t5";
  for (const auto& [row, part] : {std::pair{R"({"input": "a"})", "target"},
                                  {R"({"input": "", "target": "a"})", "'input' is empty"},
                                  {R"({"input": "a", "target": 3})", "target"},
                                  {"[1]", "line 2"}}) {
    io::write_file(dir_ / "rows.jsonl", std::string(R"({"input": "a", "target": "b"})") + "\n" + row + "\n");
    const std::string why = message<IoError>([&] { train_in("refused"); });
    EXPECT_NE(why.find(part), std::string::npos) << why;
    EXPECT_NE(why.find("line 2"), std::string::npos) << why;
  }
}

TEST(SourceTargets, BatchesAreOfOneShape) {
  data::SourceTargets set({{5, 6, 7, 8, 9}, {3}}, {{4, 4}, {6, 7, 8, 9, 10, 11}},
                          {.context = 4, .start = {0, 2}, .end = 1});
  EXPECT_EQ(set.size(), 2);
  EXPECT_EQ(set.truncated(), 2) << "the source of the first and the target of the second";
  EXPECT_EQ(set.source_tokens(), 4);
  EXPECT_EQ(set.target_tokens(), 4);
  const data::Sample both[] = {{.index = 1, .epoch = 0}, {.index = 0, .epoch = 0}};
  const data::Batch batch = set.get_batch(both);
  EXPECT_EQ(batch[0].to_vector<int64_t>(), (std::vector<int64_t>{3, 1, 0, 0, 5, 6, 7, 1}));
  EXPECT_EQ(batch[1].to(DType::i64).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(batch[2].to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 6, 7, 0, 2, 4, 4}));
  EXPECT_EQ(batch[3].to_vector<int64_t>(), (std::vector<int64_t>{-100, 6, 7, 1, -100, 4, 4, 1}));
  const data::Sample none[] = {{.index = 2, .epoch = 0}};
  EXPECT_THROW(set.get_batch(none), IndexError);
  EXPECT_NE(set.checksum(), data::SourceTargets({{5}}, {{4}}, {}).checksum());
  EXPECT_THROW(data::SourceTargets({{5}}, {}, {}), ValueError);
  EXPECT_THROW(data::SourceTargets({{5}}, {{}}, {}), ValueError);
  EXPECT_THROW(data::SourceTargets({{5}}, {{4}}, {.context = 1}), ValueError);
}

}  // namespace
}  // namespace strata
