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

// A stream of which the first blocks are drawn already, with those of other elements.
struct DrawnStream {
  sampler::Stream<double> rest;
  const uint32_t* drawn;
  int left;
  double first = 0, second = 0;
  void draw() {
    if (left > 0) {
      --left;
      ++rest.block;
      sampler::split(drawn, first, second);
      drawn += 4;
      return;
    }
    rest.draw();
    first = rest.first;
    second = rest.second;
  }
};

}  // namespace

void sample_cpu(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.numel() == 0) return;
  const double *p = a.data<double>(), *q = b.defined() ? b.data<double>() : p;
  double* out = y.data<double>();
  const RngKey seed = sampler::stream_key(key);
  parallel_for(0, y.numel(), 512, [&](int64_t begin, int64_t end) {
    if (kind == sampler::Kind::gamma_slope)
      return STRATA_VEC_CALL(gamma_slopes_of)(p + begin, q + begin, out + begin, end - begin);
    constexpr int64_t kChunk = 64;
    constexpr int kDrawn = 4;  // blocks of an element: most need no more
    uint32_t bits[kDrawn][kChunk * 4];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      if (kind != sampler::Kind::gamma) {
        const uint64_t counter = seed.offset + static_cast<uint64_t>(at) * sampler::kBlocks;
        if (kind == sampler::Kind::poisson)
          STRATA_VEC_CALL(poissons_of)(p + at, seed.seed, counter, out + at, n);
        else
          STRATA_VEC_CALL(binomials_of)(p + at, q + at, seed.seed, counter, out + at, n);
        for (int64_t i = at; i < at + n; ++i) {
          if (out[i] >= 0) continue;
          sampler::Stream<double> s{seed, static_cast<uint64_t>(i) * sampler::kBlocks};
          out[i] = sampler::drawn(kind, p[i], q[i], s);
        }
        continue;
      }
      for (int k = 0; k < kDrawn; ++k) STRATA_VEC_CALL(draw_apart)
      (seed.seed, seed.offset + static_cast<uint64_t>(at) * sampler::kBlocks + static_cast<uint64_t>(k),
       sampler::kBlocks, n, bits[k]);
      const uint32_t* const first[] = {bits[0], bits[1], bits[2]};
      STRATA_VEC_CALL(gammas_of)(p + at, first, out + at, n);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = at + j;
        if (out[i] >= 0) continue;
        uint32_t own[kDrawn * 4];
        for (int k = 0; k < kDrawn; ++k) std::copy_n(bits[k] + 4 * j, 4, own + 4 * k);
        DrawnStream s{{seed, static_cast<uint64_t>(i) * sampler::kBlocks}, own, kDrawn};
        out[i] = sampler::gamma(p[i], s);
      }
    }
  });
}

}  // namespace strata
