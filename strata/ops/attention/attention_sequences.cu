// Which sequence each tile of a call of several belongs to.

#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda {
namespace {

constexpr int kThreads = 1024;

struct Side {
  const int64_t* ends;
  int64_t total;
  int rows;  // of a tile
  int* of;
  int tiles;  // length of `of`
};

// The first row of part i of n, of which part n is what lies behind the last.
__device__ __forceinline__ int begin_of(const Side& s, int i) {
  return i == 0 ? 0 : static_cast<int>(min(max(s.ends[i], int64_t{0}), s.total));
}

// One block. Parts n and n + 1 are the queries and the keys behind the last sequence.
__global__ void __launch_bounds__(kThreads)
    sequences_kernel(int n, const Side q, const Side k, Sequence* all, int* ticket) {
  __shared__ int q_sums[kThreads], k_sums[kThreads];
  const auto part = [&](int i) {
    Sequence s{};
    if (i <= n) s.q0 = begin_of(q, i), s.tq = (i < n ? begin_of(q, i + 1) : static_cast<int>(q.total)) - s.q0;
    if (i != n) {
      const int at = min(i, n);
      s.k0 = begin_of(k, at), s.tk = (i < n ? begin_of(k, i + 1) : static_cast<int>(k.total)) - s.k0;
    }
    s.tq = max(s.tq, 0), s.tk = max(s.tk, 0);
    return s;
  };
  if (threadIdx.x == 0) *ticket = 0;
  const auto tiles = [](int length, int rows) { return (length + rows - 1) / rows; };
  const int t = threadIdx.x, count = n + 2, each = (count + kThreads - 1) / kThreads;
  const int first = min(t * each, count), last = min(first + each, count);
  int q_sum = 0, k_sum = 0;
  for (int i = first; i < last; ++i) {
    const Sequence s = part(i);
    q_sum += tiles(s.tq, q.rows), k_sum += tiles(s.tk, k.rows);
  }
  q_sums[t] = q_sum, k_sums[t] = k_sum;
  for (int step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    const int q_add = t >= step ? q_sums[t - step] : 0, k_add = t >= step ? k_sums[t - step] : 0;
    __syncthreads();
    q_sums[t] += q_add, k_sums[t] += k_add;
  }
  int q_at = q_sums[t] - q_sum, k_at = k_sums[t] - k_sum;
  for (int i = first; i < last; ++i) {
    Sequence s = part(i);
    s.q_tile = q_at, s.k_tile = k_at;
    q_at += tiles(s.tq, q.rows), k_at += tiles(s.tk, k.rows);
    all[i] = s;
  }
  __syncthreads();
  const auto fill = [&](const Side& side, int total, auto tile_of) {
    for (int at = t; at < side.tiles; at += kThreads) {
      int low = 0, high = count;  // the last part that begins at `at` or before is low or between
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (tile_of(all[middle]) <= at ? low : high) = middle;
      }
      side.of[at] = at < total ? low : -1;
    }
  };
  fill(q, q_sums[kThreads - 1], [](const Sequence& s) { return s.q_tile; });
  fill(k, k_sums[kThreads - 1], [](const Sequence& s) { return s.k_tile; });
}

}  // namespace

Sequences sequences_of(const AttentionCall& c, int q_rows, int k_rows, const Tensor& like_this, Tensor& space) {
  Sequences s;
  if (c.sequences == 0) return s;
  const int64_t parts = c.sequences + 2;
  s.q_tiles = c.tq / q_rows + parts, s.k_tiles = c.tk / k_rows + parts;
  constexpr int64_t kInts = sizeof(Sequence) / sizeof(int);
  space = empty({Shape{kInts * parts + s.q_tiles + s.k_tiles + 1}, DType::i32, like_this.device(), std::nullopt});
  int* const p = static_cast<int*>(space.raw_data());
  int *const of_q = p + kInts * parts, *const of_k = of_q + s.q_tiles;
  sequences_kernel<<<1, kThreads, 0, cuda::stream()>>>(
      static_cast<int>(c.sequences), Side{c.cu_seqlens_q, c.tq, q_rows, of_q, static_cast<int>(s.q_tiles)},
      Side{c.cu_seqlens_k, c.tk, k_rows, of_k, static_cast<int>(s.k_tiles)}, reinterpret_cast<Sequence*>(p),
      of_k + s.k_tiles);
  s.all = reinterpret_cast<const Sequence*>(p), s.of_q = of_q, s.of_k = of_k, s.ticket = of_k + s.k_tiles;
  return s;
}

}  // namespace strata::attention_cuda
