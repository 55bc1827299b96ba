// The command line. Exit status: 0 success, 1 failure, 2 bad usage.

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "strata/c/plugin.h"
#include "strata/train/machine.h"

namespace {

using namespace strata::cli;

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int complain(const std::string& text, int status) {
  std::fputs(fmt::format("strata: error: {}\n", one_line(text)).c_str(), stderr);
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Strata: train and run neural networks.", "strata");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  app.footer("strata COMMAND --help tells more about a command.");
  bool version = false;
  std::vector<std::string> plugins;
  app.add_option("--plugin", plugins, "Load a shared library with ops of its own; may come more than once")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_flag("--version", version, "Print the version and stop");
  Body body;
  add_train(app, body);
  add_generate(app, body);
  add_estimate(app, body);
  add_ops(app, body);
  add_lab(app, body);
  add_info(app, body);
  // An option of the program is understood behind a command's name, too.
  for (CLI::App* command : app.get_subcommands({})) {
    command->fallthrough();
    for (CLI::App* inner : command->get_subcommands({})) inner->fallthrough();
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    // The innermost command that was named is the one that was asked about.
    const CLI::App* asked = &app;
    while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
    std::fputs(asked->help().c_str(), stdout);
    return kOk;
  } catch (const CLI::ParseError& e) {
    const auto is_first = [&](CLI::App* command) { return command->get_name() == argv[1]; };
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_first).empty())
      return complain(fmt::format("unknown command '{}' (strata --help lists the commands)", argv[1]), kUsage);
    return complain(fmt::format("{} (strata --help lists the commands and options)", one_line(e.what())), kUsage);
  }
  if (version) {
    std::fputs(fmt::format("strata {}\n", strata::machine_info().version).c_str(), stdout);
    return kOk;
  }
  for (const std::string& file : plugins) strata::load_plugin(file);
  if (!body) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  return body();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    // A full disk or a closed pipe shows when the last of the output is written.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return complain("cannot write to the standard output", kFailure);
    return status;
  } catch (const UsageError& e) {
    return complain(e.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailure);
  } catch (const std::exception& e) {
    return complain(e.what(), kFailure);
  }
}
