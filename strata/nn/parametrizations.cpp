// Weight and spectral norm, orthogonal matrices.

#include <string>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/nn/parametrize.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/norm/weight_norm.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::nn::parametrizations {
namespace {

// What module.<name> is now, without history.
Tensor value_of(const Module& module, std::string_view name, std::string_view op) {
  const NoGrad guard;
  if (is_parametrized(module, name)) return parametrizations_of(module, name).forward().detach();
  return detail::ModuleHooks::own(module, name, op).detach();
}

struct WeightNorm final : Parametrization {
  explicit WeightNorm(std::optional<int64_t> d) : Parametrization("WeightNorm"), dim(d) {}

  Tensor forward(const TensorList& x) override { return strata::weight_norm(x[1], x[0], dim); }
  TensorList right_inverse(const Tensor& weight) override { return {norm_except_dim(weight, 2, dim), weight}; }

  std::optional<int64_t> dim;
};

struct SpectralNorm final : Parametrization {
  SpectralNorm(const Tensor& weight, int64_t n, double e, int64_t d)
      : Parametrization("SpectralNorm"),
        n_power_iterations(n),
        eps(e),
        dim(wrap_dim(d, weight.dim(), "spectral_norm")) {
    const NoGrad guard;
    const DeviceScope there(weight.device());
    const int64_t rows = weight.size(dim);
    u = register_buffer("_u", normalize(randn({rows}, weight.dtype()), 2, 0, eps));
    v = register_buffer("_v", normalize(randn({weight.numel() / rows}, weight.dtype()), 2, 0, eps));
    divided(weight, 15);
  }

  // Also moves u and v by so many iterations.
  Tensor divided(const Tensor& weight, int64_t iterations) {
    const auto [y, new_u, new_v] = strata::spectral_norm(weight, u, v, iterations, dim, eps);
    if (iterations > 0) {
      const NoGrad guard;
      u.copy_(new_u);
      v.copy_(new_v);
    }
    return y;
  }
  Tensor forward(const TensorList& x) override { return divided(x[0], is_training() ? n_power_iterations : 0); }
  TensorList right_inverse(const Tensor& value) override { return {value}; }

  int64_t n_power_iterations;
  double eps;
  int64_t dim;
  Tensor u, v;
};

struct Orthogonal final : Parametrization {
  Orthogonal(const Tensor& weight, std::string_view how)
      : Parametrization("Orthogonal"), wide(weight.size(0) < weight.size(1)), map(how) {
    const NoGrad guard;
    const auto [q, r] = linalg_qr(wide ? weight.t() : weight, "complete");
    const Tensor signs = sign(diagonal(r));  // of R's diagonal: then Q of an orthonormal weight is the weight
    const int64_t n = q.size(1), k = signs.size(0);
    const Tensor first = q.narrow(1, 0, k) * signs;
    base = register_buffer("base", k < n ? cat({first, q.narrow(1, k, n - k)}, 1) : first);
  }
  Tensor forward(const TensorList& x) override { return orthogonal_map(x[0], map, base); }
  TensorList right_inverse(const Tensor& value) override {
    Tensor start = zeros_like(value);
    diagonal(start).fill_(-1);  // reflections of unit vectors, turned back; the other maps do not look at it
    return {start};
  }

  bool wide;
  std::string map;
  Tensor base;
};

}  // namespace

void weight_norm(const Module& module, std::string_view name, std::optional<int64_t> dim) {
  register_parametrization(module, name, std::make_shared<WeightNorm>(dim));
}

void spectral_norm(const Module& module, std::string_view name, int64_t n_power_iterations, double eps,
                   std::optional<int64_t> dim) {
  constexpr std::string_view op = "spectral_norm";
  check(n_power_iterations > 0, op, "n_power_iterations is at least 1, got ", n_power_iterations);
  const Tensor weight = value_of(module, name, op);
  check(weight.dim() > 0, op, "'", name, "' has no dimension");
  const int64_t along = dim.value_or(module.kind().starts_with("ConvTranspose") ? 1 : 0);
  register_parametrization(module, name, std::make_shared<SpectralNorm>(weight, n_power_iterations, eps, along));
}

void orthogonal(const Module& module, std::string_view name, std::string_view map) {
  constexpr std::string_view op = "orthogonal";
  check(map.empty() || map == "cayley" || map == "matrix_exp" || map == "householder", op,
        "the map is cayley, matrix_exp or householder, got '", map, "'");
  const Tensor weight = value_of(module, name, op);
  check(weight.dim() == 2, op, "a matrix is wanted, got ", weight);
  register_parametrization(module, name, std::make_shared<Orthogonal>(weight, map));
}

}  // namespace strata::nn::parametrizations
