// Encoder-decoders of every family, made and computed with by transformers (scripts/make-models), against what is
// loaded here.

#include <cmath>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class PretrainedEncoderDecoder : public PretrainedSample {
 protected:
  const EncoderDecoder& model() const { return *loaded.encoder_decoder; }
  // Of rows of a text; undefined where the model reads sound.
  Tensor padding() const { return has("mask") ? logical_not(of("mask").to(DType::boolean)) : Tensor(); }
  Tensor encoded() const { return model().encode(of("source"), padding()); }
  Tensor row(const Tensor& t, int64_t b) const { return t.narrow(0, b, 1); }
};

TEST_P(PretrainedEncoderDecoder, GivesWhatTransformersGives) {
  const NoGrad guard;
  Tensor encoded = model().encode(of("source"), padding());
  if (has("mask")) encoded = encoded * of("mask").to(DType::f32).unsqueeze(2);
  expect_near(encoded, of("encoded"), 1e-4, "encoded");
  expect_near(model().forward(of("source"), of("tokens"), padding()), of("logits"), 1e-4, "logits");
}

// A text gives the same alone, without what it was padded with.
TEST_P(PretrainedEncoderDecoder, RowsAlone) {
  const NoGrad guard;
  for (int64_t b = 0; b < of("tokens").size(0); ++b) {
    Tensor source = row(of("source"), b);
    if (has("mask")) source = source.narrow(1, 0, row(of("mask"), b).sum().item<int64_t>());
    expect_near(model().forward(source, row(of("tokens"), b)), row(of("logits"), b), 1e-4, cat("row ", b));
  }
}

TEST_P(PretrainedEncoderDecoder, CacheGivesWhatOnePassGives) {
  const NoGrad guard;
  const Tensor tokens = of("tokens"), want = of("logits"), source = encoded();
  const int64_t length = tokens.size(1);
  for (const bool host_counts : {true, false}) {
    // More places than the source has.
    ModelCache cache = model().make_cache(3, length, source.size(1) + 2);
    cache.host_counts = host_counts;
    model().read_source(cache, source, padding());
    for (int64_t begin = 0, n = 20; begin < length; begin += n, n = begin < 30 ? 7 : 1) {
      n = std::min(n, length - begin);
      const Tensor x = model().hidden(tokens.narrow(1, begin, n), cache);
      expect_near(model().logits(x), want.narrow(1, begin, n), 1e-4, cat("from ", begin));
    }
    EXPECT_EQ(cache.lengths.to_vector<int64_t>(), std::vector<int64_t>(3, length));
  }
}

// Texts at different lengths, then one token each, and a row that rests.
TEST_P(PretrainedEncoderDecoder, CacheOfABatchOfDifferentLengths) {
  const NoGrad guard;
  const Tensor tokens = of("tokens"), want = of("logits"), source = encoded();
  const std::vector<int64_t> lengths{9, 3, 20};
  ModelCache cache = model().make_cache(3, 64, source.size(1));
  model().read_source(cache, source, padding());
  Tensor last = model().next_logits(tokens.narrow(1, 0, 20), cache, from_span<int64_t>(lengths, {3}));
  for (int64_t step = 0; step < 15; ++step) {
    std::vector<int64_t> next, counts;
    for (int64_t b = 0; b < 3; ++b) {
      const bool rests = b == 1 && step >= 7;
      const int64_t at = lengths[static_cast<size_t>(b)] + step;
      if (!rests)
        expect_near(last.select(0, b), want.select(0, b).select(0, at - 1), 2e-4, cat("row ", b, ", token ", at));
      next.push_back(tokens.select(0, b).select(0, at).item<int64_t>());
      counts.push_back(b == 1 && step >= 6 ? 0 : 1);
    }
    last = model().next_logits(from_span<int64_t>(next, {3, 1}), cache, from_span<int64_t>(counts, {3}));
  }
  EXPECT_EQ(cache.lengths.to_vector<int64_t>(), (std::vector<int64_t>{24, 9, 35}));
}

TEST_P(PretrainedEncoderDecoder, GreedyTokens) {
  const NoGrad guard;
  const Tensor source = encoded(), want = of("greedy");
  ModelCache cache = model().make_cache(3, 0, source.size(1));
  model().read_source(cache, source, padding());
  Tensor next = of("tokens").narrow(1, 0, 1);
  std::vector<Tensor> written;
  for (int64_t i = 0; i < want.size(1); ++i) {
    next = model().next_logits(next, cache).argmax(-1).view({3, 1});
    written.push_back(next);
  }
  EXPECT_EQ(cat(written, 1).to_vector<int64_t>(), want.to_vector<int64_t>());
}

TEST_P(PretrainedEncoderDecoder, Gradients) {
  const Tensor loss = (model().forward(of("source"), of("tokens"), padding()) * of("weights")).sum();
  EXPECT_NEAR(loss.item(), of("loss").item(), 1e-3 * std::abs(of("loss").item()) + 1e-3);
  loss.backward();
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : model().named_parameters()) parameters.emplace(name, p);
  double scale = 0;
  size_t there = 0, compared = 0;
  for (const auto& [name, t] : reference)
    if (name.starts_with("grad.")) scale = std::max(scale, largest(t)), ++there;
  for (const WeightRow& r : loaded.family->weights(loaded.spec)) {
    if (r.repeats) continue;
    if (!parameters.contains(r.parameter)) {
      EXPECT_EQ(largest(reference.at("grad." + r.name)), 0) << r.name << " is not trained there either";
      ++compared;
      continue;
    }
    const Tensor own = r.view.of(parameters.at(r.parameter).grad()).contiguous().view(r.shape);
    if (r.name.empty()) {  // of keys' biases that no file has: sums that cancel
      EXPECT_LE(largest(own), 1e-5 * scale) << r.parameter;
      continue;
    }
    const auto want = reference.find("grad." + r.name);
    ASSERT_TRUE(want != reference.end()) << r.name;
    EXPECT_LE(largest(own - want->second), 1e-3 * largest(want->second) + 1e-6 * scale) << r.name;
    ++compared;
  }
  EXPECT_EQ(compared, there);
}

TEST_P(PretrainedEncoderDecoder, LossCountsTargetsThatAreNotLeftOut) {
  const NoGrad guard;
  const Tensor tokens = of("tokens"), targets = tokens.clone();
  targets.narrow(1, 4, tokens.size(1) - 4).fill_(-100);
  const Tensor loss = model().loss(of("source"), tokens, targets, padding());
  const Tensor logits = of("logits").narrow(1, 0, 4);
  double want = 0;
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t t = 0; t < 4; ++t) {
      const Tensor x = logits.select(0, b).select(0, t);
      want += std::log(exp(x - x.max()).sum().item()) + x.max().item() -
              x.select(0, tokens.select(0, b).select(0, t).item<int64_t>()).item();
    }
  EXPECT_NEAR(loss.item(), want / 12, 1e-4 * want);
}

TEST_P(PretrainedEncoderDecoder, LowPrecision) {
  const NoGrad guard;
  const Pretrained half = load_pretrained(loaded.folder, {.dtype = DType::bf16});
  const EncoderDecoder& m = *half.encoder_decoder;
  const Tensor source = of("source").dtype() == DType::i64 ? of("source") : of("source").to(DType::bf16);
  const Tensor encoded = m.encode(source, padding());
  ModelCache cache = m.make_cache(3, 8, encoded.size(1));
  m.read_source(cache, encoded, padding());
  m.hidden(of("tokens").narrow(1, 0, 4), cache);
  const Tensor got = m.logits(m.hidden(of("tokens").narrow(1, 4, 3), cache));
  EXPECT_EQ(got.dtype(), DType::bf16);
  expect_near(got.to(DType::f32), of("logits").narrow(1, 4, 3), 0.1, "in bf16");
}

TEST_P(PretrainedEncoderDecoder, ConfigurationAsTheLibraryWritesIt) {
  const std::string path = (fs::path(loaded.folder) / "config.saved.json").string();
  const ConfigReader config(io::read_file(path), path);
  EXPECT_EQ(&family_of(config), loaded.family);
  const ModelSpec spec = read_spec(*loaded.family, config);
  EXPECT_TRUE(spec == loaded.spec) << to_string(spec) << "differs from\n" << to_string(loaded.spec);
}

TEST_P(PretrainedEncoderDecoder, Refusals) {
  const NoGrad guard;
  const Tensor source = encoded(), tokens = of("tokens").narrow(1, 0, 4);
  EXPECT_THROW(model().forward(of("tokens").to(DType::f32).unsqueeze(1), tokens), Error);
  EXPECT_THROW(model().hidden(tokens, source.narrow(0, 0, 2)), ShapeError);
  EXPECT_THROW(model().hidden(tokens, source, zeros({3, 1}, DType::boolean)), ShapeError);
  EXPECT_THROW(model().make_cache(3, 8), ValueError);
  ModelCache cache = model().make_cache(3, 8, 4);
  EXPECT_THROW(model().read_source(cache, source), ShapeError);
  EXPECT_THROW(model().hidden(of("tokens").narrow(1, 0, 9), cache), ShapeError);
  if (model().reads_sound()) {
    EXPECT_THROW(model().encode(of("source"), zeros({3, 50}, DType::boolean)), ValueError);
    EXPECT_THROW(model().encode(of("source").narrow(2, 0, 30)), ShapeError);
    EXPECT_THROW(model().make_cache(3, model().context() + 1, 4), ValueError);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PretrainedEncoderDecoder,
                         testing::ValuesIn(samples_of({ModelKind::encoder_decoder})), sample_test_name);

// An output layer that transformers 5 has left out is the embedding, and gets numbers of its own.
TEST(EncoderDecoders, AnOutputLayerThatIsLeftOut) {
  const Family& family = family_named("t5");
  const Pretrained made = make_module(read_spec(family, ConfigReader(family.samples[1].config, "config.json")));
  io::TempDir dir;
  io::TensorMap tensors;
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : made.module().named_parameters()) parameters.emplace(name, p.detach());
  for (const WeightRow& row : family.weights(made.spec))
    if (!row.repeats && row.parameter != "head.weight")
      tensors[row.name] = row.view.of(parameters.at(row.parameter)).contiguous().view(row.shape);
  io::save_safetensors(dir / "model.safetensors", tensors);
  io::write_file(dir / "config.json", family.samples[1].config);
  const Pretrained loaded = load_pretrained(dir.path());
  EXPECT_TRUE(equal(loaded.encoder_decoder->head->weight, parameters.at("token_embedding.weight")));
  EXPECT_FALSE(loaded.encoder_decoder->head->weight.same_as(loaded.encoder_decoder->token_embedding.weight));
}

// T5 drops numbers behind each part's last norm too, in training alone; Whisper does not.
TEST(EncoderDecoders, DropoutBehindTheLastNorm) {
  const auto zeros_of = [](const Tensor& x) {
    return (x == 0).to(DType::f32).sum().item() / static_cast<double>(x.numel());
  };
  const NoGrad guard;
  const Family& t5 = family_named("t5");
  const std::string config =
      R"({"model_type": "t5", "vocab_size": 20, "d_model": 64, "d_kv": 8, "d_ff": 16, "num_layers": 1,
      "num_heads": 2, "dropout_rate": 0.3, "decoder_start_token_id": 0})";
  EncoderDecoder model(read_spec(t5, ConfigReader(config, "config.json")));
  const Tensor source = zeros({8, 40}, DType::i64), tokens = zeros({8, 30}, DType::i64);
  model.train();
  // And what the embedding and every part of a block dropped: 0.3^3, 0.3^4.
  EXPECT_NEAR(zeros_of(model.encode(source)), 0.3 + 0.7 * 0.027, 0.012);
  EXPECT_NEAR(zeros_of(model.hidden(tokens, model.encode(source))), 0.3 + 0.7 * 0.0081, 0.012);
  model.eval();
  EXPECT_EQ(zeros_of(model.hidden(tokens, model.encode(source))), 0);
  const Family& whisper = family_named("whisper");
  nlohmann::json heard = nlohmann::json::parse(whisper.samples[0].config);
  heard["dropout"] = 0.3;
  EncoderDecoder hears(read_spec(whisper, ConfigReader(heard.dump(), "config.json")));
  hears.train();
  EXPECT_LT(zeros_of(hears.encode(zeros({2, 16, 100}))), 0.01);
}

// Every distance has the bucket that transformers gives it (T5Attention._relative_position_bucket).
TEST(RelativePositions, Buckets) {
  const auto at = [](int64_t buckets, int64_t distance, bool both, int64_t d) {
    return nn::relative_buckets(buckets, distance, both).at(static_cast<size_t>(distance + d));
  };
  const std::vector<int64_t> distances{-128, -91, -64, -33, -32, -31, -16, -9, -8, -7, -1, 0, 1, 7, 8, 16, 64, 128};
  std::vector<int64_t> both, before;
  for (const int64_t d : distances) both.push_back(at(32, 128, true, d)), before.push_back(at(32, 128, false, d));
  EXPECT_EQ(both, (std::vector<int64_t>{15, 15, 14, 12, 12, 11, 10, 8, 8, 7, 1, 0, 17, 23, 24, 26, 30, 31}));
  EXPECT_EQ(before, (std::vector<int64_t>{31, 29, 26, 21, 21, 21, 16, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_THROW(nn::relative_buckets(3, 128, true), ValueError);
  EXPECT_THROW(nn::relative_buckets(32, 16, false), ValueError);
}

}  // namespace
}  // namespace strata
