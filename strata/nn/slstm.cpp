#include "strata/nn/slstm.h"

#include <cmath>

#include "strata/nn/init.h"

namespace strata::nn {

SLSTM::SLSTM(int64_t input_size, int64_t hidden_size, int64_t num_layers, bool bias, bool batch_first)
    : Module("SLSTM", cat(input_size, ", ", hidden_size, ", num_layers=", num_layers)),
      hidden_(hidden_size),
      layers_(num_layers),
      bias_(bias),
      batch_first_(batch_first) {
  check(input_size > 0 && hidden_size > 0 && num_layers > 0, "SLSTM", "sizes and layers are at least 1, got ",
        input_size, ", ", hidden_size, " and ", num_layers);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto add = [&](const char* name, const Shape& shape) {
      weights_.push_back(new_parameter(cat(name, "_l", layer), shape));
    };
    add("weight_ih", {4 * hidden_size, layer == 0 ? input_size : hidden_size});
    add("weight_hh", {4 * hidden_size, hidden_size});
    if (bias) add("bias_ih", {4 * hidden_size});
    if (bias) add("bias_hh", {4 * hidden_size});
  }
  reset_parameters();
}

void SLSTM::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
  for (const Tensor& p : parameters()) init::uniform_(p, -bound, bound);
}

SlstmOutput SLSTM::forward(const Tensor& x, const TensorList& states) const {
  auto [y, h, c, l] = slstm(x, states, weights_, bias_, layers_, batch_first_);
  return {std::move(y), std::move(h), std::move(c), std::move(l)};
}

}  // namespace strata::nn
