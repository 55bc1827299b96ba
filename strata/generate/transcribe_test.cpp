// Transcripts with times, against those of transformers' generate (scripts/make_transcripts.py).

#include "strata/generate/transcribe.h"

#include <cmath>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/timestamp_scores_inl.h"
#include "strata/io/files.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

using Ids = std::vector<int64_t>;
constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<Sample> of_sound() {
  std::vector<Sample> all;
  for (const Sample& s : samples_of({ModelKind::encoder_decoder}))
    if (read_spec(*s.family, ConfigReader(s.sample.config, "config.json")).parts[0].audio) all.push_back(s);
  return all;
}

class Transcripts : public PretrainedSample {
 protected:
  void SetUp() override {
    PretrainedSample::SetUp();
    if (IsSkipped()) return;
    const auto file = [&](const char* name) { return io::read_file(cat(loaded.folder, '/', name)); };
    features = parse_sound_features(file("preprocessor_config.json"), "preprocessor_config.json");
    settings = file("transcripts_generation_config.json");
    start = parse_decoder_start(settings, loaded.config, "settings");
    options.language = "de";
    options.timestamps = true;
    options.writing = parse_generation_config(settings, "settings");
  }
  Transcription transcribed(const Tensor& sound) const {
    return transcribe({sound.unsqueeze(0), features.rate}, loaded.encoder_decoder, nullptr, features, start, options);
  }
  void expect_as_transformers(const std::string& name) const {
    const Transcription got = transcribed(of(cat(name, "_sound").c_str()));
    const Ids counts = of(cat(name, "_counts").c_str()).to_vector<int64_t>();
    const std::vector<double> times = of(cat(name, "_times").c_str()).to_vector<double>();
    Ids got_counts, got_tokens;
    for (const SpokenText& part : got.parts) {
      got_counts.push_back(static_cast<int64_t>(part.tokens.size()));
      got_tokens.insert(got_tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    ASSERT_EQ(got_counts, counts);
    EXPECT_EQ(got_tokens, of(cat(name, "_tokens").c_str()).to_vector<int64_t>());
    if (options.words) {
      const std::vector<double> ends = of(cat(name, "_token_times").c_str()).to_vector<double>();
      std::vector<double> got_ends;
      for (const SpokenText& part : got.parts)
        got_ends.insert(got_ends.end(), part.token_ends.begin(), part.token_ends.end());
      ASSERT_EQ(got_ends.size(), ends.size());
      for (size_t i = 0; i < ends.size(); ++i) EXPECT_NEAR(got_ends[i], ends[i], 1e-5) << "token " << i;
    }
    for (size_t i = 0; i < got.parts.size(); ++i) {
      EXPECT_NEAR(got.parts[i].begin, times[2 * i], 1e-9) << "part " << i;
      EXPECT_NEAR(got.parts[i].end, times[2 * i + 1], 1e-9) << "part " << i;
    }
    EXPECT_EQ(got.language, "<|de|>");
    EXPECT_TRUE(got.timestamps);
  }

  // Thresholds as the case has them; what they were compared with is what transformers compared.
  void expect_judged_as_transformers(const std::string& name, const std::set<double>& expected) {
    const std::vector<double> thresholds = of(cat(name, "_thresholds").c_str()).to_vector<double>();
    const auto some = [](double x) { return std::isnan(x) ? std::nullopt : std::optional(x); };
    options.compression_ratio_threshold = some(thresholds[0]);
    options.logprob_threshold = some(thresholds[1]);
    options.no_speech_threshold = some(thresholds[2]);
    expect_as_transformers(name);
    const Tensor judged = of(cat(name, "_judged").c_str());
    const std::vector<double> all = judged.to_vector<double>();
    const auto near = [](double x, double y) {
      return std::isnan(x) || std::abs(x - y) <= 1e-4 * std::max(1.0, std::abs(x));
    };
    std::set<double> temperatures;
    for (const SpokenText& part : transcribed(of(cat(name, "_sound").c_str())).parts) {
      bool found = false;
      for (size_t i = 0; i < all.size(); i += 3)
        found = found || (near(all[i], part.compression_ratio) && near(all[i + 2], part.no_speech_prob) &&
                          (part.temperature > 0 || near(all[i + 1], part.avg_logprob)));
      EXPECT_TRUE(found) << part.compression_ratio << ' ' << part.avg_logprob << ' ' << part.no_speech_prob;
      temperatures.insert(part.temperature);
    }
    EXPECT_EQ(temperatures, expected);
  }

  SoundFeatures features;
  std::string settings;
  DecoderStart start;
  TranscriptionOptions options;
};

TEST_P(Transcripts, OfMoreThanAMinute) {
  expect_as_transformers("long");
}
TEST_P(Transcripts, WhereTheEndIsLoud) {
  expect_as_transformers("loud_end");
}
TEST_P(Transcripts, ByBeams) {
  options.writing.beams = 3;
  options.writing.temperature = 1;
  expect_as_transformers("beams");
}

TEST_P(Transcripts, TheLikeliestLanguage) {
  const Tensor frames = long_sound_features(of("long_sound"), features).narrow(1, 0, features.frames());
  const Tensor encoded = loaded.encoder_decoder->encode(frames.unsqueeze(0)).select(0, 0);
  EXPECT_EQ(start.languages.at(likeliest_language(*loaded.encoder_decoder, encoded, start)),
            of("language").to_vector<int64_t>()[0]);
}

TEST_P(Transcripts, SeesWhatWasSaid) {
  options.condition_on_prev_tokens = true;
  expect_as_transformers("earlier");
}
TEST_P(Transcripts, BehindAPrompt) {
  options.prompt = {7, 9, 11, 8};
  expect_as_transformers("prompt");
  options.condition_on_prev_tokens = true;
  expect_as_transformers("prompt_first");
  options.prompt_everywhere = true;
  expect_as_transformers("prompt_all");
}
TEST_P(Transcripts, UnlikelyTextsAreWrittenAnew) {
  options.condition_on_prev_tokens = true;
  options.temperatures = {0, 0.7};
  options.writing.top_k = 1;
  expect_judged_as_transformers("unlikely", {0, 0.7});
  expect_judged_as_transformers("repeating", {0, 0.7});
}
TEST_P(Transcripts, BeamsAreJudged) {
  options.temperatures = {0};
  options.writing.beams = 3;
  options.writing.temperature = 1;
  expect_judged_as_transformers("beams_judged", {0});
}
TEST_P(Transcripts, SilenceHasNoText) {
  options.temperatures = {0};
  expect_judged_as_transformers("silent", {0});
}
TEST_P(Transcripts, TimesOfTokens) {
  options.words = true;
  options.condition_on_prev_tokens = true;
  expect_as_transformers("words");
  options.writing.beams = 3;
  options.writing.temperature = 1;
  expect_as_transformers("beams_words");
  // Without times of parts, in pieces; more of them than are written at a time.
  options = {.language = "de", .timestamps = false, .writing = options.writing, .batch = 2, .words = true};
  options.writing.beams = 1, options.writing.temperature = 0;
  const Transcription pieces = transcribed(of("loud_end_sound"));
  options.batch = 1;
  const Transcription singly = transcribed(of("loud_end_sound"));
  ASSERT_EQ(pieces.parts.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pieces.parts[i].tokens, singly.parts[i].tokens);
    EXPECT_EQ(pieces.parts[i].token_ends, singly.parts[i].token_ends);
    ASSERT_EQ(pieces.parts[i].token_ends.size(), pieces.parts[i].tokens.size());
    for (const double end : pieces.parts[i].token_ends) {
      EXPECT_GE(end, pieces.parts[i].begin - 1e-9);
      EXPECT_LE(end, pieces.parts[i].begin + 1 + 1e-9);
    }
  }
}

TEST_P(Transcripts, TimesWhereTheSoundIsLongerThanAWindow) {
  options.timestamps.reset();
  const Tensor sound = of("loud_end_sound");
  EXPECT_TRUE(transcribed(sound).timestamps);
  const Transcription one = transcribed(sound.narrow(0, 0, features.samples()));
  EXPECT_FALSE(one.timestamps);
  ASSERT_EQ(one.parts.size(), 1u);
  EXPECT_EQ(one.parts[0].end, 1.0);
  options.timestamps = false;
  const Transcription pieces = transcribed(sound);
  ASSERT_EQ(pieces.parts.size(), 4u);
  EXPECT_NEAR(pieces.parts[3].end, 3.4, 1e-9);
  for (const SpokenText& part : pieces.parts)
    EXPECT_TRUE(part.tokens.empty() || part.tokens.back() != options.writing.stop_ids[0]);
}

TEST_P(Transcripts, ShortAndEmptySounds) {
  EXPECT_TRUE(transcribed(zeros({0})).parts.empty());
  const Transcription few = transcribed(of("long_sound").narrow(0, 0, 250));
  ASSERT_FALSE(few.parts.empty());
  for (const SpokenText& part : few.parts) EXPECT_GE(part.tokens.front(), *start.no_timestamps + 1);
}

TEST_P(Transcripts, Refusals) {
  const Tensor sound = of("sound");
  const auto said = [&] { return message<ValueError>([&] { transcribed(sound); }); };
  options.writing.stop_ids = {};
  EXPECT_NE(said().find("one id that ends a text"), std::string::npos) << said();
  options.writing.stop_ids = {60};
  EXPECT_THROW(transcribed(sound), IndexError) << "an end among the times";
  options.writing.stop_ids = {37};
  options.prompt_everywhere = true;
  EXPECT_NE(said().find("condition_on_prev_tokens"), std::string::npos) << said();
  options.prompt_everywhere = false;
  options.no_speech_threshold = 0.6;
  EXPECT_NE(said().find("logprob_threshold"), std::string::npos) << said();
  options.no_speech_threshold = {};
  options.temperatures = {0, -1};
  EXPECT_NE(said().find("temperature"), std::string::npos) << said();
  options.temperatures = {};
  options.prompt = {7};
  start.previous.reset();
  EXPECT_NE(said().find("prev_sot_token_id"), std::string::npos) << said();
  options.prompt = {};
  options.words = true;
  start.alignment_heads = {{0, 99}};
  EXPECT_THROW(transcribed(sound), IndexError);
  start.alignment_heads = {};
  EXPECT_NE(said().find("alignment_heads"), std::string::npos) << said();
  options.words = false;
  start.no_timestamps.reset();
  EXPECT_NE(said().find("no_timestamps_token_id"), std::string::npos) << said();
  features.rate = 8000;
  EXPECT_THROW(transcribed(sound), ValueError);
}

// Frames of a long sound are those of a short one where both have the same borders and the same largest.
TEST_P(Transcripts, FramesOfSoundOfAnyLength) {
  const Tensor sound = of("whole_sound"), whole = long_sound_features(sound, features);
  EXPECT_EQ(whole.shape(), Shape({features.bins, features.frames()}));
  EXPECT_LE(largest(whole - sound_features(sound, features)), 1e-6);
  // Several parts of frames, the same as in one.
  const Tensor many = long_sound_features(of("long_sound").narrow(0, 0, 16000 * 13), features);
  EXPECT_EQ(many.size(1), 16000 * 13 / features.hop);
  EXPECT_EQ(long_sound_features(zeros({3}), features).size(1), features.fft / features.hop);
  EXPECT_THROW(long_sound_features(zeros({2, 4}), features), ShapeError);
}

INSTANTIATE_TEST_SUITE_P(Families, Transcripts, testing::ValuesIn(of_sound()), sample_test_name);

// Ids 0 to 2 are text, 3 ends one, 4 says that there are no times, 5 to 8 are times.
class TimestampScores : public testing::Test {
 protected:
  std::vector<bool> allowed(const Ids& drawn, const std::vector<float>& scores, int64_t most = -1) {
    detail::TimestampRows rows(2);
    rows.start(1, TimestampRules{.begin = 5, .end = 3, .most_initial = most});
    const Tensor running = from_span<int64_t>(Ids{1, 1}, {2});
    for (const int64_t id : drawn) rows.draw(from_span<int64_t>(Ids{7, id}, {2}), running);
    // A row that does not run draws nothing.
    rows.draw(from_span<int64_t>(Ids{7, 8}, {2}), from_span<int64_t>(Ids{0, 0}, {2}));
    std::vector<float> both = scores;
    both.insert(both.end(), scores.begin(), scores.end());
    const auto n = static_cast<int64_t>(drawn.size());
    const std::vector<float> got =
        rows.restrict(from_span<float>(both, {2, 9}), from_span<int64_t>(Ids{n, n}, {2})).to_vector<float>();
    std::vector<bool> out;
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(got[i], scores[i]) << "a row without rules";
      EXPECT_TRUE(got[9 + i] == scores[i] || got[9 + i] == kNever) << i;
      out.push_back(got[9 + i] != kNever);
    }
    return out;
  }
  static std::vector<bool> ids(const Ids& all) {
    std::vector<bool> out(9);
    for (const int64_t id : all) out[static_cast<size_t>(id)] = true;
    return out;
  }
  const std::vector<float> text = {9, 1, 1, 1, 1, 0, 0, 0, 0};  // one text is likelier than all times
};

TEST_F(TimestampScores, TheFirstIsATime) {
  EXPECT_EQ(allowed({}, text), ids({5, 6, 7, 8}));
  EXPECT_EQ(allowed({}, text, 1), ids({5, 6}));
  EXPECT_EQ(allowed({}, text, 0), ids({5}));
}
TEST_F(TimestampScores, TimesStandInPairs) {
  EXPECT_EQ(allowed({6}, text), ids({0, 1, 2, 3})) << "behind the first comes text";
  EXPECT_EQ(allowed({6, 0}, text), ids({0, 1, 2, 3, 7, 8})) << "a part lasts";
  EXPECT_EQ(allowed({6, 0, 7}, text), ids({3, 7, 8})) << "the next begins, or all ends";
  EXPECT_EQ(allowed({6, 0, 7, 7}, text), ids({0, 1, 2, 3}));
  EXPECT_EQ(allowed({6, 0, 8, 8, 1}, text), ids({0, 1, 2, 3})) << "no time is left";
}
TEST_F(TimestampScores, TimesThatAreLikelierTogether) {
  const std::vector<float> even(9, 1);
  EXPECT_EQ(allowed({6, 0}, even), ids({7, 8}));
  EXPECT_EQ(allowed({7, 0}, even), ids({0, 1, 2, 3, 8})) << "one time alone is no likelier than a text";
}

TEST(Transcripts_, Forms) {
  const Transcription t{
      "<|en|>", true, {{0, 1.5, " Hi\n", {5, 1, 6}}, {1.5, 2, " ", {}}, {3661.25, 7322.9996, "\xff\"", {}}}};
  EXPECT_EQ(to_srt(t), "1\n00:00:00,000 --> 00:00:01,500\nHi\n\n2\n01:01:01,250 --> 02:02:03,000\n\xef\xbf\xbd\"\n\n");
  const nlohmann::json j = nlohmann::json::parse(to_json(t));
  EXPECT_EQ(j["language"], "<|en|>");
  EXPECT_EQ(j["segments"].size(), 3u);
  EXPECT_EQ(j["segments"][0]["tokens"], (Ids{5, 1, 6}));
  EXPECT_EQ(j["text"], " Hi\n \xef\xbf\xbd\"");
  EXPECT_TRUE(nlohmann::json::parse(to_json(Transcription{}))["language"].is_null());
}

TEST(DecoderStarts_, WithTimes) {
  const DecoderStart english = parse_decoder_start(
      R"({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, 9]], "no_timestamps_token_id": 9})", "", "w");
  EXPECT_EQ(english.tokens({}, {}, true), Ids{7});
  EXPECT_EQ(english.timestamps(3).begin, 10);
  EXPECT_EQ(english.timestamps(3).most_initial, -1);
  const DecoderStart many = parse_decoder_start(
      R"({"decoder_start_token_id": 7, "lang_to_id": {"<|de|>": 20}, "task_to_id": {"transcribe": 5},
          "no_timestamps_token_id": 9, "max_initial_timestamp_index": 50})",
      "", "w");
  EXPECT_EQ(many.tokens("de", {}, true), (Ids{7, 20, 5}));
  EXPECT_EQ(many.timestamps(3).most_initial, 50);
  EXPECT_THROW(parse_decoder_start("", R"({"decoder_start_token_id": 0})", "t5").timestamps(1), ValueError);
  EXPECT_THROW(parse_decoder_start(R"({"decoder_start_token_id": 0, "max_initial_timestamp_index": "x"})", "", "w"),
               IoError);
}

}  // namespace
}  // namespace strata
