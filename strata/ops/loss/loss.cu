// Losses of classes on a CUDA device (pair_loss.cu has those of pairs). Sums over rows are f64, in two stages of fixed
// order.

#include "strata/cuda/current.h"
#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/launch.h"
#include "strata/cuda/range.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256;

template <class C>
Tensor make_workspace(int64_t count) {
  return empty({Shape{count}, dtype_of<C>, Device::cuda(current_device()), std::nullopt});
}

// A loss, and how many rows count for it.
struct Total {
  double sum;
  int64_t count;
};
struct AddTotals {
  __device__ Total operator()(const Total& a, const Total& b) const { return {a.sum + b.sum, a.count + b.count}; }
};
__device__ __forceinline__ Total block_total(Total t) {
  __shared__ Total shared[kMostRowThreads / kWarp];
  return row_reduce(t, AddTotals(), shared);
}
__device__ __forceinline__ bool is_class(int64_t target, int64_t classes) {
  return target >= 0 && target < classes;
}
// What stands where a target is no class, of which the host hears later (range.cuh).
template <class C>
__device__ __forceinline__ C bad_target() {
  return static_cast<C>(NAN);
}

// ---- cross entropy ----

// A row as the 16-byte vectors that cover it: its first and last may reach beyond it, but no further than to the next
// multiple of 16 bytes, which is inside every block of memory.
template <class T>
struct Cover {
  static constexpr int V = kVec<T>;
  const T* from;            // the first vector
  int head, last, vectors;  // elements before the row; of the row in the last vector; vectors
  int begin, end;           // the vectors that hold the row's elements alone
  __device__ Cover(const T* row, int64_t n) {
    head = n == 0 ? 0 : static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    from = row - head;
    vectors = static_cast<int>((head + n + V - 1) / V);
    last = static_cast<int>(head + n - int64_t{V} * (vectors - 1));
    begin = head > 0 ? 1 : 0;
    end = last < V ? vectors - 1 : vectors;
  }
  __device__ bool is_edge(int j) const { return j < begin || j >= end; }
  __device__ bool has(int j, int k) const {
    return (j > 0 || k >= head) && (j < vectors - 1 || (j == vectors - 1 && k < last));
  }
  __device__ Vec<T, V> at(int j) const { return load_vec<V>(from + int64_t{j} * V); }
  // Vector j of a row's end, with -inf for what is not of the row.
  __device__ Vec<T, V> edge(int j) const {
    Vec<T, V> v = at(j);
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (!has(j, k)) v.v[k] = narrow<T>(static_cast<compute_t<T>>(-INFINITY));
    return v;
  }
  // Calls f with the numbers of the vectors that reach beyond the row, on a thread for each.
  template <class F>
  __device__ __forceinline__ void for_edges(F&& f) const {
    if (threadIdx.x == 0 && begin > 0) f(0);
    if (threadIdx.x == 1 && end < vectors && vectors > begin) f(vectors - 1);
  }
};

// The first vector of this thread from `begin` on: every blockDim.x-th is one thread's, wherever a loop begins.
__device__ __forceinline__ int first_from(int begin) {
  const int step = static_cast<int>(blockDim.x), ahead = static_cast<int>(threadIdx.x) - begin % step;
  return begin + ahead + (ahead < 0 ? step : 0);
}

template <class T>
constexpr int kAhead = sizeof(T) == 8 ? 2 : 4;  // vectors on their way to a thread together

// What a thread reads off a row: the maximum and the sum of exponentials; where the loss is smoothed, the sum too.
template <class T>
struct RowSums {
  using C = compute_t<T>;
  Exponentials<C> s{static_cast<C>(-INFINITY), 0};
  C sum = 0;
};

// Adds the elements of the first `count` vectors; those of the others are -inf. NaN needs no care in the maximum: it
// makes the sum NaN.
template <class T, int kCount>
__device__ __forceinline__ void add_vectors(RowSums<T>& r, bool smoothed, const Vec<T, kVec<T>> (&v)[kCount],
                                            int count) {
  using C = compute_t<T>;
  Exponentials<C>& s = r.s;
  C top = s.top;
#pragma unroll
  for (int u = 0; u < kCount; ++u) top = fmax(top, largest_of(v[u]));
  const C shift = exp_shift<T>(top);
  s.sum *= exp_below<T>(s.top, shift);
  s.top = top;
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    if (u >= count) break;
    const auto x = widen_all(v[u]);
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) s.sum += exp_below<T>(x.v[k], shift);
    if (smoothed)
#pragma unroll
      for (int k = 0; k < kVec<T>; ++k) r.sum += x.v[k];
  }
}

// Adds vectors [begin, end), which load(j) gives.
template <class T, class F>
__device__ __forceinline__ void add_range(RowSums<T>& r, bool smoothed, int begin, int end, F&& load) {
  constexpr int kCount = kAhead<T>;
  const int step = static_cast<int>(blockDim.x);
  int j = first_from(begin);
  Vec<T, kVec<T>> v[kCount];
  for (; j + (kCount - 1) * step < end; j += kCount * step) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) v[u] = load(j + u * step);
    add_vectors<T>(r, smoothed, v, kCount);
  }
  if (j >= end) return;
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    if (j + u * step < end) {
      v[u] = load(j + u * step);
    } else {
#pragma unroll
      for (int k = 0; k < kVec<T>; ++k) v[u].v[k] = narrow<T>(static_cast<compute_t<T>>(-INFINITY));
    }
  }
  add_vectors<T>(r, smoothed, v, (end - j + step - 1) / step);
}
// Adds the elements of the vectors that reach beyond the row.
template <class T>
__device__ __forceinline__ void add_edges(RowSums<T>& r, bool smoothed, const Cover<T>& row) {
  row.for_edges([&](int j) {
    const Vec<T, kVec<T>> v[1] = {row.edge(j)};
    add_vectors<T>(r, false, v, 1);
    if (smoothed)
#pragma unroll
      for (int k = 0; k < kVec<T>; ++k)
        if (row.has(j, k)) r.sum += widen(v[0].v[k]);
  });
}

// The target's logit, for the thread that writes the loss.
template <class T>
__device__ __forceinline__ compute_t<T> target_logit(const CrossEntropyCall& c, const T* row, int64_t t) {
  if (threadIdx.x != 0) return 0;
  return is_class(t, c.classes) ? widen(row[t]) : bad_target<compute_t<T>>();
}

// The loss of a row.
template <class T>
__device__ __forceinline__ compute_t<T> loss_of(const CrossEntropyCall& c, int64_t t, compute_t<T> at_target,
                                                compute_t<T> lse, compute_t<T> sum) {
  using C = compute_t<T>;
  if (t == c.ignore_index) return 0;
  C v = lse - at_target;
  if (c.smoothing > 0) {
    const C e = static_cast<C>(c.smoothing);
    v = v * (1 - e) + e * (lse - sum / static_cast<C>(c.classes));
  }
  return v;
}

// log(sum(exp)) and the loss of each row; each row is read once.
constexpr int kForwardThreads = 256;  // several blocks a multiprocessor: one's barriers are another's loads
template <class T>
__global__ void __launch_bounds__(kForwardThreads, sizeof(T) == 8 ? 2 : 5)
    cross_entropy_kernel(const CrossEntropyCall c, compute_t<T>* each) {
  using C = compute_t<T>;
  __shared__ Exponentials<C> shared[kMostRowThreads / kWarp];
  __shared__ C sums[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.classes : 0;
  const T* x = static_cast<const T*>(c.x) + r * c.row_stride;
  const int64_t t = n > 0 ? c.target[r] : 0;
  const Cover<T> row(x, n);
  RowSums<T> mine;
  add_edges(mine, c.smoothing > 0, row);
  add_range(mine, c.smoothing > 0, row.begin, row.end, [&](int j) { return row.at(j); });
  const C at_target = n > 0 ? target_logit(c, x, t) : C(0);
  const Exponentials<C> s = row_reduce(mine.s, AddExponentials<T>(), shared, true);
  const C sum = c.smoothing > 0 ? row_reduce(mine.sum, Sum(), sums, true) : C(0);
  if (threadIdx.x != 0 || n == 0) return;
  const C lse = log_of_sum<T>(s);
  if (c.lse != nullptr) static_cast<C*>(c.lse)[r] = lse;
  each[r] = loss_of<T>(c, t, at_target, lse, sum);
}

// The sum of f(r) over the rows, for all threads of the one block.
template <class F>
__device__ __forceinline__ Total total_of_rows(int64_t rows, F&& f) {
  constexpr int kMany = 8;
  Total t[kMany] = {};
  for (int64_t r = threadIdx.x; r < rows; r += kMany * blockDim.x)
#pragma unroll
    for (int u = 0; u < kMany; ++u)
      if (r + u * blockDim.x < rows) t[u] = AddTotals()(t[u], f(r + u * blockDim.x));
#pragma unroll
  for (int u = 1; u < kMany; ++u) t[0] = AddTotals()(t[0], t[u]);
  return block_total(t[0]);
}

// One block: the sum of the rows' losses, over the number of rows that count where the mean is wanted. It looks at the
// targets; where none is wanted (`loss` is nullptr) it does that alone.
template <class C, class Out>
__global__ void __launch_bounds__(kMostRowThreads)
    total_kernel(const CrossEntropyCall c, const C* each, Out* loss, RangeCheck in_range) {
  int64_t outside = 0;
  bool any = false;
  const Total t = total_of_rows(c.rows, [&](int64_t r) {
    const int64_t target = c.target[r];
    const bool counts = target != c.ignore_index;
    if (counts && !is_class(target, c.classes)) any = true, outside = target;
    return Total{each[r], counts};
  });
  if (any) in_range.tell(outside, c.classes);
  if (threadIdx.x != 0 || loss == nullptr) return;
  const bool mean = c.reduction == Reduction::mean;
  *loss = narrow<Out>(static_cast<compute_t<Out>>(mean ? t.sum / static_cast<double>(t.count) : t.sum));
}

// One block: what each row's loss is multiplied by.
template <class C>
__global__ void __launch_bounds__(kMostRowThreads) share_kernel(const CrossEntropyCall c, C* share) {
  const bool mean = c.reduction == Reduction::mean;
  const Total t = total_of_rows(mean ? c.rows : 0, [&](int64_t r) { return Total{0, c.target[r] != c.ignore_index}; });
  if (threadIdx.x == 0) *share = mean ? static_cast<C>(1.0 / static_cast<double>(t.count)) : C(1);
}

// (exp(x - lse) - wanted) g of a row's vectors.
template <class T>
struct Gradient {
  using C = compute_t<T>;
  static constexpr int V = kVec<T>;
  bool used;
  int vector, element;  // where the target lies in the cover; vector is -1 where it is nowhere
  C shift, g, even, at_target;

  __device__ Gradient(const CrossEntropyCall& c, const Cover<T>& row, int64_t t, C lse, C grad_loss) {
    const C e = static_cast<C>(c.smoothing);
    used = t != c.ignore_index;
    g = !used || is_class(t, c.classes) ? grad_loss : bad_target<C>();
    vector = used && is_class(t, c.classes) ? static_cast<int>((t + row.head) / V) : -1;
    element = static_cast<int>((t + row.head) % V);
    shift = exp_scale<T>(lse);
    even = -e / static_cast<C>(c.classes) * g;
    at_target = (1 - e) * g;
  }
  __device__ __forceinline__ Vec<T, V> of(const Vec<T, V>& v, int j) const {
    if (!used) return Vec<T, V>{};
    auto x = widen_all(v);
#pragma unroll
    for (int k = 0; k < V; ++k) x.v[k] = fma(exp_below<T>(x.v[k], shift), g, even);
    if (j == vector)
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (k == element) x.v[k] -= at_target;
    return narrow_all<T>(x);
  }
};
// Writes the gradient of vectors [begin, end), which load(j) gives; `to` is where the cover of gx begins. From the end
// to the beginning: what was read last is nearest.
template <class T, class F>
__device__ __forceinline__ void write_range(const Gradient<T>& gradient, T* to, int begin, int end, F&& load) {
  constexpr int V = kVec<T>, kCount = kAhead<T>;
  const int step = static_cast<int>(blockDim.x), first = first_from(begin);
  for (int j = first + (end - 1 - first) / step * step; j >= first && j < end; j -= kCount * step) {
    Vec<T, V> v[kCount];
#pragma unroll
    for (int u = 0; u < kCount; ++u)
      if (j - u * step >= first) v[u] = load(j - u * step);
#pragma unroll
    for (int u = 0; u < kCount; ++u)
      if (j - u * step >= first) store_vec(to + int64_t{V} * (j - u * step), gradient.of(v[u], j - u * step));
  }
}
template <class T>
__device__ __forceinline__ void write_edges(const Gradient<T>& gradient, T* to, const Cover<T>& row) {
  row.for_edges([&](int j) {
    const Vec<T, kVec<T>> v = gradient.of(row.edge(j), j);
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k)
      if (row.has(j, k)) to[int64_t{kVec<T>} * j + k] = v.v[k];
  });
}

// share: what the loss's gradient is multiplied by, 1 where it is null.
template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    cross_entropy_backward_kernel(const CrossEntropyCall c, const compute_t<T>* share) {
  using C = compute_t<T>;
  const int64_t r = this_row();
  if (r >= c.rows) return;
  C g = static_cast<const C*>(c.grad_loss)[c.reduction == Reduction::none ? r : 0];
  if (share != nullptr) g *= *share;
  const Cover<T> row(static_cast<const T*>(c.x) + r * c.row_stride, c.classes);
  const Gradient<T> gradient(c, row, c.target[r], static_cast<const C*>(c.lse)[r], g);
  T* const to = static_cast<T*>(c.grad_x) + r * c.row_stride - row.head;  // gx lies like x within 16 bytes
  write_range(gradient, to, row.begin, row.end, [&](int j) { return row.at(j); });
  write_edges(gradient, to, row);
}

// The loss and lse of each row, and its gradient, which takes the logits' place. The row's first `room` vectors wait
// for their gradient in shared memory, the rest is read again: of what all blocks work on, the L2 cache holds much.
// With room a row has a block of its own.
template <class T>
__global__ void __launch_bounds__(kMostRowThreads, 2) cross_entropy_both_kernel(const CrossEntropyCall c, int room) {
  using C = compute_t<T>;
  extern __shared__ uint4 staged[];
  __shared__ Exponentials<C> shared[kMostRowThreads / kWarp];
  __shared__ C sums[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.classes : 0;
  T* const x = static_cast<T*>(c.grad_x) + r * c.row_stride;
  const int64_t t = n > 0 ? c.target[r] : 0;
  const C g = c.grad_loss == nullptr ? C(1) : *static_cast<const C*>(c.grad_loss);
  const Cover<T> row(x, n);
  const bool smoothed = c.smoothing > 0;
  const auto from_memory = [&](int j) { return row.at(j); };
  const auto from_shared = [&](int j) { return load_vec<kVec<T>>(reinterpret_cast<const T*>(staged + j)); };
  const int kept = row.end < room ? row.end : room, rest = row.begin > kept ? row.begin : kept;

  // Each thread waits for what it asked for itself, and reads no more before the barrier.
  for (int j = first_from(row.begin); j < kept; j += static_cast<int>(blockDim.x))
    tile::copy_async(staged + j, row.from + int64_t{j} * kVec<T>);
  RowSums<T> mine;
  add_edges(mine, smoothed, row);
  add_range(mine, smoothed, rest, row.end, from_memory);
  tile::wait_all_copies();
  add_range(mine, smoothed, row.begin, kept, from_shared);
  const C at_target = n > 0 ? target_logit(c, x, t) : C(0);  // before another thread writes where it lies
  const Exponentials<C> s = row_reduce(mine.s, AddExponentials<T>(), shared, true);
  const C sum = smoothed ? row_reduce(mine.sum, Sum(), sums, true) : C(0);
  if (n == 0) return;
  const C lse = log_of_sum<T>(s);
  if (threadIdx.x == 0) {
    static_cast<C*>(c.loss)[r] = loss_of<T>(c, t, at_target, lse, sum);
    static_cast<C*>(c.lse)[r] = lse;
  }
  __syncwarp();
  const Gradient<T> gradient(c, row, t, lse, g);
  T* const to = x - row.head;
  write_range(gradient, to, rest, row.end, from_memory);
  for (int j = first_from(row.begin); j < kept; j += static_cast<int>(blockDim.x))
    store_vec(to + int64_t{kVec<T>} * j, gradient.of(from_shared(j), j));
  write_edges(gradient, to, row);
}

// As many threads as leave each of them two rounds of loads, and at most `most`.
template <class T>
RowLaunch loss_launch(const CrossEntropyCall& c, int most = kMostRowThreads) {
  RowLaunch l = row_launch<T>(c.rows, c.classes, true, 2 * kAhead<T>);
  l.threads.x = std::min(l.threads.x, static_cast<unsigned>(most));
  return l;
}

CrossEntropyCall with_stride(CrossEntropyCall c) {
  if (c.row_stride == 0) c.row_stride = c.classes;
  return c;
}
}  // namespace

void cross_entropy_cuda(const CrossEntropyCall& given) {
  const CrossEntropyCall c = with_stride(given);
  dispatch_floats(c.dtype, "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    C* loss = static_cast<C*>(c.loss);
    const bool none = c.reduction == Reduction::none;
    const Tensor workspace = none ? Tensor() : make_workspace<C>(c.rows);
    C* each = none ? loss : static_cast<C*>(workspace.raw_data());
    if (c.rows > 0) {
      const RowLaunch l = loss_launch<T>(c, kForwardThreads);
      cross_entropy_kernel<T><<<l.blocks, l.threads, 0, stream()>>>(c, each);
    }
    total_kernel<C><<<1, kMostRowThreads, 0, stream()>>>(c, each, none ? nullptr : loss, range_check());
  });
}

void cross_entropy_backward_cuda(const CrossEntropyCall& given) {
  const CrossEntropyCall c = with_stride(given);
  if (c.rows == 0) return;
  dispatch_floats(c.dtype, "cross_entropy_backward", [&]<class T>() {
    using C = compute_t<T>;
    const bool mean = c.reduction == Reduction::mean;
    const Tensor workspace = mean ? make_workspace<C>(1) : Tensor();
    C* share = mean ? static_cast<C*>(workspace.raw_data()) : nullptr;
    if (mean) share_kernel<C><<<1, kMostRowThreads, 0, stream()>>>(c, share);
    const RowLaunch l = loss_launch<T>(c);
    cross_entropy_backward_kernel<T><<<l.blocks, l.threads, 0, stream()>>>(c, share);
  });
}

void cross_entropy_both_cuda(const CrossEntropyCall& given) {
  const CrossEntropyCall c = with_stride(given);
  if (c.rows == 0) return;
  dispatch_floats(c.dtype, "linear_cross_entropy", [&]<class T>() {
    const RowLaunch l = loss_launch<T>(c);
    // Two rows find room beside each other: one is on its way while the other is worked on. Of a row that does not fit
    // less is kept: what is read twice wants an L1 cache.
    const int64_t most = properties(current_device()).shared_bytes_per_block / 2 - 2048;
    const int64_t row = c.classes * int64_t{sizeof(T)} + 32, wanted = row <= most ? row : most / 6 * 5;
    const auto bytes = static_cast<int>(l.threads.x == kMostRowThreads ? wanted / 16 * 16 : 0);
    const auto kernel = cross_entropy_both_kernel<T>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "linear_cross_entropy",
               "cudaFuncSetAttribute");
    kernel<<<l.blocks, l.threads, static_cast<size_t>(bytes), stream()>>>(c, bytes / 16);
  });
}

void cross_entropy_share_cuda(const CrossEntropyCall& c, void* share) {
  dispatch_floats(c.dtype, "linear_cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    share_kernel<C><<<1, kMostRowThreads, 0, stream()>>>(c, static_cast<C*>(share));
  });
}

void cross_entropy_total_cuda(const CrossEntropyCall& c, const void* each) {
  dispatch_floats(c.dtype, "linear_cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    total_kernel<C>
        <<<1, kMostRowThreads, 0, stream()>>>(c, static_cast<const C*>(each), static_cast<C*>(c.loss), range_check());
  });
}

namespace {
struct Product {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};

// y *= *factor, unless that is 1.
template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(T* y, int64_t n, bool vectors, const compute_t<T>* factor) {
  constexpr int V = kVec<T>;
  const compute_t<T> f = *factor;
  if (f == 1) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, whole = vectors ? n / V : 0;
  for (int64_t j = first; j < whole; j += step) {
    auto x = widen_all(load_vec<V>(y + j * V));
#pragma unroll
    for (int k = 0; k < V; ++k) x.v[k] *= f;
    store_vec(y + j * V, narrow_all<T>(x));
  }
  for (int64_t i = whole * V + first; i < n; i += step) y[i] = narrow<T>(widen(y[i]) * f);
}
}  // namespace
void scale_cuda(const Tensor& y, const Tensor& x, const Tensor& factor) {
  dispatch_floats(x.dtype(), "scaled",
                  [&]<class T>() { elementwise<T, T, compute_t<T>>("scaled", y, Product{}, x, factor); });
}

void scale_in_place_cuda(const Tensor& y, const Tensor& factor) {
  // A gradient's rule calls it, not an op's call, which would make the card current.
  const cuda::LaunchScope scope("linear_cross_entropy", y.device());
  constexpr int64_t kBlocks = 8;  // of a multiprocessor: few, as mostly there is nothing to do
  dispatch_floats(y.dtype(), "scaled", [&]<class T>() {
    const int64_t blocks = std::min<int64_t>(blocks_for(y.numel(), int64_t{kThreads} * kVec<T>),
                                             kBlocks * properties(current_device()).multiprocessors);
    if (blocks > 0)
      scale_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(
          static_cast<T*>(y.raw_data()), y.numel(), aligned16(y.raw_data()),
          static_cast<const compute_t<T>*>(factor.raw_data()));
  });
  if (const char* failure = scope.failure())
    throw DeviceError("linear_cross_entropy", cat("a kernel failed on ", y.device(), ": ", failure));
}

}  // namespace strata
