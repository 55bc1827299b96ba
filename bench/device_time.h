#pragma once
// Device time of calls on a card, for the benchmarks.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "strata/cuda/runtime.h"

namespace strata {

/// Bytes that inputs rotate through, so that none is still in the L2 cache when its turn comes: four times the largest.
inline constexpr int64_t kRotate = int64_t{200} << 20;

/// Milliseconds of one call f(set): the median of rounds of as many calls as there are sets of inputs, four at least,
/// between events of the current stream.
template <class F>
double device_ms(int64_t sets, F&& f) {
  constexpr int kRounds = 11;
  const cuda::Stream stream = cuda::current_stream();
  const int64_t calls = std::max<int64_t>(sets, 4);
  for (int64_t i = 0; i < calls; ++i) f(i % sets);
  std::vector<std::unique_ptr<cuda::Event>> at;
  for (int i = 0; i <= kRounds; ++i) at.push_back(std::make_unique<cuda::Event>(true));
  at[0]->record(stream);
  for (int r = 1; r <= kRounds; ++r) {
    for (int64_t i = 0; i < calls; ++i) f(i % sets);
    at[static_cast<size_t>(r)]->record(stream);
  }
  stream.synchronize();
  std::vector<double> ms;
  for (size_t r = 1; r < at.size(); ++r) ms.push_back(at[r]->elapsed_ms(*at[r - 1]) / static_cast<double>(calls));
  std::nth_element(ms.begin(), ms.begin() + kRounds / 2, ms.end());
  return ms[kRounds / 2];
}

}  // namespace strata
