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
  uint32_t steps[kKeys];  // less their keys: with a number's bits they add up to what nearest_of() shifts

  __device__ __forceinline__ void load(const EightBitMap& map) {
    for (int i = static_cast<int>(threadIdx.x); i < kCodes; i += kThreads) values[i] = map.values[i];
    for (int i = static_cast<int>(threadIdx.x); i < kKeys; i += kThreads)
      steps[i] = map.steps[i] - ((kFirstKey + static_cast<uint32_t>(i)) << 16);
  }
  __device__ __forceinline__ uint32_t nearest(uint32_t place) const {
    return (steps[(place >> 16) - kFirstKey] + place) >> 16;
  }
};
template <>
struct SharedMap<false> {
  __device__ __forceinline__ void load(const EightBitMap&) {}
};

// The larger magnitude; NaN where one is that.
__device__ __forceinline__ float larger(float most, float x) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(x)));
  return most;
}

// A lane's elements of one state.
struct State {
  float v[kParts][kLane] = {};
};

template <class Map>
__device__ __forceinline__ void widen_codes(State& s, const uint32_t (&codes)[kParts], float scale, const Map& map) {
#pragma unroll
  for (int h = 0; h < kParts; ++h)
#pragma unroll
    for (int j = 0; j < kLane; ++j) {
      const uint32_t at = (j == 0 ? codes[h] << 2 : codes[h] >> (8 * j - 2)) & 0x3fcu;  // in bytes
      s.v[h][j] = __fmul_rn(*reinterpret_cast<const float*>(reinterpret_cast<const char*>(map.values) + at), scale);
    }
}

// The block's scale, the same in every lane; `codes` become those of the lane's elements.
template <bool HasSign, class Map>
__device__ __forceinline__ float narrow_codes(const State& s, uint32_t (&codes)[kParts], const Map& map) {
  float most = 0;
#pragma unroll
  for (int h = 0; h < kParts; ++h)
#pragma unroll
    for (int j = 0; j < kLane; ++j) most = larger(most, s.v[h][j]);
  const float scale = scale_of(__reduce_max_sync(0xffffffffu, __float_as_uint(most))), inverse = inverse_scale(scale);
  constexpr float least = std::bit_cast<float>(kFirstKey << 16);
#pragma unroll
  for (int h = 0; h < kParts; ++h) {
    codes[h] = 0;
#pragma unroll
    for (int j = kLane - 1; j >= 0; --j) {
      const float x = s.v[h][j];
      // place_of(): fmaxf() takes the other number for NaN.
      const auto index = static_cast<int>(map.nearest(__float_as_uint(fmaxf(__fmul_rn(fabsf(x), inverse), least))));
      if constexpr (HasSign) {
        constexpr int zero = kZeroCode;
        codes[h] = (codes[h] << 8) + static_cast<uint32_t>(max(x < 0 ? zero - index : zero + index, 0));
      } else {
        codes[h] = (codes[h] << 8) + static_cast<uint32_t>(x > 0 ? max(index, 1) : 0);
      }
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
    // The arithmetic of a block whose number among the tensor's is `number`; `left` elements are from the lane's first
    // one on. Returns what the parameter's largest magnitude becomes.
    const auto compute = [&](auto whole, float(&p)[kParts][kLane], float(&g)[kParts][kLane],
                             uint32_t(&codes)[kMostStates][kParts], int64_t number, int64_t left, float most) {
      State s[kMostStates];
      for_states([&](auto i, const auto& map, auto) { widen_codes(s[i], codes[i], e.scale[i][number], map); });
#pragma unroll
      for (int h = 0; h < kParts; ++h)
#pragma unroll
        for (int j = 0; j < kLane; ++j) {
          g[h][j] *= k[0];
          R::apply(k, p[h][j], g[h][j], s[0].v[h][j], s[1].v[h][j], s[2].v[h][j]);
          // Beyond the end: nothing to the block's scale, nor to the largest magnitude.
          if (!whole && h * kLane * cuda::kWarp + j >= left) p[h][j] = s[0].v[h][j] = s[1].v[h][j] = s[2].v[h][j] = 0;
          most = larger(most, p[h][j]);
        }
      for_states([&](auto i, const auto& map, auto has_sign) {
        const float scale = narrow_codes<has_sign>(s[i], codes[i], map);
        if (lane == 0) e.scale[i][number] = scale;
      });
      return most;
    };
    // A block of all its elements, in vectors, of a parameter and a gradient that are stored so.
    const auto in_vectors = [&](int64_t at, uint32_t format, uint32_t grad_format, float most) {
      const auto place = [&](int h) { return at + h * kLane * cuda::kWarp + lane * kLane; };
      float p[kParts][kLane], g[kParts][kLane];
      uint32_t codes[kMostStates][kParts];
      uint2 lower[kParts];
#pragma unroll
      for (int h = 0; h < kParts; ++h) {
        lower[h] = fetch_weights(p[h], e, place(h), format);
        fetch(g[h], e.grad, place(h), grad_format);
        for_states([&](auto i, const auto&, auto) {
          codes[i][h] = *reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(e.state[i]) + place(h));
        });
      }
#pragma unroll
      for (int h = 0; h < kParts; ++h) {
        unpack_weights(p[h], lower[h], format);
        unpack(g[h], grad_format);
      }
      most = compute(std::true_type{}, p, g, codes, at / kScaleBlock, 0, most);
#pragma unroll
      for (int h = 0; h < kParts; ++h) {
        if (format == kBf16 && e.stochastic) {
          put_weights(e, place(h), p[h], random_at(key, place(h)), format);
        } else {
          put_weights(e, place(h), p[h], Nearest{}, format);
        }
        for_states([&](auto i, const auto&, auto) {
          *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(e.state[i]) + place(h)) = codes[i][h];
        });
      }
      return most;
    };
    const auto one_by_one = [&](int64_t at, int64_t end, float most) {
      const int64_t left = end - at - lane * kLane;
      const auto place = [&](int h, int j) { return at + h * kLane * cuda::kWarp + lane * kLane + j; };
      // Calls f(h, j) for the lane's elements before the end.
      const auto each = [&](auto&& f) {
#pragma unroll
        for (int h = 0; h < kParts; ++h)
#pragma unroll
          for (int j = 0; j < kLane; ++j)
            if (h * kLane * cuda::kWarp + j < left) f(h, j);
      };
      float p[kParts][kLane] = {}, g[kParts][kLane] = {};
      uint32_t codes[kMostStates][kParts] = {};
      each([&](int h, int j) {
        p[h][j] = get_weight<float>(e, place(h, j));
        g[h][j] = get_one<float>(e.grad, place(h, j), e.grad_format);
        for_states([&](auto i, const auto&, auto) {
          codes[i][h] |= static_cast<uint32_t>(static_cast<const uint8_t*>(e.state[i])[place(h, j)]) << (8 * j);
        });
      });
      most = compute(std::false_type{}, p, g, codes, at / kScaleBlock, left, most);
      each([&](int h, int j) {
        if (e.stochastic) {
          put_weight(e, place(h, j), p[h][j], random_at(key, place(h, j)));
        } else {
          put_weight(e, place(h, j), p[h][j], Nearest{});
        }
        for_states([&](auto i, const auto&, auto) {
          static_cast<uint8_t*>(e.state[i])[place(h, j)] = static_cast<uint8_t>(codes[i][h] >> (8 * j));
        });
      });
      return most;
    };
    const uint32_t stop = min(last, e.first_chunk + max(1u, static_cast<uint32_t>((e.numel + kChunk - 1) / kChunk)));
    for (; chunk < stop; ++chunk) {
      const int64_t begin = (chunk - e.first_chunk) * kChunk, end = min(begin + kChunk, e.numel);
      float most = 0;  // the largest magnitude of what the thread leaves of an f32 parameter
      for (int64_t at = begin + warp * kScaleBlock; at < end; at += kScaleBlock * (kThreads / cuda::kWarp)) {
        if (addresses % 16 != 0 || at + kScaleBlock > end) {
          most = one_by_one(at, end, most);
        } else if (e.format == kPlain && e.grad_format == kPlain) {
          most = in_vectors(at, kPlain, kPlain, most);  // the usual forms without a question for each element
        } else if (e.format == kBf16 && e.grad_format == kBf16) {
          most = in_vectors(at, kBf16, kBf16, most);
        } else if (e.format == kSplit && e.grad_format == kBf16) {
          most = in_vectors(at, kSplit, kBf16, most);
        } else {
          most = in_vectors(at, e.format, e.grad_format, most);
        }
      }
      if (e.most == nullptr) continue;
      const uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
      if (lane == 0) e.most[(chunk - e.first_chunk) * cuda::kParameterWarps + warp] = bits;
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
