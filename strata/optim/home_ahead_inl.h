#pragma once
// What an optimizer keeps for updates that run ahead.

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "strata/autograd/hooks.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/home.h"

namespace strata::optim {

struct Optimizer::Ahead {
  // The parts of the sum of squares of a parameter's gradient, made when backward() had it.
  // They are not held: a gradient that goes home afterwards would stay on the device by that.
  struct Note {
    bool is_of(const Tensor& grad) const;
    uint64_t storage = 0;  // the watch_number() of what they are of; 0: none
    int64_t offset = 0;
    DType dtype = DType::f32;
    uint32_t version = 0;
    int64_t at = 0;     // in `parts`
    uint64_t came = 0;  // when its gradient last did, counted in gradients; 0: never
    HookHandle hook;
  };

  Ahead(Optimizer& o, const StateHome& home);
  ~Ahead();
  Ahead(const Ahead&) = delete;
  void note_squares(size_t i, const Tensor& grad);

  // Of updates that begin in backward().
  struct Early {
    explicit Early(size_t parameters) : came(parameters), once(parameters), begun(parameters) {}
    Optimizer* optimizer = nullptr;  // while an UpdateInBackward lives
    std::mutex mutex;                // of all below: hooks run on backward's threads
    std::vector<int> came;           // gradients of each parameter in this pass
    std::vector<bool> once;          // whether one came in the pass before, and no more
    std::vector<bool> begun;         // whether its update has, since the last step
    std::vector<size_t> complete;    // whose bytes somebody held
    bool any = false;                // of `begun`
    std::unique_ptr<AheadUpdate> update;
  };
  void gradient_came(size_t i);

  StateHome::Who who;
  std::vector<bool> here;  // by the parameters' index: updated by step() itself
  std::mutex mutex;        // of notes: hooks run on backward's threads
  std::vector<Note> notes;
  Tensor parts;  // f64
  int64_t noted = 0;
  uint64_t came = 0;  // gradients so far
  // While step() asks the rule what it would run.
  bool collecting = false;
  std::vector<std::pair<Rule, std::vector<Slab>>> collected;
  std::optional<AheadTimes> times;  // of the last update that was waited for
  std::unique_ptr<AheadCard> card;
  // The last members: their end is waited for before the others go.
  Early early;
  std::unique_ptr<AheadUpdate> update;
};

}  // namespace strata::optim
