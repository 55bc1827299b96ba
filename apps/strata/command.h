#pragma once
// What the subcommands share. Each has its own file and one function that adds it to the command line; the body that
// it hands over runs after the whole line was parsed.

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace strata {
class Error;
}

namespace strata::cli {

/// What to run; returns the exit status. Failures are exceptions.
using Body = std::function<int()>;

constexpr int kOk = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;

/// The command line asks for something that does not exist or does not fit together: exit status 2.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What `strata launch` tells its ranks of itself: the words before `--` that start such a job again.
inline constexpr const char* kLaunchedAs = "STRATA_LAUNCHED_AS";

/// An error's text for users: without the name of the function or class that threw it, unless that is an operation.
std::string plain_text(const Error& error);

void add_chat(CLI::App& app, Body& body);
void add_data(CLI::App& app, Body& body);
void add_embed(CLI::App& app, Body& body);
void add_estimate(CLI::App& app, Body& body);
void add_eval(CLI::App& app, Body& body);
void add_generate(CLI::App& app, Body& body);
void add_info(CLI::App& app, Body& body);
void add_lab(CLI::App& app, Body& body);
/// `program`: what stands behind --, word for word.
void add_launch(CLI::App& app, Body& body, std::vector<std::string> program);
void add_model(CLI::App& app, Body& body);
void add_ops(CLI::App& app, Body& body);
void add_plan(CLI::App& app, Body& body);
void add_report(CLI::App& app, Body& body);
void add_train(CLI::App& app, Body& body);
void add_transcribe(CLI::App& app, Body& body);

}  // namespace strata::cli
