#pragma once
// A step of the settings as forecasts want it: what each layer computes and keeps, as a function of the rows of a pass.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "strata/core/rng.h"
#include "strata/dist/pipeline/partition.h"
#include "strata/train/config.h"
#include "strata/train/estimate_inl.h"
#include "strata/train/plan/machine.h"

namespace strata::plan {

// Dry runs draw what models' parameters take, of random numbers that are the program's.
class RandomKept {
 public:
  RandomKept() = default;
  ~RandomKept() { default_generator().set_state(before_); }
  RandomKept(const RandomKept&) = delete;

 private:
  RngKey before_ = default_generator().state();
};

// A number that grows with the rows of a pass.
struct Affine {
  double fixed = 0, by_row = 0;
  double at(double rows) const { return std::max(fixed + by_row * rows, 0.0); }
  static Affine through(double rows1, double y1, double rows2, double y2) {
    const double slope = (y2 - y1) / (rows2 - rows1);
    return {y1 - slope * rows1, slope};
  }
};

// One call of a layer, in seconds at the machine's limits: of its operations, and of the bytes that it moves.
struct CallCost {
  Affine operations, moves;
  bool operator==(const CallCost& o) const {
    return std::tie(operations.fixed, operations.by_row, moves.fixed, moves.by_row) ==
           std::tie(o.operations.fixed, o.operations.by_row, o.moves.fixed, o.moves.by_row);
  }
};

// Calls and bytes that layers have alike.
struct LayerKind {
  // A backward pass, as a whole and as SplitBackward's halves.
  struct Back {
    std::vector<CallCost> whole, input, weight;
    bool operator==(const Back&) const = default;
  };
  std::vector<CallCost> forward;
  Back backward, again;             // again: of a block that keeps its inputs alone
  Affine saved, saved_again;        // bytes from forward to backward
  Affine takes;                     // bytes beside what is saved, at most at once
  double weights = 0, trained = 0;  // bytes; elements
  double experts = 0;               // of the weights' bytes those of routed experts
};

// Seconds of a layer in a pass, and of the halves of a backward pass that is split: those are more together where each
// runs a block again.
struct LayerTimes {
  double forward = 0, backward = 0, input = 0, weight = 0;
};

class Profile {
 public:
  // Four dry runs of steps, as many of passes in two halves and eight of memory. Throws ValueError for settings that
  // estimate_memory() refuses, and for a machine without limits.
  Profile(const TrainConfig& config, const Machine& machine);

  const TrainConfig& config() const { return config_; }
  const Machine& machine() const { return machine_; }
  TokenDecoder& model() const { return *model_; }
  const LanguageModel* decoder() const { return decoder_; }
  // In the order of a forward pass: embeddings, blocks, head; one of a model that is no decoder.
  const std::vector<size_t>& layers() const { return layers_; }
  const LayerKind& kind(size_t layer) const { return kinds_[layers_[layer]]; }
  // Of a rank that has 1/parts of each product, with that much of the weights where they are cut.
  LayerTimes times(size_t layer, double rows, double parts, double cut, bool recompute) const;
  // Seconds of the update of so many of the trained elements, and of reading and writing gradients once more.
  double update(double share) const;
  double moving(double bytes) const {
    return bytes / (1e9 * machine_.limits.gb_s * machine_.efficiency * machine_.share);
  }
  // Memory of one rank alone, without a model.
  AloneEstimate alone(double rows, int64_t accumulate, bool recompute) const;
  // Layers' costs as a pipeline cuts by them.
  const std::vector<distributed::pipeline::LayerCost>& cut_by() const { return cut_by_; }

  double tokens = 0;          // of a row
  double gathered_size = 4;   // bytes of an element that ZeRO 3 gathers
  double gradient_size = 4;
  double activation_size = 4;
  double state = 0;           // bytes of the optimizer's state for an element
  bool tied = false;          // the head is the table of tokens

 private:
  void record(bool recompute);
  void measure_memory();
  // Of a call that the limits allow so many.
  double seconds_of(double at_limits) const {
    return (at_limits / machine_.efficiency + 1e-6 * machine_.call_us) / machine_.share;
  }

  TrainConfig config_;
  Machine machine_;
  std::shared_ptr<TokenDecoder> model_;
  const LanguageModel* decoder_ = nullptr;
  std::vector<size_t> layers_;
  std::vector<LayerKind> kinds_;
  std::vector<CallCost> update_;
  std::vector<distributed::pipeline::LayerCost> cut_by_;
  struct Memory {
    AloneEstimate low, high;  // of kLowRows and kHighRows
  };
  std::map<std::pair<bool, bool>, Memory> memory_;  // several passes, recompute
  mutable std::map<std::tuple<size_t, double, double, double, bool>, LayerTimes> known_;
};

}  // namespace strata::plan
