#include "strata/lab/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "strata/core/dispatch.h"
#include "strata/cuda/memory.h"

namespace strata::lab {
namespace {

// Calls f(element offset) for each element in row-major order.
template <class F>
void for_each_offset(const Tensor& t, F&& f) {
  const int64_t n = t.numel();
  const Shape& shape = t.shape();
  Dims index = Dims::filled(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < n; ++i) {
    f(i, offset);
    for (int d = shape.size() - 1; d >= 0; --d) {
      offset += t.strides()[d];
      if (++index[d] < shape[d]) break;
      offset -= shape[d] * t.strides()[d];
      index[d] = 0;
    }
  }
}

Tensor filled_with_ones(const Shape& shape, DType dtype) {
  Tensor t = empty({shape, dtype, Device::cpu(), std::nullopt});
  if (t.nbytes() > 0) std::memset(t.raw_data(), 0xff, static_cast<size_t>(t.nbytes()));
  return t;
}

void fill_from(const Tensor& to, const Tensor& from) {
  const std::string all = bytes(from);
  const auto size = static_cast<size_t>(size_of(from.dtype()));
  char* base = static_cast<char*>(to.raw_data());
  for_each_offset(to, [&](int64_t i, int64_t offset) {
    std::memcpy(base + offset * static_cast<int64_t>(size), all.data() + static_cast<size_t>(i) * size, size);
  });
}

}  // namespace

std::vector<double> values(const Tensor& t) {
  std::vector<double> r(static_cast<size_t>(t.numel()));
  if (r.empty()) return r;
  const void* base = t.raw_data();
  dispatch_all(t.dtype(), "values", [&]<class T>() {
    for_each_offset(t, [&](int64_t i, int64_t offset) {
      if constexpr (std::is_same_v<T, bool>) {
        // Not through bool: a byte that nobody wrote may be neither 0 nor 1.
        r[static_cast<size_t>(i)] = static_cast<const uint8_t*>(base)[offset];
      } else {
        r[static_cast<size_t>(i)] = static_cast<double>(static_cast<compute_t<T>>(static_cast<const T*>(base)[offset]));
      }
    });
  });
  return r;
}

std::string bytes(const Tensor& t) {
  const int64_t size = size_of(t.dtype());
  std::string r(static_cast<size_t>(t.nbytes()), '\0');
  if (r.empty()) return r;
  const char* base = static_cast<const char*>(t.raw_data());
  if (t.is_contiguous()) {
    std::memcpy(r.data(), base, r.size());
    return r;
  }
  for_each_offset(t, [&](int64_t i, int64_t offset) {
    std::memcpy(r.data() + i * size, base + offset * size, static_cast<size_t>(size));
  });
  return r;
}

std::vector<std::string> bytes(const std::vector<Tensor>& tensors) {
  std::vector<std::string> r;
  r.reserve(tensors.size());
  for (const Tensor& t : tensors) r.push_back(t.defined() ? bytes(t) : std::string());
  return r;
}

double epsilon(DType t) {
  switch (t) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

double largest(DType t) {
  switch (t) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f32:
      return std::numeric_limits<float>::max();
    case DType::f16:
      return 65504;
    default:
      return 0x1.fep127;
  }
}

Difference compare(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  Difference worst;
  const std::vector<double> g = values(got);
  std::vector<double> w = values(want);
  const bool floating = is_floating(got.dtype());
  if (!floating && got.dtype() != DType::boolean && is_floating(want.dtype())) {
    // Integer arithmetic wraps around; the reference's numbers do when they are converted.
    dispatch_ints(got.dtype(), "compare", [&]<class T>() {
      for (double& v : w)
        if (std::abs(v) < 0x1p63) v = static_cast<double>(static_cast<T>(static_cast<int64_t>(v)));
    });
  }
  if (got.dtype() == DType::boolean)
    for (double& v : w) v = v != 0;
  const double limit = floating ? largest(got.dtype()) * (1 - epsilon(got.dtype())) : 0;
  for (size_t i = 0; i < g.size(); ++i) {
    if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
    const double bound = tolerance.absolute + tolerance.relative * std::abs(w[i]);
    double ratio = std::abs(g[i] - w[i]) / bound;
    const bool overflowed = floating && std::abs(w[i]) >= limit && std::abs(g[i]) >= limit && (g[i] > 0) == (w[i] > 0);
    if (overflowed) continue;
    if (!(ratio == ratio)) ratio = std::numeric_limits<double>::infinity();
    if (ratio > worst.ratio) worst = {ratio, static_cast<int64_t>(i), g[i], w[i], bound};
  }
  return worst;
}

std::string text_of(const Value& value) {
  struct Text {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const Tensor& t) const { return t.defined() ? describe(t) : "None"; }
    std::string operator()(const TensorList& l) const {
      std::string s = "[";
      for (size_t i = 0; i < l.size(); ++i) s += (i ? ", " : "") + describe(l[i]);
      return s + "]";
    }
    std::string operator()(const Scalar& v) const {
      if (v.kind() == DType::boolean) return v.to_bool() ? "true" : "false";
      return v.kind() == DType::i64 ? std::to_string(v.to_int()) : (*this)(v.to_double());
    }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return '"' + v + '"'; }
    std::string operator()(const Dims& v) const { return to_string(v); }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
    std::string operator()(Device v) const { return to_string(v); }
    std::string operator()(RngKey v) const { return fmt::format("RngKey({}, {})", v.seed, v.offset); }
  };
  return std::visit(Text(), value);
}

std::string text_of(std::span<const Value> args) {
  std::string s;
  for (size_t i = 0; i < args.size(); ++i) s += (i ? ", " : "") + text_of(args[i]);
  return s;
}

std::vector<Tensor> tensors_of(std::span<const Value> all) {
  std::vector<Tensor> r;
  visit(all, [&](const Tensor& t) { r.push_back(t); });
  return r;
}

Tensor dense_copy(const Tensor& t) {
  Tensor r = empty({t.shape(), t.dtype(), Device::cpu(), std::nullopt});
  if (r.numel() > 0) fill_from(r, t);
  return r;
}

Tensor converted(const Tensor& t, DType dtype) {
  Tensor r = empty({t.shape(), dtype, Device::cpu(), std::nullopt});
  if (r.numel() == 0) return r;
  const std::vector<double> v = values(t);
  dispatch_all(dtype, "converted", [&]<class T>() {
    T* p = r.data<T>();
    for (size_t i = 0; i < v.size(); ++i) p[i] = static_cast<T>(Scalar(v[i]).template to<T>());
  });
  return r;
}

Tensor reversed_storage(const Tensor& t) {
  Shape shape;
  for (int i = t.shape().size() - 1; i >= 0; --i) shape.push_back(t.shape()[i]);
  const Strides inner = contiguous_strides(shape);
  Strides strides;
  for (int i = inner.size() - 1; i >= 0; --i) strides.push_back(inner[i]);
  const Tensor r = alias(filled_with_ones(shape, t.dtype()), t.shape(), strides, 0);
  if (r.numel() > 0) fill_from(r, t);
  return r;
}

Tensor every_second(const Tensor& t) {
  Shape shape = t.shape();
  if (shape.empty()) shape.push_back(1);
  shape[shape.size() - 1] = 2 * shape.back() + 1;
  Strides strides = contiguous_strides(shape);
  if (t.dim() == 0) {
    strides = {};
  } else {
    strides[strides.size() - 1] = 2;
  }
  const Tensor r = alias(filled_with_ones(shape, t.dtype()), t.shape(), strides, 1);
  if (r.numel() > 0) fill_from(r, t);
  return r;
}

Tensor tiled(const Tensor& t, const Shape& shape, Device device) {
  const Tensor r = empty({shape, t.dtype(), device, std::nullopt});
  const std::string one = bytes(t);
  if (r.numel() == 0) return r;
  char* p = static_cast<char*>(r.raw_data());
  const auto copy = [&](int64_t to, const void* from, Device at, int64_t n) {
    if (device.is_cpu()) {
      std::memcpy(p + to, from, static_cast<size_t>(n));
    } else {
      cuda::copy_bytes(p + to, device, from, at, static_cast<size_t>(n));
    }
  };
  int64_t done = std::min<int64_t>(static_cast<int64_t>(one.size()), r.nbytes());
  copy(0, one.data(), Device::cpu(), done);
  // What is there is a whole number of times the first part.
  for (int64_t n = 0; done < r.nbytes(); done += n) {
    n = std::min(done, r.nbytes() - done);
    copy(done, p, device, n);
  }
  return r;
}

std::vector<Value> enlarged(std::span<const Value> args, double elements, Device device) {
  std::vector<int64_t> sizes;
  double factor = elements;
  visit(args, [&](const Tensor& t) {
    if (!t.defined()) return;
    int rank = 0;
    for (const int64_t n : t.shape()) {
      if (n <= 1) continue;
      sizes.push_back(n);
      ++rank;
    }
    // Every tensor must stay within the limit.
    if (rank > 0)
      factor = std::min(factor, std::pow(elements / static_cast<double>(std::max<int64_t>(t.numel(), 1)), 1.0 / rank));
  });
  const auto grown = [&](int64_t n) {
    if (n <= 1 || std::find(sizes.begin(), sizes.end(), n) == sizes.end()) return n;
    return std::max<int64_t>(n, static_cast<int64_t>(static_cast<double>(n) * factor));
  };
  std::vector<Value> r = map(args, [&](const Tensor& t) {
    if (t.impl().wrapped_number) return t;
    Shape s = t.shape();
    if (t.numel() > 0)
      for (int64_t& n : s) n = grown(n);
    return tiled(t, s, device);
  });
  for (Value& v : r) {
    if (Dims* d = std::get_if<Dims>(&v))
      for (int64_t& n : *d) n = grown(n);
    if (Device* d = std::get_if<Device>(&v)) *d = device;
  }
  return r;
}

double result_bytes(const OpBase& op, std::span<const Value> args) {
  if (op.is_dynamic()) return 0;
  try {
    NoGrad guard;
    DeviceScope device(Device::meta());
    std::vector<Value> dry = map(args, [](const Tensor& t) {
      return empty({t.shape(), t.dtype(), Device::meta(), std::nullopt});
    });
    for (Value& v : dry)
      if (Device* d = std::get_if<Device>(&v)) *d = Device::meta();
    double sum = 0;
    visit(op.call_boxed(dry), [&](const Tensor& t) { sum += t.defined() ? static_cast<double>(t.nbytes()) : 0; });
    return sum;
  } catch (const Error&) {
    return std::numeric_limits<double>::infinity();
  }
}

std::vector<Value> enlarged_within(const OpBase& op, std::span<const Value> args, double elements,
                                   const CallLimit& limit) {
  const auto fits = [&](std::span<const Value> large) {
    try {
      const Cost cost = op.cost_boxed(large);
      if (cost.flops > limit.flops || cost.bytes > limit.bytes) return false;
    } catch (const Error&) {
      // A cost that needs other arguments tells nothing.
    }
    const double results = result_bytes(op, large);
    return std::isinf(results) || results <= limit.result_bytes;
  };
  std::vector<Value> large = enlarged(args, elements);
  while (elements > 2 && !fits(large)) large = enlarged(args, elements /= 2);
  return large;
}

}  // namespace strata::lab
