#include "strata/generate/transcribe.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "transcribe";

}  // namespace

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

std::vector<SpokenText> transcribe(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
                                   const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                   const SoundFeatures& features, const DecoderStart& start,
                                   const TranscriptionOptions& options) {
  check(model->reads_sound(), kOp, "this model reads texts");
  const AudioSpec& audio = *model->spec().parts[0].audio;
  check(audio.bins == features.bins && features.frames() == 2 * model->spec().parts[0].context, kOp, "the model reads ",
        2 * model->spec().parts[0].context, " frames of ", audio.bins, " numbers, the features are ", features.frames(),
        " of ", features.bins);
  check(sound.rate == features.rate, kOp, "the sound has ", sound.rate, " samples a second, and the model reads ",
        features.rate);
  model->eval();
  const Tensor all = sound.mono();
  const int64_t length = all.numel();
  std::vector<GenerationRequest> requests;
  std::vector<SpokenText> texts;
  std::vector<int64_t> prompt;
  for (int64_t at = 0; at == 0 || at < length; at += features.samples()) {
    const int64_t n = std::min(features.samples(), length - at);
    const Tensor frames = sound_features(all.narrow(0, at, n), features);
    if (prompt.empty()) {
      std::string language = options.language;
      if (language.empty() && !start.languages.empty() && (start.forced.empty() || !start.forced[0])) {
        const NoGrad guard;
        const Tensor read = frames.to(model->device()).to(model->token_embedding.weight.dtype()).unsqueeze(0);
        language = likeliest_language(*model, model->encode(read).select(0, 0), start);
      }
      prompt = start.tokens(language, options.task);
    }
    requests.push_back({prompt, options.writing, frames});
    const auto seconds = [&](int64_t samples) {
      return static_cast<double>(samples) / static_cast<double>(features.rate);
    };
    texts.push_back({seconds(at), seconds(at + n), {}});
  }
  TextGenerator writer(model, tokenizer, {.batch = options.batch});
  std::vector<Generated> written = writer.generate(requests);
  for (size_t i = 0; i < texts.size(); ++i) texts[i].written = std::move(written[i].completions.front());
  return texts;
}

}  // namespace strata
