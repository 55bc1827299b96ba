// Where dropout stands within blocks, in training alone.

#include <cmath>
#include <ostream>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/core/recording.h"
#include "strata/core/rng.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/family.h"
#include "strata/nn/transformer.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

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

// The share of what goes into the last layer that is left out, what is left made up for it, and the gradient, which
// flows where numbers are left.
TEST(Dropouts, LeaveOutTheirShareAndNoMore) {
  constexpr int64_t kRows = 400, kDim = 48;
  constexpr double kChance = 0.3;
  const nn::FeedForward part(kDim, {.width = kDim, .activation = Activation::relu, .bias = false, .dropout = kChance});
  {
    const NoGrad guard;
    for (Tensor p : part.parameters()) p.copy_(eye(kDim));
  }
  manual_seed(5);
  Tensor x = rand({kRows, kDim}) + 0.5;
  x.set_requires_grad(true);
  const Tensor y = part(x);
  y.sum().backward();
  const std::vector<float> in = x.to_vector<float>(), out = y.to_vector<float>(), grads = x.grad().to_vector<float>();
  double dropped = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool left = out[i] != 0;
    dropped += !left;
    EXPECT_NEAR(out[i], left ? in[i] / (1 - kChance) : 0, 1e-5);
    EXPECT_NEAR(grads[i], left ? 1 / (1 - kChance) : 0, 1e-6);
  }
  const double n = kRows * kDim;
  EXPECT_NEAR(dropped / n, kChance, 4 * std::sqrt(kChance * (1 - kChance) / n));
  nn::FeedForward(part).eval();
  EXPECT_EQ(part(x).to_vector<float>(), in);
}

// Gradients of every parameter are those of the same numbers dropped by an op of its own.
TEST(Dropouts, GradientsGoThroughWhatIsLeft) {
  for (const bool gated : {false, true}) {
    manual_seed(3);
    const nn::FeedForward part(
        8, {.width = 24, .activation = Activation::gelu_tanh, .gated = gated, .bias = false, .dropout = 0.5});
    const Tensor x = randn({2, 5, 8});
    const auto gradients = [&](const auto& forward) {
      for (Tensor p : part.parameters()) p.set_grad({});
      manual_seed(11);
      sum(square(forward())).backward();
      std::vector<std::vector<float>> all;
      for (const Tensor& p : part.parameters()) all.push_back(p.grad().template to_vector<float>());
      return all;
    };
    const auto composed = [&](double chance) {
      const Tensor inner = gated ? nn::activate_gated((*part.gate_up)(x), Activation::gelu_tanh)
                                 : nn::activate((*part.up)(x), Activation::gelu_tanh);
      return (*part.down)(dropout(inner, chance));
    };
    const auto got = gradients([&] { return part(x); });
    EXPECT_EQ(got, gradients([&] { return composed(0.5); }));
    EXPECT_NE(got, gradients([&] { return composed(0.0); }));
  }
}

// A number left out by chance: what op does it, on what, with which chance.
struct Place {
  Shape shape;
  double chance;
  bool operator==(const Place&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << cat(place.shape, " by ", place.chance);
}

// Where a training step leaves out numbers, in their order.
std::vector<Place> places_of(const EncoderDecoder& model, const Tensor& source, const Tensor& tokens) {
  const Recording step = record([&] { model.forward(source, tokens); });
  std::vector<Place> places;
  for (const RecordedCall& call : step.calls) {
    const std::vector<SchemaArg>& args = call.op->schema().args;
    const auto shape = [&](size_t i) {
      return step.values[static_cast<size_t>(std::get<ValueIndex>(call.args[i]).at)].shape;
    };
    if (call.op->name() == "dropout" && std::get<double>(call.args[1]) > 0)
      places.push_back({shape(0), std::get<double>(call.args[1])});
    if (call.op->name() != "scaled_dot_product_attention") continue;
    for (size_t i = 0; i < args.size(); ++i)
      if (args[i].name == "dropout_p" && std::get<double>(call.args[i]) > 0)
        places.push_back({{shape(0)[0], shape(0)[1], shape(0)[2], shape(1)[2]}, std::get<double>(call.args[i])});
  }
  return places;
}

// As transformers 5.24 does (modeling_t5.py, modeling_whisper.py; a step of it calls dropout at these places): on the
// embeddings, on the weights of attention, on what a part adds, within the feed-forward part before its last layer, and
// of T5 on what the final norm gives.
TEST(Dropouts, StandWhereTransformersHasThem) {
  for (const bool sound : {false, true}) {
    const char* const more =
        sound ? R"("dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3)" : R"("dropout_rate": 0.25)";
    const double rest = sound ? 0.1 : 0.25, weights = sound ? 0.2 : 0.25, inner = sound ? 0.3 : 0.25;
    const Family& family = family_named(sound ? "whisper" : "t5");
    std::string config(family.samples.front().config);
    config.insert(config.rfind('}'), cat(", ", more));
    const ModelSpec spec = read_spec(family, ConfigReader(config, "config.json"));
    const ModelSpec &reads = spec.parts[0], &writes = spec.parts[1];
    const EncoderDecoder model(spec);
    manual_seed(2);
    const int64_t batch = 2, time = 5, dim = writes.dim;
    const int64_t read = sound ? reads.context : 7;
    const Tensor source = sound ? randn({batch, reads.audio->bins, 2 * read}) : randint(4, 90, {batch, read});
    const Tensor tokens = randint(4, 90, {batch, time});

    std::vector<Place> want;
    const auto part = [&](const ModelSpec& p, int64_t length, bool crosses) {
      const int64_t heads = p.layers[0].attention.heads, width = p.layers[0].feed_forward.width;
      want.push_back({{batch, length, dim}, rest});
      for (size_t i = 0; i < p.layers.size(); ++i) {
        want.push_back({{batch, heads, length, length}, weights});
        want.push_back({{batch, length, dim}, rest});
        if (crosses) {
          want.push_back({{batch, heads, length, read}, weights});
          want.push_back({{batch, length, dim}, rest});
        }
        want.push_back({{batch, length, width}, inner});
        want.push_back({{batch, length, dim}, rest});
      }
      if (!sound) want.push_back({{batch, length, dim}, rest});
    };
    part(reads, read, false);
    part(writes, time, true);
    EXPECT_EQ(places_of(model, source, tokens), want) << family.name;
    EncoderDecoder(model).eval();
    EXPECT_TRUE(places_of(model, source, tokens).empty());
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
