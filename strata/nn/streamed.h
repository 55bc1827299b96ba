#pragma once
// Networks whose parameters live elsewhere than where they are computed with: in page-locked host memory, or on a disk.
// docs/design/tiers.md.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/backend.h"
#include "strata/nn/module.h"

namespace strata::nn {

/// How a network is streamed.
struct StreamOptions {
  /// The parameters' home: movable memory of their device (`pinned` of a card, memory::kDisk of any).
  Tier tier = Tier::pinned;
  /// Bytes of parameters near at most, the next parts' included; 0: as much as `parts_near` of the largest part take.
  /// Of the part that does not fit as a whole, the weights that do come all the same.
  int64_t near_bytes = 0;
  int parts_near = 2;
  /// Whether gradients go to the tier as they are accumulated. Not for an optimizer that sends them elsewhere itself.
  bool gradients = true;
  /// Whether backward computes a part's activations again from what came into the part (strata/autograd/recompute.h).
  bool recompute = true;
  /// Where what comes into a part is kept until backward; Tier(): where it is.
  Tier inputs;
  /// Names of parameters that never come near as a whole: tables of which calls read rows, and weights that are only
  /// read to be converted for autocast, in whose place the copy comes. They live on `in_place_tier`, where their device
  /// reads them in place: memory::kUnified of a card, or Tier(), its own.
  std::vector<std::string> in_place;
  Tier in_place_tier;
  /// Names of parameters that are left alone: calls do not read them here (another rank's stage does), or find them
  /// where they are.
  std::vector<std::string> leave_out;
  /// Whether the tier brings all of a part where one of its parameters is wanted: then a part that does not fit as a
  /// whole waits for its turn.
  bool whole_parts = false;
};

/// A part of a network that comes and goes as a whole.
struct StreamedPart {
  std::string name;   ///< of the module, or where a module of several parts has parameters itself, of these
  int64_t bytes = 0;  ///< of its parameters
  int64_t reads = 0;  ///< how often the last forward came to it
  /// Why its bytes may be waited for, or why it stays where it is; empty for what goes as it should.
  std::string note;
};

/// What a Streamed moved so far.
struct StreamStats {
  int64_t bytes_ahead = 0;    ///< brought because it was known that they come next
  int64_t bytes_late = 0;     ///< brought when a call wanted them
  int64_t visits = 0;         ///< how often a part's turn came
  int64_t unforeseen = 0;     ///< of them, those of parts that were neither near nor on their way
  double seconds_waited = 0;  ///< of this thread for bytes; a card's streams wait by themselves
};

/// Makes a network's parameters live on a tier, and brings them a part at a time: while one computes, the next one
/// comes, and those that are not wanted soon go. Which part is next it learns from the step before: it watches which
/// parameters calls read, in forward, backward and what runs again, so any tree of modules will do, called in whatever
/// way; a step that goes another way than the last one computes the same, but waits. Of a first step, backward is
/// known.
///
/// Parts are the modules at which a descent from `module` ends: below containers (ModuleList, Sequential) and below
/// what does not fit in near_bytes / parts_near. Parameters that share their bytes with others stay where they are.
/// Gradients go to the tier as they are accumulated. Low-precision copies that autocast keeps live there too, and are
/// brought in their place. Buffers stay.
///
///     nn::Streamed streamed(model, {.tier = Tier::pinned});
///     for (..) {
///       {
///         const nn::StreamScope scope(streamed);
///         model.loss(x, y).backward();
///       }
///       optimizer.step();
///     }
///
/// A network that the device has no room for is made at its home: within a memory::TierScope of the tier. Of one that
/// is made elsewhere every handle to a parameter sees it at its new home, optimizers' too. Outside of a scope calls
/// bring what they read.
///
/// Losses and gradients are bit for bit those of the network at home on its device. memory::set_near_limit() bounds
/// what is near of everything on the tier, in whole pages: room for near_bytes and the largest part once more, for its
/// gradient; twice near_bytes, where the gradients of several passes add up.
class Streamed {
 public:
  /// Moves the parameters. Throws ValueError where the tier's bytes do not move, a part that cannot be divided is
  /// larger than near_bytes (naming it and its bytes), `in_place` names no parameter, the bytes of its tier move, or
  /// numbers make no sense; DeviceError where the parameters' device has no such memory; MemoryError where it is full:
  /// some have moved then.
  explicit Streamed(const Module& module, const StreamOptions& options = {});
  /// The parameters stay at their home.
  ~Streamed();
  Streamed(const Streamed&) = delete;

  /// While `yes`, gradients stay where backward makes them until send_gradients(): for passes that add to those of a
  /// part several times in a row, so that they move once.
  void hold_gradients(bool yes);
  /// The gradients that are not at their tier go there now. Nothing where StreamOptions::gradients is false.
  void send_gradients();

  /// In the order of registration.
  std::vector<StreamedPart> parts() const;
  /// What was given, or came of it.
  int64_t near_bytes() const;
  StreamStats stats() const;
  /// A line for each part and one of stats().
  std::string report() const;

 private:
  friend class StreamScope;
  friend std::vector<StreamedPart> parts_of(const Module& module, const StreamOptions& options);
  struct State;
  std::unique_ptr<State> state_;
};

/// The parts that a Streamed would make of a network, with their bytes; nothing moves, and the tier need not be there.
/// Throws ValueError as a Streamed's constructor does for numbers and names.
std::vector<StreamedPart> parts_of(const Module& module, const StreamOptions& options = {});

/// Moves a network's parameters, with their gradients, to a tier of their device, Tier() being its own: what a Streamed
/// does when it is made, and the way back. Every handle to a parameter sees it there. Parameters that share their bytes
/// with others stay where they are. Throws as Tensor::to(): those before have moved then.
void move_parameters(const Module& module, Tier tier);

/// Parameters of a Streamed come and go with the calls of this thread while one lives. One forward, forward and
/// backward, or several of them: steps that are alike should have the same in it. Throws ValueError where the Streamed
/// has a scope already.
class StreamScope {
 public:
  explicit StreamScope(Streamed& streamed);
  /// Lets everything go.
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace strata::nn
