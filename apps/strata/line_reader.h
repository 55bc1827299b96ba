#pragma once
// Lines that a person types, with editing and the lines of earlier sessions where the system has libedit.

#include <memory>
#include <optional>
#include <string>

namespace strata::cli {

/// Reads lines from standard input. At a terminal, with libedit installed, arrow keys edit the line and bring earlier
/// ones, which `history` (a file; empty: none) keeps between sessions, the last 1,000, readable by its owner alone;
/// without it the terminal's own editing is what there is. Where the input is no terminal, lines are read as they are
/// and no prompt is written.
class LineReader {
 public:
  explicit LineReader(std::string history = {});
  ~LineReader();
  LineReader(const LineReader&) = delete;

  /// The next line without its end, or nothing at the end of input. Lines longer than 1 MiB are an IoError.
  std::optional<std::string> next(const std::string& prompt);
  /// Whether a person sits at the other end.
  bool interactive() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where lines of `name` are kept: $XDG_STATE_HOME/strata/<name>, else ~/.local/state/strata/<name>; the folder is
/// made. Empty where there is no home or the folder cannot be made.
std::string history_file(const std::string& name);

}  // namespace strata::cli
