// Tokens drawn on a CUDA device: several blocks look through a row for its likeliest token and the sum of its
// exponentials, one draws.

#include <algorithm>
#include <cmath>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/factory/factory.h"
#include "strata/ops/generation/sample_row_inl.h"

namespace strata::generation {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / cuda::kWarp;
constexpr int kPart = kBins / cuda::kWarp;  // bins of a lane of the first warp

struct Shared {
  unsigned long long bins[kBins], parts[cuda::kWarp], words[kWarps];
  double numbers[kWarps];
  Found found;
  int counts[kWarps];
  int64_t place;
};

struct MaxWord {
  __device__ unsigned long long operator()(unsigned long long a, unsigned long long b) const { return a > b ? a : b; }
};

// A block. Every function is called by all of its threads together, and leaves `shared` free for the next.
class Block {
 public:
  __device__ explicit Block(Shared& shared) : shared_(shared) {}

  template <class T>
  __device__ __forceinline__ static float load(T v) {
    return cuda::widen(v);
  }
  __device__ __forceinline__ static uint64_t high_product(uint64_t a, uint64_t b) { return __umul64hi(a, b); }
  template <class F>
  __device__ __forceinline__ void each(int64_t n, F&& f) {
    for (int64_t i = threadIdx.x; i < n; i += kThreads) f(i);
  }
  __device__ __forceinline__ uint64_t sum(uint64_t own) {
    return cuda::block_reduce<kThreads>(static_cast<unsigned long long>(own), cuda::Sum(), shared_.words);
  }
  // In an order that is always the same.
  __device__ __forceinline__ double sum(double own) {
    return cuda::block_reduce<kThreads>(own, cuda::Sum(), shared_.numbers);
  }
  __device__ __forceinline__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared_.bins[i] = 0;
    __syncthreads();
  }
  __device__ __forceinline__ void add(int bin, uint64_t v) {
    atomicAdd(&shared_.bins[bin], static_cast<unsigned long long>(v));
  }
  __device__ Found find(uint64_t target) {
    __syncthreads();
    if (threadIdx.x < cuda::kWarp) {
      unsigned long long sum = 0;
      for (int i = 0; i < kPart; ++i) sum += shared_.bins[static_cast<int>(threadIdx.x) * kPart + i];
      shared_.parts[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t before = 0;
      int part = cuda::kWarp - 1;
      while (part > 0 && target >= before + shared_.parts[part]) before += shared_.parts[part--];
      int bin = (part + 1) * kPart - 1;
      while (bin > part * kPart && target >= before + shared_.bins[bin]) before += shared_.bins[bin--];
      shared_.found.key = static_cast<uint32_t>(bin);
      shared_.found.before = before;
      shared_.found.inside = shared_.bins[bin];
    }
    __syncthreads();
    const Found r = shared_.found;
    __syncthreads();
    return r;
  }
  template <class F>
  __device__ int64_t nth(int64_t n, F&& f, int64_t r) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
    if (threadIdx.x == 0) shared_.place = -1;
    int64_t passed = 0;
    for (int64_t from = 0; from < n; from += kThreads) {
      const int64_t i = from + threadIdx.x;
      const bool hit = i < n && f(i);
      const int here = __syncthreads_count(hit);
      if (passed + here <= r) {
        passed += here;
        continue;
      }
      // The same for all threads: the one that is looked for is here.
      const unsigned hits = __ballot_sync(0xffffffffu, hit);
      if (lane == 0) shared_.counts[warp] = __popc(hits);
      __syncthreads();
      int64_t before = passed + __popc(hits & ((1u << lane) - 1));
      for (int w = 0; w < warp; ++w) before += shared_.counts[w];
      if (hit && before == r) shared_.place = i;
      break;
    }
    __syncthreads();
    const int64_t place = shared_.place;
    __syncthreads();
    return place;
  }

 private:
  Shared& shared_;
};

// What a block found in its part of a row.
struct Part {
  unsigned long long best;  // of the ids that may be drawn: key and id, as likeliest() orders them
  float top;                // the largest logit, of all columns
  double sum;               // of exp(logit - top)
};
constexpr int kScanThreads = 256, kEach = 16;  // numbers of a thread
constexpr int64_t kScanned = kScanThreads * kEach;

__device__ __forceinline__ float gap(float v, float top) {
  return v == top ? 0.0f : v - top;  // of infinite ones too
}

template <class T>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const T* logits, int64_t columns, int64_t vocab, unsigned count, Part* parts) {
  constexpr int kScanWarps = kScanThreads / cuda::kWarp;
  __shared__ float tops[kScanWarps];
  __shared__ unsigned long long bests[kScanWarps];
  __shared__ double sums[kScanWarps];
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int64_t first = static_cast<int64_t>(blockIdx.x % count) * kScanned + threadIdx.x;
  const T* const row = logits + static_cast<int64_t>(blockIdx.x / count) * columns;
  float v[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kScanThreads;
    v[i] = at < columns ? cuda::widen(row[at]) : NAN;
  }
  float top = -INFINITY;
  unsigned long long best = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kScanThreads;
    top = fmaxf(top, v[i]);  // no NaN
    const unsigned long long key =
        static_cast<unsigned long long>(key_of(v[i])) << 32 | (0xffffffffu - static_cast<uint32_t>(at));
    if (at < vocab && key > best) best = key;
  }
  top = cuda::block_reduce<kScanThreads>(top, cuda::Max(), tops);
  best = cuda::block_reduce<kScanThreads>(best, MaxWord(), bests);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (v[i] == v[i]) sum += static_cast<double>(expf(gap(v[i], top)));
  sum = cuda::block_reduce<kScanThreads>(sum, cuda::Sum(), sums);
  if (threadIdx.x == 0) parts[blockIdx.x] = {best, top, sum};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const T* logits, const SampleArgs a, const Part* parts, int count, int64_t* ids, float* logprobs,
                  cuda::RangeCheck params, cuda::RangeCheck numbers) {
  __shared__ Shared shared;
  cuda::let_next_begin();
  cuda::wait_for_previous();
  Block team(shared);
  const int64_t b = blockIdx.x;
  const T* const row = logits + b * a.columns;
  const RowParams p = params_of(a, b);
  double wrong = 0;
  const bool wanted = in_range(p, wrong);
  const Part* const found = parts + b * count;
  float top = -INFINITY;
  unsigned long long most = 0;
  for (int i = 0; i < count; ++i) {  // few, and the same for all threads
    top = fmaxf(top, found[i].top);
    most = most > found[i].best ? most : found[i].best;
  }
  const int64_t best = most >> 32 == 0 ? -1 : static_cast<int64_t>(0xffffffffu - static_cast<uint32_t>(most));
  if (!wanted || best < 0) {  // the same for all threads
    if (threadIdx.x == 0) {
      if (!wanted)
        params.refuse(wrong);
      else
        numbers.refuse(static_cast<double>(cuda::widen(row[0])));
      ids[b] = 0;
      logprobs[b] = 0;
    }
    return;
  }
  const int64_t id = draw(team, row, a.vocab, best, p);
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int i = 0; i < count; ++i)
      if (found[i].sum > 0) sum += found[i].sum * static_cast<double>(expf(gap(found[i].top, top)));
    ids[b] = id;
    logprobs[b] = static_cast<float>(static_cast<double>(gap(cuda::widen(row[id]), top)) - log(sum));
  }
}

}  // namespace

void sample_tokens_cuda(DType t, const void* logits, const SampleArgs& a, int64_t* ids, float* logprobs) {
  if (a.rows == 0) return;
  int index = 0;
  cuda::check_cuda(cudaGetDevice(&index), "sample_tokens", "cudaGetDevice");
  const Device device = Device::cuda(index);
  const cuda::RangeCheck params = cuda::value_check(kParamsRule), numbers = cuda::value_check(kNumbersRule);
  dispatch_floats(t, "sample_tokens", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      const unsigned blocks = cuda::blocks_for(a.columns, kScanned);
      const Tensor room =
          empty({{a.rows * blocks * static_cast<int64_t>(sizeof(Part))}, DType::u8, device, std::nullopt});
      Part* const parts = static_cast<Part*>(room.raw_data());
      cuda::launch_early(scan_kernel<T>, cuda::blocks_for(a.rows * blocks, 1), kScanThreads, 0, 1,
                         static_cast<const T*>(logits), a.columns, a.vocab, blocks, parts);
      cuda::launch_early(sample_kernel<T>, static_cast<unsigned>(a.rows), kThreads, 0, 1, static_cast<const T*>(logits),
                         a, parts, static_cast<int>(blocks), ids, logprobs, params, numbers);
    }
  });
}

}  // namespace strata::generation
