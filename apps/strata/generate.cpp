#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "strata/core/json_text.h"
#include "strata/generate/text_generator.h"
#include "strata/text/utf8.h"

namespace strata::cli {
namespace {

struct Arguments {
  ModelArguments model;
  WritingOptions writing;
  std::string prompt = "\n", prompts;
  int64_t batch = 8;
  bool json = false, logprobs = false, statistics = false;
  int64_t top_logprobs = 0;
};

// JSON has no other text than UTF-8.
std::string json_text(const std::string& text) {
  return detail::json_string(text::valid_utf8(text));
}

std::string json_logprobs(const std::vector<double>& values) {
  return detail::json_list(values, [](double v) { return fmt::format("{:.6g}", v); });
}

// A line for each text.
std::string json_line(const std::string& prompt, const Completion& c, const GenerationOptions& o) {
  std::string line = fmt::format(
      "{{\"prompt\": {}, \"text\": {}, \"tokens\": {}, \"finish\": \"{}\"", json_text(prompt), json_text(c.text),
      detail::json_list(c.tokens, [](int64_t id) { return std::to_string(id); }), to_string(c.finish));
  if (o.beams > 1) line += fmt::format(", \"score\": {:.6g}", c.score);
  if (o.logprobs) line += fmt::format(", \"logprobs\": {}", json_logprobs(c.logprobs));
  if (o.top_logprobs > 0)
    line += fmt::format(", \"top_logprobs\": {}", detail::json_list(c.top_logprobs, [](const auto& place) {
                          return detail::json_list(place, [](const TokenLogprob& t) {
                            return fmt::format("[{}, {:.6g}]", t.id, t.logprob);
                          });
                        }));
  return line + "}\n";
}

std::vector<std::string> prompts_of(const std::string& file) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file);
    if (!opened) throw IoError("generate", fmt::format("cannot read '{}'", file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void tell(const GenerationStatistics& s) {
  std::fputs(fmt::format("{} tokens read at {:.1f} a second, {} written at {:.1f} a second, the first after {:.3f} s\n",
                         s.prompt_tokens, s.prompt_rate(), s.output_tokens, s.output_rate(), s.first_token_seconds)
                 .c_str(),
             stderr);
}

int run(const Arguments& a) {
  const bool many = !a.prompts.empty();
  if (!many && a.prompt.empty()) throw UsageError("--prompt is empty: the model needs something to continue");
  const std::vector<std::string> prompts = many ? prompts_of(a.prompts) : std::vector<std::string>{a.prompt};
  const Language language = a.model.load(many ? std::string() : a.prompt);
  GenerationOptions usual = language.options;
  if (usual.max_tokens == 0 && usual.max_length == 0) usual.max_tokens = 200;
  GenerationOptions options = a.writing.over(usual);
  options.logprobs = a.logprobs;
  options.top_logprobs = a.top_logprobs;
  const bool json = many || a.json || a.logprobs || a.top_logprobs > 0;
  if (!json && options.max_tokens == 0 && options.max_length == 0) {  // --tokens 0
    std::fputs((a.prompt + "\n").c_str(), stdout);
    return kOk;
  }

  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : prompts) requests.push_back(language.request(prompt, options));
  TextGeneratorOptions room;
  room.batch = a.batch;
  room.roll = language.folder == nullptr && options.beams == 1;  // a run of ours goes on where its context is full
  const std::unique_ptr<TextGenerator> writer = language.writer(room);
  // A text that is continued begins with its prompt; an answer does not.
  const std::string begin = language.reader ? std::string() : a.prompt;
  if (json) {
    const std::vector<Generated> out = writer->generate(requests);
    for (size_t i = 0; i < out.size(); ++i)
      for (const Completion& c : out[i].completions) {
        const std::string line = json_line(prompts[i], c, options);
        std::fwrite(line.data(), 1, line.size(), stdout);
      }
  } else if (options.n > 1 || options.beams > 1) {
    const Generated out = writer->generate(requests)[0];
    for (const Completion& c : out.completions) std::fputs((begin + c.text + "\n\n").c_str(), stdout);
  } else {
    bool begun = false;
    writer->generate(requests, [&](const GenerationPiece& piece) {
      // Not before what may be refused was not.
      if (!std::exchange(begun, true)) std::fputs(begin.c_str(), stdout);
      std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
      return std::fflush(stdout) == 0;  // a reader that went away ends the writing
    });
    std::fputc('\n', stdout);
  }
  if (a.statistics) tell(writer->statistics());
  return kOk;
}

}  // namespace

void add_generate(CLI::App& app, Body& body) {
  CLI::App* generate = app.add_subcommand("generate", "Let a model continue a text, or answer it, or many");
  auto a = std::make_shared<Arguments>();
  a->model.add(*generate, true);
  generate->add_option("--prompt", a->prompt, "The text to continue; of an encoder-decoder (T5) what it reads")
      ->type_name("TEXT");
  generate->add_option("--prompts", a->prompts, "A file with a prompt a line ('-': standard input); writes JSON lines")
      ->type_name("FILE");
  generate->add_option("--batch", a->batch, "Texts that are written at a time")
      ->type_name("N")
      ->capture_default_str()
      ->check(between<int64_t>(1, 65535));
  a->writing.add(*generate, true);
  generate->add_flag("--json", a->json, "Write a JSON line for each text");
  generate->add_flag("--logprobs", a->logprobs, "With the logarithm of each token's probability (implies --json)");
  generate->add_option("--top-logprobs", a->top_logprobs, "And of the N likeliest tokens at its place")
      ->type_name("N")
      ->check(at_least(0));
  generate->add_flag("--statistics", a->statistics, "Tell how fast it was, on the standard error");
  generate->footer(
      "What is not asked for is as the model's generation_config.json has it, else 200 tokens of temperature 0.8.\n"
      "  strata generate --model Qwen2.5-0.5B --prompt 'Once upon a time' --tokens 100\n"
      "  strata generate --checkpoint runs/quickstart --prompt 'Tensor ' --tokens 200 --temperature 0.7 --seed 1");
  generate->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
