// What is said in a WAV file.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "strata/core/json_text.h"
#include "strata/core/parallel.h"
#include "strata/generate/text_model.h"
#include "strata/text/utf8.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string path, file, language, task, format = "text", device;
  int64_t threads = 0, tokens = 0;
  bool lines = false, timestamps = false, no_timestamps = false, words = false, earlier = false, fallback = false;
  std::string prompt;
  std::optional<double> compression_ratio, logprob, no_speech;
};

// The options as JSON.
std::string call_of(const Arguments& a) {
  std::string call = "{";
  const auto add = [&](std::string_view key, const std::string& value) {
    call += fmt::format("{}\"{}\": {}", call.size() > 1 ? ", " : "", key, value);
  };
  if (!a.prompt.empty()) add("prompt", detail::json_string(a.prompt));
  if (a.earlier) add("condition_on_prev_tokens", "true");
  if (a.words) add("word_timestamps", "true");
  // The thresholds that the model's makers use, where none is said.
  const auto threshold = [&](std::string_view key, const std::optional<double>& said, double usual) {
    if (said || a.fallback) add(key, fmt::format("{}", said.value_or(usual)));
  };
  threshold("compression_ratio_threshold", a.compression_ratio, 2.4);
  threshold("logprob_threshold", a.logprob, -1.0);
  threshold("no_speech_threshold", a.no_speech, 0.6);
  if (a.fallback) add("temperature", "[0, 0.2, 0.4, 0.6, 0.8, 1]");
  return call + "}";
}

std::string line_of(const SpokenText& part, bool json) {
  std::string text = part.text;
  text.erase(0, text.find_first_not_of(' '));
  if (!json) return text + "\n";
  return fmt::format("{{\"begin\": {}, \"end\": {}, \"text\": {}}}\n", part.begin, part.end,
                     detail::json_string(text::valid_utf8(text)));
}

std::string text_of(const Transcription& all, bool lines) {
  std::string text;
  for (const SpokenText& part : all.parts) text += line_of(part, lines);
  return text;
}

// What is written of what was said, by the name of the form.
struct Form {
  const char* name;
  std::string (*write)(const Transcription&);
};
constexpr Form kForms[] = {
    {"text", [](const Transcription& t) { return text_of(t, false); }},
    {"json", [](const Transcription& t) { return to_json(t) + "\n"; }},
    {"jsonl", [](const Transcription& t) { return text_of(t, true); }},
    {"srt", [](const Transcription& t) { return to_srt(t); }},
};

int run(const Arguments& a) {
  if (a.threads > 0) set_num_threads(static_cast<int>(a.threads));
  if (a.timestamps && a.no_timestamps) throw UsageError("--timestamps and --no-timestamps stand side by side");
  const data::Sound sound = data::read_wav(a.file);
  const auto model = TextModel::load(a.path, {.device = device_or_usual(a.device)});
  TranscriptionOptions options = model->transcription_options(call_of(a));
  options.language = a.language, options.task = a.task;
  const std::string form = a.lines ? "jsonl" : a.format;
  // Subtitles are nothing without times.
  if (a.timestamps || form == "srt") options.timestamps = true;
  if (a.no_timestamps) options.timestamps = false;
  if (a.tokens > 0) options.writing.max_tokens = a.tokens, options.writing.max_length = 0;
  const Transcription all = model->transcribe(sound, options);
  for (const Form& f : kForms)
    if (form == f.name) std::fputs(f.write(all).c_str(), stdout);
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
  transcribe->add_option("--device", a->device, "cpu or cuda")->type_name("DEVICE")->check(device_name());
  transcribe->add_flag("--timestamps", a->timestamps,
                       "Say when it is said; longer sound than the model's (30 s) has times anyway");
  transcribe->add_flag("--no-timestamps", a->no_timestamps, "Longer sound in pieces that know nothing of each other");
  std::vector<std::string> forms;
  for (const Form& f : kForms) forms.emplace_back(f.name);
  transcribe
      ->add_option("--format", a->format,
                   "A line for each part; JSON of all, or a line of JSON for each part; subtitles")
      ->type_name("FORM")
      ->capture_default_str()
      ->check(CLI::IsMember(forms));
  transcribe->add_flag("--words", a->words, "Say when each word is said: in --format json, and a subtitle a word");
  transcribe->add_option("--prompt", a->prompt, "A text that stands before: how names are spelled, a style")
      ->type_name("TEXT");
  transcribe->add_flag("--earlier", a->earlier, "Each window sees what was said before it");
  transcribe->add_flag(
      "--fallback", a->fallback,
      "Write unlikely texts anew at higher temperatures, and none of silence: by the thresholds below, "
      "2.4, -1 and 0.6 where none is given");
  transcribe
      ->add_option("--compression-ratio", a->compression_ratio, "A text that zlib makes smaller by more repeats itself")
      ->type_name("X");
  transcribe->add_option("--logprob", a->logprob, "A text whose tokens have a lower mean logprob is unlikely")
      ->type_name("X");
  transcribe
      ->add_option("--no-speech", a->no_speech, "A window with a likelier silence, and an unlikely text, has none")
      ->type_name("X");
  transcribe->add_flag("--json", a->lines, "The same as --format jsonl");
  transcribe->footer(
      "  strata transcribe --model whisper-base speech.wav --language en\n"
      "  strata transcribe --model whisper-base talk.wav --format srt > talk.srt\n"
      "  strata transcribe --model whisper-base talk.wav --fallback --earlier --words --format json");
  transcribe->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
