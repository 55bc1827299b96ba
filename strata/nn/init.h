#pragma once
// Filling parameters. Nothing is recorded; meta tensors are left alone. The numbers depend on the generator's state and
// the shape only. Each returns its first argument.

#include <cstdint>
#include <string_view>
#include <utility>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata::nn::init {

/// While one lives, on its thread, what would be drawn stays as memory was, and generators move on as if it had been:
/// for a model whose weights come from a file, or are drawn anew by what it is a part of. Constants are set all the
/// same. Scopes nest.
class SkipDraws {
 public:
  SkipDraws();
  ~SkipDraws();
  SkipDraws(const SkipDraws&) = delete;
  SkipDraws& operator=(const SkipDraws&) = delete;
};

/// Uniform in [low, high); normal with the given mean and standard deviation.
Tensor uniform_(Tensor t, double low = 0, double high = 1, Generator& generator = default_generator());
Tensor normal_(Tensor t, double mean = 0, double std = 1, Generator& generator = default_generator());
/// Normal, drawn again where it falls outside [low, high].
Tensor trunc_normal_(Tensor t, double mean = 0, double std = 1, double low = -2, double high = 2,
                     Generator& generator = default_generator());
Tensor constant_(Tensor t, double value);
inline Tensor zeros_(Tensor t) {
  return constant_(t, 0);
}
inline Tensor ones_(Tensor t) {
  return constant_(t, 1);
}

/// (fan_in, fan_out) of a weight [out, in, kernel ...]: connections per output and per input. Throws ShapeError below
/// two dimensions.
std::pair<int64_t, int64_t> fans(const Tensor& weight);
/// Uniform in +- sqrt(6 / (fan_in + fan_out)) gain (Glorot and Bengio, AISTATS 2010).
Tensor xavier_uniform_(Tensor t, double gain = 1, Generator& generator = default_generator());
Tensor xavier_normal_(Tensor t, double gain = 1, Generator& generator = default_generator());
/// Uniform in +- gain sqrt(3 / fan_in), gain = sqrt(2 / (1 + a^2)) for leaky ReLU with slope `a` (He et al.,
/// arXiv:1502.01852). PyTorch's Linear and convolutions use a = sqrt(5): +- 1 / sqrt(fan_in).
Tensor kaiming_uniform_(Tensor t, double a = 0, Generator& generator = default_generator());
Tensor kaiming_normal_(Tensor t, double a = 0, Generator& generator = default_generator());

/// The factor by which a nonlinearity's weights are to be larger than a linear layer's: of "linear", "sigmoid", "tanh",
/// "relu", "leaky_relu" (whose slope is `param`), "selu", or a convolution ("conv2d"). Throws ValueError.
double calculate_gain(std::string_view nonlinearity, double param = 0.01);
/// The same with the fan and the nonlinearity said: `mode` is "fan_in" or "fan_out". Throws ValueError.
Tensor kaiming_uniform_(Tensor t, double a, std::string_view mode, std::string_view nonlinearity = "leaky_relu",
                        Generator& generator = default_generator());
Tensor kaiming_normal_(Tensor t, double a, std::string_view mode, std::string_view nonlinearity = "leaky_relu",
                       Generator& generator = default_generator());
/// Rows (or columns, where there are more rows) that are orthonormal, times `gain` (Saxe et al., arXiv:1312.6120).
/// Throws ShapeError below two dimensions.
Tensor orthogonal_(Tensor t, double gain = 1, Generator& generator = default_generator());
/// The identity matrix. Throws ShapeError unless there are two dimensions.
Tensor eye_(Tensor t);
/// The weight of a convolution that keeps its input, in `groups` groups. Throws ShapeError unless it has three to five
/// dimensions, ValueError for groups that do not divide it.
Tensor dirac_(Tensor t, int64_t groups = 1);
/// A matrix drawn from N(0, std^2), a share `sparsity` of each column 0 (Martens, ICML 2010). Throws ShapeError,
/// ValueError.
Tensor sparse_(Tensor t, double sparsity, double std = 0.01, Generator& generator = default_generator());

}  // namespace strata::nn::init
