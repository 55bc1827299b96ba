#pragma once
// Samples: a record's valid and invalid inputs. Tests, gradient checks, fuzzing and benchmarks draw from them.

#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/core/value.h"

namespace strata {

/// One set of arguments.
struct Sample {
  std::vector<Value> args;
  std::string label;
  bool differentiable = true;  ///< false where the function has a kink, so finite differences would lie
  bool benchmark = false;      ///< large enough for `strata lab bench`

  /// Says what the sample is about, for reports.
  Sample& named(std::string text) {
    label = std::move(text);
    return *this;
  }
  /// Leaves it out of the gradient checks.
  Sample& not_differentiable() {
    differentiable = false;
    return *this;
  }
};

/// Arguments that must be refused, with a piece of the message that must come.
struct InvalidSample {
  std::vector<Value> args;
  std::string message;
  std::type_index error;
};

/// Collects samples for one dtype. Tensors come from a fixed seed, so a failing sample is found again.
class Samples {
 public:
  explicit Samples(DType dtype, uint64_t seed = 1) : dtype_(dtype), generator_(seed) {}

  /// The dtype that this round tries: give it to the tensors that vary.
  DType dtype() const { return dtype_; }

  /// Values in [-2, 2] (floats, both signs, rounded to the dtype), [-5, 5] (ints; unsigned [0, 10]) or {0, 1} (bool).
  Tensor tensor(const Shape& shape) { return tensor(shape, dtype_); }
  Tensor tensor(const Shape& shape, DType dtype);
  /// Uniform in [low, high).
  Tensor uniform(const Shape& shape, double low, double high) { return uniform(shape, low, high, dtype_); }
  Tensor uniform(const Shape& shape, double low, double high, DType dtype);
  /// Values whose distance from every multiple of `grid` and from 0 is at least grid / 4: off the kinks.
  Tensor off_grid(const Shape& shape, double grid = 1.0);
  /// All different, at least `gap` apart, in random order: for max, sort and the like.
  Tensor distinct(const Shape& shape, double gap = 0.05);
  /// Integers in [low, high).
  Tensor integers(const Shape& shape, int64_t low, int64_t high, DType dtype = DType::i64);
  Tensor boolean(const Shape& shape) { return integers(shape, 0, 2, DType::boolean); }

  /// One valid set of arguments, in the schema's order; std::nullopt stands for None. Left out: the defaults.
  template <class... T>
  Sample& add(const T&... args) {
    valid.push_back({{value(args)...}, {}, true, false});
    return valid.back();
  }
  /// A set that is large enough to time; made only when benchmarks ask for it.
  template <class... T>
  Sample& bench(const T&... args) {
    valid.push_back({{value(args)...}, "bench", true, true});
    return valid.back();
  }
  /// A set that must throw E with `message` somewhere in its text.
  template <class E, class... T>
  void invalid(std::string_view message, const T&... args) {
    refused.push_back({{value(args)...}, std::string(message), std::type_index(typeid(E))});
  }
  /// True in the round that collects benchmark inputs: `if (s.benchmarking()) s.bench(...)`.
  bool benchmarking() const { return benchmarking_; }
  void set_benchmarking(bool on) { benchmarking_ = on; }

  std::vector<Sample> valid;
  std::vector<InvalidSample> refused;

 private:
  int64_t period() const;
  static Value value(const Tensor& v) { return v; }
  static Value value(const TensorList& v) { return v; }
  static Value value(const Dims& v) { return v; }
  static Value value(std::initializer_list<int64_t> v) { return Dims(v); }
  static Value value(bool v) { return v; }
  static Value value(int v) { return static_cast<int64_t>(v); }
  static Value value(int64_t v) { return v; }
  static Value value(double v) { return v; }
  static Value value(float v) { return static_cast<double>(v); }
  static Value value(const char* v) { return std::string(v); }
  static Value value(const std::string& v) { return v; }
  static Value value(Scalar v) { return v; }
  static Value value(DType v) { return v; }
  static Value value(Device v) { return v; }
  static Value value(RngKey v) { return v; }
  static Value value(std::nullopt_t) { return std::monostate(); }

  DType dtype_;
  Generator generator_;
  bool benchmarking_ = false;
};

}  // namespace strata
