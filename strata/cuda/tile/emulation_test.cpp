// Kernels of tiles on the processor: attention from tiles against sums in double precision, and what the emulation
// finds in kernels that are wrong.

#define STRATA_TILE_EMULATION
#include "strata/cuda/tile/emulation_stored.cuh"
#include "strata/cuda/tile/pipeline.cuh"
#include "strata/cuda/tile/rows.cuh"
#include "strata/cuda/tile/single.cuh"

#include <gtest/gtest.h>

namespace strata::cuda::tile {
namespace {

constexpr int kTile = 64 * kRowBytes;  // 64 rows of 64 numbers of 16 bits

using emulation::Stored;

// ---- attention ----

struct AttentionMaps {
  CUtensorMap q, k, v, out;
};
// 64 queries of a head of size 64 a block: one warp starts the copies, a warpgroup passes over tiles of 64 keys.
template <class T>
__global__ void attention_kernel(const __grid_constant__ AttentionMaps maps, int tiles, int keys, float scale,
                                 bool causal) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  uint8_t *const q = shared_memory(), *const result = q + kTile;
  using Stages = Pipeline<2, 2 * kTile>;
  Stages stages(result + kTile);
  uint64_t* const full_q = reinterpret_cast<uint64_t*>(result + kTile + Stages::kSharedBytes);
  const int row0 = static_cast<int>(blockIdx.x) % tiles * 64, head = static_cast<int>(blockIdx.x) / tiles;
  const int seen = causal && row0 + 64 < keys ? row0 + 64 : keys, steps = (seen + 63) / 64;
  if (threadIdx.x == 0) stages.init(4), init_barrier(full_q, 1), fence_barriers();
  __syncthreads();

  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    arrive_expecting(full_q, kTile);
    copy_in(q, maps.q, full_q, 0, row0, head);
    for (int i = 0; i < steps; ++i)
      stages.fill([&](uint8_t* to, uint64_t* full) {
        copy_in(to, maps.k, full, 0, 64 * i, head);
        copy_in(to + kTile, maps.v, full, 0, 64 * i, head);
      });
    return;
  }

  float out[32], top[2] = {-1e30f, -1e30f}, sum[2] = {0, 0};
  for (float& o : out) o = 0;
  wait(full_q, 0);
  for (int i = 0; i < steps; ++i) {
    const uint8_t* const k = stages.take();
    float s[32], shrink[2];
    fence_products();
#pragma unroll
    for (int d = 0; d < 4; ++d)
      multiply<T, false, false>(s, advanced(descriptor_k(q), 32 * d), advanced(descriptor_k(k), 32 * d), d > 0);
    commit_products();
    wait_products<0>();
    pin(s);
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const int key = 64 * i + column_of(e);
      s[e] = key < keys && (!causal || key <= row0 + row_of(e)) ? s[e] * scale : -1e30f;
    }
    shrink[0] = top[0], shrink[1] = top[1];
    row_max(s, top);
    for (int r = 0; r < 2; ++r) shrink[r] = exp2f(shrink[r] - top[r]), sum[r] *= shrink[r];
#pragma unroll
    for (int e = 0; e < 32; ++e) s[e] = exp2f(s[e] - top[e % 4 / 2]);
    row_sum(s, sum);
    scale_rows(out, shrink);
    uint32_t p[4][4];
    round_operand<T>(s, p);
    fence_products();
#pragma unroll
    for (int j = 0; j < 4; ++j) multiply<T, true>(out, p[j], advanced(descriptor_t(k + kTile, kTile), 2048 * j), true);
    commit_products();
    wait_products<0>();
    pin(out);
    stages.release(threadIdx.x % 32 == 0);
  }
  row_total(sum);
  const float by[2] = {1 / sum[0], 1 / sum[1]};
  scale_rows(out, by);
  store_box<T>(result, out, 0);
  fence_shared();
  named_sync(1, 128);
  if (threadIdx.x == 0) copy_out(maps.out, result, 0, row0, head), commit_out(), wait_out_read();
#endif
}

template <class T>
void check_attention(int heads, int queries, int keys, bool causal, uint64_t seed) {
  SCOPED_TRACE(cat(heads, " of ", queries, " x ", keys, causal ? ", causal" : "", ", seed ", seed));
  Stored<T> q(heads, queries, 64, 1), k(heads, keys, 64, 2), v(heads, keys, 64, 3), out(heads, queries, 64);
  const int tiles = (queries + 63) / 64;
  const AttentionMaps maps{tensor_map(q.matrices(), 64), tensor_map(k.matrices(), 64), tensor_map(v.matrices(), 64),
                           tensor_map(out.matrices(), 64)};
  const size_t bytes = 2 * kTile + Pipeline<2, 2 * kTile>::kSharedBytes + 8;
  ASSERT_EQ(emulation::launch(attention_kernel<T>, static_cast<unsigned>(heads * tiles), 160, bytes, seed, maps, tiles,
                              keys, 0.125f * 1.44269504f, causal),
            "");
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < queries; ++i) {
      std::vector<double> weights;
      double total = 0;
      for (int j = 0; j < keys && (!causal || j <= i); ++j) {
        double s = 0;
        for (int d = 0; d < 64; ++d) s += q(h, i, d) * k(h, j, d);
        weights.push_back(std::exp(0.125 * s)), total += weights.back();
      }
      for (int d = 0; d < 64; ++d) {
        double want = 0;
        for (size_t j = 0; j < weights.size(); ++j) want += weights[j] / total * v(h, static_cast<int64_t>(j), d);
        ASSERT_NEAR(out(h, i, d), want, 1e-2) << h << ", " << i << ", " << d;
      }
    }
}

class TileEmulation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

TEST_F(TileEmulation, Attention) {
  for (const uint64_t seed : {0, 1, 2}) {
    check_attention<BFloat16>(2, 100, 150, false, seed);
    check_attention<Half>(1, 130, 130, true, seed);
    check_attention<BFloat16>(1, 3, 7, false, seed);
  }
}

// ---- a warp's instructions ----

// c [16][16] = a [16][16] b [16][16]^T of one warp: cp.async, ldmatrix, mma.sync, stmatrix.
template <class T>
__global__ void warp_kernel(const T* a, const T* b, T* c) {
  uint16_t *const x = reinterpret_cast<uint16_t*>(shared_memory()), *const y = x + 256, *const z = y + 256;
  const int lane = static_cast<int>(threadIdx.x);
  copy_async(x + 8 * lane, a + 8 * lane);
  copy_async(y + 8 * lane, b + 8 * lane);
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  uint32_t left[4], right[4];
  float sums[2][4] = {};
  load_matrices(left, x + lane % 16 * 16 + lane / 16 * 8);
  load_matrices(right, y + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
  for (int n = 0; n < 2; ++n) mma<T>(sums[n], left, right[2 * n], right[2 * n + 1]);
  store_matrices(shared_address(z + lane % 16 * 16 + lane / 16 * 8), pack2<T>(sums[0][0], sums[0][1]),
                 pack2<T>(sums[0][2], sums[0][3]), pack2<T>(sums[1][0], sums[1][1]), pack2<T>(sums[1][2], sums[1][3]));
  __syncwarp();
  // There and back transposed: the same numbers.
  uint32_t turned[4];
  load_transposed(turned, z + lane % 16 * 16 + lane / 16 * 8);
  __syncwarp();
  store_transposed(shared_address(z + lane % 16 * 16 + lane / 16 * 8), turned[0], turned[1], turned[2], turned[3]);
  __syncwarp();
  std::memcpy(static_cast<void*>(c + 8 * lane), z + 8 * lane, 16);
}

template <class T>
void check_warp(uint64_t seed) {
  alignas(16) T a[256], b[256], c[256];
  std::mt19937 random(7);
  for (int i = 0; i < 256; ++i) a[i] = emulation::random_number<T>(random), b[i] = emulation::random_number<T>(random);
  ASSERT_EQ(emulation::launch(warp_kernel<T>, 1, 32, 2048, seed, static_cast<const T*>(a), static_cast<const T*>(b),
                              static_cast<T*>(c)),
            "");
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      double want = 0;
      for (int k = 0; k < 16; ++k) want += emulation::value(a[i * 16 + k]) * emulation::value(b[j * 16 + k]);
      ASSERT_NEAR(emulation::value(c[i * 16 + j]), want, 2e-2) << i << ", " << j;
    }
}

TEST_F(TileEmulation, InstructionsOfAWarp) {
  for (const uint64_t seed : {0, 1, 2}) check_warp<BFloat16>(seed), check_warp<Half>(seed);
}

// ---- kernels that are wrong ----

enum class Flaw {
  none,
  full_not_awaited,
  products_not_awaited,
  released_early,
  wrong_step,
  wrong_transposition,
  misaligned,
  not_fenced,
  result_overwritten,
  never_released,
  bytes_not_announced,
  copies_not_finished,
  products_not_committed,
  rows_too_many,
};

// c [64][64] in f32 = a b^T, the depth in `steps` tiles, through two stages and one box for each half of the columns.
template <Flaw kFlaw>
__global__ void little_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                              const __grid_constant__ CUtensorMap c, int steps) {
  uint8_t* const tiles = shared_memory() + (kFlaw == Flaw::misaligned ? 512 : 0);
  uint8_t* const box = tiles + 4 * kTile;
  uint64_t *const full = reinterpret_cast<uint64_t*>(box + kTile), *const empty = full + 2;
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) init_barrier(full + i, 1), init_barrier(empty + i, 4);
  __syncthreads();
  Ring<2> ring;
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    for (int i = 0; i < steps; ++i, ring.next()) {
      wait(empty + ring.stage, ring.parity ^ 1);
      if (kFlaw == Flaw::bytes_not_announced) {
        arrive(full + ring.stage);
      } else {
        arrive_expecting(full + ring.stage, 2 * kTile);
      }
      copy_in(tiles + 2 * ring.stage * kTile, a, full + ring.stage, 64 * i, 0, 0);
      copy_in(tiles + (2 * ring.stage + 1) * kTile, b, full + ring.stage, 64 * i, 0, 0);
    }
    return;
  }
  float sums[32];
  for (int i = 0; i < steps; ++i, ring.next()) {
    if (kFlaw != Flaw::full_not_awaited) wait(full + ring.stage, ring.parity);
    const uint64_t x = descriptor_k(tiles + 2 * ring.stage * kTile),
                   y = kFlaw == Flaw::wrong_transposition ? descriptor_t(tiles + (2 * ring.stage + 1) * kTile, kTile)
                                                          : descriptor_k(tiles + (2 * ring.stage + 1) * kTile);
    constexpr int kStep = kFlaw == Flaw::wrong_step ? 64 : 32;
    fence_products();
    for (int k = 0; k < 4; ++k)
      multiply<BFloat16, false, kFlaw == Flaw::wrong_transposition>(sums, advanced(x, k * kStep), advanced(y, k * 32),
                                                                    i + k > 0);
    if (kFlaw != Flaw::products_not_committed) commit_products();
    if (kFlaw == Flaw::released_early && threadIdx.x % 32 == 0) arrive(empty + ring.stage);
    if (kFlaw != Flaw::products_not_awaited) wait_products<0>();
    if (kFlaw != Flaw::released_early && kFlaw != Flaw::never_released && threadIdx.x % 32 == 0)
      arrive(empty + ring.stage);
  }
  for (int half = 0; half < 2; ++half) {
    if (threadIdx.x == 0 && kFlaw != Flaw::result_overwritten) wait_out_read();
    named_sync(1, 128);
    store_box<float>(box, sums, 32 * half);
    if (kFlaw != Flaw::not_fenced) fence_shared();
    named_sync(1, 128);
    if (threadIdx.x == 0) copy_out(c, box, 32 * half, kFlaw == Flaw::rows_too_many ? -64 : 0, 0), commit_out();
  }
  if (threadIdx.x == 0 && kFlaw != Flaw::copies_not_finished) wait_out_read();
}

// What the emulation says; "wrong numbers" where it says nothing and the result is wrong.
template <Flaw kFlaw>
std::string outcome(uint64_t seed) {
  const int steps = 5;
  Stored<BFloat16> a(1, 64, 64 * steps, 1), b(1, 64, 64 * steps, 2);
  Stored<float> c(1, 64, 64);
  const std::string failure =
      emulation::launch(little_kernel<kFlaw>, 1, 160, 5 * kTile + 1024, seed, tensor_map(a.matrices(), 64),
                        tensor_map(b.matrices(), 64), tensor_map(c.matrices(), 64), steps);
  if (!failure.empty()) return failure;
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j) {
      double want = 0;
      for (int k = 0; k < 64 * steps; ++k) want += a(0, i, k) * b(0, j, k);
      if (!(std::fabs(c(0, i, j) - want) < 1e-3)) return "wrong numbers";
    }
  return "";
}
template <Flaw kFlaw>
void expect_found(const std::string& what) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const std::string said = outcome<kFlaw>(seed);
    EXPECT_NE(said.find(what), std::string::npos) << "seed " << seed << ": " << said;
  }
}

TEST_F(TileEmulation, WrongKernelsAreFound) {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5}) EXPECT_EQ(outcome<Flaw::none>(seed), "");
  expect_found<Flaw::wrong_step>("multiple of 1024 bytes");  // the next row, not further along this one
  expect_found<Flaw::wrong_transposition>("wrong numbers");
  expect_found<Flaw::misaligned>("multiple of 1024 bytes");
  expect_found<Flaw::not_fenced>("without fence_shared()");
  expect_found<Flaw::never_released>("nothing can go on");
  expect_found<Flaw::bytes_not_announced>("");
  expect_found<Flaw::products_not_committed>("before its products");
  expect_found<Flaw::rows_too_many>("negative place");
  // As late as may be, what is not awaited is not there.
  EXPECT_NE(outcome<Flaw::full_not_awaited>(0), "");
  EXPECT_NE(outcome<Flaw::products_not_awaited>(0), "");
  EXPECT_EQ(outcome<Flaw::result_overwritten>(0), "wrong numbers");
  EXPECT_NE(outcome<Flaw::copies_not_finished>(0).find("before its copies have read"), std::string::npos);
  // A copy over a tile that a product still reads: at some of the random times.
  int found = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) found += !outcome<Flaw::released_early>(seed).empty();
  EXPECT_GT(found, 0);
}

// ---- blocks that wait for each other ----

// Adds a block's number to four sums, the last block first; kFlaw of three steps is left out.
template <int kFlaw>
__global__ void ordered_kernel(float* sums, int* count) {
  float4* const mine = reinterpret_cast<float4*>(shared_memory());
  const auto number = static_cast<float>(blockIdx.x + 1);
  const int place = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  store_four(mine, number, number, number, number);
  fence_shared();
  if (threadIdx.x != 0) return;
  wait_count(count, place);
  if (kFlaw != 1) fence_proxies();
  place == 0 ? copy_bytes_out(sums, mine, 16) : add_bytes_out(sums, mine, 16);
  commit_out();
  kFlaw == 2 && place == 0 ? wait_out_read() : wait_out();
  if (kFlaw != 3) fence_proxies();
  post_count(count, place + 1);
}
template <int kFlaw>
std::string ordered_outcome(uint64_t seed, bool together) {
  alignas(16) float sums[4] = {7, 7, 7, 7};
  int count = 0;
  const auto run = [&](auto launched) {
    return launched(ordered_kernel<kFlaw>, 3u, 32u, size_t{1024}, seed, static_cast<float*>(sums), &count);
  };
  const std::string failure = together ? run([](auto... a) { return emulation::launch_together(a...); })
                                       : run([](auto... a) { return emulation::launch(a...); });
  if (!failure.empty()) return failure;
  return sums[0] == 6 && sums[3] == 6 ? "" : "wrong numbers";
}

TEST_F(TileEmulation, BlocksThatWaitForEachOther) {
  for (const uint64_t seed : {0, 1, 2}) {
    EXPECT_EQ(ordered_outcome<0>(seed, true), "");
    EXPECT_NE(ordered_outcome<0>(seed, false).find("waits for a count of 2"), std::string::npos);
    EXPECT_NE(ordered_outcome<1>(seed, true).find("wait_count() without fence_proxies()"), std::string::npos);
  }
  EXPECT_EQ(ordered_outcome<2>(0, true), "wrong numbers");  // written over the next block's sum
  EXPECT_NE(ordered_outcome<3>(0, true).find("wait_out() without fence_proxies()"), std::string::npos);
}

}  // namespace
}  // namespace strata::cuda::tile
