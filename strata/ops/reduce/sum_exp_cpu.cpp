// Sums of exponentials: blocks of x - shift go through the vectorised exp, then are summed.

#include "strata/ops/reduce/sum_exp_kernel.h"

#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/reduce/fold_kernels.h"
#include "strata/ops/reduce/reduce_inl.h"

namespace strata {
namespace {

using namespace reduce_detail;

constexpr int64_t kBlock = 512;  // elements that one call of exp takes

template <class A>
struct Sums {
  using Acc = A;
  A init() const { return 0; }
  A combine(A a, A b) const { return a + b; }
};

// What goes through exp, and is then summed, of one dtype.
template <class T>
struct Exponentials {
  using A = compute_t<T>;
  DenseMap exp = simd_map(Map::exp, dtype_of<A>) ? simd_map(Map::exp, dtype_of<A>) : scalar_map(Map::exp, dtype_of<A>);
  FoldLoops sums = fold_loops(Fold::sum, dtype_of<A>);

  // to[i] = x[i], widened.
  static void widened(const T* x, int64_t n, A* to) {
    if constexpr (std::is_same_v<T, Half>)
      widen_run(x, n, to);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(x[i]);
  }
  void raise(A* e, int64_t n) const {
    const void* in[] = {e};
    exp(e, in, n, {});
  }
};

// Lines; short ones several at a time.
template <class T>
void of_lines(const Exponentials<T>& f, const T* p, const ReduceLayout& l, const compute_t<T>* shift,
              compute_t<T>* out) {
  using A = compute_t<T>;
  const int64_t together = std::clamp<int64_t>(kBlock / std::max<int64_t>(l.n, 1), 1, kBlock);
  parallel_for(0, l.outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(l.n, 1)), [&](int64_t begin, int64_t end) {
    A e[kBlock];
    for (int64_t o = begin; o < end; o += together) {
      const int64_t lines = std::min(together, end - o);
      if (l.n <= kBlock) {
        f.widened(p + o * l.n, lines * l.n, e);
        for (int64_t i = 0; i < lines; ++i)
          for (int64_t j = 0; j < l.n; ++j) e[i * l.n + j] -= shift[o + i];
        f.raise(e, lines * l.n);
        f.sums.lines(e, lines, l.n, nullptr, out + o);
        continue;
      }
      const Sums<A> r;
      Cascade<Sums<A>> total;
      for (int64_t i = 0; i < l.n; i += kBlock) {
        const int64_t m = std::min(kBlock, l.n - i);
        f.widened(p + o * l.n + i, m, e);
        for (int64_t j = 0; j < m; ++j) e[j] -= shift[o];
        f.raise(e, m);
        A part;
        f.sums.lines(e, 1, m, nullptr, &part);
        total.add(r, part);
      }
      out[o] = total.total(r);
    }
  });
}

// Columns, some hundred side by side: as many rows of them as a block holds go through exp together, and are summed for
// kColumnJob rows at most before these sums are.
template <class T>
void of_columns(const Exponentials<T>& f, const T* p, const ReduceLayout& l, const compute_t<T>* shift,
                compute_t<T>* out) {
  using A = compute_t<T>;
  const int64_t tiles = (l.inner + kBlock - 1) / kBlock,
                groups = std::max<int64_t>(1, (l.n + kColumnJob - 1) / kColumnJob);
  const int64_t results = l.outer * l.inner, work = std::clamp<int64_t>(l.n, 1, kColumnJob) * std::min(l.inner, kBlock);
  std::vector<A> partial(groups > 1 ? static_cast<size_t>(groups * results) : 0);
  parallel_for(0, l.outer * tiles * groups, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    A e[kBlock];
    for (int64_t job = begin; job < end; ++job) {
      const int64_t group = job % groups, o = job / groups / tiles, column = job / groups % tiles * kBlock;
      const int64_t width = std::min(kBlock, l.inner - column), first = group * kColumnJob,
                    rows = std::min(kColumnJob, l.n - first), together = kBlock / width;
      const int64_t at = o * l.inner + column;
      A* const to = groups > 1 ? &partial[static_cast<size_t>(group * results + at)] : out + at;
      std::fill_n(to, width, A(0));
      for (int64_t k = 0; k < rows; k += together) {
        const int64_t m = std::min(together, rows - k);
        for (int64_t i = 0; i < m; ++i) {
          A* const row = e + i * width;
          f.widened(p + ((o * l.n) + first + k + i) * l.inner + column, width, row);
          for (int64_t j = 0; j < width; ++j) row[j] -= shift[at + j];
        }
        f.raise(e, m * width);
        (width <= f.sums.narrow ? f.sums.narrow_rows : f.sums.rows)(e, m, width, width, nullptr, to);
      }
    }
  });
  if (groups == 1) return;
  parallel_for(0, results, std::max<int64_t>(1, kGrain / groups), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Sums<A> r;
      Cascade<Sums<A>> cascade;
      for (int64_t g = 0; g < groups; ++g) cascade.add(r, partial[static_cast<size_t>(g * results + i)]);
      out[i] = cascade.total(r);
    }
  });
}

}  // namespace

void sum_exp_cpu(const Tensor& y, const ReduceLayout& l, const Tensor& shift) {
  if (y.numel() == 0) return;
  dispatch_floats(l.data.dtype(), "logsumexp", [&]<class T>() {
    using A = compute_t<T>;
    const Exponentials<T> f;
    const T* const p = static_cast<const T*>(l.data.raw_data());
    const A* const s = static_cast<const A*>(shift.raw_data());
    A* const out = static_cast<A*>(y.raw_data());
    l.inner == 1 ? of_lines(f, p, l, s, out) : of_columns(f, p, l, s, out);
  });
}

}  // namespace strata
