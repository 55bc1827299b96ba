#pragma once
// Parameters computed from others, as torch.nn.utils.parametrize has them: weight norm, spectral norm, orthogonal
// matrices, and your own. State dicts have the names of PyTorch and of the Python package.
//
//     nn::Linear layer(16, 8);
//     nn::parametrizations::weight_norm(layer);  // parametrizations.weight.original0 and .original1
//     optim::SGD optimizer(layer.named_parameters(), {.lr = 0.1});  // built after it
//     Tensor y = layer(x);  // computes layer.weight, then reads it
//
// How: every handle to a layer reads its weight from one tensor. register_parametrization() takes that tensor out of
// the module's parameters, puts a child "parametrizations" with a ParametrizationList for each name in their place, and
// adds a forward-pre hook. Before each forward the hook computes the value from the originals and gives the tensor its
// bytes and its place on the tape, so that backward() goes on to the originals. What earlier forwards saved stays
// theirs (SavedTensor keeps such a tensor as it is then): D(real) + D(fake) has the gradients that it should.
//
// Between forwards, and after load_state_dict() or to(), the member shows what the last forward computed. Where no hook
// runs (forward() called by itself, modules called with more than one tensor such as an LSTM, modules that read a
// child's weight themselves) update_parametrizations(net) computes it. A forward writes the tensor: threads that share
// a parametrised module must take turns.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strata/nn/module.h"

namespace strata::nn {

/// A function that makes a parameter of one or several originals. Its own buffers and parameters are a part of the
/// state: "parametrizations.weight.0.<name>".
class Parametrization : public Module {
 public:
  /// `kind` is the type's name.
  explicit Parametrization(std::string_view kind) : Module(kind) {}
  virtual ~Parametrization() = default;
  /// The parameter. `originals` is one tensor, or as many as right_inverse() of the first parametrisation gave.
  virtual Tensor forward(const TensorList& originals) = 0;
  /// Originals that give `value`, or something close where none do. Empty where it has no inverse: then the original
  /// begins as the parameter was, and the parameter cannot be assigned.
  virtual TensorList right_inverse(const Tensor& value) { return {}; }
};

/// The parametrisations of one parameter, one after the other ("0", "1", ..), and what they begin with: "original", or
/// "original0", "original1", .. where the first one's right_inverse() gives several. A handle, as every Module.
class ParametrizationList : public Module {
 public:
  /// Of the parameter (a buffer where `trained` is false) that is `value` now. Throws ValueError for no `first`.
  ParametrizationList(std::shared_ptr<Parametrization> first, const Tensor& value, bool trained = true);
  /// The value, computed now.
  Tensor forward() const;
  Tensor operator()() const { return forward(); }
  /// Writes originals that give `value`. Throws ValueError where a parametrisation has no right_inverse(), ShapeError.
  void assign(const Tensor& value) const;
  /// One more, after the others.
  void push_back(std::shared_ptr<Parametrization> next);
  size_t size() const { return inside_->steps.size(); }
  const std::shared_ptr<Parametrization>& at(size_t i) const { return inside_->steps.at(i); }
  const TensorList& originals() const { return inside_->originals; }

 private:
  struct Inside {
    std::vector<std::shared_ptr<Parametrization>> steps;
    TensorList originals;
  };
  std::shared_ptr<Inside> inside_;
};

/// module.<name>, a parameter or buffer of the module's own, is from now on `parametrization` of another tensor,
/// module.parametrizations.<name>.original; of a name that has one already, `parametrization` of what that gives. A
/// tensor that two names share, of one module or two, must be registered under both, with one object for both. Throws
/// ValueError for an unknown name, for one that takes several originals and is not the first, for a tensor parametrised
/// by something else under another name, and where the shape or dtype changes, unless `unsafe`; then nothing was
/// changed.
void register_parametrization(const Module& module, std::string_view name,
                              std::shared_ptr<Parametrization> parametrization, bool unsafe = false);
/// module.<name> is registered again, as the last: with the value that it has, or without `leave_parametrized` with its
/// original's. Throws ValueError where it is not parametrised, where several originals cannot be one, and where a
/// second name shares the tensor.
void remove_parametrizations(const Module& module, std::string_view name, bool leave_parametrized = true);
/// Whether the module computes that parameter, or without a name any.
bool is_parametrized(const Module& module, std::string_view name = {});
/// Those of module.<name>. Throws ValueError where it has none.
ParametrizationList parametrizations_of(const Module& module, std::string_view name);
/// Computes the parametrised parameters of the module and of all below it, as their forward would.
void update_parametrizations(const Module& module);

/// While one lives, this thread computes each parametrised parameter once, at its first use. Scopes nest: the outermost
/// counts.
class CachedParametrizations {
 public:
  CachedParametrizations();
  ~CachedParametrizations();
  CachedParametrizations(const CachedParametrizations&) = delete;

 private:
  std::set<const TensorImpl*> computed_;
  bool outermost_;
};

namespace parametrizations {

/// The weight as lengths (original0) times directions (original1), g v / |v| for each slice along `dim`, or for all of
/// it without one or with -1 (arXiv:1602.07868). Throws as register_parametrization; IndexError for `dim`.
void weight_norm(const Module& module, std::string_view name = "weight", std::optional<int64_t> dim = 0);
/// The weight over its largest singular value as a matrix [size(dim), the rest], which `n_power_iterations` in each
/// forward of training follow (arXiv:1802.05957). Without `dim` it is 1 for transposed convolutions, else 0. State: the
/// singular vectors 0._u, 0._v. Throws as register_parametrization; ValueError for fewer than 1 iteration or no
/// dimension.
void spectral_norm(const Module& module, std::string_view name = "weight", int64_t n_power_iterations = 1,
                   double eps = 1e-12, std::optional<int64_t> dim = {});
/// A matrix with orthonormal columns (rows where it is wide): orthogonal_map() of the original, times 0.base. `map` is
/// "cayley", "matrix_exp" or "householder", or that op's choice. It begins at the orthonormal factor of the weight's QR decomposition.
/// Throws as register_parametrization; ValueError for another map and unless the weight is a matrix.
void orthogonal(const Module& module, std::string_view name = "weight", std::string_view map = "");

}  // namespace parametrizations

}  // namespace strata::nn
