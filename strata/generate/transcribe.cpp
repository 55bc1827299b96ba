#include "strata/generate/transcribe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/core/node.h"
#include "strata/generate/text_stream.h"
#include "strata/generate/window_writer_inl.h"
#include "strata/generate/word_times_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/view/view.h"
#include "strata/text/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "transcribe";
constexpr double kLowTemperature = 0.5;  // a text by a higher one is no help to the next

// One call of transcribe().
class Work {
 public:
  Work(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
       const std::shared_ptr<const text::Tokenizer>& tokenizer, const SoundFeatures& features,
       const DecoderStart& start, const TranscriptionOptions& options)
      : model_(model),
        tokenizer_(tokenizer),
        features_(features),
        start_(start),
        options_(options),
        writer_(model, tokenizer, start, options, options.batch) {
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
    check(!options.prompt_everywhere || options.condition_on_prev_tokens, kOp,
          "a prompt before every earlier text wants condition_on_prev_tokens");
    out_.words = options.words, out_.judged = writer_.judges();
    if (tokenizer)
      for (const auto& [name, id] : tokenizer->special_tokens()) special_.insert(id);
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

  Tensor encoded(const Tensor& frames) const {
    const NoGrad guard;
    const Tensor read = frames.to(model_->device()).to(model_->token_embedding.weight.dtype());
    return model_->encode(read.unsqueeze(0)).select(0, 0);
  }
  // Of `n` frames.
  int64_t places(int64_t n) const { return std::min(n, features_.frames()) / 2; }

  // The decoder's first tokens; the language of the first window where none is said.
  void begin(const Tensor& window) {
    if (!first_.empty()) return;
    std::string language = options_.language;
    if (language.empty() && !start_.languages.empty() && (start_.forced.empty() || !start_.forced[0]))
      language = likeliest_language(*model_, window, start_);
    first_ = start_.tokens(language, options_.task, out_.timestamps);
    for (const auto& [name, id] : start_.languages)
      if (first_.size() > 1 && first_[1] == id) out_.language = name;
  }

  // A window's text begins with what was said before, or with the prompt, and then as every text does.
  detail::SoundWindow window(const Tensor& frames, int64_t n) {
    detail::SoundWindow w{encoded(frames), {}, 0, places(n)};
    begin(w.encoded);
    const bool sees_said =
        sees_earlier_ && (!said_.empty() || !(options_.prompt.empty() || options_.prompt_everywhere));
    if (sees_said || !options_.prompt.empty()) w.prompt.push_back(previous());
    const auto add = [&](std::span<const int64_t> ids) { w.prompt.insert(w.prompt.end(), ids.begin(), ids.end()); };
    if (!sees_said || options_.prompt_everywhere) add(options_.prompt);
    if (sees_said) {
      std::vector<int64_t> earlier = options_.prompt_everywhere ? std::vector<int64_t>() : options_.prompt;
      earlier.insert(earlier.end(), said_.begin(), said_.end());
      const auto most = static_cast<size_t>(model_->context() / 2 - 1);
      add(std::span(earlier).last(std::min(most, earlier.size())));
    }
    w.start = w.prompt.size();
    add(first_);
    return w;
  }
  int64_t previous() const {
    check(
        start_.previous.has_value(), kOp,
        "what stands before a text wants a prev_sot_token_id, which this model's generation_config.json does not say");
    return *start_.previous;
  }

  // Without times: windows that know nothing of each other.
  void pieces() {
    for (int64_t at = 0, length = sound_.numel(); at == 0 || at < length;) {
      // As many as are written at a time: what is encoded of all is large.
      std::vector<detail::SoundWindow> some;
      const int64_t first = at;
      for (; (at == 0 || at < length) && std::ssize(some) < options_.batch; at += features_.samples()) {
        const int64_t n = std::min(features_.samples(), length - at);
        some.push_back(window(sound_features(sound_.narrow(0, at, n), features_), n / features_.hop));
        out_.parts.push_back({seconds(at), seconds(at + n)});
      }
      std::vector<detail::WindowText> written = writer_.write(some, options_.writing);
      for (size_t i = 0; i < written.size(); ++i) {
        SpokenText& part = out_.parts[out_.parts.size() - written.size() + i];
        note(written[i], part);
        if (written[i].is_silent) continue;
        part.tokens = std::move(written[i].tokens);
        part.text = std::move(written[i].text);
        const int64_t from = first / features_.hop + static_cast<int64_t>(i) * features_.frames();
        if (options_.words) add_words(part, written[i].places, from, from);
      }
    }
  }

  // With times: each window begins where what was written ended.
  void windows() {
    GenerationOptions writing = options_.writing;
    check(writing.stop_ids.size() == 1, kOp, "a model that writes times has one id that ends a text, there are ",
          writing.stop_ids.size());
    writing.timestamps = rules_ = start_.timestamps(writing.stop_ids.front());
    const Tensor all = long_sound_features(sound_, features_);
    const int64_t frames = sound_.numel() == 0 ? 0 : all.size(1), most = features_.frames();
    sees_earlier_ = options_.condition_on_prev_tokens;
    for (int64_t at = 0; at < frames;) {
      const int64_t n = std::min(most, frames - at);
      Tensor part = all.narrow(1, at, n);
      if (n < most) part = cat({part, zeros({features_.bins, most - n}, DType::f32)}, 1);
      const detail::WindowText written = writer_.write({window(part, n)}, writing)[0];
      sees_earlier_ = options_.condition_on_prev_tokens && written.temperature < kLowTemperature;
      at += written.is_silent ? n : take(written, at, n);
    }
  }

  bool is_time(int64_t id) const { return id >= rules_.begin; }
  // A time is two frames.
  double frames_to_seconds(int64_t frames) const { return seconds(frames * features_.hop); }

  // The parts of what was written for `n` frames from `at` on; how many frames it was about. Parts end where two times
  // stand side by side; what follows the last such pair, and has no time of its own, is heard again.
  int64_t take(const detail::WindowText& written, int64_t at, int64_t n) {
    const std::vector<int64_t>& tokens = written.tokens;
    const size_t count = tokens.size();
    std::vector<size_t> ends;
    for (size_t i = 0; i + 1 < count; ++i)
      if (is_time(tokens[i]) && is_time(tokens[i + 1])) ends.push_back(i + 1);
    const bool one_at_end = count >= 1 && is_time(tokens[count - 1]) && count >= 2 && !is_time(tokens[count - 2]);
    if (ends.empty()) {
      int64_t last = n;
      const auto time = std::find_if(tokens.rbegin(), tokens.rend(), [&](int64_t id) { return is_time(id); });
      if (time != tokens.rend() && *time != rules_.begin) last = 2 * (*time - rules_.begin);
      add(written, 0, count, at, at, at + last);
      return n;
    }
    if (one_at_end)
      ends.push_back(count);
    else
      ++ends.back();  // with the time that the next part would begin with
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const size_t back = i + 1 < ends.size() || one_at_end ? 1 : 2;
      const auto frame = [&](int64_t id) { return at + 2 * (id - rules_.begin); };
      add(written, begin, ends[i], at, frame(tokens[begin]), frame(tokens[ends[i] - std::min(back, ends[i] - begin)]));
      begin = ends[i];
    }
    if (one_at_end) return n;
    const int64_t moved = 2 * (tokens[begin - 2] - rules_.begin);
    return moved > 0 ? moved : n;  // sound without an end would be heard for ever
  }

  void note(const detail::WindowText& written, SpokenText& part) const {
    part.temperature = written.temperature, part.avg_logprob = written.avg_logprob;
    part.compression_ratio = written.compression_ratio, part.no_speech_prob = written.no_speech_prob;
  }

  // Tokens from `begin` up to `end` of a window at frame `at` are a part, which lasts from `from` to `to`.
  void add(const detail::WindowText& written, size_t begin, size_t end, int64_t at, int64_t from, int64_t to) {
    const auto in = [&](const std::vector<int64_t>& all) {
      return std::vector<int64_t>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                  all.begin() + static_cast<std::ptrdiff_t>(end));
    };
    SpokenText part{frames_to_seconds(from), frames_to_seconds(to), {}, in(written.tokens)};
    note(written, part);
    if (tokenizer_) {
      TextStream stream(tokenizer_, true);
      for (const int64_t id : part.tokens)
        if (!is_time(id)) part.text += stream.add(id);
      part.text += stream.finish();
    }
    if (options_.words) add_words(part, in(written.places), at, begin > 0 ? at + 2 * written.places[begin - 1] : from);
    // Of two times at a text's end the last begins what is heard again.
    const bool twice = part.tokens.size() > 2 && is_time(part.tokens[part.tokens.size() - 2]);
    said_.insert(said_.end(), part.tokens.begin(), part.tokens.end() - (twice ? 1 : 0));
    out_.parts.push_back(std::move(part));
  }

  // A token lasts from where the one before ended; the first from frame `from`. `ends` are places from frame `at` on.
  void add_words(SpokenText& part, const std::vector<int64_t>& ends, int64_t at, int64_t from) {
    std::vector<int64_t> tokens;
    std::vector<double> begins, stops;
    double last = frames_to_seconds(from);
    for (size_t i = 0; i < ends.size(); ++i) {
      part.token_ends.push_back(frames_to_seconds(at + 2 * ends[i]));
      // Of tokens that are no text nobody says a word.
      if (!(out_.timestamps && is_time(part.tokens[i])) && !special_.contains(part.tokens[i])) {
        tokens.push_back(part.tokens[i]);
        begins.push_back(last), stops.push_back(part.token_ends.back());
      }
      last = part.token_ends.back();
    }
    if (!tokenizer_) return;
    for (detail::TokenWord& w : detail::words_of(*tokenizer_, tokens, detail::has_blanks(out_.language)))
      part.words.push_back({begins[w.begin], stops[w.end - 1], std::move(w.text)});
  }

  std::shared_ptr<EncoderDecoder> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  const SoundFeatures& features_;
  const DecoderStart& start_;
  const TranscriptionOptions& options_;
  detail::WindowWriter writer_;
  Tensor sound_;
  TimestampRules rules_;
  std::set<int64_t> special_;   // of the tokenizer
  std::vector<int64_t> first_;  // what every text begins with
  std::vector<int64_t> said_;   // so far
  bool sees_earlier_ = false;   // the next window does
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
  const auto number = [](double x) { return fmt::format("{}", x); };
  const auto more = [&](const SpokenText& part) {
    std::string fields;
    if (t.words) {
      fields += fmt::format(", \"words\": {}, \"token_ends\": {}",
                            detail::json_list(part.words,
                                              [&](const SpokenWord& w) {
                                                return fmt::format("{{\"start\": {}, \"end\": {}, \"text\": {}}}",
                                                                   w.begin, w.end, text_of(w.text));
                                              }),
                            detail::json_list(part.token_ends, number));
    }
    if (t.judged)
      fields +=
          fmt::format(", \"temperature\": {}, \"avg_logprob\": {}, \"compression_ratio\": {}, \"no_speech_prob\": {}",
                      part.temperature, part.avg_logprob, part.compression_ratio, part.no_speech_prob);
    return fields;
  };
  return fmt::format(
      "{{\"language\": {}, \"text\": {}, \"segments\": {}}}", t.language.empty() ? "null" : text_of(t.language),
      text_of(t.text()), detail::json_list(t.parts, [&](const SpokenText& part) {
        return fmt::format("{{\"start\": {}, \"end\": {}, \"text\": {}, \"tokens\": {}{}}}", part.begin, part.end,
                           text_of(part.text),
                           detail::json_list(part.tokens, [](int64_t id) { return std::to_string(id); }), more(part));
      }));
}

std::string to_srt(const Transcription& t) {
  std::string all;
  int number = 0;
  const auto add = [&](double begin, double end, const std::string& said) {
    if (const std::string text = trimmed(text::valid_utf8(said)); !text.empty())
      all += fmt::format("{}\n{} --> {}\n{}\n\n", ++number, srt_time(begin), srt_time(end), text);
  };
  for (const SpokenText& part : t.parts) {
    if (!t.words) add(part.begin, part.end, part.text);
    for (const SpokenWord& word : part.words) add(word.begin, word.end, word.text);
  }
  return all;
}

}  // namespace strata
