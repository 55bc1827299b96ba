// The fused update loops on a CUDA device over states in 8 bits: a warp has a block of elements that share a scale, so
// that the block's new scale is known before its codes are written. Thread blocks stay for many chunks, with the maps
// in shared memory.

#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/optim/eight_bit_inl.h"
#include "strata/optim/loops.cuh"

namespace strata::optim {
namespace {

// Without a sign, with one.
__device__ constexpr EightBitMap kMaps[] = {make_eight_bit_map(false), make_eight_bit_map(true)};

struct EightBitEntry : Entry {
  float* scale[kMostStates];
};

constexpr int kLane = 4;                                              // elements of a lane that lie together
constexpr int kParts = static_cast<int>(kScaleBlock) / (kLane * 32);  // and how many times it has them
static_assert(kScaleBlock == kParts * kLane * cuda::kWarp && kChunk % kScaleBlock == 0);

// What a rule needs of the maps.
template <bool Used>
struct SharedMap {
  float values[kCodes];
  uint32_t steps[kKeys];

  __device__ __forceinline__ void load(const EightBitMap& map) {
    for (int i = static_cast<int>(threadIdx.x); i < kCodes; i += kThreads) values[i] = map.values[i];
    for (int i = static_cast<int>(threadIdx.x); i < kKeys; i += kThreads) steps[i] = map.steps[i];
  }
};
template <>
struct SharedMap<false> {
  __device__ __forceinline__ void load(const EightBitMap&) {}
};

// A lane's elements of one state.
struct State {
  float v[kParts][kLane] = {};
};

template <class Map>
__device__ __forceinline__ void widen_codes(State& s, const uint32_t (&codes)[kParts], float scale, const Map& map) {
#pragma unroll
  for (int h = 0; h < kParts; ++h)
#pragma unroll
    for (int j = 0; j < kLane; ++j) s.v[h][j] = __fmul_rn(map.values[codes[h] >> (8 * j) & 0xffu], scale);
}

// The block's scale, the same in every lane; `codes` become those of the lane's elements.
template <bool HasSign, class Map>
__device__ __forceinline__ float narrow_codes(const State& s, uint32_t (&codes)[kParts], const Map& map) {
  uint32_t most = 0;
#pragma unroll
  for (int h = 0; h < kParts; ++h)
#pragma unroll
    for (int j = 0; j < kLane; ++j) most = max(most, __float_as_uint(s.v[h][j]) & 0x7fffffffu);
  const float scale = scale_of(__reduce_max_sync(0xffffffffu, most)), inverse = inverse_scale(scale);
#pragma unroll
  for (int h = 0; h < kParts; ++h) {
    codes[h] = 0;
#pragma unroll
    for (int j = 0; j < kLane; ++j) {
      const uint32_t bits = __float_as_uint(__fmul_rn(s.v[h][j], inverse)) & 0x7fffffffu;
      codes[h] |= code_of<HasSign>(s.v[h][j], nearest_of(map.steps[key_of(bits)], bits)) << (8 * j);
    }
  }
  return scale;
}

template <class R>
__global__ void __launch_bounds__(kThreads, 3)
    eight_bit_kernel(const __grid_constant__ Table<EightBitEntry> table, uint32_t chunks, const double* constants,
                     const double* factor) {
  constexpr unsigned all = (1u << R::states) - 1;
  constexpr bool signs = (nonnegative<R> & all) != all, magnitudes = (nonnegative<R> & all) != 0;
  __shared__ SharedMap<signs> with_sign;
  __shared__ SharedMap<magnitudes> without;
  const double f = factor ? *factor : 1;
  if (f != f) return;
  with_sign.load(kMaps[1]);
  without.load(kMaps[0]);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  // Calls f(k, map, whether it has a sign) for each state.
  const auto for_states = [&](auto&& call) {
    const auto one = [&]<int K>(std::integral_constant<int, K> k) {
      if constexpr (K < R::states) {
        if constexpr ((nonnegative<R> & 1u << K) != 0) {
          call(k, without, std::false_type{});
        } else {
          call(k, with_sign, std::true_type{});
        }
      }
    };
    one(std::integral_constant<int, 0>{});
    one(std::integral_constant<int, 1>{});
    one(std::integral_constant<int, 2>{});
  };
  // Neighbouring chunks, mostly of one tensor.
  const auto bound = [&](uint32_t block) { return static_cast<uint32_t>(uint64_t{chunks} * block / gridDim.x); };
  const uint32_t last = bound(blockIdx.x + 1);
  for (uint32_t chunk = bound(blockIdx.x); chunk < last;) {
    const EightBitEntry& e = table.of(chunk);
    const double* row = constants + kRow * e.index;
    Numbers<float> k;
#pragma unroll
    for (int i = 0; i < kConstants; ++i) k.v[i] = reinterpret_cast<const float*>(row)[i];
    if (factor) {
      if constexpr (reads_gradient<R>) k.v[0] *= static_cast<float>(f);
    }
    const uint64_t key = e.stochastic ? static_cast<uint64_t>(__double_as_longlong(row[kConstants])) : 0;
    if (chunk == e.first_chunk && threadIdx.x == 0) {
      if (e.step) ++*e.step;
      if (e.rate) *e.rate = row[kConstants + 1];
    }
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(e.param) | reinterpret_cast<uintptr_t>(e.grad) |
                                reinterpret_cast<uintptr_t>(e.state[0]) | reinterpret_cast<uintptr_t>(e.state[1]) |
                                reinterpret_cast<uintptr_t>(e.state[2]) | reinterpret_cast<uintptr_t>(e.low);
    const uint32_t stop = min(last, e.first_chunk + static_cast<uint32_t>((e.numel + kChunk - 1) / kChunk));
    for (; chunk < stop; ++chunk) {
      const int64_t begin = (chunk - e.first_chunk) * kChunk, end = min(begin + kChunk, e.numel);
      uint32_t most = 0;  // the largest magnitude of what the thread leaves of an f32 parameter
      for (int64_t at = begin + warp * kScaleBlock; at < end; at += kScaleBlock * (kThreads / cuda::kWarp)) {
        const int64_t number = at / kScaleBlock, left = end - at - lane * kLane;  // elements from the lane's first on
        const bool whole = addresses % 16 == 0 && at + kScaleBlock <= end;
        const auto place = [&](int h) { return at + h * kLane * cuda::kWarp + lane * kLane; };
        float p[kParts][kLane] = {}, g[kParts][kLane] = {};
        uint32_t codes[kMostStates][kParts] = {};
        State s[kMostStates];
        if (whole) {
          uint2 lower[kParts];
#pragma unroll
          for (int h = 0; h < kParts; ++h) {
            lower[h] = fetch_weights(p[h], e, place(h));
            fetch(g[h], e.grad, place(h), e.grad_format);
            for_states([&](auto i, const auto&, auto) {
              codes[i][h] = *reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(e.state[i]) + place(h));
            });
          }
#pragma unroll
          for (int h = 0; h < kParts; ++h) {
            unpack_weights(p[h], lower[h], e);
            unpack(g[h], e.grad_format);
          }
        } else {
#pragma unroll
          for (int h = 0; h < kParts; ++h)
#pragma unroll
            for (int j = 0; j < kLane; ++j) {
              if (h * kLane * cuda::kWarp + j >= left) continue;
              p[h][j] = get_weight<float>(e, place(h) + j);
              g[h][j] = get_one<float>(e.grad, place(h) + j, e.grad_format);
              for_states([&](auto i, const auto&, auto) {
                codes[i][h] |= static_cast<uint32_t>(static_cast<const uint8_t*>(e.state[i])[place(h) + j]) << (8 * j);
              });
            }
        }
        for_states([&](auto i, const auto& map, auto) { widen_codes(s[i], codes[i], e.scale[i][number], map); });
#pragma unroll
        for (int h = 0; h < kParts; ++h)
#pragma unroll
          for (int j = 0; j < kLane; ++j) {
            g[h][j] *= k[0];
            R::apply(k, p[h][j], g[h][j], s[0].v[h][j], s[1].v[h][j], s[2].v[h][j]);
            // Beyond the end: nothing to the block's scale, nor to the largest magnitude.
            if (!whole && h * kLane * cuda::kWarp + j >= left) p[h][j] = s[0].v[h][j] = s[1].v[h][j] = s[2].v[h][j] = 0;
            most = max(most, __float_as_uint(p[h][j]) & 0x7fffffffu);
          }
        for_states([&](auto i, const auto& map, auto has_sign) {
          const float scale = narrow_codes<has_sign>(s[i], codes[i], map);
          if (lane == 0) e.scale[i][number] = scale;
        });
        if (whole) {
#pragma unroll
          for (int h = 0; h < kParts; ++h) {
            if (e.stochastic) {
              put_weights(e, place(h), p[h], random_at(key, place(h)));
            } else {
              put_weights(e, place(h), p[h], Nearest{});
            }
            for_states([&](auto i, const auto&, auto) {
              *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(e.state[i]) + place(h)) = codes[i][h];
            });
          }
        } else {
#pragma unroll
          for (int h = 0; h < kParts; ++h)
#pragma unroll
            for (int j = 0; j < kLane; ++j) {
              if (h * kLane * cuda::kWarp + j >= left) continue;
              if (e.stochastic) {
                put_weight(e, place(h) + j, p[h][j], random_at(key, place(h)));
              } else {
                put_weight(e, place(h) + j, p[h][j], Nearest{});
              }
              for_states([&](auto i, const auto&, auto) {
                static_cast<uint8_t*>(e.state[i])[place(h) + j] = static_cast<uint8_t>(codes[i][h] >> (8 * j));
              });
            }
        }
      }
      if (e.most == nullptr) continue;
      most = __reduce_max_sync(0xffffffffu, most);
      if (lane == 0) e.most[(chunk - e.first_chunk) * cuda::kParameterWarps + warp] = most;
    }
  }
}

template <class R>
void queue(std::span<const Slab> slabs, const double* constants, const double* factor) {
  if constexpr (in_eight_bits<R>) {
    int device = 0;
    cuda::check_cuda(cudaGetDevice(&device), "optimizer", "cudaGetDevice");
    const auto most = static_cast<uint32_t>(4 * cuda::properties(device).multiprocessors);
    for_tables<EightBitEntry>(slabs, in_codes, [&](const Table<EightBitEntry>& table, uint32_t chunks) {
      eight_bit_kernel<R><<<std::min(chunks, most), kThreads, 0, cuda::stream()>>>(table, chunks, constants, factor);
    });
  }
}

}  // namespace

void queue_eight_bit(Rule rule, std::span<const Slab> slabs, const double* constants, const double* factor) {
  switch (rule) {
#define STRATA_ONE_RULE(name, type) \
  case Rule::name:                  \
    return queue<type>(slabs, constants, factor);
    STRATA_RULES
#undef STRATA_ONE_RULE
  }
}

}  // namespace strata::optim
