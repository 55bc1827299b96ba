#pragma once
// Gradients as loops read them, and what of a sum over them counts: each element of sharded ones once.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/op_call.h"
#include "strata/core/tensor.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

/// The CUDA device that holds all of them, if one does.
std::optional<Device> device_of_all(std::span<const Slab> slabs);

/// The gradients of some parameters, those of sharded ones as this rank's parts.
struct GradParts {
  /// `op` is named in errors; ranks of `more` have other parameters (Optimizer::norm_over()).
  GradParts(const TensorList& params, bool writable, std::string_view op, const std::string& more = {});

  std::vector<Slab> slabs;
  TensorList given;  ///< of each slab, the gradient: sharded where its parameter is

  std::optional<Device> only_device() const { return device_of_all(slabs); }

  /// The sum of the squares of all elements of the whole, and the loss: NaN where it is not finite in some rank, else
  /// this rank's.
  struct Seen {
    double squares, loss;
  };
  Seen look(double loss) const;
  /// The same without waiting, of gradients on one device: f64 [1] or what `loss` was where nothing is sharded.
  struct OnDevice {
    Tensor squares, loss;
  };
  OnDevice look_on_device(const Tensor& loss) const;

 private:
  /// sum(slabs that `copies` ranks have each) for every number of copies.
  template <class F>
  void for_copies(F&& sum) const;
  TensorList keep_;
  strata::detail::Pins pins_;
  std::string group_;           // "" where nothing is sharded
  std::vector<double> copies_;  // of each slab: how many ranks of the group have the same elements
};

/// This rank's part of a parameter's gradient; undefined where there is none. The gradient of a sharded parameter is
/// first brought to lie as it, and stays so.
Tensor gradient_part(const Tensor& param);
/// This rank's part of `t`, plain or sharded, as `like` lies; all of it where that is plain. Row-major.
Tensor part_of(const Tensor& t, const Tensor& like);
/// `part`, which is shaped as this rank's part of `like`, as a sharded tensor of that layout.
Tensor lying_as(const Tensor& part, const Tensor& like);

}  // namespace strata::optim
