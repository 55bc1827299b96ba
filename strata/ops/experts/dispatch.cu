// Rows to places and back on a CUDA device. Every element is written by one thread, which adds in a fixed order: the
// same bits in every run.

#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/current.h"
#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/experts/dispatch_kernel.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

constexpr int kSlotThreads = 1024;

// Whether the host will not hear of it: below 0 there is no place.
__device__ __forceinline__ bool has_place(int64_t place, int64_t rows, const cuda::RangeCheck& in_range) {
  return place >= 0 && in_range(place, rows);
}

// from[row] = the choice that goes there, the last one where it is given twice, whatever order threads come in; -1
// stays where none does.
__global__ void __launch_bounds__(cuda::kEachThreads)
    inverse_kernel(const int64_t* place, int64_t choices, int64_t rows, int* from, cuda::RangeCheck in_range) {
  cuda::for_each(choices, [&](int64_t i) {
    if (has_place(place[i], rows, in_range)) atomicMax(from + place[i], static_cast<int>(i));
  });
}

template <class T, int V>
__global__ void __launch_bounds__(cuda::kEachThreads)
    dispatch_kernel(int64_t total, cuda::Divisor parts, cuda::Divisor k, const int* from, const T* x,
                    const compute_t<T>* weights, T* y) {
  cuda::for_each(total, [&](int64_t e) {
    int64_t part, choice;
    const int64_t row = parts.split(e, part);
    const int i = from[row];
    cuda::Vec<T, V> v{};
    if (i >= 0) {
      v = cuda::load_vec<V>(x + (k.split(i, choice) * parts.d + part) * V);
      if (weights) {
        const compute_t<T> w = weights[i];
#pragma unroll
        for (int d = 0; d < V; ++d) v.v[d] = cuda::narrow<T>(w * cuda::widen(v.v[d]));
      }
    }
    cuda::store_vec(y + e * V, v);
  });
}

template <class T, int V>
__global__ void __launch_bounds__(cuda::kEachThreads)
    combine_kernel(int64_t total, cuda::Divisor parts, int64_t k, int64_t rows, const int64_t* place, const T* y,
                   const compute_t<T>* weights, T* out, cuda::RangeCheck in_range) {
  using C = compute_t<T>;
  cuda::for_each(total, [&](int64_t e) {
    int64_t part;
    const int64_t token = parts.split(e, part);
    C sum[V] = {};
    for (int64_t i = token * k; i < (token + 1) * k; ++i) {
      const int64_t row = place[i];
      if (!has_place(row, rows, in_range)) continue;
      const C w = weights ? weights[i] : C(1);
      const cuda::Vec<T, V> v = cuda::load_vec<V>(y + (row * parts.d + part) * V);
#pragma unroll
      for (int d = 0; d < V; ++d) sum[d] += w * cuda::widen(v.v[d]);
    }
    cuda::Vec<T, V> v;
#pragma unroll
    for (int d = 0; d < V; ++d) v.v[d] = cuda::narrow<T>(sum[d]);
    cuda::store_vec(out + e * V, v);
  });
}

// A warp for each choice, each lane V neighbours at a time.
template <class T, int V>
__global__ void __launch_bounds__(cuda::kEachThreads)
    dots_kernel(int64_t choices, cuda::Divisor k, int64_t width, int64_t rows, const int64_t* place, const T* x,
                const T* y, compute_t<T>* out, cuda::RangeCheck in_range) {
  using C = compute_t<T>;
  constexpr int kWarps = cuda::kEachThreads / cuda::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / cuda::kWarp; i < choices;
       i += int64_t{gridDim.x} * kWarps) {
    int64_t j;
    const int64_t token = k.split(i, j), row = place[i];
    C sum = 0;
    if (has_place(row, rows, in_range)) {
#pragma unroll 4
      for (int64_t d = lane * V; d < width; d += cuda::kWarp * V) {
        const cuda::Vec<T, V> a = cuda::load_vec<V>(x + token * width + d), b = cuda::load_vec<V>(y + row * width + d);
#pragma unroll
        for (int e = 0; e < V; ++e) sum += C(cuda::widen(a.v[e])) * C(cuda::widen(b.v[e]));
      }
    }
    sum = cuda::warp_reduce(sum, cuda::Sum());
    if (lane == 0) out[i] = sum;
  }
}

// A block for each group of tokens, as the processor's loops say it (dispatch_cpu.cpp): rounds of naming, a thread for
// each token, and of taking, a warp for each expert, which counts the choices before each by ballots.
template <class C>
class Slots {
 public:
  __device__ Slots(const SlotsCall& c, int* taken)
      : c_(c),
        scores_(static_cast<const C*>(c.scores) + int64_t{blockIdx.x} * c.rows * c.count),
        chosen_(c.chosen + int64_t{blockIdx.x} * c.rows * c.k),
        experts_(c.experts + int64_t{blockIdx.x} * c.rows * c.k),
        slots_(c.slots + int64_t{blockIdx.x} * c.rows * c.k),
        taken_(taken) {}

  __device__ void begin(const cuda::RangeCheck& in_range) {
    for (int64_t e = threadIdx.x; e < c_.count; e += kSlotThreads) taken_[e] = 0;
    for (int64_t i = threadIdx.x; i < c_.rows * c_.k; i += kSlotThreads) {
      experts_[i] = chosen_[i];
      slots_[i] = in_range(chosen_[i], c_.count) ? kWaiting : kDropped;
    }
    __syncthreads();
  }

  __device__ void accept() {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    for (int64_t e = threadIdx.x / cuda::kWarp; e < c_.count; e += kSlotThreads / cuda::kWarp) {
      int taken = taken_[e];
      for (int64_t j = 0; j < c_.k; ++j) {
        for (int64_t first = 0; first < c_.rows && taken < c_.capacity; first += cuda::kWarp) {
          const int64_t t = first + lane, i = t * c_.k + j;
          const bool named = t < c_.rows && slots_[i] == kWaiting && experts_[i] == e;
          const unsigned all = __ballot_sync(0xffffffffu, named);
          const int64_t slot = taken + __popc(all & ((1u << lane) - 1));
          if (named && slot < c_.capacity) slots_[i] = slot;
          const int64_t after = taken + __popc(all);
          taken = static_cast<int>(after < c_.capacity ? after : c_.capacity);
        }
      }
      __syncwarp();
      if (lane == 0) taken_[e] = taken;
    }
    __syncthreads();
  }

  // Whether any choice of the block has somewhere to go, for all threads.
  __device__ bool propose() {
    bool any = false;
    for (int64_t t = threadIdx.x; t < c_.rows; t += kSlotThreads) {
      for (int64_t j = 0; j < c_.k; ++j) {
        const int64_t i = t * c_.k + j;
        if (slots_[i] != kWaiting) continue;
        const int64_t e = best(t, j);
        if (e < 0) {
          slots_[i] = kDropped;
          continue;
        }
        experts_[i] = e;
        any = true;
      }
    }
    return __syncthreads_or(any) != 0;
  }

  __device__ void end() {
    for (int64_t i = threadIdx.x; i < c_.rows * c_.k; i += kSlotThreads) {
      if (slots_[i] >= 0) continue;
      slots_[i] = kDropped;
      experts_[i] = chosen_[i];
    }
  }

 private:
  __device__ int64_t best(int64_t t, int64_t j) const {
    int64_t found = -1;
    C most = 0;
    for (int64_t e = 0; e < c_.count; ++e) {
      if (taken_[e] >= c_.capacity) continue;
      const C score = scores_[t * c_.count + e];
      if (found >= 0 && !(score > most)) continue;
      bool other = false;
      for (int64_t o = 0; o < c_.k; ++o) {
        const int64_t i = t * c_.k + o;
        other = other || (experts_[i] == e && (slots_[i] >= 0 || (o < j && slots_[i] == kWaiting)));
      }
      if (other) continue;
      found = e;
      most = score;
    }
    return found;
  }

  const SlotsCall& c_;
  const C* scores_;
  const int64_t* chosen_;
  int64_t *experts_, *slots_;
  int* taken_;
};

template <class C>
__global__ void __launch_bounds__(kSlotThreads) slots_kernel(SlotsCall c, cuda::RangeCheck in_range) {
  extern __shared__ int taken[];
  Slots<C> group(c, taken);
  group.begin(in_range);
  group.accept();
  while (c.reroute && group.propose()) group.accept();
  __syncthreads();
  group.end();
}

// With as wide loads as the rows allow.
template <class T, class F>
void with_width(const DispatchCall& c, const void* read, F&& run) {
  constexpr int kMany = cuda::kVec<T>;
  if (c.width % kMany == 0 && cuda::aligned16(read) && cuda::aligned16(c.out))
    run(std::integral_constant<int, kMany>());
  else
    run(std::integral_constant<int, 1>());
}

}  // namespace

void dispatch_rows_cuda(const DispatchCall& c) {
  if (c.rows == 0 || c.width == 0) return;
  const Tensor inverse = empty({{c.rows}, DType::i32, Device::cuda(cuda::current_device()), std::nullopt});
  auto* const from = static_cast<int*>(inverse.raw_data());
  cuda::check_cuda(cudaMemsetAsync(from, 0xff, static_cast<size_t>(inverse.nbytes()), cuda::stream()), "dispatch_rows",
                   "cudaMemsetAsync");
  const int64_t choices = c.tokens * c.k;
  check<ShapeError>(choices < (int64_t{1} << 31), "dispatch_rows", "there are ", choices,
                    " choices, wanted less than 2^31");
  if (choices > 0)
    inverse_kernel<<<cuda::each_blocks(choices), cuda::kEachThreads, 0, cuda::stream()>>>(c.place, choices, c.rows,
                                                                                          from, cuda::range_check());
  dispatch_floats(c.dtype, "dispatch_rows", [&]<class T>() {
    with_width<T>(c, c.x, [&]<int V>(std::integral_constant<int, V>) {
      const int64_t total = c.rows * (c.width / V);
      dispatch_kernel<T, V><<<cuda::each_blocks(total), cuda::kEachThreads, 0, cuda::stream()>>>(
          total, cuda::Divisor(c.width / V), cuda::Divisor(c.k), from, static_cast<const T*>(c.x),
          static_cast<const compute_t<T>*>(c.weights), static_cast<T*>(c.out));
    });
  });
}

void combine_rows_cuda(const DispatchCall& c) {
  if (c.tokens == 0 || c.width == 0) return;
  dispatch_floats(c.dtype, "combine_rows", [&]<class T>() {
    with_width<T>(c, c.y, [&]<int V>(std::integral_constant<int, V>) {
      const int64_t total = c.tokens * (c.width / V);
      combine_kernel<T, V><<<cuda::each_blocks(total), cuda::kEachThreads, 0, cuda::stream()>>>(
          total, cuda::Divisor(c.width / V), c.k, c.rows, c.place, static_cast<const T*>(c.y),
          static_cast<const compute_t<T>*>(c.weights), static_cast<T*>(c.out), cuda::range_check());
    });
  });
}

void row_dots_cuda(const DispatchCall& c) {
  const int64_t choices = c.tokens * c.k;
  if (choices == 0) return;
  dispatch_floats(c.dtype, "row_dots", [&]<class T>() {
    const auto run = [&]<int V>(std::integral_constant<int, V>) {
      dots_kernel<T, V><<<cuda::each_blocks(choices * cuda::kWarp), cuda::kEachThreads, 0, cuda::stream()>>>(
          choices, cuda::Divisor(c.k), c.width, c.rows, c.place, static_cast<const T*>(c.x), static_cast<const T*>(c.y),
          static_cast<compute_t<T>*>(c.out), cuda::range_check());
    };
    if (c.width % cuda::kVec<T> == 0 && cuda::aligned16(c.x) && cuda::aligned16(c.y))
      run(std::integral_constant<int, cuda::kVec<T>>());
    else
      run(std::integral_constant<int, 1>());
  });
}

void expert_slots_cuda(const SlotsCall& c) {
  if (c.tokens == 0) return;
  dispatch_wide_floats(c.dtype, "expert_slots", [&]<class T>() {
    slots_kernel<T><<<static_cast<unsigned>(c.tokens / c.rows), kSlotThreads,
                      static_cast<size_t>(c.count) * sizeof(int), cuda::stream()>>>(c, cuda::range_check());
  });
}

}  // namespace strata
