#pragma once
// Where the time of a program goes, op by op.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/core/op.h"

namespace strata::lab {

/// Times every op that its thread calls while it lives, backward passes included (their ops are ops like any other).
/// Time inside an op that calls ops counts for those; the rest, from the first to the last call's end, is `outside`:
/// optimizer updates, data, autograd's own work.
///
///     lab::OpProfile profile;
///     train_step();
///     std::puts(profile.table().c_str());
class OpProfile final : public CallObserver {
 public:
  struct Row {
    const OpBase* op = nullptr;
    int64_t calls = 0;
    double seconds = 0;  ///< without the ops that it called
  };

  OpProfile() : scope_(*this), begin_(Clock::now()) {}

  void before(const OpBase& op) override;
  void after(const OpBase& op, std::span<const Tensor> results) override;

  /// Slowest first.
  std::vector<Row> rows() const;
  /// Seconds from construction until now.
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  /// rows() as text: op, calls, milliseconds, share of elapsed(), microseconds a call; `outside` last.
  std::string table() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    const OpBase* op;
    Clock::time_point begin;
    double inner = 0;
  };
  ObserverScope scope_;
  Clock::time_point begin_;
  std::vector<Open> open_;
  std::vector<Row> rows_;
};

}  // namespace strata::lab
