#pragma once
// What the examples with a table of features share: where it lives, and what reading it took.

#include <cstdio>
#include <cstdlib>

#include <strata/memory/tiers.h>
#include <strata/nn/feature_table.h>
#include <strata/strata.h>

/// From the arguments [N [CACHE_MIB [DIRECTORY]]]: on a disk with a directory, else in memory that a card reads in
/// place, where there is one; CACHE_MIB of the rows are kept near.
inline strata::nn::FeatureTableOptions table_options(int argc, char** argv) {
  const bool on_card = strata::cuda::device_count() > 0;
  strata::nn::FeatureTableOptions options;
  options.device = on_card ? strata::Device::cuda() : strata::Device::cpu();
  options.cache_bytes = (argc > 2 ? std::atoll(argv[2]) : 0) << 20;
  if (argc > 3) {
    options.home = strata::memory::kDisk;
    options.directories = {argv[3]};
  } else if (on_card) {
    options.home = strata::memory::kUnified;
  }
  return options;
}

/// Calls write(first, count) for all rows, so many at once as there is always room for.
template <class Write>
void write_in_parts(int64_t rows, Write&& write) {
  constexpr int64_t kPart = 100000;
  for (int64_t first = 0; first < rows; first += kPart) write(first, rows - first < kPart ? rows - first : kPart);
}

inline void print_reads(const strata::nn::FeatureTable& table) {
  const strata::nn::FeatureTableStats s = table.stats();
  const int64_t bytes = table.rows() * table.width() * strata::size_of(table.dtype());
  std::printf("%lld rows were asked for, %.1f %% of them kept; %.1f MB read from a table of %.1f MB\n",
              static_cast<long long>(s.rows), 100 * s.hit_rate(), static_cast<double>(s.home_bytes) * 1e-6,
              static_cast<double>(bytes) * 1e-6);
}
