#pragma once
// A table, run by its events.

#include <string>
#include <vector>

#include "strata/dist/pipeline/table.h"

namespace strata::distributed::pipeline::detail {

/// All of prove() but what depends on other ranks' pace.
void check_actions(const Table& table);

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
  bool begin(int rank);
  bool send(int rank);
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
