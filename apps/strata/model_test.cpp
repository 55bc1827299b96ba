// strata model info and convert, as their users run them: a tiny folder of Llama's, and the models of build/models.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/family.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

std::string llama_config(int64_t width, int64_t layers) {
  return fmt::format(
      R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 14, "hidden_size": 32,
          "intermediate_size": {}, "num_hidden_layers": {}, "num_attention_heads": 2, "num_key_value_heads": 1,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": false, "hidden_act": "silu"}})",
      width, layers);
}

// Parameters: tables 2 * 14 * 32, norms 3 * 32, attention 2 * 32 * 32 + 2 * 16 * 32, feed-forward 3 * 64 * 32.
constexpr int64_t kParameters = 896 + 96 + 3072 + 6144;
constexpr int64_t kRead = kParameters - 14 * 32;  // of the embedding a token reads one row

class ModelCommands : public testing::Test {
 protected:
  void SetUp() override {
    manual_seed(5);
    fs::create_directory(llama());
    io::write_file(llama() + "/config.json", llama_config(64, 1));
    const auto add = [&](const std::string& name, const Shape& shape) { weights_[name] = randn(shape) * 0.5; };
    add("model.embed_tokens.weight", {14, 32});
    add("lm_head.weight", {14, 32});
    add("model.norm.weight", {32});
    const std::string layer = "model.layers.0.";
    add(layer + "input_layernorm.weight", {32});
    add(layer + "post_attention_layernorm.weight", {32});
    add(layer + "self_attn.q_proj.weight", {32, 32});
    add(layer + "self_attn.k_proj.weight", {16, 32});
    add(layer + "self_attn.v_proj.weight", {16, 32});
    add(layer + "self_attn.o_proj.weight", {32, 32});
    add(layer + "mlp.gate_proj.weight", {64, 32});
    add(layer + "mlp.up_proj.weight", {64, 32});
    add(layer + "mlp.down_proj.weight", {32, 64});
    io::save_safetensors(llama() + "/model.safetensors", weights_);
    io::write_file(llama() + "/tokenizer.json",
                   R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
                       "post_processor": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
                       "added_tokens": [], "model": {"type": "WordLevel", "unk_token": "a",
                       "vocab": {"a": 0, "b": 1, "c": 2}}})");
    io::write_file(llama() + "/generation_config.json", R"({"eos_token_id": 0})");
  }
  std::string llama() const { return dir_ / "llama"; }
  std::string out(const std::string& name) const { return dir_ / name; }
  // The largest difference of a model's tensors from the folder's, as a share of 0.5, what they vary by.
  double error_of(const std::string& path) const {
    const io::WeightFiles files(path);
    EXPECT_EQ(files.entries().size(), weights_.size());
    double most = 0;
    for (const auto& [name, want] : weights_)
      most = std::max(most, (files.tensor(name).to(DType::f32) - want).abs().max().item() / 0.5);
    return most;
  }

  io::TempDir dir_;
  io::TensorMap weights_;
};

bool has(const Result& r, const std::string& text) {
  return r.output.find(text) != std::string::npos;
}
void expect_one_line(const Result& r, int status, const std::string& text) {
  EXPECT_EQ(r.status, status) << r.output;
  EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
  EXPECT_EQ(r.output.find('\n'), r.output.size() - 1) << r.output;
  EXPECT_TRUE(has(r, text)) << r.output;
}

// What stands behind a row's label.
std::string row(const Result& r, const std::string& label) {
  const size_t at = ("\n" + r.output).find("\n" + label + " ");
  if (at == std::string::npos) return "no row " + label;
  const size_t begin = r.output.find_first_not_of(' ', at + label.size());
  return r.output.substr(begin, r.output.find('\n', begin) - begin);
}

TEST_F(ModelCommands, InfoOfAFolder) {
  const Result r = strata("model info --no-limits " + llama());
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_TRUE(row(r, "Model").ends_with("(llama)")) << r.output;
  EXPECT_EQ(row(r, "Parameters"), fmt::format("10.2k ({})", kParameters));
  EXPECT_TRUE(row(r, "Files").ends_with("in 1 safetensors file: F32 39.88 KiB in 12 tensors")) << r.output;
  EXPECT_EQ(row(r, "As bf16"), "weights 19.94 KiB, cache of 64 tokens 4.00 KiB; fits");
  EXPECT_EQ(row(r, "As f32"), "weights 39.88 KiB, cache of 64 tokens 8.00 KiB; fits");
  EXPECT_EQ(row(r, "Tokenizer"), "WordLevel, 3 ids");
  EXPECT_EQ(row(r, "Chat template"), "none");
  EXPECT_EQ(row(r, "generation_config"), "there");
  EXPECT_TRUE(has(r, "\ndecoder\n  vocab: 14\n  dim: 32\n")) << r.output;
  EXPECT_FALSE(has(r, "tokens/s")) << r.output;
  io::write_file(llama() + "/chat_template.jinja", "{{ 1 }}");
  EXPECT_EQ(row(strata("model info --no-limits " + llama()), "Chat template"), "7 bytes");
}

// bandwidth / bytes that a token reads, of which the bandwidth is told as well.
TEST_F(ModelCommands, InfoBoundsTheSpeed) {
  const Result r = strata("model info " + llama());
  ASSERT_EQ(r.status, 0) << r.output;
  const std::string bound = row(r, "Bound of speed"), as = row(r, "As f32");
  const size_t rate = bound.find("at the "), most = as.find("at most ");
  ASSERT_NE(rate, std::string::npos) << r.output;
  ASSERT_NE(most, std::string::npos) << r.output;
  char* unit = nullptr;
  double got = std::strtod(as.c_str() + most + 8, &unit);
  got *= *unit == 'k' ? 1e3 : *unit == 'M' ? 1e6 : 1;
  const double gb_s = std::strtod(bound.c_str() + rate + 7, nullptr), want = 1e9 * gb_s / (4 * kRead);
  EXPECT_GT(gb_s, 0);
  EXPECT_NEAR(got, want, 0.02 * want + 1e9 * 0.05 / (4 * kRead)) << r.output;  // digits that are told
}

TEST_F(ModelCommands, InfoOfAConfigurationAloneWhateverItsSize) {
  const std::string folder = out("alone");
  fs::create_directory(folder);
  io::write_file(folder + "/config.json", llama_config(int64_t{1} << 30, 80));
  const Result r = strata("model info --no-limits " + folder);
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(row(r, "Files"), "no weights, config.json alone");
  const int64_t parameters = 896 + 32 + 80 * (3072 + 64 + 3 * 32 * (int64_t{1} << 30));
  EXPECT_TRUE(has(r, fmt::format("({})", parameters))) << r.output;
  EXPECT_TRUE(row(r, "As bf16").ends_with("; does not fit")) << r.output;
  EXPECT_TRUE(row(r, "Tokenizer").starts_with("none that can be read: ")) << r.output;
  EXPECT_EQ(row(r, "generation_config"), "none");
}

TEST_F(ModelCommands, InfoOfWhatIsNoModel) {
  expect_one_line(strata("model info " + out("none")), 1, "there is no '" + out("none") + "'");
  fs::create_directory(out("empty"));
  expect_one_line(strata("model info " + out("empty")), 1, "is no model's folder");
  expect_one_line(strata("model info " + llama() + "/model.safetensors"), 1, "is no model: it is safetensors");
  io::write_file(out("text"), "no model");
  expect_one_line(strata("model info " + out("text")), 1, out("text"));
  io::write_file(llama() + "/config.json", R"({"model_type": "lama"})");
  expect_one_line(strata("model info " + llama()), 1, "lama");
  io::write_file(llama() + "/config.json", "{");
  expect_one_line(strata("model info " + llama()), 1, "config.json");
  expect_one_line(strata("model info"), 2, "model");
}

// A run of ours is not a model's folder: the error says so, and what there is for it.
TEST_F(ModelCommands, InfoAndConvertOfARunSayWhatItIs) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of a small text\n", i % 17);
  io::write_file(out("text.txt"), text);
  const std::string run = out("run"), checkpoint = run + "/step-00000002";
  ASSERT_EQ(strata("train --data " + out("text.txt") + " --out " + run +
                   " --steps 2 --quiet --set model.layers=1 model.dim=16 model.heads=1 model.context=8 train.batch=2 "
                   "train.sample_tokens=0")
                .status,
            0);
  const std::string then = "strata generate --checkpoint " + checkpoint + " writes with it, strata report " + run;
  for (const std::string command : {"model info ", "model convert "}) {
    const std::string to = command == "model convert " ? " " + out("made") : "";
    expect_one_line(
        strata(command + checkpoint + to), 1,
        fmt::format("'{}' is a checkpoint of a training run of Strata, no model's folder: {}", checkpoint, then));
    expect_one_line(strata(command + checkpoint + "/model.safetensors" + to), 1, "is a file of a training run");
    expect_one_line(strata(command + run + "/" + to), 1, "is the folder of a training run");
  }
  const Result written = strata("generate --checkpoint " + checkpoint + " --prompt l --tokens 2");
  EXPECT_EQ(written.status, 0) << written.output;
}

TEST_F(ModelCommands, ConvertToFoldersOfOtherNumbers) {
  Result r = strata("model convert " + llama() + " " + out("same"));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(r.output, out("same") + "\n");
  EXPECT_EQ(error_of(out("same")), 0);
  for (const char* name : {"config.json", "tokenizer.json", "generation_config.json"})
    EXPECT_EQ(io::read_file(out("same") + "/" + name), io::read_file(llama() + "/" + name));
  const std::tuple<const char*, const char*, double> dtypes[] = {{"bf16", "BF16", 0.02}, {"f16", "F16", 0.003}};
  for (const auto& [dtype, stored, error] : dtypes) {
    r = strata(fmt::format("model convert {} {} --dtype {}", llama(), out(dtype), dtype));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_GT(error_of(out(dtype)), 0);
    EXPECT_LT(error_of(out(dtype)), error);
    EXPECT_TRUE(has(strata("model info --no-limits " + out(dtype)), fmt::format(" file: {} 19.94 KiB", stored)));
  }
}

TEST_F(ModelCommands, ConvertToGgufAndBack) {
  const std::tuple<const char*, const char*, double> types[] = {{"", "F32", 0},
                                                                {" --dtype f32", "F32", 0},
                                                                {" --dtype f16", "F16", 0.003},
                                                                {" --dtype bf16", "BF16", 0.02},
                                                                {" --type q8_0", "Q8_0", 0.03},
                                                                {" --type q4_0", "Q4_0", 0.6}};
  int n = 0;
  for (const auto& [option, stored, error] : types) {
    const std::string file = out(fmt::format("{}.gguf", ++n)), back = out(std::to_string(n));
    Result r = strata("model convert --no-tokenizer " + llama() + " " + file + option);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_TRUE(has(r, "note: no tokenizer is written")) << r.output;
    const Result info = strata("model info --no-limits " + file);
    EXPECT_TRUE(has(info, fmt::format("{} ", stored))) << info.output;
    EXPECT_EQ(has(info, "\nLow bits"), stored[0] == 'Q') << info.output;
    EXPECT_EQ(row(info, "Parameters"), fmt::format("10.2k ({})", kParameters));
    r = strata("model convert --dtype f32 " + file + " " + back);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_LE(error_of(back), error) << stored;
    EXPECT_EQ(error_of(back) > 0, error > 0) << stored;
  }
  // Whatever its name ends with.
  ASSERT_EQ(strata("model convert --no-tokenizer --to gguf " + llama() + " " + out("file")).status, 0);
  EXPECT_EQ(io::read_file(out("file")), io::read_file(out("1.gguf")));
  // Its tokenizer is of words, for which GGUF has no name.
  expect_one_line(strata("model convert " + llama() + " " + out("x.gguf")), 1, "WordLevel has no name in GGUF");
  EXPECT_FALSE(fs::exists(out("x.gguf")));
}

// GPTQ's codes of 4 bits: 0 at a zero point of 8 and a scale of 0.0625 is -0.5. They stay, byte for byte; of a dtype
// what is written is plain numbers, and nothing speaks of GPTQ any more.
TEST_F(ModelCommands, ConvertUnpacksLowBits) {
  const std::string layer = "model.layers.0.mlp.down_proj", config = llama() + "/config.json";
  weights_.erase(layer + ".weight");
  io::TensorMap packed = weights_;
  packed[layer + ".qweight"] = zeros({8, 32}, DType::i32);
  packed[layer + ".qzeros"] = full({2, 4}, 0x77777777, DType::i32);  // 7: the format adds 1
  packed[layer + ".scales"] = full({2, 32}, 0.0625, DType::f16);
  packed[layer + ".g_idx"] = cat({zeros({32}, DType::i32), ones({32}, DType::i32)}, 0);
  io::save_safetensors(llama() + "/model.safetensors", packed);
  std::string text = io::read_file(config);
  text.insert(1, R"("quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false,
                    "sym": true, "checkpoint_format": "gptq"}, )");
  io::write_file(config, text);
  EXPECT_TRUE(row(strata("model info --no-limits " + llama()), "Low bits").starts_with("GPTQ, 4 bits: "));
  ASSERT_EQ(strata("model convert " + llama() + " " + out("kept")).status, 0);
  EXPECT_EQ(io::read_file(out("kept") + "/config.json"), text);
  const io::SafetensorsFile kept(out("kept") + "/model.safetensors");
  for (const auto& [name, t] : packed)
    if (name.starts_with(layer)) {
      EXPECT_TRUE(equal(kept.tensor(name), t)) << name;
    }
  weights_[layer + ".weight"] = full({32, 64}, -0.5);
  const Result r = strata("model convert --dtype f32 " + llama() + " " + out("plain"));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(error_of(out("plain")), 0);
  EXPECT_EQ(io::read_file(out("plain") + "/config.json").find("quant"), std::string::npos);
  EXPECT_EQ(row(strata("model info --no-limits " + out("plain")), "Low bits"), "no row Low bits");
}

TEST_F(ModelCommands, ConvertMakesLowBits) {
  const std::tuple<const char*, const char*, double> formats[] = {{"int8", "compressed-tensors", 0.03},
                                                                  {"int4 --group 32", "compressed-tensors", 0.6},
                                                                  {"e4m3", "compressed-tensors", 0.2},
                                                                  {"nf4 --group 32", "bitsandbytes", 0.6}};
  int n = 0;
  for (const auto& [format, method, error] : formats) {
    const std::string low = out(fmt::format("low{}", ++n)), plain = out(fmt::format("plain{}", n));
    Result r = strata(fmt::format("model convert {} {} --bits {}", llama(), low, format));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_TRUE(row(strata("model info --no-limits " + low), "Low bits").starts_with(method)) << format;
    r = strata("model convert --dtype f32 " + low + " " + plain);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_GT(error_of(plain), 0) << format;
    EXPECT_LT(error_of(plain), error) << format;
  }
}

TEST_F(ModelCommands, ConvertRefusesAndLeavesNothing) {
  const std::string convert = "model convert " + llama() + " ";
  io::write_file(out("there"), "kept");
  expect_one_line(strata(convert + out("there") + " --to gguf"), 1, "'" + out("there") + "' is there already");
  expect_one_line(strata(convert + out("there")), 1, "is there already");
  expect_one_line(strata(convert + llama()), 1, "is there already");
  EXPECT_EQ(io::read_file(out("there")), "kept");
  fs::create_symlink(out("nowhere"), out("link"));
  expect_one_line(strata(convert + out("link")), 1, "is there already");
  expect_one_line(strata(convert + out("x") + " --dtype q8_0"), 2, "--type q8_0 is GGUF's alone");
  expect_one_line(strata(convert + out("x") + " --dtype q9"), 2, "q9");
  expect_one_line(strata(convert + out("x.gguf") + " --bits int4"), 2, "--bits is for folders");
  expect_one_line(strata(convert + out("x") + " --bits int4 --dtype bf16"), 2, "--bits is for folders");
  expect_one_line(strata(convert + out("x") + " --group 32"), 2, "--group goes with --bits");
  expect_one_line(strata(convert + out("x") + " --bits int3"), 2, "int3");
  expect_one_line(strata(convert + out("x") + " --to onnx"), 2, "onnx");
  expect_one_line(strata("model convert " + out("none") + " " + out("x")), 1, "there is no");
  expect_one_line(strata("model convert " + llama()), 2, "out");
  // A folder that lacks a tensor, and one without weights.
  weights_.erase("lm_head.weight");
  io::save_safetensors(llama() + "/model.safetensors", weights_);
  expect_one_line(strata(convert + out("x")), 1, "lm_head.weight");
  expect_one_line(strata(convert + out("x.gguf")), 1, "lm_head.weight");
  fs::remove(llama() + "/model.safetensors");
  expect_one_line(strata(convert + out("x")), 1, "has no weights");
  int entries = 0;
  for ([[maybe_unused]] const auto& e : fs::directory_iterator(dir_.path())) ++entries;
  EXPECT_EQ(entries, 3);  // the folder, the file and the link
}

// Ended at any time, or out of room, there is no file, or all of it.
TEST_F(ModelCommands, ConvertKilledLeavesNoHalfFile) {
  const std::string whole = out("whole.gguf"), path = out("x.gguf");
  ASSERT_EQ(strata("model convert --no-tokenizer " + llama() + " " + whole).status, 0);
  for (int ms = 0; ms < 60; ms += 3) {
    Child child({"model", "convert", "--no-tokenizer", llama(), path});
    ::usleep(static_cast<useconds_t>(ms) * 1000);
    child.kill(SIGKILL);
    child.wait();
    if (!fs::exists(path)) continue;
    EXPECT_EQ(io::read_file(path), io::read_file(whole)) << ms;
    fs::remove(path);
  }
  expect_one_line(strata("model convert --no-tokenizer " + llama() + " " + path + " 2>&1 | grep error", "ulimit -f 8;"),
                  0, "x.gguf");
  EXPECT_FALSE(fs::exists(path));
}

TEST(ModelHelp, NamesTheCommandAndFitsTheScreen) {
  for (const std::string command : {"model info", "model convert", "model average", "model merge"}) {
    const Result r = strata(command + " --help");
    EXPECT_EQ(r.status, 0);
    EXPECT_TRUE(has(r, "Usage: strata " + command + " ")) << r.output;
    for (size_t begin = 0, end; begin < r.output.size(); begin = end + 1) {
      end = r.output.find('\n', begin);
      EXPECT_LE(end - begin, 110u) << r.output.substr(begin, end - begin);
    }
  }
}

// Every family's models as transformers writes them.
TEST(ModelOfEachFamily, InfoAndConvert) {
  const char* models = std::getenv("STRATA_MODELS");
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = models ? fs::path(models) : fs::path(source ? source : ".") / "build/models";
  const io::TempDir dir;
  int seen = 0, back = 0;
  // An activation, an order of turning and a scaling that GGUF has no key for.
  const std::set<std::string> refused = {"deepseek_v3-halves", "gpt2-scaled", "gpt_neox-sequential", "llama-dynamic"};
  for (const Family* family : families())
    for (const FamilySample& sample : family->samples) {
      const std::string name = fmt::format("{}-{}", family->name, sample.name), folder = (root / name).string();
      if (!fs::exists(fs::path(folder) / "config.json")) continue;
      SCOPED_TRACE(name);
      ++seen;
      const Result info = strata("model info --no-limits " + folder);
      EXPECT_EQ(info.status, 0) << info.output;
      EXPECT_EQ(row(info, "Model"), fmt::format("{} ({})", family->title, family->name));
      const std::string file = dir / (name + ".gguf"), again = dir / name;
      if (const Result r = strata("model convert " + folder + " " + file); r.status != 0) {
        EXPECT_TRUE(family->kind != ModelKind::decoder || refused.contains(name)) << r.output;
        const bool named = !family->gguf.architectures.empty();
        EXPECT_TRUE(has(r, named ? "a file cannot say what this model" : "GGUF files have no name for")) << r.output;
        EXPECT_FALSE(fs::exists(file));
        continue;
      }
      EXPECT_FALSE(refused.contains(name));
      const Result r = strata("model convert " + file + " " + again + " --dtype f32");
      ASSERT_EQ(r.status, 0) << r.output;
      ++back;
      const io::WeightFiles want(folder), got(again);
      size_t compared = 0;
      for (const io::WeightEntry& e : got.entries()) {
        if (!want.contains(e.name)) continue;  // files of other versions of the library
        ++compared;
        // Gamma + 1 of Gemma's norms is rounded.
        const Tensor w = want.tensor(e.name).to(DType::f32);
        EXPECT_LE((got.tensor(e.name) - w).abs().max().item(), 1e-6 * (1 + w.abs().max().item())) << e.name;
      }
      EXPECT_GT(2 * compared, got.entries().size());
    }
  if (seen == 0) GTEST_SKIP() << root << " has no models: scripts/make-models writes them";
  EXPECT_GT(back, 0);
}

}  // namespace
}  // namespace strata::cli
