#pragma once

#include <cstdint>

namespace strata::detail {

// Which positions of each sequence this process has, where several share them (context parallelism): of `length` along
// dimension 1 the neighbours [part length / parts, ..), or, `paired`, chunks part and 2 parts - 1 - part of 2 parts.
struct PositionShare {
  int64_t length = 0;
  int64_t part = 0, parts = 1;
  bool paired = false;
};

// While one lives, dropout's numbers belong to elements of the whole sequences, in all threads of the process, and
// default_generator(), which has one state in all who share them, moves on by what these take.
class PositionShareScope {
 public:
  explicit PositionShareScope(const PositionShare& share);
  ~PositionShareScope();
  PositionShareScope(const PositionShareScope&) = delete;

 private:
  PositionShare outer_;
};

// The innermost scope's; of one part without one.
PositionShare position_share();

}  // namespace strata::detail
