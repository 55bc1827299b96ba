// What is said in a WAV file.

#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "strata/core/json_text.h"
#include "strata/core/parallel.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/transcribe.h"
#include "strata/io/files.h"
#include "strata/models/pretrained.h"
#include "strata/text/utf8.h"

namespace strata::cli {
namespace {

constexpr uint64_t kMaxConfig = 16 << 20;

struct Arguments {
  std::string path, file, language, task, device;
  int64_t threads = 0, tokens = 0;
  bool json = false;
};

int run(const Arguments& a) {
  if (a.threads > 0) set_num_threads(static_cast<int>(a.threads));
  const data::Sound sound = data::read_wav(a.file);
  const std::string settings = a.path + "/preprocessor_config.json";
  const SoundFeatures features = parse_sound_features(io::read_file(settings, kMaxConfig), settings);
  const Pretrained pretrained = load_pretrained(a.path, {.device = parse_device(a.device.empty() ? usual_device() : a.device)});
  if (!pretrained.encoder_decoder || !pretrained.encoder_decoder->reads_sound())
    throw UsageError(fmt::format("'{}' reads no sound: a {}", a.path, pretrained.family->title));
  const auto folder = std::make_shared<text::TokenizerFolder>(text::load_tokenizer_folder(a.path));
  const std::shared_ptr<const text::Tokenizer> tokenizer(folder, folder->tokenizer.get());
  TranscriptionOptions options{.language = a.language, .task = a.task};
  if (!pretrained.generation_config.empty())
    options.writing = parse_generation_config(pretrained.generation_config, a.path + "/generation_config.json");
  if (options.writing.stop_ids.empty() && folder->eos) options.writing.stop_ids = {*folder->eos};
  if (a.tokens > 0) options.writing.max_tokens = a.tokens;
  const DecoderStart start = parse_decoder_start(pretrained.generation_config, pretrained.config, a.path);
  for (const SpokenText& piece : transcribe(sound, pretrained.encoder_decoder, tokenizer, features, start, options)) {
    std::string text = piece.written.text;
    text.erase(0, text.find_first_not_of(' '));
    if (a.json)
      text = fmt::format("{{\"begin\": {}, \"end\": {}, \"text\": {}}}", piece.begin, piece.end,
                         detail::json_string(text::valid_utf8(text)));
    std::fputs((text + "\n").c_str(), stdout);
  }
  return kOk;
}

}  // namespace

void add_transcribe(CLI::App& app, Body& body) {
  CLI::App* transcribe = app.add_subcommand("transcribe", "Write what is said in a WAV file");
  auto a = std::make_shared<Arguments>();
  transcribe->add_option("--model", a->path, "Folder of a model that reads sound (Whisper)")
      ->required()
      ->type_name("DIR");
  transcribe->add_option("file", a->file, "A WAV file of as many samples a second as the model reads")
      ->required()
      ->type_name("FILE");
  transcribe->add_option("--language", a->language, "That is spoken (en, de, ..); else the likeliest")
      ->type_name("NAME");
  transcribe->add_option("--task", a->task, "translate: write English")->type_name("NAME");
  transcribe->add_option("--tokens", a->tokens, "Tokens of a piece at most")->type_name("N")->check(at_least(0));
  transcribe->add_option("--threads", a->threads, "Threads; 0 takes every core")
      ->type_name("N")
      ->check(between<int64_t>(0, 4096));
  transcribe->add_option("--device", a->device, "cpu or cuda")
      ->type_name("DEVICE")
      ->check(device_name());
  transcribe->add_flag("--json", a->json, "A JSON line for each piece, with its times");
  transcribe->footer(
      "Longer sound is written in pieces of the model's length (30 s), a line each.\n"
      "  strata transcribe --model whisper-base speech.wav --language en");
  transcribe->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
