#pragma once
// Linear layers whose weight comes later, and then in few bits: no dense weights of a whole model are ever there.

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "strata/nn/packed.h"

namespace strata::nn::detail {

/// While one lives, on its thread, the weights of new Linears are meta tensors of `dtype` that a dry run counts one
/// element of; biases and all else are made as ever. The innermost holds.
class DeferredWeights {
 public:
  explicit DeferredWeights(DType dtype);
  ~DeferredWeights();
  DeferredWeights(const DeferredWeights&) = delete;
  DeferredWeights& operator=(const DeferredWeights&) = delete;

  /// That of the thread's innermost, if any.
  static std::optional<DType> dtype();

 private:
  std::optional<DType> before_;
};

/// Gives the weights that are still to come, but for the parameters named in `but`, memory on the default device, in
/// the thread's tier.
void make_deferred(const Module& module, const std::set<std::string>& but);
/// The same, but for those of layers that quantize() would take.
void make_deferred(const Module& module, const PackOptions& options);

/// quantize_weight() for the layer of that name, which its errors name.
PackedWeight rounded_weight(const std::string& layer, const Tensor& weight, std::string_view format,
                            const QuantizeOptions& rounding);

}  // namespace strata::nn::detail
