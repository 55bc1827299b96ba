#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/parallel.h"
#include "strata/train/generate.h"
#include "strata/train/rehearse.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string checkpoint, prompt = "\n", device = "cpu";
  long long tokens = 200, threads = 0;
  SampleOptions sample{.temperature = 0.8};
};

int run(const Arguments& a) {
  if (a.threads > 0) set_num_threads(static_cast<int>(a.threads));
  std::vector<std::string> warnings;
  const TrainedModel trained =
      detail::load_trained_model_for(a.prompt, a.checkpoint, &warnings, parse_device(a.device));
  for (const std::string& w : warnings) std::fputs(fmt::format("note: skipping the {}\n", w).c_str(), stderr);
  if (a.prompt.empty()) throw UsageError("--prompt is empty: the model needs something to continue");
  TextWriter writer(trained, a.prompt, a.sample);
  std::fputs(a.prompt.c_str(), stdout);
  for (long long i = 0; i < a.tokens; ++i) {
    const std::string piece = writer.next();
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    // A reader that went away ends the writing.
    if (std::fflush(stdout) != 0) break;
  }
  std::fputc('\n', stdout);
  return kOk;
}

}  // namespace

void add_generate(CLI::App& app, Body& body) {
  CLI::App* generate = app.add_subcommand("generate", "Let a trained model continue a text");
  auto a = std::make_shared<Arguments>();
  generate
      ->add_option("--checkpoint", a->checkpoint, "Folder of a run (its newest checkpoint is taken) or of a checkpoint")
      ->required()
      ->type_name("DIR");
  generate->add_option("--prompt", a->prompt, "The text to continue")->type_name("TEXT");
  generate->add_option("--tokens", a->tokens, "Tokens to write")
      ->type_name("N")
      ->capture_default_str()
      ->check(at_least(0));
  generate
      ->add_option("--temperature", a->sample.temperature,
                   "Above 1 more varied, below 1 more likely text; 0 always the likeliest token")
      ->type_name("T")
      ->capture_default_str()
      ->check(between(0.0, 1000.0));
  generate->add_option("--top-k", a->sample.top_k, "Choose among the K likeliest tokens only; 0 for all")
      ->type_name("K")
      ->capture_default_str()
      ->check(at_least(0));
  generate->add_option("--top-p", a->sample.top_p, "Choose among the likeliest tokens that together have probability P")
      ->type_name("P")
      ->capture_default_str()
      ->check(between(1e-6, 1.0));
  generate->add_option("--seed", a->sample.seed, "The same seed writes the same text")
      ->type_name("N")
      ->capture_default_str()
      ->check(at_least(0));
  generate->add_option("--threads", a->threads, "Threads; 0 takes every core")->type_name("N")->check(between(0, 4096));
  generate->add_option("--device", a->device, "cpu or cuda")->type_name("DEVICE")->check(device_name());
  generate->footer(
      "  strata generate --checkpoint runs/quickstart --prompt 'Tensor ' --tokens 200 --temperature 0.7 --seed 1");
  generate->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
