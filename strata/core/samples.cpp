#include "strata/core/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strata/core/dispatch.h"
#include "strata/core/sample_shapes.h"

namespace strata {
namespace {

// Benchmarks' tensors repeat this many elements: to make each would take longer than to time them.
constexpr int64_t kPeriod = 1 << 18;

thread_local bool t_shapes = false;

// A row-major host tensor whose element i is f(i), the same again after `period` elements.
template <class F>
Tensor generate(const Shape& shape, DType dtype, int64_t period, F&& f) {
  Tensor t = empty({shape, dtype, Device::cpu(), std::nullopt});
  dispatch_all(dtype, "samples", [&]<class T>() {
    T* p = t.data<T>();
    const int64_t n = t.numel(), own = std::min(n, period);
    for (int64_t i = 0; i < own; ++i) p[i] = static_cast<T>(Scalar(f(i)).template to<T>());
    if (t_shapes) return;
    for (int64_t i = own; i < n; i += own) std::copy_n(p, std::min(own, n - i), p + i);
  });
  return t;
}

double unit(RngKey key, int64_t i) {
  const auto r = philox(key, static_cast<uint64_t>(i));
  return uniform_f64(r[0], r[1]);
}

}  // namespace

SampleShapesScope::SampleShapesScope() : previous_(t_shapes) {
  t_shapes = true;
}
SampleShapesScope::~SampleShapesScope() {
  t_shapes = previous_;
}

template <class As, class T>
Samples::Given Samples::Given::of(const T& v) {
  return {&v, [](const void* at) { return Value(As(*static_cast<const T*>(at))); }};
}
Samples::Given::Given(const Tensor& v) : Given(of<Tensor>(v)) {}
Samples::Given::Given(const TensorList& v) : Given(of<TensorList>(v)) {}
Samples::Given::Given(const Dims& v) : Given(of<Dims>(v)) {}
Samples::Given::Given(const bool& v) : Given(of<bool>(v)) {}
Samples::Given::Given(const int& v) : Given(of<int64_t>(v)) {}
Samples::Given::Given(const int64_t& v) : Given(of<int64_t>(v)) {}
Samples::Given::Given(const double& v) : Given(of<double>(v)) {}
Samples::Given::Given(const float& v) : Given(of<double>(v)) {}
Samples::Given::Given(const char* v)
    : Given(v, [](const void* at) { return Value(std::string(static_cast<const char*>(at))); }) {}
Samples::Given::Given(const std::string& v) : Given(of<std::string>(v)) {}
Samples::Given::Given(const Scalar& v) : Given(of<Scalar>(v)) {}
Samples::Given::Given(const DType& v) : Given(of<DType>(v)) {}
Samples::Given::Given(const Device& v) : Given(of<Device>(v)) {}
Samples::Given::Given(const RngKey& v) : Given(of<RngKey>(v)) {}
Samples::Given::Given(std::nullopt_t) : Given(nullptr, [](const void*) { return Value(); }) {}

namespace {
std::vector<Value> values_of(const auto& given) {
  std::vector<Value> values;
  values.reserve(given.size());
  for (const auto& one : given) values.push_back(one.value());
  return values;
}
}  // namespace

Sample& Samples::add_given(std::initializer_list<Given> args) {
  return valid.emplace_back(Sample{values_of(args), {}, true, false});
}
Sample& Samples::bench_given(std::initializer_list<Given> args) {
  return valid.emplace_back(Sample{values_of(args), "bench", true, true});
}
void Samples::refuse_given(std::type_index error, std::string_view message, std::initializer_list<Given> args) {
  refused.push_back({values_of(args), std::string(message), error});
}

int64_t Samples::period() const {
  return benchmarking_ ? kPeriod : std::numeric_limits<int64_t>::max();
}

Tensor Samples::uniform(const Shape& shape, double low, double high, DType dtype) {
  const RngKey key = generator_.next(static_cast<uint64_t>(shape.product()));
  return generate(shape, dtype, period(), [&](int64_t i) { return low + (high - low) * unit(key, i); });
}

Tensor Samples::tensor(const Shape& shape, DType dtype) {
  if (is_floating(dtype)) return uniform(shape, -2, 2, dtype);
  if (dtype == DType::boolean) return integers(shape, 0, 2, dtype);
  return dtype == DType::u8 ? integers(shape, 0, 11, dtype) : integers(shape, -5, 6, dtype);
}

Tensor Samples::integers(const Shape& shape, int64_t low, int64_t high, DType dtype) {
  const RngKey key = generator_.next(static_cast<uint64_t>(shape.product()));
  return generate(shape, dtype, period(), [&](int64_t i) {
    return low + static_cast<int64_t>(std::floor(static_cast<double>(high - low) * unit(key, i)));
  });
}

Tensor Samples::off_grid(const Shape& shape, double grid) {
  const RngKey key = generator_.next(static_cast<uint64_t>(shape.product()));
  return generate(shape, dtype_, period(), [&](int64_t i) {
    const double u = unit(key, i) * 4;  // cell in {-2, -1, 0, 1}, then a place in its middle half
    const double cell = std::floor(u) - 2;
    return grid * (cell + 0.25 + 0.5 * (u - std::floor(u)));
  });
}

Tensor Samples::distinct(const Shape& shape, double gap) {
  const int64_t n = shape.product();
  const RngKey key = generator_.next(static_cast<uint64_t>(n));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(unit(key, i) * static_cast<double>(i + 1))]);
  const int64_t below = n / 2;
  const double middle = static_cast<double>(below);
  const bool integral = !is_floating(dtype_);
  return generate(shape, dtype_, n, [&](int64_t i) {
    const double rank = static_cast<double>(order[static_cast<size_t>(i)]);
    if (dtype_ == DType::u8) return rank;
    return integral ? rank - middle : (rank - middle + 0.5) * gap;
  });
}

}  // namespace strata
