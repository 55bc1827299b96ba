#include "strata/models/rounded_weights_inl.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/memory/allocator.h"
#include "strata/models/export.h"
#include "strata/models/pretrained.h"
#include "strata/nn/convert.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"

namespace strata {
namespace {

std::vector<char> bits(const Tensor& t) {
  const Tensor dense = t.detach().contiguous();
  const auto* const data = static_cast<const char*>(dense.raw_data());
  return t.numel() == 0 ? std::vector<char>() : std::vector<char>(data, data + dense.nbytes());
}

std::shared_ptr<LanguageModel> rounded(const Family& family, const ModelSpec& spec, const std::string& folder,
                                       DType dtype, const nn::PackOptions& options) {
  const nn::init::SkipDraws from_file;
  std::optional<nn::detail::DeferredWeights> later(dtype);
  auto model = std::make_shared<LanguageModel>(spec);
  nn::convert_parameters(*model, dtype);
  later.reset();
  load_rounded_weights(*model, family, spec, io::WeightFiles(folder), "int8", options);
  return model;
}

// Of every decoder there is: the bits of loading all of it and rounding then.
TEST(RoundedWeights, AreThoseOfLoadingAndRounding) {
  int models = 0;
  for (const Family* family : families()) {
    if (family->kind != ModelKind::decoder) continue;
    for (const FamilySample& sample : family->samples) {
      SCOPED_TRACE(cat(family->name, '-', sample.name));
      manual_seed(11);
      const ModelSpec spec = read_spec(*family, ConfigReader(std::string(sample.config), "sample"));
      const io::TempDir dir;
      const Pretrained made = make_module(spec);
      save_pretrained(made.module(), *family, spec, dir / "a");
      for (const DType dtype : {DType::f32, DType::bf16}) {
        LanguageModel dense(spec);
        nn::convert_parameters(dense, dtype);
        load_weights(dense, *family, spec, io::WeightFiles(dir / "a"), {}, false);
        const std::vector<nn::PackedLayer> layers = nn::quantize(dense, "int8");
        const std::shared_ptr<LanguageModel> model = rounded(*family, spec, dir / "a", dtype, {});
        const nn::StateDict want = dense.state_dict(), got = model->state_dict();
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [name, t] : want) {
          ASSERT_TRUE(got.contains(name)) << name;
          EXPECT_EQ(got.at(name).dtype(), t.dtype()) << name;
          EXPECT_EQ(bits(got.at(name)), bits(t)) << name;
        }
        EXPECT_GT(layers.size(), 0U);
      }
      ++models;
    }
  }
  EXPECT_GE(models, 15);
}

// At most the packed model and one dense weight at a time.
TEST(RoundedWeights, OneDenseWeightAtATime) {
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(
      family, ConfigReader(R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 1024, "intermediate_size": 2048,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu"})",
                           "config"));
  const io::TempDir dir;
  int64_t dense = 0;
  {
    const Pretrained made = make_module(spec);
    for (const Tensor& p : made.module().parameters()) dense += p.nbytes();
    save_pretrained(made.module(), family, spec, dir / "a");
  }
  const int64_t before = memory::stats(Device::cpu()).live_total;
  memory::reset_peak(Device::cpu());
  const std::shared_ptr<LanguageModel> model = rounded(family, spec, dir / "a", DType::f32, {});
  const memory::Stats after = memory::stats(Device::cpu());
  const int64_t largest = 4 * int64_t{2} * 2048 * 1024;  // the gates and what they are multiplied with, in f32
  EXPECT_LT(after.live_total - before, dense / 3);
  EXPECT_LE(after.peak_total - before,
            after.live_total - before + largest + (int64_t{17} << 20));  // the reader's pieces

  nn::PackOptions wrong;
  wrong.rounding.block_columns = 48;
  try {
    rounded(family, spec, dir / "a", DType::f32, wrong);
    ADD_FAILURE() << "blocks of 48";
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("layer \"blocks.0."), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace strata
