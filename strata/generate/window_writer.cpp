#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/generate/window_writer_inl.h"
#include "strata/generate/word_times_inl.h"
#include "strata/io/compressed_size_inl.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

constexpr std::string_view kOp = "transcribe";

// [1, n] on the model's device.
Tensor row_of(const std::vector<int64_t>& ids, const EncoderDecoder& model) {
  return from_span<int64_t>(ids, {1, static_cast<int64_t>(ids.size())}).to(model.device());
}

// How often the ids are larger than what zlib makes of them: as many bytes each as the vocabulary's largest wants.
double compression_ratio(const std::vector<int64_t>& ids, int64_t vocab) {
  const int bytes = static_cast<int>(std::log2(static_cast<double>(vocab)) / 8) + 1;
  std::string data;
  for (const int64_t id : ids)
    for (int b = 0; b < bytes; ++b) data += static_cast<char>(id >> (8 * b) & 0xff);
  return static_cast<double>(data.size()) / static_cast<double>(io::compressed_size(data));
}

}  // namespace

WindowWriter::WindowWriter(std::shared_ptr<EncoderDecoder> model, std::shared_ptr<const text::Tokenizer> tokenizer,
                           const DecoderStart& start, const TranscriptionOptions& options, int64_t batch)
    : model_(model),
      start_(start),
      options_(options),
      writer_(std::move(model), std::move(tokenizer), {.batch = batch}),
      judges_(options.compression_ratio_threshold || options.logprob_threshold || options.no_speech_threshold) {
  check(!options.no_speech_threshold || options.logprob_threshold, kOp,
        "no_speech_threshold wants a logprob_threshold: silence is where both say so");
  check(!options.no_speech_threshold || start.no_timestamps, kOp,
        "no_speech_threshold wants a no_timestamps_token_id, before which the token of silence is");
  check(!options.words || !start.alignment_heads.empty(), kOp,
        "times of words want alignment_heads, which this model's generation_config.json does not have");
  for (const double t : options.temperatures) check(t >= 0, kOp, "a temperature is at least 0, got ", t);
}

GenerationOptions WindowWriter::at_temperature(const GenerationOptions& writing, size_t which, size_t prompt) const {
  GenerationOptions o = writing;
  o.adjusted_logprobs = judges_;
  // A limit is of what is written, and of up to half a context before it.
  const int64_t context = model_->context(), before = std::min(context / 2 - 1, static_cast<int64_t>(prompt));
  if (o.max_tokens == 0) o.max_length = o.max_length > 0 ? std::min(context, o.max_length + before) : context;
  if (options_.temperatures.empty()) return o;
  const double t = options_.temperatures[which];
  if (t > 0) {
    o.temperature = t;
    o.beams = 1;
    o.draw_beams = false;
  } else {
    o.temperature = o.beams > 1 ? 1 : 0;
    o.top_k = 0;
    o.top_p = o.typical_p = 1;
    o.min_p = 0;
    o.draw_beams = false;
  }
  return o;
}

// Whether the text is too unlikely to be kept.
bool WindowWriter::judge(const Completion& written, WindowText& text) const {
  if (!judges_) return false;
  text.compression_ratio = compression_ratio(written.tokens, model_->vocab());
  text.avg_logprob = std::accumulate(written.adjusted_logprobs.begin(), written.adjusted_logprobs.end(), 0.0) /
                     static_cast<double>(written.tokens.size());
  const bool unlikely = options_.logprob_threshold && text.avg_logprob < *options_.logprob_threshold;
  text.is_silent = options_.no_speech_threshold && unlikely && text.no_speech_prob > *options_.no_speech_threshold;
  const bool repeats =
      options_.compression_ratio_threshold && text.compression_ratio > *options_.compression_ratio_threshold;
  return !text.is_silent && (unlikely || repeats);
}

double WindowWriter::no_speech(const SoundWindow& window) const {
  const NoGrad guard;
  const std::vector<int64_t> ids(window.prompt.begin(),
                                 window.prompt.begin() + static_cast<std::ptrdiff_t>(window.start) + 1);
  const Tensor hidden = model_->hidden(row_of(ids, *model_), window.encoded.unsqueeze(0));
  const Tensor last = hidden.narrow(1, hidden.size(1) - 1, 1);
  const Tensor all = softmax(model_->logits(last).to(DType::f32).view({model_->vocab()}), 0);
  return static_cast<double>(all.to(Device::cpu()).to_vector<float>()[static_cast<size_t>(*start_.no_timestamps - 1)]);
}

// How each token is read when it is the decoder's input; the last of a text, which never was, ends with the one before.
std::vector<int64_t> WindowWriter::token_ends(const SoundWindow& window, const std::vector<int64_t>& tokens,
                                              bool ended) const {
  const size_t read = ended ? tokens.size() : tokens.size() - 1;
  std::vector<int64_t> ends(tokens.size());
  if (read == 0 || window.places == 0) return ends;
  std::vector<int64_t> ids = window.prompt;
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(read));
  const Tensor all =
      model_->source_weights(row_of(ids, *model_), window.encoded.unsqueeze(0), start_.alignment_heads).select(0, 0);
  const auto prompt = static_cast<int64_t>(window.prompt.size());
  const std::vector<int64_t> places = token_places(
      all.narrow(1, prompt, static_cast<int64_t>(read)).narrow(2, 0, window.places), start_.median_filter_width);
  std::ranges::copy(places, ends.begin());
  if (read < tokens.size()) ends.back() = places.back();
  return ends;
}

std::vector<WindowText> WindowWriter::write(const std::vector<SoundWindow>& windows, const GenerationOptions& writing) {
  std::vector<WindowText> texts(windows.size());
  std::vector<bool> ended(windows.size());
  std::vector<size_t> left(windows.size());
  std::iota(left.begin(), left.end(), size_t{0});
  if (options_.no_speech_threshold)
    for (const size_t i : left) texts[i].no_speech_prob = no_speech(windows[i]);
  for (size_t which = 0; !left.empty() && which < std::max<size_t>(1, options_.temperatures.size()); ++which) {
    std::vector<GenerationRequest> requests;
    for (const size_t i : left) {
      const SoundWindow& w = windows[i];
      requests.push_back({w.prompt, at_temperature(writing, which, w.prompt.size()), {}, w.encoded});
    }
    std::vector<Generated> written = writer_.generate(requests);
    std::vector<size_t> again;
    for (size_t r = 0; r < left.size(); ++r) {
      const size_t i = left[r];
      Completion& c = written[r].completions.front();
      const GenerationOptions& o = requests[r].options;
      texts[i].temperature = o.beams > 1 && !o.draw_beams ? 0 : o.temperature;  // the likeliest beams have none
      if (judge(c, texts[i])) again.push_back(i);
      ended[i] = c.finish == Finish::stop_id;
      if (ended[i]) c.tokens.pop_back();
      texts[i].tokens = std::move(c.tokens);
      texts[i].text = std::move(c.text);
    }
    left = std::move(again);
  }
  if (options_.words)
    for (size_t i = 0; i < windows.size(); ++i) texts[i].places = token_ends(windows[i], texts[i].tokens, ended[i]);
  return texts;
}

}  // namespace strata::detail
