#pragma once
// What moves, or works, beside the calls of a program: put down while somebody listens, and only then. lab::Tracer is
// who listens.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::memory {

/// What a transfer takes the time of.
enum class TransferKind : uint8_t {
  copy,       ///< a bus, or the host's memory
  disk,       ///< a file
  processor,  ///< threads of the host that compute beside the calls
  wait,       ///< nobody: who computes waits for bytes
};

/// One thing that was moved or done; seconds of host_seconds(), in a log's list since it was made.
struct Transfer {
  TransferKind kind = TransferKind::copy;
  std::string track;  ///< of what is done one after the other, or by one device: "to host", "read /scratch"
  std::string name;   ///< what was moved: "state of blocks.3.weight"
  double begin = 0, end = 0;
  int64_t bytes = 0;
  double queued = 0;  ///< seconds that it waited for others, before `begin`
};

/// Times that are known later: of what a card's stream does.
class TransferTimes {
 public:
  virtual ~TransferTimes() = default;
  /// Begin and end by host_seconds(); waits for them.
  virtual std::pair<double, double> read() = 0;
};

/// Puts down every transfer of the program while it lives.
class TransferLog {
 public:
  TransferLog();
  ~TransferLog();
  TransferLog(const TransferLog&) = delete;

  /// Those that began since it was made and have ended, by their beginnings; of a card's all, which are waited for.
  /// Each once.
  std::vector<Transfer> take();
  /// When it was made.
  double begun() const { return begun_; }

 private:
  friend void note_transfer(const Transfer& transfer, std::shared_ptr<TransferTimes> times);
  const double begun_;
  std::vector<std::pair<Transfer, std::shared_ptr<TransferTimes>>> noted_;
};

namespace detail {
inline std::atomic<int> g_transfer_logs{0};
}
/// Whether a log lives. Who moves bytes asks before it takes a time or makes a name.
inline bool transfers_wanted() {
  return detail::g_transfer_logs.load(std::memory_order_relaxed) > 0;
}
/// Seconds of the host's steady clock.
double host_seconds();
/// Adds to the logs that are older than its beginning. With `times` begin and end are read when a log is taken. Any
/// thread.
void note_transfer(const Transfer& transfer, std::shared_ptr<TransferTimes> times = nullptr);

/// What this thread moves is called so while a scope lives, for a log. make() gives the name, and is called only where
/// one lives.
class MovedName {
 public:
  template <class F>
  explicit MovedName(F&& make) {
    if (transfers_wanted()) set(make());
  }
  ~MovedName() {
    if (before_) restore();
  }
  MovedName(const MovedName&) = delete;

 private:
  void set(std::string name);
  void restore();
  std::optional<std::string> before_;
};
/// The innermost scope's name; empty outside of any.
const std::string& moved_name();

/// A stretch of time of this thread, put into the log at its end.
class TimedTransfer {
 public:
  TimedTransfer(TransferKind kind, std::string_view track, int64_t bytes = 0);
  ~TimedTransfer();
  TimedTransfer(const TimedTransfer&) = delete;

 private:
  std::optional<Transfer> transfer_;
};

}  // namespace strata::memory
