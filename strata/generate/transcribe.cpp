#include "strata/generate/transcribe.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/core/node.h"
#include "strata/generate/text_stream.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/view/view.h"
#include "strata/text/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "transcribe";

// One call of transcribe().
class Work {
 public:
  Work(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
       const std::shared_ptr<const text::Tokenizer>& tokenizer, const SoundFeatures& features,
       const DecoderStart& start, const TranscriptionOptions& options)
      : model_(model), tokenizer_(tokenizer), features_(features), start_(start), options_(options) {
    check(model->reads_sound(), kOp, "this model reads texts");
    const AudioSpec& audio = *model->spec().parts[0].audio;
    const int64_t frames = 2 * model->spec().parts[0].context;
    check(audio.bins == features.bins && features.frames() == frames, kOp, "the model reads ", frames, " frames of ",
          audio.bins, " numbers, the features are ", features.frames(), " of ", features.bins);
    check(sound.rate == features.rate, kOp, "the sound has ", sound.rate, " samples a second, and the model reads ",
          features.rate);
    sound_ = sound.mono();
    out_.timestamps =
        options.timestamps.value_or(start.no_timestamps.has_value() && sound_.numel() > features.samples());
    model->eval();
  }

  Transcription run() {
    if (out_.timestamps)
      windows();
    else
      pieces();
    return std::move(out_);
  }

 private:
  double seconds(int64_t samples) const { return static_cast<double>(samples) / static_cast<double>(features_.rate); }

  // The decoder's first tokens; the language of the first frames where none is said.
  std::vector<int64_t> prompt(const Tensor& frames) {
    std::string language = options_.language;
    if (language.empty() && !start_.languages.empty() && (start_.forced.empty() || !start_.forced[0])) {
      const NoGrad guard;
      const Tensor read = frames.to(model_->device()).to(model_->token_embedding.weight.dtype()).unsqueeze(0);
      language = likeliest_language(*model_, model_->encode(read).select(0, 0), start_);
    }
    std::vector<int64_t> ids = start_.tokens(language, options_.task, out_.timestamps);
    for (const auto& [name, id] : start_.languages)
      if (ids.size() > 1 && ids[1] == id) out_.language = name;
    return ids;
  }

  // Without times: windows that know nothing of each other.
  void pieces() {
    std::vector<GenerationRequest> requests;
    std::vector<int64_t> first;
    for (int64_t at = 0, length = sound_.numel(); at == 0 || at < length; at += features_.samples()) {
      const int64_t n = std::min(features_.samples(), length - at);
      const Tensor frames = sound_features(sound_.narrow(0, at, n), features_);
      if (first.empty()) first = prompt(frames);
      requests.push_back({first, options_.writing, frames});
      out_.parts.push_back({seconds(at), seconds(at + n)});
    }
    TextGenerator writer(model_, tokenizer_, {.batch = options_.batch});
    std::vector<Generated> written = writer.generate(requests);
    for (size_t i = 0; i < written.size(); ++i) {
      Completion& c = written[i].completions.front();
      if (c.finish == Finish::stop_id) c.tokens.pop_back();
      out_.parts[i].tokens = std::move(c.tokens);
      out_.parts[i].text = std::move(c.text);
    }
  }

  // With times: each window begins where what was written ended.
  void windows() {
    GenerationOptions writing = options_.writing;
    check(writing.stop_ids.size() == 1, kOp, "a model that writes times has one id that ends a text, there are ",
          writing.stop_ids.size());
    writing.timestamps = rules_ = start_.timestamps(writing.stop_ids.front());
    // The last token is to have a place, as for a model without room for one more.
    if (writing.max_tokens == 0 && writing.max_length == 0) writing.max_length = model_->context();
    const Tensor all = long_sound_features(sound_, features_);
    const int64_t frames = sound_.numel() == 0 ? 0 : all.size(1), window = features_.frames();
    TextGenerator writer(model_, tokenizer_, {.batch = 1});
    std::vector<int64_t> first;
    for (int64_t at = 0; at < frames;) {
      const int64_t n = std::min(window, frames - at);
      Tensor part = all.narrow(1, at, n);
      if (n < window) part = cat({part, zeros({features_.bins, window - n}, DType::f32)}, 1);
      if (first.empty()) first = prompt(part);
      Completion c = std::move(writer.generate({{first, writing, part}})[0].completions.front());
      if (c.finish == Finish::stop_id) c.tokens.pop_back();
      at += take(c.tokens, at, n);
    }
  }

  bool is_time(int64_t id) const { return id >= rules_.begin; }
  // A time is two frames.
  double frames_to_seconds(int64_t frames) const { return seconds(frames * features_.hop); }

  // The parts of what was written for `n` frames from `at` on; how many frames it was about. Parts end where two times
  // stand side by side; what follows the last such pair, and has no time of its own, is heard again.
  int64_t take(const std::vector<int64_t>& tokens, int64_t at, int64_t n) {
    const size_t count = tokens.size();
    std::vector<size_t> ends;
    for (size_t i = 0; i + 1 < count; ++i)
      if (is_time(tokens[i]) && is_time(tokens[i + 1])) ends.push_back(i + 1);
    const bool one_at_end = count >= 1 && is_time(tokens[count - 1]) && count >= 2 && !is_time(tokens[count - 2]);
    if (ends.empty()) {
      int64_t last = n;
      const auto time = std::find_if(tokens.rbegin(), tokens.rend(), [&](int64_t id) { return is_time(id); });
      if (time != tokens.rend() && *time != rules_.begin) last = 2 * (*time - rules_.begin);
      add(tokens, at, at + last);
      return n;
    }
    if (one_at_end)
      ends.push_back(count);
    else
      ++ends.back();  // with the time that the next part would begin with
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::vector<int64_t> own(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                     tokens.begin() + static_cast<std::ptrdiff_t>(ends[i]));
      const size_t back = i + 1 < ends.size() || one_at_end ? 1 : 2;
      const auto frame = [&](int64_t id) { return at + 2 * (id - rules_.begin); };
      add(own, frame(own.front()), frame(own[own.size() - std::min(back, own.size())]));
      begin = ends[i];
    }
    if (one_at_end) return n;
    const int64_t moved = 2 * (tokens[begin - 2] - rules_.begin);
    return moved > 0 ? moved : n;  // sound without an end would be heard for ever
  }

  void add(const std::vector<int64_t>& tokens, int64_t from, int64_t to) {
    SpokenText part{frames_to_seconds(from), frames_to_seconds(to), {}, tokens};
    if (tokenizer_) {
      TextStream stream(tokenizer_, true);
      for (const int64_t id : tokens)
        if (!is_time(id)) part.text += stream.add(id);
      part.text += stream.finish();
    }
    out_.parts.push_back(std::move(part));
  }

  std::shared_ptr<EncoderDecoder> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  const SoundFeatures& features_;
  const DecoderStart& start_;
  const TranscriptionOptions& options_;
  Tensor sound_;
  TimestampRules rules_;
  Transcription out_;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

// "00:01:02,345"
std::string srt_time(double seconds) {
  const auto ms = static_cast<int64_t>(std::llround(seconds * 1000));
  return fmt::format("{:02}:{:02}:{:02},{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60, ms % 1000);
}

}  // namespace

std::string Transcription::text() const {
  std::string all;
  for (const SpokenText& part : parts) all += part.text;
  return all;
}

std::string likeliest_language(const EncoderDecoder& model, const Tensor& encoded, const DecoderStart& start) {
  check(!start.languages.empty(), kOp, "this model knows no languages");
  const NoGrad guard;
  const Tensor prompt = full({1, 1}, start.start, DType::i64).to(model.device());
  const Tensor hidden = model.hidden(prompt, encoded.unsqueeze(0));
  const std::vector<float> logits = model.logits(hidden).to(DType::f32).to(Device::cpu()).to_vector<float>();
  const std::string* best = nullptr;
  float most = 0;
  for (const auto& [name, id] : start.languages) {
    check(id < static_cast<int64_t>(logits.size()), kOp, "the token ", id, " of ", name, " is none of the model's ",
          logits.size());
    const float own = logits[static_cast<size_t>(id)];
    if (best == nullptr || own > most) best = &name, most = own;
  }
  return *best;
}

Transcription transcribe(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
                         const std::shared_ptr<const text::Tokenizer>& tokenizer, const SoundFeatures& features,
                         const DecoderStart& start, const TranscriptionOptions& options) {
  return Work(sound, model, tokenizer, features, start, options).run();
}

std::string to_json(const Transcription& t) {
  const auto text_of = [](const std::string& text) { return detail::json_string(text::valid_utf8(text)); };
  return fmt::format(
      "{{\"language\": {}, \"text\": {}, \"segments\": {}}}", t.language.empty() ? "null" : text_of(t.language),
      text_of(t.text()), detail::json_list(t.parts, [&](const SpokenText& part) {
        return fmt::format("{{\"start\": {}, \"end\": {}, \"text\": {}, \"tokens\": {}}}", part.begin, part.end,
                           text_of(part.text),
                           detail::json_list(part.tokens, [](int64_t id) { return std::to_string(id); }));
      }));
}

std::string to_srt(const Transcription& t) {
  std::string all;
  int number = 0;
  for (const SpokenText& part : t.parts)
    if (const std::string text = trimmed(text::valid_utf8(part.text)); !text.empty())
      all += fmt::format("{}\n{} --> {}\n{}\n\n", ++number, srt_time(part.begin), srt_time(part.end), text);
  return all;
}

}  // namespace strata
