// Sums at the places that an index names, in whatever order threads come and yet always the same. Integers are added by
// atomics as they are. Of floating numbers a first pass finds the largest exponent that is sent to each place, a
// maximum; a second one adds up multiples of a unit that goes with it, in 64 bits: the unit is so much smaller than the
// largest that all of the n elements together just fit, and at least 2^30 times smaller than it, finer than f32's
// digits. Sums of integers have no order. What was there is added at the end, and rounded once.

#include <algorithm>

#include "strata/cuda/current.h"
#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/ops/index/add_any_order_kernel.h"

namespace strata {
namespace {

constexpr int kSpecial = 255;                          // the exponent of infinities and NaN
constexpr int kNegative = 1, kPositive = 2, kNan = 4;  // what a sum with such has met
constexpr int kFew = 2048;                             // places whose sums a block has in shared memory
constexpr int kBlockThreads = 512;

// Where elements go.
struct Places {
  const int64_t* index;
  int64_t total, rows;
  cuda::Divisor width, n;
  bool from_end;

  // The place of element e; negative where it has none. `given` is its row as it was named.
  __device__ __forceinline__ int64_t of(int64_t e, int64_t& given) const {
    int64_t column, i;
    const int64_t block = n.split(width.split(e, column), i);
    given = index[i];
    const int64_t row = from_end && given < 0 ? given + rows : given;
    return cuda::is_in_range(row, rows) ? (block * rows + row) * width.d + column : -1;
  }
};

__device__ __forceinline__ int exponent_of(float v) {
  const int e = static_cast<int>(__float_as_uint(v) >> 23 & 255u);
  return e > 1 ? e : 1;  // the smallest numbers have that of the next
}
// 2^e for -1022 <= e <= 1023.
__device__ __forceinline__ double power_of_two(int e) {
  return __longlong_as_double(static_cast<long long>(1023 + e) << 52);
}

// top[place] = the largest exponent sent there, 1 to 255; of zeros, which change nothing, none.
template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads)
    top_kernel(Places p, const T* source, float alpha, int* top, cuda::RangeCheck in_range) {
  cuda::for_each(p.total, [&](int64_t e) {
    int64_t given;
    const int64_t to = p.of(e, given);
    const float v = alpha * cuda::widen(source[e]);
    if (to < 0) {
      if (given != cuda::kNoRow) in_range.tell(given, p.rows);
    } else if (v != 0 && __ldcg(top + to) < exponent_of(v)) {
      atomicMax(top + to, exponent_of(v));
    }
  });
}

// An element as a multiple of its place's unit, or with an infinity or NaN there the mark of what it is.
__device__ __forceinline__ unsigned long long units_of(float v, int top, int digits) {
  return static_cast<unsigned long long>(__double2ll_rn(static_cast<double>(v) * power_of_two(digits - (top - 127))));
}
__device__ __forceinline__ unsigned long long mark_of(float v) {
  if (v != v) return kNan;
  return exponent_of(v) < kSpecial ? 0 : v < 0 ? kNegative : kPositive;
}

// sum[place] += the elements sent there. With kInBlock there are few places: each block adds up its own first, in words
// of 32 bits of which the lower one carries.
template <class T, bool kInBlock>
__global__ void __launch_bounds__(kBlockThreads) sum_kernel(Places p, const T* source, float alpha, const int* top,
                                                            unsigned long long* sum, int places, int digits) {
  [[maybe_unused]] __shared__ unsigned low[kInBlock ? kFew : 1], high[kInBlock ? kFew : 1];
  if constexpr (kInBlock) {
    for (int i = static_cast<int>(threadIdx.x); i < places; i += kBlockThreads) low[i] = high[i] = 0;
    __syncthreads();
  }
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; e < p.total;
       e += static_cast<int64_t>(gridDim.x) * kBlockThreads) {
    int64_t given;
    const int64_t to = p.of(e, given);
    const float v = alpha * cuda::widen(source[e]);
    if (to < 0 || v == 0) continue;
    const int most = top[to];
    if (most == kSpecial) {
      const unsigned long long mark = mark_of(v);
      if (mark != 0) atomicOr(sum + to, mark);
      continue;
    }
    const unsigned long long units = units_of(v, most, digits);
    if constexpr (kInBlock) {
      const auto lower = static_cast<unsigned>(units);
      const unsigned before = atomicAdd(low + to, lower);
      const unsigned upper = static_cast<unsigned>(units >> 32) + (before + lower < before ? 1u : 0u);
      if (upper != 0) atomicAdd(high + to, upper);
    } else {
      atomicAdd(sum + to, units);
    }
  }
  if constexpr (kInBlock) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < places; i += kBlockThreads) {
      const unsigned long long own = static_cast<unsigned long long>(high[i]) << 32 | low[i];
      if (own != 0) atomicAdd(sum + i, own);  // of a place with marks there is nothing here
    }
  }
}

template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads)
    finish_kernel(T* y, const T* x, const int* top, const unsigned long long* sum, int64_t places, int digits) {
  cuda::for_each(places, [&](int64_t i) {
    const int most = top[i];
    const T was = x == nullptr ? T{} : x[i];
    if (most == 0) {
      y[i] = was;
      return;
    }
    const unsigned long long units = sum[i];
    double v = static_cast<double>(static_cast<long long>(units)) * power_of_two(most - 127 - digits);
    if (most == kSpecial)
      v = (units & kNan) != 0 || (units & (kNegative | kPositive)) == (kNegative | kPositive) ? static_cast<double>(NAN)
          : (units & kNegative) != 0 ? -static_cast<double>(INFINITY)
                                     : static_cast<double>(INFINITY);
    y[i] = cuda::narrow<T>(static_cast<float>(static_cast<double>(cuda::widen(was)) + v));
  });
}

template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads)
    add_integers_kernel(Places p, const T* source, T alpha, T* y, cuda::RangeCheck in_range) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  cuda::for_each(p.total, [&](int64_t e) {
    int64_t given;
    const int64_t to = p.of(e, given);
    if (to >= 0)
      atomicAdd(reinterpret_cast<Word*>(y) + to, static_cast<Word>(alpha) * static_cast<Word>(source[e]));
    else if (given != cuda::kNoRow)
      in_range.tell(given, p.rows);
  });
}

}  // namespace

bool adds_any_order(DType t, const cuda::RowShape& shape, int64_t n) {
  // Elements are read twice and have two atomics; sorted ones are read once, in whole rows, and a place has no numbers
  // of its own.
  const int64_t sent = shape.pre * n * shape.width, places = shape.pre * shape.rows * shape.width;
  return adds_floats_or_words(t) && n <= INT32_MAX && places <= 4 * sent + (int64_t{1} << 18) &&
         (shape.width == 1 || sent <= (int64_t{1} << 20));
}

void add_any_order_cuda(DType t, void* y, const void* x, const cuda::RowShape& shape, const Tensor& index,
                        const void* source, Scalar alpha, bool from_end) {
  const int64_t n = index.numel(), places = shape.pre * shape.rows * shape.width;
  const Places p{static_cast<const int64_t*>(index.raw_data()),
                 shape.pre * n * shape.width,
                 shape.rows,
                 cuda::Divisor(shape.width),
                 cuda::Divisor(n),
                 from_end};
  const size_t bytes = static_cast<size_t>(places * size_of(t));
  if (t == DType::i32 || t == DType::i64 || p.total == 0 || places == 0) {
    if (x == nullptr && bytes > 0) cuda::fill_bytes(index.device(), y, 0, bytes);
    if (x != nullptr && x != y && bytes > 0) cuda::copy_bytes(y, index.device(), x, index.device(), bytes);
    if (p.total == 0) return;
  }
  const auto add = [&]<class T>(T by) {
    add_integers_kernel<T><<<cuda::each_blocks(p.total), cuda::kEachThreads, 0, cuda::stream()>>>(
        p, static_cast<const T*>(source), by, static_cast<T*>(y), cuda::range_check());
  };
  if (t == DType::i32) return add(alpha.to<int32_t>());
  if (t == DType::i64) return add(alpha.to<int64_t>());
  int digits = 62;
  while (digits > 0 && (int64_t{1} << (62 - digits)) < n) --digits;
  // Sums first, then exponents.
  const Tensor workspace = empty({{std::max<int64_t>(1, places) * 12}, DType::u8, index.device(), std::nullopt});
  auto* const sum = static_cast<unsigned long long*>(workspace.raw_data());
  auto* const top = reinterpret_cast<int*>(sum + std::max<int64_t>(1, places));
  cuda::fill_bytes(index.device(), sum, 0, static_cast<size_t>(workspace.nbytes()));
  const float by = alpha.to<float>();
  const bool few = places <= kFew;
  const int64_t all = (p.total + kBlockThreads - 1) / kBlockThreads;
  const int64_t most = few ? 2 * cuda::properties(cuda::current_device()).multiprocessors : int64_t{1} << 20;
  const auto run = [&]<class T>() {
    const auto* const from = static_cast<const T*>(source);
    top_kernel<T>
        <<<cuda::each_blocks(p.total), cuda::kEachThreads, 0, cuda::stream()>>>(p, from, by, top, cuda::range_check());
    if (places == 0) return;
    const auto kernel = few ? sum_kernel<T, true> : sum_kernel<T, false>;
    kernel<<<static_cast<unsigned>(std::min(all, most)), kBlockThreads, 0, cuda::stream()>>>(
        p, from, by, top, sum, static_cast<int>(few ? places : 0), digits);
    finish_kernel<T><<<cuda::each_blocks(places), cuda::kEachThreads, 0, cuda::stream()>>>(
        static_cast<T*>(y), static_cast<const T*>(x), top, sum, places, digits);
  };
  if (t == DType::f16) return run.operator()<Half>();
  if (t == DType::bf16) return run.operator()<BFloat16>();
  run.operator()<float>();
}

}  // namespace strata
