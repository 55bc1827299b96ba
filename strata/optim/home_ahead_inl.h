#pragma once
// What an optimizer keeps for updates that run ahead.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "strata/autograd/hooks.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/home.h"

namespace strata::optim {

struct Optimizer::Ahead {
  // The parts of the sum of squares of a parameter's gradient, made when backward() had it.
  struct Note {
    Tensor grad;  // that they are of; undefined for none
    uint32_t version = 0;
    int64_t at = 0;  // in `parts`
    HookHandle hook;
  };

  Ahead(Optimizer& o, const StateHome& home);
  ~Ahead();
  Ahead(const Ahead&) = delete;
  void note_squares(size_t i, const Tensor& grad);

  StateHome::Who who;
  std::vector<bool> here;  // by the parameters' index: updated by step() itself
  std::mutex mutex;        // of notes: hooks run on backward's threads
  std::vector<Note> notes;
  Tensor parts;  // f64
  int64_t noted = 0;
  // While step() asks the rule what it would run.
  bool collecting = false;
  std::vector<std::pair<Rule, std::vector<Slab>>> collected;
  double host_share = -1;  // of the last update
  std::unique_ptr<AheadCard> card;
  std::unique_ptr<AheadUpdate> update;  // the last member: its end is waited for before the others go
};

}  // namespace strata::optim
