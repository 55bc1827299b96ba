#include "apps/strata/line_reader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "strata/core/error.h"

namespace strata::cli {
namespace {

constexpr size_t kLongest = size_t{1} << 20;
constexpr int kKept = 1000;

// libedit's readline interface, loaded where it is installed: the command line does without it elsewhere.
struct Editor {
  char* (*readline)(const char*) = nullptr;
  int (*add_history)(const char*) = nullptr;
  int (*read_history)(const char*) = nullptr;
  int (*write_history)(const char*) = nullptr;
  void (*stifle_history)(int) = nullptr;
  bool complete = false;

  static Editor load() {
    Editor e;
    void* library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return e;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      all &= function != nullptr;
    };
    find(e.readline, "readline");
    find(e.add_history, "add_history");
    find(e.read_history, "read_history");
    find(e.write_history, "write_history");
    find(e.stifle_history, "stifle_history");
    e.complete = all;
    return e;
  }
};

// A line of standard input. A signal does not end it, but where the caller asked for that by its handler's flags.
std::optional<std::string> plain_line() {
  std::string line;
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c == '\n') return line;
    if (line.size() == kLongest) throw IoError("standard input", "a line is longer than 1 MiB");
    line += static_cast<char>(c);
  }
  std::clearerr(stdin);
  return line.empty() ? std::nullopt : std::optional(line);
}

}  // namespace

struct LineReader::State {
  std::string history;
  bool interactive = false;
  Editor editor;
};

LineReader::LineReader(std::string history) : state_(std::make_unique<State>()) {
  state_->history = std::move(history);
  state_->interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (!state_->interactive) return;
  state_->editor = Editor::load();
  if (!state_->editor.complete) return;
  state_->editor.stifle_history(kKept);
  if (!state_->history.empty()) state_->editor.read_history(state_->history.c_str());
}

LineReader::~LineReader() {
  if (!state_->editor.complete || state_->history.empty()) return;
  // What a person typed is nobody else's business.
  const int fd = open(state_->history.c_str(), O_CREAT | O_WRONLY, 0600);
  if (fd < 0) return;
  fchmod(fd, 0600);
  close(fd);
  state_->editor.write_history(state_->history.c_str());
}

bool LineReader::interactive() const {
  return state_->interactive;
}

std::optional<std::string> LineReader::next(const std::string& prompt) {
  std::fflush(stdout);
  if (!state_->editor.complete) {
    if (state_->interactive) {
      std::fputs(prompt.c_str(), stdout);
      std::fflush(stdout);
    }
    return plain_line();
  }
  char* line = state_->editor.readline(prompt.c_str());
  if (!line) return std::nullopt;
  std::string text = line;
  std::free(line);
  if (text.size() > kLongest) throw IoError("standard input", "a line is longer than 1 MiB");
  if (!text.empty()) state_->editor.add_history(text.c_str());
  return text;
}

std::string history_file(const std::string& name) {
  std::filesystem::path folder;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state == '/') {
    folder = state;
  } else if (const char* home = std::getenv("HOME"); home && *home == '/') {
    folder = std::filesystem::path(home) / ".local/state";
  } else {
    return {};
  }
  folder /= "strata";
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  return failed ? std::string() : (folder / name).string();
}

}  // namespace strata::cli
