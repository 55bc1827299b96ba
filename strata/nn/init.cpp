#include "strata/nn/init.h"

#include <cmath>

#include "strata/core/node.h"
#include "strata/ops/random/random.h"

namespace strata::nn::init {
namespace {
double leaky_gain(double a) {
  return std::sqrt(2 / (1 + a * a));
}
}  // namespace

Tensor uniform_(Tensor t, double low, double high, Generator& generator) {
  strata::uniform_(t, low, high, generator);
  return t;
}

Tensor normal_(Tensor t, double mean, double std, Generator& generator) {
  strata::normal_(t, mean, std, generator);
  return t;
}

Tensor trunc_normal_(Tensor t, double mean, double std, double low, double high, Generator& generator) {
  strata::trunc_normal_(t, mean, std, low, high, generator);
  return t;
}

Tensor constant_(Tensor t, double value) {
  NoGrad guard;
  if (!t.is_meta()) t.fill_(value);
  return t;
}

std::pair<int64_t, int64_t> fans(const Tensor& weight) {
  check<ShapeError>(weight.dim() >= 2, "fans", "a weight has at least 2 dimensions, got ", weight);
  int64_t kernel = 1;
  for (int64_t i = 2; i < weight.dim(); ++i) kernel *= weight.size(i);
  return {weight.size(1) * kernel, weight.size(0) * kernel};
}

Tensor xavier_uniform_(Tensor t, double gain, Generator& generator) {
  const auto [in, out] = fans(t);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(in + out));
  return init::uniform_(t, -bound, bound, generator);
}

Tensor xavier_normal_(Tensor t, double gain, Generator& generator) {
  const auto [in, out] = fans(t);
  return init::normal_(t, 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)), generator);
}

Tensor kaiming_uniform_(Tensor t, double a, Generator& generator) {
  const double bound = leaky_gain(a) * std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(1, fans(t).first)));
  return init::uniform_(t, -bound, bound, generator);
}

Tensor kaiming_normal_(Tensor t, double a, Generator& generator) {
  return init::normal_(t, 0, leaky_gain(a) / std::sqrt(static_cast<double>(std::max<int64_t>(1, fans(t).first))),
                       generator);
}

}  // namespace strata::nn::init
