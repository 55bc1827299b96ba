#pragma once
// Schedules of pipelines as tables: what each rank does, in which order. A table is plain data; what is sent follows
// from it. Before it runs it is proved to do everything once, in an order that can be kept, in bounded memory.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::distributed::pipeline {

/// What is done with a micro-batch at a stage.
enum class Pass : uint8_t {
  forward,          ///< F
  backward,         ///< B: all gradients, those of the inputs and of the weights
  input_gradient,   ///< I: what the stage before waits for
  weight_gradient,  ///< W: the rest, which nobody waits for
};
/// 'F', 'B', 'I' or 'W'.
char letter_of(Pass pass);

/// One thing that a rank does.
struct Action {
  Pass pass = Pass::forward;
  int stage = 0;
  int micro = 0;  ///< which micro-batch
  bool operator==(const Action&) const = default;
};
/// "F of micro-batch 3 at stage 1".
std::string to_text(const Action& action);

/// A schedule: after F the activations go to the rank of the next stage, after B or I the gradient to that of the stage
/// before.
struct Table {
  std::string schedule;  ///< "1f1b"
  int ranks = 1, stages = 1, micro_batches = 1;
  bool trains = true;                        ///< false: forward passes alone
  std::vector<int> rank_of;                  ///< each stage's
  std::vector<std::vector<Action>> actions;  ///< each rank's, in order

  /// The stages of a rank, ascending.
  std::vector<int> stages_of(int rank) const;
};
/// A line for each rank: "F0 F1 B0 B1"; with the stage where a rank has several: "F0.0 F0.2".
std::string to_text(const Table& table);

/// What holds of a table that was proved.
struct Proof {
  int buffers = 0;        ///< messages from one stage to the next that wait at most, before their sender does
  std::vector<int> live;  ///< each rank's most micro-batches, stage by stage, whose activations are kept
};
/// Proves that every action stands once, on its stage's rank, behind what it needs; that messages are taken in the
/// order in which they are sent; and that no ranks wait for each other for ever where a sender waits while `buffers` of
/// its messages to one stage have not been taken. 0 finds the fewest that suffice. Throws ValueError naming the action
/// that is wrong, or for each rank the action at which it stands still.
Proof prove(const Table& table, int buffers = 0);

/// What a stage takes for a micro-batch, in seconds (or any unit). B takes `input` and `weight`.
struct StageCost {
  double forward = 1, input = 1, weight = 1;
};
/// What passes on ranks whose actions take so long.
struct Simulation {
  double seconds = 0;                      ///< from the first action to the end of the last
  double bubble = 0;                       ///< the part of all ranks' time in which they do nothing
  std::vector<double> busy;                ///< each rank's
  std::vector<std::vector<double>> begin;  ///< of each rank's actions
};
/// Runs a table by its events: one cost for all stages or one for each, `send` seconds from the end of an action until
/// its message is there, and as many messages waiting as `buffers` says (0: any number). Throws as prove().
Simulation simulate(const Table& table, const std::vector<StageCost>& costs, double send = 0, int buffers = 0);

}  // namespace strata::distributed::pipeline
