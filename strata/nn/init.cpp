#include "strata/nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/node.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::nn::init {
namespace {
// How many connections count, at least one.
double fan_of(const Tensor& t, std::string_view mode) {
  check(mode == "fan_in" || mode == "fan_out", "kaiming", "Mode ", mode,
        " not supported, please use one of ['fan_in', 'fan_out']");
  const auto [in, out] = fans(t);
  return static_cast<double>(std::max<int64_t>(1, mode == "fan_in" ? in : out));
}
thread_local int t_skipping = 0;

// What is drawn in t's place: a tensor without memory where draws are skipped.
Tensor drawn_into(const Tensor& t) {
  return t_skipping == 0 ? t : empty(TensorMeta{t.shape(), t.dtype(), Device::meta(), std::nullopt});
}

// draw(t, generator), or the same when t's memory comes.
template <class F>
void draw_into(const Tensor& t, Generator& generator, F draw) {
  const RngKey before = generator.state();
  draw(drawn_into(t), generator);
  if (t_skipping > 0) return;
  detail::fill_later(t, [=](const Tensor& y) {
    Generator again;
    again.set_state(before);
    draw(y, again);
  });
}
}  // namespace

SkipDraws::SkipDraws() {
  ++t_skipping;
}
SkipDraws::~SkipDraws() {
  --t_skipping;
}

Tensor uniform_(Tensor t, double low, double high, Generator& generator) {
  draw_into(t, generator, [=](const Tensor& y, Generator& g) { strata::uniform_(y, low, high, g); });
  return t;
}

Tensor normal_(Tensor t, double mean, double std, Generator& generator) {
  draw_into(t, generator, [=](const Tensor& y, Generator& g) { strata::normal_(y, mean, std, g); });
  return t;
}

Tensor trunc_normal_(Tensor t, double mean, double std, double low, double high, Generator& generator) {
  draw_into(t, generator, [=](const Tensor& y, Generator& g) { strata::trunc_normal_(y, mean, std, low, high, g); });
  return t;
}

Tensor constant_(Tensor t, double value) {
  NoGrad guard;
  if (!t.is_meta())
    t.fill_(value);
  else
    detail::fill_later(t, [=](const Tensor& y) { Tensor(y).fill_(value); });
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

double calculate_gain(std::string_view nonlinearity, double param) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity.starts_with("conv")) return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + param * param));
  check(nonlinearity == "selu", "calculate_gain", "Unsupported nonlinearity ", nonlinearity);
  return 0.75;
}

Tensor kaiming_uniform_(Tensor t, double a, Generator& generator) {
  return kaiming_uniform_(std::move(t), a, "fan_in", "leaky_relu", generator);
}
Tensor kaiming_normal_(Tensor t, double a, Generator& generator) {
  return kaiming_normal_(std::move(t), a, "fan_in", "leaky_relu", generator);
}

Tensor kaiming_uniform_(Tensor t, double a, std::string_view mode, std::string_view nonlinearity,
                        Generator& generator) {
  const double bound = calculate_gain(nonlinearity, a) * std::sqrt(3.0 / fan_of(t, mode));
  return init::uniform_(t, -bound, bound, generator);
}
Tensor kaiming_normal_(Tensor t, double a, std::string_view mode, std::string_view nonlinearity, Generator& generator) {
  return init::normal_(t, 0, calculate_gain(nonlinearity, a) / std::sqrt(fan_of(t, mode)), generator);
}

Tensor orthogonal_(Tensor t, double gain, Generator& generator) {
  check<ShapeError>(t.dim() >= 2, "orthogonal_", "wants at least 2 dimensions, got ", t);
  NoGrad guard;
  detail::come(t);
  if (t.is_meta() || t.numel() == 0) return t;
  const int64_t rows = t.size(0), cols = t.numel() / rows, count = std::min(rows, cols);
  const DeviceScope host(Device::cpu());
  const Tensor drawn = init::normal_(empty({count, std::max(rows, cols)}, DType::f64), 0, 1, generator);
  if (t_skipping > 0) return t;
  Tensor basis;
  for (int64_t i = 0; i < count; ++i) {  // Gram-Schmidt, each vector twice for accuracy
    Tensor v = drawn.narrow(0, i, 1);
    for (int twice = 0; i > 0 && twice < 2; ++twice) v = v - matmul(matmul(v, basis.t()), basis);
    v = v / norm(v);
    basis = i == 0 ? v : cat({basis, v}, 0);
  }
  t.copy_(((rows <= cols ? basis : basis.t()) * gain).reshape(t.shape()).to(t.dtype()).to(t.device()));
  return t;
}

Tensor eye_(Tensor t) {
  check<ShapeError>(t.dim() == 2, "eye_", "Only tensors with 2 dimensions are supported, got ", t);
  NoGrad guard;
  detail::come(t);
  const DeviceScope there(t.device());
  if (!t.is_meta()) t.copy_(eye(t.size(0), t.size(1), t.dtype()));
  return t;
}

Tensor dirac_(Tensor t, int64_t groups) {
  check<ShapeError>(t.dim() >= 3 && t.dim() <= 5, "dirac_",
                    "Only tensors with 3, 4, or 5 dimensions are supported, got ", t);
  check(groups > 0 && t.size(0) % groups == 0, "dirac_", "dim 0 must be divisible by groups, got ", groups, " of ", t);
  NoGrad guard;
  detail::come(t);
  if (t.is_meta() || t.numel() == 0) return t;
  const int64_t out = t.size(0) / groups, each = t.numel() / t.size(0), kernel = each / t.size(1);
  int64_t middle = 0;
  for (int64_t d = 2; d < t.dim(); ++d) middle = middle * t.size(d) + t.size(d) / 2;
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (int64_t row = 0; row < t.size(0); ++row)
    if (row % out < t.size(1)) values[static_cast<size_t>(row * each + row % out * kernel + middle)] = 1;
  t.copy_(from_span<double>(values, t.shape()).to(t.dtype()).to(t.device()));
  return t;
}

Tensor sparse_(Tensor t, double sparsity, double std, Generator& generator) {
  check<ShapeError>(t.dim() == 2, "sparse_", "Only tensors with 2 dimensions are supported, got ", t);
  check(sparsity >= 0 && sparsity <= 1, "sparse_", "sparsity must lie between 0 and 1, got ", sparsity);
  NoGrad guard;
  detail::come(t);
  if (t.is_meta()) return t;
  init::normal_(t, 0, std, generator);
  // In each column the places of the smallest of as many random numbers.
  const DeviceScope host(Device::cpu());
  const Tensor drawn = init::uniform_(empty(t.shape(), DType::f32), 0, 1, generator);
  if (t_skipping > 0) return t;
  const Tensor order = argsort(argsort(drawn, 0), 0);
  const double zeros = std::ceil(sparsity * static_cast<double>(t.size(0)));
  const Tensor kept = ge(order, full({}, static_cast<int64_t>(zeros), DType::i64));
  t.copy_(t * kept.to(t.dtype()).to(t.device()));
  return t;
}

}  // namespace strata::nn::init
