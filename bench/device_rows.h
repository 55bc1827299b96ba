#pragma once
// What the benchmarks of memory-bound ops on a card share: a row for each call, with the rate of the fewest bytes that
// must move and its fraction of a copy's in the same run.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/device_time.h"
#include "strata/core/error.h"
#include "strata/core/op_base.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace strata {

inline const Rows* g_rows = nullptr;
inline double g_copy = 0;

inline bool wanted(const std::string& name) {
  return g_rows->wanted(name);
}

/// f(i) runs on set i of the inputs; a call must move `bytes`.
template <class F>
void row(const std::string& name, double bytes, int64_t sets, F&& f) {
  const double ms = device_ms(sets, f);
  const double rate = bytes / ms * 1e-6;
  if (name == "copy") g_copy = rate;
  std::printf("%-48s %9.4f ms  %7.0f GB/s  %4.0f%%\n", name.c_str(), ms, rate, 100 * rate / g_copy);
  std::fflush(stdout);
  g_rows->line(name, bytes, ms);
}

/// The copy that the others are compared with.
inline void copy_row() {
  const Tensor from = randn({int64_t{1} << 28}), to = empty_like(from);
  row("copy", 2. * static_cast<double>(from.nbytes()), 1, [&](int64_t) { copy_elements(to, from); });
}

inline int64_t sets_for(int64_t bytes) {
  return std::clamp<int64_t>(kRotate / std::max<int64_t>(bytes, 1), 1, 16);
}
inline std::vector<Tensor> several(int64_t sets, const Shape& shape, DType t) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < sets; ++i) all.push_back(randn(shape, DType::f32).to(t));
  return all;
}
inline std::vector<Value> call(const char* op, const std::vector<Value>& args) {
  const OpBase* record = OpBase::find(op);
  check(record != nullptr, op, "there is no such op");
  return record->call_boxed(args);
}

inline std::string label(const char* op, int64_t rows, int64_t n, const char* type = "bf16") {
  return cat(op, " ", rows, "x", n, " ", type);
}

}  // namespace strata
