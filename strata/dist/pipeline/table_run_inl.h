#pragma once
// A table, run by its events.

#include <optional>
#include <string>
#include <vector>

#include "strata/dist/pipeline/table.h"

namespace strata::distributed::pipeline::detail {

/// All of prove() but what depends on other ranks' pace.
void check_actions(const Table& table);

/// A message as one of its ends has it.
struct QueuedMessage {
  bool sends = false;
  Pass pass = Pass::forward;  ///< forward: activations; backward: a gradient
  int stage = 0, micro = 0;   ///< where it goes
  size_t behind = 0;          ///< how many of its rank's actions come before it
};

/// Ranks do their actions one after the other. An action begins when its messages are there, and ends when its own has
/// room: what comes out does not depend on who is looked at first.
class TableRun {
 public:
  /// `table` has passed check_actions().
  TableRun(const Table& table, const std::vector<StageCost>& costs, double send, int buffers);
  /// Throws ValueError naming where each rank stands when they wait for each other.
  Simulation run();
  /// Whether all ranks come to their ends.
  bool ends();
  /// All messages in one order, step by step as they come in time, of which each rank gets its own: behind the action
  /// that makes it, before the one that takes it, and behind the one that takes the message `buffers` before it.
  /// Throws as run().
  std::vector<std::vector<QueuedMessage>> message_order();

 private:
  // Messages from a stage to one beside it.
  struct Channel {
    std::vector<double> there;  // when each message is at its receiver
    std::vector<double> taken;
  };
  struct Rank {
    size_t next = 0;       // action
    bool sending = false;  // it is done, its message has no room
    double free = 0, busy = 0;
  };
  bool advance(int rank);
  // When the rank's next step can be, an action or its message; none while it waits for another rank.
  std::optional<double> next_at(int rank);
  void step(int rank, double at);
  // Where an action's message comes from and goes to; nullptr for none.
  Channel* incoming(const Action& a);
  Channel* outgoing(const Action& a);
  const Action& action(int rank) const;
  double cost(const Action& a) const;
  bool at_end(int rank) const;
  std::string standstill();

  const Table& table_;
  std::vector<StageCost> costs_;
  double send_;
  int buffers_;
  std::vector<Rank> ranks_;
  std::vector<Channel> forward_, backward_;  // by the stage that they lead to
  Simulation result_;
};

}  // namespace strata::distributed::pipeline::detail
