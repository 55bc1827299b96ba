#pragma once
// What a Streamed and its scope share.

#include <string>
#include <unordered_map>
#include <vector>

#include "strata/autograd/hooks.h"
#include "strata/nn/streamed.h"

namespace strata::nn {

struct Streamed::State {
  struct Slot {
    std::string name;
    Tensor parameter;
    size_t part = 0;
    bool in_place = false;  // it has a place of its own, and only its copy comes and goes
    Ref<Storage> home;      // its bytes, as long as they are on the tier
    Tensor low;             // autocast's copy, where that is on the tier
    HookHandle hook;        // sends the gradient home
    bool hooked = false;
  };
  struct Part {
    StreamedPart shown;
    std::vector<size_t> slots;
    bool unforeseen = false;
  };
  // A parameter, or its copy in low precision: 2 * slot, + 1.
  using Key = size_t;
  // A part's turn, and what calls read of it.
  struct Visit {
    size_t part = 0;
    bool backward = false;
    std::vector<Key> used;
  };

  State(const Module& module, const StreamOptions& options);
  ~State();

  void find_parts(const Module& module);
  void descend(const Module& module, const std::string& at, bool inside, std::vector<const TensorImpl*>& seen);
  void add_part(const std::string& name, const NamedTensors& parameters);
  bool is_in_place(const std::string& name) const;
  std::vector<StreamedPart> shown_parts() const;
  /// Brings what is known of parameters up to date: those that have other bytes now go to the tier.
  void refresh();
  void settle_low(Slot& s);
  void set_low(size_t slot, const Tensor& low);
  Storage* storage_of(Key key) const;
  void send_gradient(const Tensor& leaf, const std::string& name) const;

  StreamOptions options;
  int64_t near_bytes = 0;
  std::vector<Slot> slots;
  std::vector<Part> parts;
  std::unordered_map<const Storage*, Key> keys;
  std::vector<Visit> plans[2];  // without, with gradients: the last scope's
  StreamStats stats;
  bool in_scope = false;
  bool holds_gradients = false;
};

}  // namespace strata::nn
