// The command line. Exit status: 0 success, 1 failure, 2 bad usage.

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "strata/c/plugin.h"
#include "strata/core/error.h"
#include "strata/core/op.h"
#include "strata/text/nearest.h"
#include "strata/train/machine.h"

namespace {

using namespace strata::cli;

constexpr size_t kColumn = 34;  // where descriptions begin

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// Descriptions that are wider than the screen stay in their column.
std::string wrapped(const std::string& help) {
  std::string all;
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    std::string line = help.substr(begin, end - begin);
    const bool in_column = line.size() > kColumn && line[0] == ' ' && line[kColumn - 1] == ' ';
    const size_t width = in_column ? 100 : 110, indent = in_column ? kColumn : 0;
    while (line.size() > width) {
      const size_t space = line.rfind(' ', width);
      if (space == std::string::npos || space <= indent) break;
      all += line.substr(0, space) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    if (!line.empty() || !all.ends_with("\n\n")) all += line + '\n';  // a hidden option leaves a gap
    begin = end + 1;
  }
  return all;
}

// What can stand in the place of an unknown word: the commands, or the options and those of the commands around it.
std::vector<std::string> known_words(const CLI::App& asked, bool option) {
  std::vector<std::string> known;
  if (!option) {
    for (const CLI::App* c : asked.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(c->get_name());
    return known;
  }
  for (const CLI::App* app = &asked; app != nullptr; app = app->get_parent())
    for (const CLI::Option* o : app->get_options()) {
      if (o->get_group().empty()) continue;  // hidden
      for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
    }
  return known;
}

// What is wrong with the command line, and where there is help.
std::string told(const CLI::App& app, const CLI::ParseError& e) {
  std::string command = "strata";
  const CLI::App* asked = &app;
  while (!asked->get_subcommands().empty()) {
    asked = asked->get_subcommands().front();
    command += " " + asked->get_name();
  }
  const bool has_commands = !asked->get_subcommands([](const CLI::App*) { return true; }).empty();
  std::string text = one_line(e.what());
  const std::vector<std::string> rest = app.remaining(true);
  const bool unknown =
      dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr || dynamic_cast<const CLI::RequiredError*>(&e) != nullptr;
  if (unknown && !rest.empty()) {
    const std::string& first = rest.front();
    const bool option = first.starts_with('-');
    text = fmt::format("{} '{}'",
                       option         ? "unknown option"
                       : has_commands ? "unknown command"
                                      : "unexpected argument",
                       first);
    const std::vector<std::string> known = known_words(*asked, option);
    const std::string_view meant = strata::text::nearest(first.substr(0, first.find('=')), known);
    if (!meant.empty()) text += fmt::format("; did you mean {}?", meant);
  }
  return fmt::format("{} ({} --help lists the {})", text, command, has_commands ? "commands" : "options");
}

}  // namespace

namespace strata::cli {

std::string plain_text(const Error& error) {
  const std::string text = error.what(), &op = error.op();
  // Files and commands of two words are names that users know.
  const bool internal = !op.empty() && OpBase::find(op) == nullptr && std::ranges::all_of(op, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == ':';
  });
  return internal && text.starts_with(op + ": ") ? text.substr(op.size() + 2) : text;
}

}  // namespace strata::cli

namespace {

int complain(const std::string& text, int status) {
  std::fputs(fmt::format("strata: error: {}\n", one_line(text)).c_str(), stderr);
  return status;
}

// How many words are this command line's own: of strata launch those before --, the others are a program's.
int own_words(int argc, char** argv) {
  const std::string_view plugin = "--plugin";
  int at = 1;
  while (at < argc && std::string_view(argv[at]).starts_with(plugin)) at += argv[at] == plugin ? 2 : 1;
  if (at >= argc || argv[at] != std::string_view("launch")) return argc;
  return static_cast<int>(std::find(argv + at, argv + argc, std::string_view("--")) - argv);
}

int run(int argc, char** argv) {
  CLI::App app("Strata: train and run neural networks.", "strata");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(kColumn);
  app.footer("strata COMMAND --help tells more about a command.");
  bool version = false;
  std::vector<std::string> plugins;
  app.add_option("--plugin", plugins, "Load a shared library with ops of its own; may come more than once")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_flag("--version", version, "Print the version and stop");
  Body body;
  add_train(app, body);
  // The parser would take a word in brackets for a list.
  const int own = own_words(argc, argv);
  add_launch(app, body, {argv + std::min(own + 1, argc), argv + argc});
  add_data(app, body);
  add_generate(app, body);
  add_chat(app, body);
  add_transcribe(app, body);
  add_embed(app, body);
  add_eval(app, body);
  add_estimate(app, body);
  add_plan(app, body);
  add_report(app, body);
  add_model(app, body);
  add_ops(app, body);
  add_lab(app, body);
  add_info(app, body);
  // An option of the program is understood behind a command's name, too.
  for (CLI::App* command : app.get_subcommands({})) {
    command->fallthrough();
    for (CLI::App* inner : command->get_subcommands({})) inner->fallthrough();
  }
  try {
    app.parse(own, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(wrapped(app.help()).c_str(), stdout);  // of the innermost command that was named
    return kOk;
  } catch (const CLI::ParseError& e) {
    return complain(told(app, e), kUsage);
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
  std::signal(SIGXFSZ, SIG_IGN);  // past a limit of the file size writing fails with a reason
  try {
    const int status = run(argc, argv);
    // A full disk or a closed pipe shows when the last of the output is written.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return complain("cannot write to the standard output", kFailure);
    return status;
  } catch (const UsageError& e) {
    return complain(e.what(), kUsage);
  } catch (const strata::Error& e) {
    return complain(plain_text(e), kFailure);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailure);
  } catch (const std::exception& e) {
    return complain(e.what(), kFailure);
  }
}
