// Runs of ours as weights of few bits, read one weight after the other.

#include "strata/train/rounded_run_inl.h"

#include <filesystem>
#include <fstream>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/safetensors.h"
#include "strata/memory/allocator.h"
#include "strata/nn/convert.h"
#include "strata/nn/lora.h"
#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

const nn::PackOptions kFourBits{.rounding = {.block_columns = 64, .nested = true}};

std::vector<char> bits(const Tensor& t) {
  const Tensor dense = t.detach().contiguous();
  const auto* const data = static_cast<const char*>(dense.raw_data());
  return t.numel() == 0 ? std::vector<char>() : std::vector<char>(data, data + dense.nbytes());
}

class RoundedRun : public TrainTest {
 protected:
  RoundedRun() {
    c_.model.dim = 64;
    c_.model.family = "llama";
    c_.steps = 6;
    c_.optim.lr = 5e-3;
    c_.tune.rank = 4;
  }
  void train_in(const std::string& name) { train(c_, {.out = dir_ / name, .log = nullptr}); }
  // The bits of loading the run, merging its adapters, and rounding then.
  void expect_same(const std::string& name, DType dtype) {
    const std::shared_ptr<LanguageModel> dense = load_trained_model(dir_ / name).model;
    nn::merge_lora(*dense);
    nn::remove_lora(*dense);
    nn::convert_parameters(*dense, dtype);
    const size_t layers = nn::quantize(*dense, "nf4", kFourBits).size();
    EXPECT_EQ(layers, 8U);
    const auto got = load_rounded_run(find_init(dir_ / name), dtype, "nf4", kFourBits);
    ASSERT_NE(got, nullptr) << name;
    const nn::StateDict want = dense->state_dict(), state = got->as_module().state_dict();
    ASSERT_EQ(state.size(), want.size()) << name;
    for (const auto& [key, t] : want) {
      ASSERT_TRUE(state.contains(key)) << key;
      EXPECT_EQ(state.at(key).dtype(), t.dtype()) << name << ' ' << key;
      EXPECT_EQ(bits(state.at(key)), bits(t)) << name << ' ' << key;
    }
    EXPECT_TRUE(nn::adapted_maps(got->as_module()).empty());
  }
};

TEST_F(RoundedRun, AreTheBitsOfLoadingMergingAndRounding) {
  for (const char* family : {"llama", "gpt"}) {
    c_.model.family = family;
    train_in(family);
    for (const DType dtype : {DType::f32, DType::bf16}) expect_same(family, dtype);
  }
  // Whole runs that began from another.
  c_.init = dir_ / "llama";
  train_in("on");
  expect_same("on", DType::f32);
  c_.param_dtype = "bf16";
  c_.dtype = "bf16";
  train_in("low");
  expect_same("low", DType::f32);
  expect_same("low", DType::bf16);
}

// Adapters of a model that began from nothing stand beside all of its weights.
TEST_F(RoundedRun, AdaptersAreInTheWeights) {
  for (const char* method : {"lora", "dora"}) {
    c_.tune.method = method;
    train_in(method);
    for (const DType dtype : {DType::f32, DType::bf16}) expect_same(method, dtype);
  }
}

// Of a run whose checkpoint has a part of the model, the rest is what it began from: a run, or a run that began from
// one.
TEST_F(RoundedRun, OfRunsThatKeepAPart) {
  train_in("base");
  c_.init = dir_ / "base";
  c_.tune.method = "lora";
  train_in("lora");
  c_.tune.method = "full";
  c_.tune.freeze = "blocks.0";
  train_in("frozen");
  c_.init = dir_ / "lora";
  c_.tune.freeze = "";
  c_.tune.method = "dora";
  c_.tune.train = "norm";
  c_.dtype = c_.param_dtype = "bf16";
  train_in("on-lora");
  for (const char* name : {"lora", "frozen", "on-lora"})
    for (const DType dtype : {DType::f32, DType::bf16}) expect_same(name, dtype);
  // Training begins from each of them; not from one on weights of few bits, which nothing is merged into.
  c_.tune = {.method = "lora", .quantize = "nf4"};
  c_.dtype = c_.param_dtype = "f32";
  for (const char* name : {"base", "lora", "frozen", "on-lora"}) {
    c_.init = dir_ / name;
    const std::shared_ptr<TokenDecoder> model = make_tuned_model(c_);
    int packed = 0;
    for (const auto& [path, part] : model->as_module().named_modules()) packed += nn::is_packed(part);
    EXPECT_EQ(packed, 8) << name;
  }
  c_.init = dir_ / "base";
  train_in("few");
  EXPECT_EQ(load_rounded_run(find_init(dir_ / "few"), DType::f32, "nf4", kFourBits), nullptr);
  c_.init = dir_ / "few";
  EXPECT_NE(message<ValueError>([&] { make_tuned_model(c_); }).find("is packed"), std::string::npos);
}

// Adapters on a folder of a model from elsewhere.
TEST_F(RoundedRun, OfAdaptersOnAFolder) {
  write_text_model(dir_ / "folder");
  c_.init = dir_ / "folder";
  c_.tune.method = "lora";
  train_in("lora");
  const TrainedModel trained = load_trained_model(dir_ / "lora");
  nn::merge_lora(*trained.model);
  nn::remove_lora(*trained.model);
  nn::quantize(*trained.model, "nf4", kFourBits);
  const auto got = load_rounded_run(find_init(dir_ / "lora"), DType::f32, "nf4", kFourBits);
  ASSERT_NE(got, nullptr);
  const nn::StateDict state = got->as_module().state_dict();
  for (const auto& [key, t] : trained.model->state_dict()) {
    ASSERT_TRUE(state.contains(key)) << key;
    EXPECT_EQ(bits(state.at(key)), bits(t)) << key;
  }
  // Another folder in its place is refused.
  std::filesystem::remove_all(dir_ / "folder");
  manual_seed(9);
  write_text_model(dir_ / "folder");
  io::write_file(dir_ / "folder/model.safetensors", [&] {
    io::TensorMap tensors = io::SafetensorsFile(dir_ / "folder/model.safetensors").tensors();
    tensors.begin()->second.fill_(0.5);
    return io::encode_safetensors(tensors);
  }());
  EXPECT_NE(message<IoError>([&] {
              load_rounded_run(find_init(dir_ / "lora"), DType::f32, "nf4", kFourBits);
            }).find("other weights"),
            std::string::npos);
}

// At most the packed model and one dense weight at a time; dry, its shapes alone.
TEST_F(RoundedRun, OneDenseWeightAtATime) {
  c_.model.dim = 512;
  c_.model.layers = 3;
  c_.steps = 1;
  c_.batch = 1;
  train_in("run");
  int64_t dense = 0, largest = 0;
  for (const Tensor& p : load_trained_model(dir_ / "run").model->parameters()) {
    dense += p.nbytes();
    largest = std::max(largest, p.nbytes());
  }
  const InitModel init = find_init(dir_ / "run");
  const int64_t before = memory::stats(Device::cpu()).live_total;
  memory::reset_peak(Device::cpu());
  const auto model = load_rounded_run(init, DType::f32, "nf4", kFourBits);
  const memory::Stats after = memory::stats(Device::cpu());
  ASSERT_NE(model, nullptr);
  const int64_t live = after.live_total - before;
  EXPECT_LT(live, dense / 4);
  EXPECT_LE(after.peak_total - before, live + 2 * largest + (int64_t{1} << 20));
  EXPECT_LT(after.peak_total - before, dense / 2);
  {
    const DeviceScope dry(Device::meta());
    const auto shapes = load_rounded_run(init, DType::f32, "nf4", kFourBits);
    ASSERT_NE(shapes, nullptr);
    for (const Tensor& p : shapes->as_module().parameters()) EXPECT_TRUE(p.is_meta());
  }
}

TEST_F(RoundedRun, DamagedFilesAreRefused) {
  train_in("run");
  const InitModel init = find_init(dir_ / "run");
  {
    std::fstream file(init.path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x7e');
  }
  const std::string text = message<IoError>([&] { load_rounded_run(init, DType::f32, "nf4", kFourBits); });
  EXPECT_NE(text.find("model.safetensors"), std::string::npos) << text;
  EXPECT_NE(text.find("changed or damaged"), std::string::npos) << text;
}

}  // namespace
}  // namespace strata
