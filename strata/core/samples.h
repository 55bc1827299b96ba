#pragma once
// Samples: a record's valid and invalid inputs. Tests, gradient checks, fuzzing and benchmarks draw from them.

#include <initializer_list>
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
    return add_given({Given(args)...});
  }
  /// A set that is large enough to time; made only when benchmarks ask for it.
  template <class... T>
  Sample& bench(const T&... args) {
    return bench_given({Given(args)...});
  }
  /// A set that must throw E with `message` somewhere in its text.
  template <class E, class... T>
  void invalid(std::string_view message, const T&... args) {
    refuse_given(typeid(E), message, {Given(args)...});
  }
  /// True in the round that collects benchmark inputs: `if (s.benchmarking()) s.bench(...)`.
  bool benchmarking() const { return benchmarking_; }
  void set_benchmarking(bool on) { benchmarking_ = on; }

  std::vector<Sample> valid;
  std::vector<InvalidSample> refused;

 private:
  int64_t period() const;
  // An argument, where it lies: what makes a Value of it is compiled once.
  class Given {
   public:
    Given(const Tensor& v);
    Given(const TensorList& v);
    Given(const Dims& v);
    Given(const bool& v);
    Given(const int& v);
    Given(const int64_t& v);
    Given(const double& v);
    Given(const float& v);
    Given(const char* v);
    Given(const std::string& v);
    Given(const Scalar& v);
    Given(const DType& v);
    Given(const Device& v);
    Given(const RngKey& v);
    Given(std::nullopt_t);
    Value value() const { return box_(at_); }

   private:
    Given(const void* at, Value (*box)(const void*)) : at_(at), box_(box) {}
    template <class As, class T>
    static Given of(const T& v);
    const void* at_;
    Value (*box_)(const void*);
  };
  Sample& add_given(std::initializer_list<Given> args);
  Sample& bench_given(std::initializer_list<Given> args);
  void refuse_given(std::type_index error, std::string_view message, std::initializer_list<Given> args);

  DType dtype_;
  Generator generator_;
  bool benchmarking_ = false;
};

}  // namespace strata
