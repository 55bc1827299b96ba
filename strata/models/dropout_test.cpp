// Where dropout stands within blocks, in training alone.

#include <cmath>

#include "strata/core/error_test_util.h"
#include "strata/core/rng.h"
#include "strata/models/family.h"
#include "strata/nn/transformer.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

using nn::Activation;

TEST(Dropouts, WithinTheFeedForwardPart) {
  for (const bool gated : {false, true})
    for (const Activation activation : {Activation::relu, Activation::gelu_tanh}) {
      nn::FeedForwardSpec spec{.width = 24, .activation = activation, .gated = gated, .bias = false, .dropout = 0.5};
      manual_seed(3);
      const nn::FeedForward part(8, spec);
      const Tensor x = randn({2, 5, 8});
      // What is dropped is what the last layer reads, by the numbers that an op called alone would draw.
      const auto inner = [&] {
        return gated ? nn::activate_gated((*part.gate_up)(x), activation) : nn::activate((*part.up)(x), activation);
      };
      manual_seed(11);
      const Tensor got = part(x);
      manual_seed(11);
      EXPECT_EQ(got.to_vector<float>(), (*part.down)(dropout(inner(), 0.5)).to_vector<float>());
      EXPECT_NE(got.to_vector<float>(), (*part.down)(inner()).to_vector<float>());
      nn::FeedForward still = part;
      still.eval();
      const std::vector<float> plain = still(x).to_vector<float>(), want = (*part.down)(inner()).to_vector<float>();
      for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], want[i], 1e-5);
    }
}

ModelSpec spec_of(const char* family, const char* config) {
  return read_spec(family_named(family), ConfigReader(config, "config.json"));
}

TEST(Dropouts, OfEncoderDecodersStandWhereTheirFilesHaveThem) {
  const ModelSpec t5 = spec_of("t5", R"({"model_type": "t5", "dropout_rate": 0.25})");
  for (const ModelSpec& part : t5.parts) {
    EXPECT_EQ(part.embedding_dropout, 0.25);
    for (const nn::LayerSpec& l : part.layers) {
      EXPECT_EQ(l.dropout, 0.25);
      EXPECT_EQ(l.attention.dropout, 0.25);
      EXPECT_EQ(l.feed_forward.dropout, 0.25);
    }
  }
  const ModelSpec whisper = spec_of(
      "whisper", R"({"model_type": "whisper", "dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3})");
  for (const ModelSpec& part : whisper.parts) {
    EXPECT_EQ(part.embedding_dropout, 0.1);
    EXPECT_EQ(part.layers[0].dropout, 0.1);
    EXPECT_EQ(part.layers[0].attention.dropout, 0.2);
    EXPECT_EQ(part.layers[0].feed_forward.dropout, 0.3);
  }
  for (const ModelSpec& spec : {t5, whisper}) {
    const Family& family = family_named(spec.parts[0].audio ? "whisper" : "t5");
    EXPECT_EQ(read_spec(family, ConfigReader(write_config(family, spec), "written")), spec);
  }
  EXPECT_THROW(check_spec(spec_of("t5", R"({"model_type": "t5", "dropout_rate": 1.5})")), Error);
}

}  // namespace
}  // namespace strata
