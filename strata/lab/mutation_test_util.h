#pragma once
// Arguments made from good ones by changing a few things about them, mostly for the worse. Every choice follows from a
// seed, so that a call is found again.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/lab/compare.h"

namespace strata::lab {

/// Tensors of at most this many elements are made, but for meta tensors.
inline constexpr double kMostElements = 1 << 14;

/// Makes the arguments of one call.
class Mutation {
 public:
  using Args = std::vector<Value>;

  explicit Mutation(uint64_t seed) : state_(seed) {}

  /// Uniform below n.
  uint64_t below(uint64_t n) {
    state_ += 0x9E3779B97F4A7C15u;  // splitmix64
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
  }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& of) {
    return of[below(of.size())];
  }

  /// The arguments with up to three changes. Tensors are copies in blocks of exactly their size, so that a read beyond
  /// them is seen by a sanitizer.
  Args changed(const Args& good) {
    note_sizes(good);
    Args args = good;
    for (Value& v : args) own(v);
    if (chance(4)) change_all(args);
    for (uint64_t n = below(4); n > 0 && !args.empty(); --n) change(args, below(args.size()));
    if (chance(24) && !args.empty()) args.resize(below(args.size()));
    if (chance(48)) args.push_back(any_value());
    return args;
  }

 private:
  enum class Layout { dense, permuted, spread, expanded, overlapping };

  static double elements(const Shape& shape) {
    double n = 1;
    for (const int64_t d : shape) n *= static_cast<double>(d);
    return n;
  }
  void note_sizes(const Args& args) {
    sizes_ = {0, 1, 2, 3, 5};
    visit(args, [&](const Tensor& t) {
      if (!t.defined()) return;
      sizes_.push_back(t.dim());
      for (const int64_t d : t.shape()) sizes_.insert(sizes_.end(), {d, d + 1});
    });
  }

  // A new tensor whose storage repeats `source`'s elements, converted. `special`: some are limits, NaN or infinite.
  Tensor made(const Tensor& source, const Shape& shape, DType dtype, Layout layout, bool special) {
    Strides strides = contiguous_strides(shape);
    int64_t offset = 0;
    const int rank = shape.size();
    if (layout == Layout::permuted) {
      std::vector<int> order;
      for (int i = 0; i < rank; ++i) order.insert(order.begin() + static_cast<int64_t>(below(order.size() + 1)), i);
      int64_t step = 1;
      for (const int i : order) {
        strides[i] = step;
        step *= std::max<int64_t>(shape[i], 1);
      }
    } else if (layout == Layout::spread) {
      for (int64_t& s : strides) s *= 2;
      offset = static_cast<int64_t>(below(3));
    } else if (layout == Layout::expanded && rank > 0) {
      strides[static_cast<int64_t>(below(static_cast<uint64_t>(rank)))] = 0;
    } else if (layout == Layout::overlapping) {
      for (int64_t& s : strides) s = static_cast<int64_t>(below(3));
    }
    int64_t extent = offset + 1;
    for (int i = 0; i < rank; ++i) extent += std::max<int64_t>(shape[i] - 1, 0) * strides[i];
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) extent = offset;
    std::vector<double> from{1};
    if (source.defined() && source.device().is_cpu() && source.numel() > 0) from = values(source);
    return dispatch_all(dtype, "mutation", [&]<class T>() {
      // At least a byte, as the block must have an address.
      T* p = static_cast<T*>(std::malloc(std::max<size_t>(static_cast<size_t>(extent) * sizeof(T), 1)));
      for (int64_t i = 0; i < extent; ++i)
        p[i] = static_cast<T>(Scalar(from[static_cast<size_t>(i) % from.size()]).template to<T>());
      for (uint64_t n = special && extent > 0 ? 1 + below(4) : 0; n > 0; --n)
        p[below(static_cast<uint64_t>(extent))] = special_element<T>();
      return alias(from_blob(p, {extent}, dtype, std::free, p), shape, strides, offset);
    });
  }
  template <class T>
  T special_element() {
    if constexpr (std::is_same_v<T, bool>) {
      return chance(2);
    } else if constexpr (std::is_integral_v<T>) {
      return pick(std::vector<T>{std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), static_cast<T>(-1),
                                 static_cast<T>(pick(sizes_)), static_cast<T>(-pick(sizes_))});
    } else {
      return static_cast<T>(
          static_cast<float>(pick(std::vector<double>{NAN, INFINITY, -INFINITY, 3e38, -0.0, 1e-40, -1, 0})));
    }
  }
  static Tensor on_meta(const Shape& shape, DType dtype) { return empty({shape, dtype, Device::meta(), std::nullopt}); }

  // What a tensor is replaced by before anything is changed: mostly itself.
  Tensor owned(const Tensor& t) {
    if (!t.defined() || !t.device().is_cpu()) return t;
    return made(t, t.shape(), t.dtype(), chance(3) ? any_layout(3) : Layout::dense, chance(12));
  }
  void own(Value& v) {
    if (Tensor* t = std::get_if<Tensor>(&v)) *t = owned(*t);
    if (TensorList* list = std::get_if<TensorList>(&v))
      for (Tensor& t : *list) t = owned(t);
  }
  Layout any_layout(uint64_t kinds) { return static_cast<Layout>(below(kinds)); }
  DType any_dtype() { return static_cast<DType>(below(kNumDTypes)); }

  // Changes that keep arguments fitting to each other.
  void change_all(Args& args) {
    const int64_t from = pick(sizes_), to = pick(sizes_);
    const DType narrow = any_dtype();
    const uint64_t kind = below(4);
    args = map(args, [&](const Tensor& t) {
      Shape shape = t.shape();
      if (kind == 0) return on_meta(shape, t.dtype());
      if (kind == 1 && is_floating(t.dtype())) return made(t, shape, narrow, any_layout(2), false);
      if (kind >= 2) std::replace(shape.begin(), shape.end(), from, to);
      return elements(shape) > kMostElements ? t : made(t, shape, t.dtype(), any_layout(2), false);
    });
    if (kind < 2) return;
    for (Value& v : args) {
      if (int64_t* i = std::get_if<int64_t>(&v); i && *i == from) *i = to;
      if (Dims* d = std::get_if<Dims>(&v)) std::replace(d->begin(), d->end(), from, to);
    }
  }

  void change(Args& args, size_t i) {
    Value& v = args[i];
    if (chance(24)) {
      v = any_value();
    } else if (chance(24)) {
      v = args[below(args.size())];  // one tensor twice, or another type
    } else if (Tensor* t = std::get_if<Tensor>(&v)) {
      *t = changed(*t);
    } else if (TensorList* list = std::get_if<TensorList>(&v)) {
      change(*list);
    } else if (std::holds_alternative<int64_t>(v)) {
      v = any_int();
    } else if (std::holds_alternative<double>(v)) {
      v = any_float();
    } else if (bool* b = std::get_if<bool>(&v)) {
      *b = !*b;
    } else if (std::holds_alternative<Scalar>(v)) {
      v = any_scalar();
    } else if (std::holds_alternative<std::string>(v)) {
      v = any_string();
    } else if (Dims* d = std::get_if<Dims>(&v)) {
      change(*d);
    } else if (std::holds_alternative<DType>(v)) {
      v = any_dtype();
    } else if (std::holds_alternative<Device>(v)) {
      v = pick(std::vector<Device>{Device::cpu(), Device::meta(), Device::cuda(0), Device::cuda(100)});
    } else if (std::holds_alternative<RngKey>(v)) {
      v = RngKey{below(3), ~uint64_t{0} - below(2)};
    } else {
      v = any_value();
    }
  }

  Tensor changed(const Tensor& t) {
    if (!t.defined()) return any_tensor();
    Shape shape = t.shape();
    DType dtype = t.dtype();
    const int rank = shape.size();
    const int64_t d = rank > 0 ? static_cast<int64_t>(below(static_cast<uint64_t>(rank))) : 0;
    Layout layout = Layout::dense;
    bool special = false;
    switch (below(10)) {
      case 0:
        if (rank > 0) shape.erase(d);
        break;
      case 1:
        if (rank < kMaxDims) shape.insert(d, pick(sizes_));
        break;
      case 2:
      case 3:
        if (rank > 0) shape[d] = pick(sizes_);
        break;
      case 4:
        dtype = any_dtype();
        break;
      case 5:
        layout = any_layout(5);
        break;
      case 6:
        special = true;
        break;
      case 7:
        return chance(2) ? Tensor() : any_tensor();
      case 8:
        if (rank > 0 && chance(2)) shape[d] = pick(std::vector<int64_t>{1 << 16, int64_t{1} << 31, int64_t{1} << 40});
        return elements(shape) * 8 < 0x1p62 ? on_meta(shape, dtype) : t;
      default:
        if (rank > 1) std::swap(shape[d], shape[0]);
        break;
    }
    if (elements(shape) > kMostElements) return t;
    return made(t, shape, dtype, layout, special);
  }
  Tensor any_tensor() {
    Shape shape;
    for (uint64_t n = below(5); n > 0; --n) shape.push_back(static_cast<int64_t>(below(4)));
    return made({}, shape, chance(2) ? DType::f32 : any_dtype(), any_layout(5), chance(3));
  }

  void change(TensorList& list) {
    switch (below(6)) {
      case 0:
        list.clear();
        break;
      case 1:
        list.push_back(chance(2) ? Tensor() : any_tensor());
        break;
      case 2:
        if (!list.empty()) list.resize(1 + below(list.size()));
        break;
      case 3:
        list.resize(100, list.empty() ? any_tensor() : list[0]);
        break;
      default:
        if (!list.empty()) {
          Tensor& t = list[below(list.size())];
          t = changed(t);
        }
        break;
    }
  }
  void change(Dims& d) {
    switch (below(6)) {
      case 0:
        d = {};
        break;
      case 1:
        if (d.size() < kMaxDims) d.push_back(any_int());
        break;
      case 2:
        if (!d.empty()) d.resize(d.size() - 1);
        break;
      case 3:
        d = Dims::filled(kMaxDims, pick(sizes_));
        break;
      default:
        if (!d.empty()) d[static_cast<int64_t>(below(static_cast<uint64_t>(d.size())))] = any_int();
        break;
    }
  }

  int64_t any_int() {
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    if (chance(2)) return chance(4) ? -pick(sizes_) : pick(sizes_);
    return pick(std::vector<int64_t>{-1, -2, 7, 63, 64, 1 << 16, 2147483647, 2147483648, -2147483648, int64_t{1} << 40,
                                     most, -most, -most - 1, most / 2 + 1});
  }
  double any_float() {
    return pick(std::vector<double>{0, -0.0, 1, -1, 0.5, 2, 1e-300, 1e300, -1e300, 1e10, NAN, INFINITY, -INFINITY});
  }
  Scalar any_scalar() {
    if (chance(3)) return Scalar(any_int());
    if (chance(4)) return Scalar(chance(2));
    return Scalar(any_float());
  }
  std::string any_string() {
    static const std::vector<std::string> known{"mean",     "sum",       "none",  "max",     "min",      "prod",
                                                "amax",     "amin",      "tanh",  "nearest", "bilinear", "constant",
                                                "zeros",    "border",    "valid", "same",    "reflect",  "replicate",
                                                "circular", "f32",       "relu",  "gelu",    "silu",     "ij,jk->ik",
                                                "ii->i",    "...i,...j", "floor", "trunc",   "left",     "inner"};
    static const std::vector<std::string> junk{"",
                                               "MEAN",
                                               " sum",
                                               "->",
                                               ",",
                                               "...",
                                               "i...j...",
                                               "ij->ijk",
                                               "\xff\xfe",
                                               std::string("mean\0", 5),
                                               std::string(5000, 'a'),
                                               "%s%n",
                                               "ij,ij,ij->"};
    return pick(chance(2) ? known : junk);
  }
  Value any_value() {
    switch (below(12)) {
      case 0:
        return any_tensor();
      case 1:
        return TensorList{any_tensor(), any_tensor()};
      case 2:
        return TensorList();
      case 3:
        return any_scalar();
      case 4:
        return any_int();
      case 5:
        return any_float();
      case 6:
        return chance(2);
      case 7:
        return any_string();
      case 8:
        return Dims{any_int(), any_int()};
      case 9:
        return any_dtype();
      case 10:
        return RngKey{below(4), below(4)};
      default:
        return std::monostate();
    }
  }

  uint64_t state_;
  std::vector<int64_t> sizes_;  // sizes that occur, and some
};

}  // namespace strata::lab
