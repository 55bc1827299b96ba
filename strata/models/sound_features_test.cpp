// Log-mel frames against those of transformers (scripts/make-models).

#include "strata/models/sound_features.h"

#include <numeric>

#include "strata/core/error_test_util.h"
#include "strata/io/files.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

std::vector<Sample> of_sound() {
  std::vector<Sample> all;
  for (const Sample& s : samples_of({ModelKind::encoder_decoder}))
    if (read_spec(*s.family, ConfigReader(s.sample.config, "config.json")).parts[0].audio) all.push_back(s);
  return all;
}

class SoundFeatures_ : public PretrainedSample {};

TEST_P(SoundFeatures_, FramesAreThoseOfTransformers) {
  const std::string path = loaded.folder + "/preprocessor_config.json";
  const SoundFeatures features = parse_sound_features(io::read_file(path), path);
  EXPECT_EQ(features.bins, loaded.spec.parts[0].audio->bins);
  EXPECT_EQ(features.frames(), 2 * loaded.spec.parts[0].context);
  for (const char* name : {"sound", "whole_sound", "silence"}) {
    const Tensor frames = sound_features(of(name), features), want = of(cat(name, "_frames").c_str());
    ASSERT_EQ(frames.shape(), want.shape()) << name;
    EXPECT_EQ(frames.dtype(), DType::f32);
    EXPECT_LE(largest(frames - want), 1e-4) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SoundFeatures_, testing::ValuesIn(of_sound()), sample_test_name);

TEST(SoundFeatures, Filters) {
  const std::vector<std::vector<double>> filters = mel_filters(80, 400, 16000);
  ASSERT_EQ(filters.size(), 80u);
  // Each triangle has area 1 where it covers several frequencies; the last ends at 8 kHz.
  EXPECT_NEAR(std::accumulate(filters[79].begin(), filters[79].end(), 0.0) * 40, 1, 0.05);
  EXPECT_EQ(filters[79].size(), 201u);
  EXPECT_EQ(filters[79][200], 0);
  EXPECT_GT(filters[79][199], 0);
  EXPECT_EQ(filters[0][0], 0);
}

TEST(SoundFeatures, Settings) {
  const SoundFeatures usual = parse_sound_features("{}", "preprocessor_config.json");
  EXPECT_EQ(usual.bins, 80);
  EXPECT_EQ(usual.samples(), 480000);
  EXPECT_EQ(usual.frames(), 3000);
  const auto refused = [](std::string_view text) {
    return message<ValueError>([&] { parse_sound_features(text, "preprocessor_config.json"); });
  };
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"dither": 0.1})", "'dither' is taken as 0 alone"},
           {R"({"feature_extractor_type": "EncodecFeatureExtractor"})", "'WhisperFeatureExtractor' alone"},
           {R"({"image_size": 3})", "'image_size' = 3"},
           {R"({"n_fft": 5000})", "n_fft is 5000"},
           {R"({"hop_length": 401})", "hop_length is 401"},
           {R"({"chunk_length": 100000})", "100000 seconds"},
           {R"({"feature_size": 5000})", "feature_size is 5000"},
           {R"({"hop_length": 1, "chunk_length": 60})", "frames of 400"}}) {
    const std::string said = refused(text);
    EXPECT_NE(said.find(part), std::string::npos) << text << ": " << said;
  }
  EXPECT_THROW(sound_features(zeros({2, 4})), ShapeError);
  EXPECT_THROW(sound_features(zeros({480001})), ShapeError);
  EXPECT_THROW(sound_features(zeros({4}, DType::f64)), DTypeError);
}

}  // namespace
}  // namespace strata
