#pragma once
// Data parallelism in which ranks share the memory of what they would all have alike: ZeRO 1, 2 and 3 (FSDP).
// docs/design/dist.md

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/nn/module.h"
#include "strata/nn/streamed.h"

namespace strata::distributed {
class Group;
}

namespace strata::nn {

/// What a rank keeps a part of, and how that travels.
struct FullyShardedOptions {
  /// 1: optimizer state; 2: gradients, too; 3: parameters, too.
  int zero = 3;
  std::string axis = "dp";  ///< of the mesh: its ranks have parts ("tp", "dp+cp" are axes, too)
  /// Axes over whose ranks parts are replicated, their gradients averaged; empty: none. With 3 and "dp=4 in=8",
  /// axis = "in", replicas = "dp": parameters travel within eights, parts of gradients between them (HSDP).
  std::string replicas;
  int64_t bucket_bytes = int64_t{25} << 20;  ///< gradients that travel together
  /// Of 3: among how many neighbouring ranks a block's parameters lie from its forward to its backward. 0: all of the
  /// axis, so that they travel among all of them twice; 1: each has them whole, and they travel once; n, which divides
  /// the ranks: each has 1/n, and what is gathered for backward travels among n (within a host, say).
  int reshard_to = 0;
  /// Of 3: whether the gradients of every pass of a step travel, so that none is ever whole, or whole ones add up and
  /// travel once. Sums are those of DataParallel, bit for bit, with the latter alone: where averages of passes are
  /// added up, they are taken in another order.
  bool reduce_every_pass = true;
  int64_t whole_below = 0;  ///< of 3: parameters of fewer elements stay whole in every rank
  /// Of 3: tables of nn::Embedding of so many bytes and more are looked up by the rows that a batch names, within a Pass,
  /// where these and their gradients are fewer bytes than all of it and its gradient; the ranks tell each other how many
  /// before each lookup. INT64_MAX: none is.
  int64_t rows_from = 128 << 10;
  /// Names of such tables that nothing reads but one lookup a pass, no output layer. They are looked up so too where
  /// gradients travel whole, with the bits of DataParallel (`reduce_every_pass` false, `micro_batches`), and where
  /// parameters stay (`reshard_to` 1), which other tables are not.
  std::vector<std::string> looked_up;
  /// Of 1: whether finish() averages the gradients. false: they are whole and the same in all ranks by then, as
  /// distributed::ExactGradients leaves them, and stay where they are until gather_updated().
  bool average = true;
  /// Of 2 and 3, not 0: gradients are the sums of so many micro-batches a step, added in one tree whatever the ranks,
  /// as distributed::ExactGradients adds them: the bits are the same on any number of ranks that divides it. Pass i of
  /// rank r of n is to be number i n + r, and every pass's gradients travel. Not for replicas.
  int64_t micro_batches = 0;
  /// Names of parameters that are left alone, as if they were not the module's.
  std::vector<std::string> leave_out;
  /// Of 2 and 3: names of the parameters of each stage of a pipeline that this rank has, whose passes take turns:
  /// gradients of a stage travel by themselves. Empty: there is one. Each trained parameter is in one of them.
  std::vector<std::vector<std::string>> stages;
  /// Of 2 and 3: names of parameters of which gradients come that are not all of a pass's, a table that two stages
  /// read. They are taken when their stage's pass ends, with what there is, the last ones in finish().
  std::vector<std::string> joined;
  /// Names of parameters of which other ranks have the same: experts that expert parallelism has spread. Their parts
  /// are on the ranks of `apart_axis`, over which alone their gradients are averaged; with one rank there each keeps
  /// what it has.
  std::vector<std::string> apart;
  std::string apart_axis;
};

/// Averages gradients over the ranks of an axis as distributed::DataParallel does, with the same bits, but a rank
/// updates, and has optimizer state for, its part of each parameter alone: the rows that Placement "S(0)" gives it. Of
/// 2 it keeps its part of the gradients alone, which are reduce_scattered while backward runs. Of 3 parameters, too,
/// lie in parts, and are whole for as long as calls read them: a block's (StreamedPart) are gathered while the block
/// before it computes, in forward and backward and what runs again, and go behind it. Which comes next is learnt from
/// the first step. Of f32 parameters that autocast reads in bf16 or f16 the copy is gathered, not they (Rajbhandari et
/// al., arXiv:1910.02054; Zhao et al., arXiv:2304.11277).
///
///     distributed::set_mesh(distributed::Mesh("dp=4"));
///     nn::FullySharded sharded(model, {.zero = 3});
///     optim::AdamW optimizer(sharded.parameters(), {.lr = 1e-3});
///     for (..) {
///       for (const Batch& part : parts) {
///         const nn::FullySharded::Pass pass(&sharded);
///         sharded.reduce_next(&part == &parts.back());
///         loss(model, part).backward();
///       }
///       sharded.finish();          // parameters() have the averages as gradients
///       optimizer.step();
///       sharded.gather_updated();  // every rank's model has all updates
///       optimizer.zero_grad();
///     }
///
/// Every rank makes the same calls in the same order, calls of the model included. Parameters of the model have no
/// gradients: those of parameters() have. One that got no gradient on any rank keeps none; one that got it on some
/// counts as zero on the others. Tied parameters are one. Frozen ones are shared by 3 and left alone by 1 and 2. A table
/// that was looked up by its rows has no gradient that grad() or hooks on it would see, and none of the second order.
/// Parameters of no dimension, and of 3 those that are a part of a larger tensor, stay whole.
class FullySharded {
 public:
  /// Makes every rank's parameters those of the first. Of 3 every handle to a parameter sees the one that lies in
  /// parts. Module and groups must outlive it. Throws ValueError for options that make no sense or an axis that the
  /// mesh does not have; DistributedError where the ranks' parameters differ, naming the first that does.
  explicit FullySharded(const Module& module, const FullyShardedOptions& options = {});
  ~FullySharded();
  FullySharded(const FullySharded&) = delete;

  /// What an optimizer updates: each trained parameter's part, by the parameter's name; where the axis has several
  /// ranks a sharded tensor that lies as "S(0)".
  NamedTensors parameters() const;

  /// Around forward and backward of one batch, of all of a pipeline's step, whose turns are the same in each, and
  /// around a forward alone: blocks' parameters come ahead of their use. Without one calls gather what they read
  /// themselves. nullptr: nothing happens.
  class Pass {
   public:
    explicit Pass(FullySharded* sharded);
    ~Pass();
    Pass(const Pass&) = delete;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  /// Before every pass of a step that has several: whether the pass that follows is its last. True from the start.
  void reduce_next(bool yes);
  /// The same before whatever adds to gradients of a stage: `last` that no more of its passes follow in this step,
  /// `rest` that no more of this pass's gradients do. Where a pass has two halves (SplitBackward) those of the first
  /// travel with the second's.
  void reduce_next(size_t stage, bool last, bool rest);
  /// Waits until every gradient is the ranks' average; what parameters() had as gradient is added to. Throws
  /// DistributedError where a reduction failed.
  void finish();
  /// After the update: what is whole in every rank gets the other ranks' parts.
  void gather_updated();

  /// The groups over which parts and gradients travel: who captures steps connects them before.
  std::vector<distributed::Group*> groups() const;
  /// The parameters that come and go; empty but for 3.
  std::vector<StreamedPart> blocks() const;
  /// What was gathered so far, in bytes of whole parameters.
  StreamStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether a parameter lies in parts on the ranks, by a FullySharded of ZeRO 3: then all ranks must read it together.
bool lies_in_parts(const Tensor& parameter);
/// Such a parameter as a sharded tensor "S(0)" over this rank's part, whose memory it shares: what is written to the
/// part is the parameter's. Other tensors as they are. Throws ValueError where its FullySharded has gone.
Tensor as_it_lies(const Tensor& parameter);

}  // namespace strata::nn
