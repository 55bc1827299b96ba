#pragma once
// Pipelines: the stages of a model on the ranks of a group, which work on micro-batches in the order of a table.

#include <cstdint>
#include <memory>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"
#include "strata/dist/pipeline/table.h"

namespace strata::distributed::pipeline {

/// What a rank's stages compute.
class StageWork {
 public:
  virtual ~StageWork() = default;
  /// What `stage` makes of a micro-batch: of `x`, what the stage before made, or at stage 0 (x undefined) of the
  /// micro-batch itself. The last stage gives one number, where backward begins: loss / micro-batches, for the
  /// gradients of one large batch.
  virtual Tensor forward(int stage, int micro, const Tensor& x) = 0;
  /// An action other than F is about to add to gradients.
  virtual void before_gradients(const Action& action);
  /// It has.
  virtual void after_gradients(const Action& action);
  /// Leaves of a stage whose gradients come with those of its input, whatever the schedule.
  virtual TensorList never_late(int stage);

 protected:
  StageWork() = default;
  StageWork(const StageWork&) = default;
};

/// An action of a step that was run, in seconds since all ranks were ready for it.
struct ActionSpan {
  Action action;
  double begin = 0, end = 0;  ///< of the computing
  double waited = 0;          ///< for its message, before `begin`; and for room for its own, after `end`; on a card
                              ///< all before `begin` and behind the action before
};

/// Runs a table's actions on the ranks of a group, on the CPU or on a card each. Messages travel beside the computing:
/// each rank has asked for the next ones before it needs them, as many as the table's proof says. Gradients add up in
/// the leaves as in any backward pass, micro-batch by micro-batch in the table's order, so they have the bits of the
/// same micro-batches in one process.
///
/// On cards everything is queued, and the host waits for no message: streams of the ways between two ranks
/// (Group::connect()) and the one that computes wait for each other. A step may be captured in a CUDA graph.
///
///     Pipeline pipeline(make_table("1f1b", 4, 8), distributed::group("pp"));
///     struct Mine : StageWork { Tensor forward(int stage, int micro, const Tensor& x) override { .. } } work;
///     pipeline.run(work, {{rows, dim}, DType::f32, Device::cpu(), {}});   // every rank of the group
///
/// Every rank must have the same table and the same kind of messages, which is looked at before anything is sent.
class Pipeline {
 public:
  /// Proves the table. Throws as prove(), and ValueError where it is for another number of ranks than the group has, or
  /// needs more `buffers` than are given (0: as many as it needs, at least 2).
  Pipeline(const Table& table, Group& group, int buffers = 0);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  /// A step, of a table that trains forward and backward, else forward alone. `between` is what goes from stage to
  /// stage, and its gradient back. Throws ShapeError or DTypeError where a stage makes something else, DistributedError
  /// naming the rank to blame where one is lost or runs another table.
  void run(StageWork& work, const TensorMeta& between);

  const Table& table() const;
  const Proof& proof() const;
  /// What this rank did in the last step; on a card, for which it waits, in the last one behind a time_next().
  const std::vector<ActionSpan>& spans() const;
  /// On cards the next step is timed, by events of the stream that computes, and begins when they have done what they
  /// had: their times have one beginning. Every rank of the group calls it. On the host each step is timed.
  void time_next();
  /// What each rank did in it: every rank of the group must call it.
  std::vector<std::vector<ActionSpan>> all_spans() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The part of a step's time in which its ranks computed nothing, from Pipeline::all_spans().
double measured_bubble(const std::vector<std::vector<ActionSpan>>& spans);

}  // namespace strata::distributed::pipeline
