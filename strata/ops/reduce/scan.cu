// Running sums, products and extremes on a CUDA device.
//
// A block goes along a row in tiles, each thread with some vectors of neighbouring elements; while it works on a tile,
// the next one is on its way. Rows that are few are cut into parts: their totals are taken first, and each part's block
// adds up those before it. All orders are fixed by the shape.

#include <algorithm>

#include "strata/ops/reduce/lines.cuh"
#include "strata/ops/reduce/reduce.cuh"

namespace strata {
namespace {
using namespace cuda::reduce_detail;

// A value and where it stands; -1: nowhere yet. Padded to whole words for shuffles.
template <class C>
struct Placed {
  int64_t index;
  C value;
};

// ---- scans: combine(earlier, later) ----

template <class T, bool kProduct>
struct Running {
  using Acc = Wide<T>;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  Out* y;
  __device__ Acc init() const { return kProduct ? 1 : 0; }
  __device__ Acc of(compute_t<T> v, int64_t) const { return static_cast<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return kProduct ? times(a, b) : plus(a, b); }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<Out>(a); }
  template <int N>
  __device__ void write_all(int64_t i, const Acc (&a)[N]) const {
    cuda::Vec<Out, N> v;
#pragma unroll
    for (int j = 0; j < N; ++j) v.v[j] = cuda::narrow<Out>(a[j]);
    cuda::store_vec(y + i, v);
  }
};
// The last of the best elements so far; NaN stays.
template <class T, bool kLargest>
struct RunningExtreme {
  using C = compute_t<T>;
  using Acc = Placed<C>;
  T* y;
  int64_t* at;
  __device__ Acc init() const { return {-1, C()}; }
  __device__ Acc of(C v, int64_t i) const { return {i, v}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    return b.value != b.value || (kLargest ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
  __device__ void write(int64_t i, Acc a) const {
    y[i] = cuda::narrow<T>(a.value);
    at[i] = a.index;
  }
  template <int N>
  __device__ void write_all(int64_t i, const Acc (&a)[N]) const {
    cuda::Vec<T, N> v;
    cuda::Vec<int64_t, N> places;
#pragma unroll
    for (int j = 0; j < N; ++j) v.v[j] = cuda::narrow<T>(a[j].value), places.v[j] = a[j].index;
    cuda::store_vec(y + i, v);
    cuda::store_vec(at + i, places);
  }
};

// A value of another lane: what `move` does to each word of it.
template <class T, class F>
__device__ __forceinline__ T moved(const T& v, F&& move) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(move(v));
  } else {
    constexpr int kWords = sizeof(T) / 4;
    uint32_t words[kWords];
    memcpy(words, &v, sizeof(T));
#pragma unroll
    for (int k = 0; k < kWords; ++k) words[k] = move(words[k]);
    T r;
    memcpy(&r, words, sizeof(T));
    return r;
  }
}
// The value of the lane `o` before.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& v, int o) {
  return moved(v, [&](auto word) { return __shfl_up_sync(0xffffffffu, word, o); });
}
// The value of lane `from`.
template <class T>
__device__ __forceinline__ T from_lane(const T& v, int from) {
  return moved(v, [&](auto word) { return __shfl_sync(0xffffffffu, word, from); });
}

// One thread a line, one element after the other.
template <class R, class T>
__global__ void __launch_bounds__(kThreads) scan_lines(R r, const T* x, Lines l) {
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (line >= l.count) return;
  const int64_t first = line / l.inner * l.n * l.inner + line % l.inner + (l.reverse ? (l.n - 1) * l.inner : 0);
  const int64_t step = l.reverse ? -l.inner : l.inner;
  typename R::Acc a = r.init();
  for (int64_t k = 0, i = first; k < l.n; ++k, i += step) {
    a = r.combine(a, r.of(cuda::widen(x[i]), k));
    r.write(i, a);
  }
}

// ---- rows ----

constexpr int kScanWarps = 16, kElements = 4;  // warps of a block, at most; elements of a vector
constexpr int64_t kManyRows = 128, kPartsWanted = 512, kPart = 16384;
// Vectors of a thread in a tile: as many as registers hold twice.
template <class Acc>
inline constexpr int kVectors = sizeof(Acc) <= 4   ? 4
                                : sizeof(Acc) <= 8 ? 2
                                                   : 1;

// Every lane gets the combination of all lanes' values up to its own.
template <class R>
__device__ __forceinline__ typename R::Acc combine_upto(const R& r, typename R::Acc total) {
#pragma unroll
  for (int o = 1; o < cuda::kWarp; o *= 2) {
    const typename R::Acc earlier = shuffle_up(total, o);
    if (static_cast<int>(threadIdx.x) % cuda::kWarp >= o) total = r.combine(earlier, total);
  }
  return total;
}

// Block b has part b % parts of row b / parts: elements from part number * `part` on. With `write_totals` it leaves the
// part's total in totals[b], else it begins with those of the parts before and writes results.
template <class R, class T, bool kAligned>
__global__ void __launch_bounds__(kScanWarps* cuda::kWarp, 2)
    scan_rows(R r, const T* x, Lines l, int64_t part, int parts, typename R::Acc* totals, bool write_totals) {
  using Acc = typename R::Acc;
  using Loaded = cuda::Vec<T, kElements>;
  constexpr int kHeld = kVectors<Acc>, kWarpTile = cuda::kWarp * kElements * kHeld;
  __shared__ Acc warp_totals[2][kScanWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp;
  const int64_t base = static_cast<int64_t>(blockIdx.x) / parts * l.n, tile = int64_t{kWarpTile} * warps;
  const int number = static_cast<int>(blockIdx.x % parts);
  const int64_t begin = number * part, end = begin + part < l.n ? begin + part : l.n;

  // The first element of this thread's vector u of the tile that begins at `from`.
  const auto first_of = [&](int64_t from, int u) {
    return from + int64_t{warp} * kWarpTile + (u * cuda::kWarp + lane) * kElements;
  };
  const auto place = [&](int64_t k) { return base + (l.reverse ? l.n - 1 - k : k); };
  const auto load = [&](int64_t from, Loaded(&v)[kHeld]) {
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      const int64_t k = first_of(from, u);
      if constexpr (kAligned) {
        if (k >= end) continue;
        v[u] = cuda::load_vec<kElements>(x + base + (l.reverse ? l.n - kElements - k : k));
      } else {
#pragma unroll
        for (int j = 0; j < kElements; ++j)
          if (k + j < end) v[u].v[j] = x[place(k + j)];
      }
    }
  };
  Loaded next[kHeld];
  load(begin, next);
  Acc carry = r.init();
  if (!write_totals && number > 0) {
    // Each warp adds up the totals of the parts before, a run of them to each lane.
    const Acc* before = totals + (static_cast<int64_t>(blockIdx.x) - number);
    const int run = (number + cuda::kWarp - 1) / cuda::kWarp;
    for (int q = lane * run; q < (lane + 1) * run && q < number; ++q) carry = r.combine(carry, before[q]);
    carry = combine_upto(r, carry);
    carry = from_lane(carry, cuda::kWarp - 1);
  }
  int parity = 0;
  for (int64_t from = begin; from < end; from += tile) {
    Acc a[kHeld][kElements], before[kHeld], run = r.init();
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      const int64_t k = first_of(from, u);
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        const T v = next[u].v[kAligned && l.reverse ? kElements - 1 - j : j];
        a[u][j] = k + j < end ? r.of(cuda::widen(v), k + j) : r.init();
        if (j > 0) a[u][j] = r.combine(a[u][j - 1], a[u][j]);
      }
    }
    load(from + tile, next);
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      const Acc upto = combine_upto(r, a[u][kElements - 1]), earlier = shuffle_up(upto, 1);
      before[u] = lane > 0 ? r.combine(run, earlier) : run;
      run = r.combine(run, from_lane(upto, cuda::kWarp - 1));
    }
    // The other half of the totals is written next time round: one barrier is enough.
    if (lane == 0) warp_totals[parity][warp] = run;
    __syncthreads();
    Acc own = carry;
    for (int w = 0; w < warps; ++w) {
      const Acc total = warp_totals[parity][w];
      if (w < warp) own = r.combine(own, total);
      carry = r.combine(carry, total);
    }
    parity ^= 1;
    if (write_totals) continue;
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      const int64_t k = first_of(from, u);
      const Acc earlier = r.combine(own, before[u]);
      Acc result[kElements];
#pragma unroll
      for (int j = 0; j < kElements; ++j) result[j] = r.combine(earlier, a[u][j]);
      if constexpr (kAligned) {
        if (k >= end) continue;
        if (l.reverse) {
          Acc turned[kElements];
#pragma unroll
          for (int j = 0; j < kElements; ++j) turned[j] = result[kElements - 1 - j];
          r.write_all(base + l.n - kElements - k, turned);
        } else {
          r.write_all(base + k, result);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kElements; ++j)
          if (k + j < end) r.write(place(k + j), result[j]);
      }
    }
  }
  if (write_totals && threadIdx.x == 0) totals[blockIdx.x] = carry;
}

template <class R, class T>
void scan_with(const R& r, const T* x, const Lines& l, bool aligned) {
  using Acc = typename R::Acc;
  if (l.count * l.n == 0) return;
  if (l.inner > 1 || l.n <= 32) {
    scan_lines<R, T><<<cuda::blocks_for(l.count, kThreads), kThreads, 0, cuda::stream()>>>(r, x, l);
    return;
  }
  // Backwards, elements below a word are taken one by one.
  const bool vectors = aligned && l.n % kElements == 0 && !(l.reverse && sizeof(T) < 4);
  const auto kernel = vectors ? scan_rows<R, T, true> : scan_rows<R, T, false>;
  const int64_t parts = l.count >= kManyRows ? 1 : std::clamp<int64_t>(kPartsWanted / l.count, 1, 1 + l.n / kPart);
  const int64_t part = ((l.n + parts - 1) / parts + kElements - 1) / kElements * kElements;
  constexpr int64_t kWarpTile = int64_t{cuda::kWarp} * kElements * kVectors<Acc>;
  const int64_t warps = std::clamp<int64_t>((part + kWarpTile - 1) / kWarpTile, 1, kScanWarps);
  const auto blocks = static_cast<unsigned>(l.count * parts), threads = static_cast<unsigned>(warps * cuda::kWarp);
  Tensor workspace;
  if (parts > 1) {
    const int64_t bytes = l.count * parts * static_cast<int64_t>(sizeof(Acc));
    workspace = empty({Shape{bytes}, DType::u8, Device::cuda(cuda::current_device()), std::nullopt});
  }
  auto* const totals = parts > 1 ? static_cast<Acc*>(workspace.raw_data()) : nullptr;
  if (parts > 1) kernel<<<blocks, threads, 0, cuda::stream()>>>(r, x, l, part, static_cast<int>(parts), totals, true);
  kernel<<<blocks, threads, 0, cuda::stream()>>>(r, x, l, part, static_cast<int>(parts), totals, false);
}

}  // namespace

void scan_cuda(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse) {
  const Lines l = lines_of(x, dim, reverse);
  // A thread for each column: few columns leave the card idle, and are rows in a copy.
  constexpr int64_t kManyColumns = 16384;
  if (l.inner > 1 && l.n > 1024 && l.count < kManyColumns) {
    const Tensor rows = contiguous(transpose(x, dim, -1));
    const auto as_rows = [&](const Tensor& t) {
      return t.defined() ? empty({rows.shape(), t.dtype(), t.device(), std::nullopt}) : Tensor();
    };
    const Tensor to = as_rows(y), places = as_rows(indices);
    scan_cuda(what, to, places, rows, x.dim() - 1, reverse);
    copy_elements(y, transpose(to, dim, -1));
    if (places.defined()) copy_elements(indices, transpose(places, dim, -1));
    return;
  }
  const Tensor from = contiguous(x);
  // Vectors of up to 32 bytes.
  const auto lies = [](const Tensor& t) { return !t.defined() || reinterpret_cast<uintptr_t>(t.raw_data()) % 32 == 0; };
  const bool aligned = lies(from) && lies(y) && lies(indices);
  dispatch_numbers(x.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(from.raw_data());
    using Out = typename Running<T, false>::Out;
    if (what == Reduction::sum)
      return scan_with<Running<T, false>, T>({static_cast<Out*>(y.raw_data())}, p, l, aligned);
    if (what == Reduction::prod)
      return scan_with<Running<T, true>, T>({static_cast<Out*>(y.raw_data())}, p, l, aligned);
    T* const to = static_cast<T*>(y.raw_data());
    int64_t* const at = static_cast<int64_t*>(indices.raw_data());
    if (what == Reduction::max) return scan_with<RunningExtreme<T, true>, T>({to, at}, p, l, aligned);
    scan_with<RunningExtreme<T, false>, T>({to, at}, p, l, aligned);
  });
}

}  // namespace strata
