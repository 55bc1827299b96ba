#include <algorithm>

#include "strata/core/parallel.h"
#include "strata/ops/distributions/distributions_kernel.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/distributions/samplers_vector_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

// A stream of which the first blocks are drawn already, with those of other elements: `apart` numbers from each other.
struct DrawnStream {
  sampler::Stream<double> rest;
  const uint32_t* drawn;
  int left;
  int64_t apart;
  double first = 0, second = 0;
  void draw() {
    if (left > 0) {
      --left;
      ++rest.block;
      sampler::split(drawn, first, second);
      drawn += apart;
      return;
    }
    rest.draw();
    first = rest.first;
    second = rest.second;
  }
};

constexpr int64_t kChunk = 64;
constexpr int kMostDrawn = 12;

// Blocks that most of n elements need. Counts below ten are found one by one, a block each; the rest by proposals, of
// which the first is mostly taken.
int blocks_for(sampler::Kind kind, const double* a, const double* b, int64_t n) {
  if (kind == sampler::Kind::gamma) return 4;
  double most = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double mean = kind == sampler::Kind::poisson ? a[j] : a[j] * std::min(b[j], 1 - b[j]);
    if (mean < 10) most = std::max(most, mean);
  }
  return std::min(kMostDrawn, static_cast<int>(most) + 3);
}

}  // namespace

void sample_cpu(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.numel() == 0) return;
  const double *p = a.data<double>(), *q = b.defined() ? b.data<double>() : p;
  double* out = y.data<double>();
  const RngKey seed = sampler::stream_key(key);
  parallel_for(0, y.numel(), 512, [&](int64_t begin, int64_t end) {
    if (kind == sampler::Kind::gamma_slope)
      return STRATA_VEC_CALL(gamma_slopes_of)(p + begin, q + begin, out + begin, end - begin);
    uint32_t bits[kMostDrawn][kChunk * 4];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      const int blocks = blocks_for(kind, p + at, q + at, n);
      for (int k = 0; k < blocks; ++k) STRATA_VEC_CALL(draw_apart)
      (seed.seed, seed.offset + static_cast<uint64_t>(at) * sampler::kBlocks + static_cast<uint64_t>(k),
       sampler::kBlocks, n, bits[k]);
      const uint32_t* const first[] = {bits[0], bits[1], bits[2]};
      if (kind == sampler::Kind::gamma) STRATA_VEC_CALL(gammas_of)(p + at, first, out + at, n);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = at + j;
        if (kind == sampler::Kind::gamma && out[i] >= 0) continue;
        DrawnStream s{{seed, static_cast<uint64_t>(i) * sampler::kBlocks}, bits[0] + 4 * j, blocks, kChunk * 4};
        out[i] = sampler::drawn(kind, p[i], q[i], s);
      }
    }
  });
}

}  // namespace strata
