#pragma once
// Weights that get their memory one after the other. A rank that keeps a part of a model would otherwise begin with all
// of it: what is parted (nn::FullySharded, distributed::shard_module, nn::Experts::spread, a pipeline's stages) asks
// for each weight, takes its part, and lets it go before it asks for the next. docs/design/dist.md

#include <functional>
#include <unordered_map>

#include "strata/nn/module.h"

namespace strata::nn::detail {

/// While one lives it is its thread's. Until made() the parameters of two and more dimensions that modules make
/// (Module::new_parameter) are meta tensors, and what nn::init fills them with is kept instead of computed: generators
/// move on as if it had been. Scopes do not nest: ValueError.
class LateWeights {
 public:
  /// Memory is the thread's default device's of now.
  LateWeights();
  ~LateWeights();
  LateWeights(const LateWeights&) = delete;
  LateWeights& operator=(const LateWeights&) = delete;

  /// The model is made: what modules make from now on is made as ever.
  void made() { making_ = false; }
  /// Gives all of the module's that are still to come their memory, and back to the system what parted ones had.
  void come(const Module& module);

 private:
  friend bool is_late(const Tensor&);
  friend void come(const Tensor&);
  friend void never_come(const Tensor&);
  friend Tensor new_weight(const Shape&);
  friend void make_later(const Tensor&, std::function<Tensor(DType)>);
  struct Weight {
    Tensor handle;  // keeps the key alive
    std::function<Tensor(DType)> make;
  };
  Device device_;
  bool making_ = true;
  std::unordered_map<const TensorImpl*, Weight> weights_;
};

/// Whether a parameter's memory is still to come.
bool is_late(const Tensor& parameter);
/// Gives a parameter that is late its memory, with the bits that it would have been made with, rounded where it was
/// converted since. What is not late is left alone.
void come(const Tensor& parameter);
/// This rank has no use for it: it stays a meta tensor.
void never_come(const Tensor& parameter);
/// Whether it has no memory and gets none here: another rank's, of a pipeline.
inline bool is_elsewhere(const Tensor& parameter) {
  return parameter.is_meta() && !is_late(parameter);
}

/// For Module::new_parameter: memory for a parameter, or a late one.
Tensor new_weight(const Shape& shape);
/// Keeps what gives a late parameter's numbers, in a dtype and on the default device, in the place of what did before;
/// nothing for others. Throws ValueError for a part of one that is being made.
void make_later(const Tensor& parameter, std::function<Tensor(DType)> make);
/// The same of what fills memory of the parameter's dtype of now.
void fill_later(const Tensor& parameter, std::function<void(const Tensor&)> fill);

}  // namespace strata::nn::detail
