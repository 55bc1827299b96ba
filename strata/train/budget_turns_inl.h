#pragma once
// Follows the steps of a program's own loop: whose turn it is, and what each call takes for itself.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "strata/autograd/recompute.h"
#include "strata/core/op_call.h"
#include "strata/nn/module.h"

namespace strata::budget {

/// Of a network: an item of its outermost container, or a child.
struct Part {
  std::string name;
  TensorList parameters;
  int64_t bytes = 0;
};
std::vector<Part> parts_of(const nn::Module& model);

/// Follows forward on its thread: which part's turn it is. The first parts keep nothing and are computed again.
class Turns final : public CallObserver {
 public:
  explicit Turns(std::vector<Part> parts, Device device) : parts_(std::move(parts)), device_(device) {}

  /// Turns of each pass that keep nothing; where there are none, calls are looked at only to `note` turns.
  void set_again(int64_t turns, bool note);
  /// Forward is over.
  void rest();
  /// The calls at which turns began since the last call, by pass; with a recorder's numbers.
  std::vector<std::vector<int32_t>> take() { return std::exchange(passes_, {}); }
  const std::vector<Part>& parts() const { return parts_; }

  /// Bytes that a call took of the device for itself, beside its arguments and results: its workspace, of the host's
  /// threads as if all of them had taken part.
  struct Own {
    int32_t call = 0;  ///< with a recorder's numbers
    int64_t bytes = 0;
  };
  /// From now on each call's own bytes are measured, which begins the device's peak anew with each; until end_own().
  void begin_own();
  /// What was measured, and the most that was in use meanwhile.
  std::vector<Own> end_own(int64_t& peak);

  void before(const Call& call) override;
  void after(const Call& call, std::span<const Tensor> results) override;
  void failed(const Call& call) override;

 private:
  void close();
  void see(const Call& call);
  void refresh();
  void begin(size_t part);

  std::vector<Part> parts_;
  const Device device_;
  std::map<const Storage*, size_t> owner_;
  std::vector<bool> open_;  // calls, whether they are composed
  std::vector<Value> args_;
  int64_t again_ = 0;
  bool over_ = true, stale_ = true;
  size_t now_ = 0;
  std::vector<std::vector<int32_t>> passes_;
  std::optional<ObserverScope> observing_;
  std::optional<Recompute> recompute_;
  bool measuring_ = false;
  std::optional<Own> own_;  // the open call's, with what was there before it
  std::vector<Own> owns_;
  int64_t peak_ = 0;
};

}  // namespace strata::budget
