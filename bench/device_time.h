#pragma once
// Device time of calls on a card, and the command line of the benchmarks that print a row for each.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
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

/// What `BENCH [filter] [--lines FILE]` says: rows whose name holds the filter are wanted, and FILE takes
/// "name <tab> work <tab> milliseconds" lines.
class Rows {
 public:
  Rows(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--lines") == 0 && i + 1 < argc)
        lines_ = std::fopen(argv[++i], "w");
      else
        filter_ = argv[i];
    }
  }
  ~Rows() {
    if (lines_) std::fclose(lines_);
  }
  Rows(const Rows&) = delete;
  /// Whether there is a card; prints its name, or why there is none.
  static bool on_a_card() {
    const bool any = cuda::device_count() > 0;
    std::printf("%s\n",
                any ? cuda::properties().name.c_str() : ("no CUDA device: " + cuda::unavailable_reason()).c_str());
    return any;
  }
  bool wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }
  /// Writes a line where a file is given; `work` is bytes or operations.
  void line(const std::string& name, double work, double ms) const {
    if (lines_) std::fprintf(lines_, "%s\t%.0f\t%.5f\n", name.c_str(), work, ms);
  }

 private:
  std::string filter_;
  FILE* lines_ = nullptr;
};

}  // namespace strata
