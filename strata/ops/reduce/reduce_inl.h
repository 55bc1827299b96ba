#pragma once
// The loops behind reduce(); included by the files that instantiate them.

#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/layout.h"
#include "strata/ops/vec/scratch.h"

namespace strata {

namespace reduce_detail {

constexpr int kLanes = 16;
constexpr int64_t kSteps = 32;       // accumulated one after the other before pairwise combination
constexpr int64_t kRowJob = 32768;   // elements of a row that one job reduces
constexpr int64_t kTile = 1024;      // columns of a job
constexpr int64_t kColumnJob = 512;  // rows of a job
constexpr int64_t kWovenLines = 4;   // columns that are turned into lines

// Pairwise sum of a sequence of partial results, without storing them: like a binary counter, level i holds 2^i of
// them.
template <class R>
class Cascade {
 public:
  using Acc = typename R::Acc;
  void add(const R& r, Acc a) {
    for (int level = 0;; ++level) {
      if (!(used_ >> level & 1)) {
        acc_[level] = a;
        used_ |= uint64_t{1} << level;
        return;
      }
      a = r.combine(acc_[level], a);
      used_ &= ~(uint64_t{1} << level);
    }
  }
  Acc total(const R& r) const {
    Acc a = r.init();
    bool any = false;
    for (int level = 0; level < 48; ++level) {
      if (!(used_ >> level & 1)) continue;
      a = any ? r.combine(acc_[level], a) : acc_[level];
      any = true;
    }
    return a;
  }

 private:
  Acc acc_[48];
  uint64_t used_ = 0;
};

// One contiguous run whose first element has position `at` in its row.
template <class R, class T>
typename R::Acc reduce_run(const R& r, const T* p, int64_t n, int64_t at, typename R::Shift shift) {
  using Acc = typename R::Acc;
  if constexpr (requires { r.loops; }) {
    Acc result;
    r.loops.lines(p, 1, n, &shift, &result);
    return result;
  } else if constexpr (requires { r.run; }) {
    return r.run(p, n);
  }
  Cascade<R> cascade;
  const auto block = [&](const auto* q, int64_t m, int64_t i) {
    const int64_t whole = m / kLanes * kLanes;
    Acc lanes[kLanes];
    for (Acc& a : lanes) a = r.init();
    for (int64_t k = 0; k < whole; k += kLanes)
      for (int l = 0; l < kLanes; ++l) r.step(lanes[l], q[k + l], shift, at + i + k + l);
    for (int64_t k = whole; k < m; ++k) r.step(lanes[k - whole], q[k], shift, at + i + k);
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes[l] = r.combine(lanes[l], lanes[l + half]);
    cascade.add(r, lanes[0]);
  };
  for (int64_t i = 0; i < n; i += kSteps * kLanes) {
    const int64_t m = std::min(n - i, kSteps * kLanes);
    if constexpr (std::is_same_v<T, Half>) {
      float wide[kSteps * kLanes];
      widen_run(p + i, m, wide);
      block(wide, m, i);
    } else {
      block(p + i, m, i);
    }
  }
  return cascade.total(r);
}

// Columns of `rows` rows: acc[j] over p[k * stride + j].
template <class R, class T>
void reduce_columns(const R& r, const T* p, int64_t rows, int64_t stride, int64_t width, int64_t at,
                    const typename R::Shift* shift, typename R::Acc* acc) {
  using Acc = typename R::Acc;
  using X = std::conditional_t<std::is_same_v<T, Half>, float, T>;
  constexpr bool kWidens = std::is_same_v<T, Half>;
  Acc part[kTile];
  X wide[kWidens ? 4 * kTile : 1];
  // Row k as it is read: one of four that are at hand together.
  const auto row = [&](int64_t k, int64_t which) -> const X* {
    if constexpr (kWidens) {
      widen_run(p + k * stride, width, wide + which * kTile);
      return wide + which * kTile;
    } else {
      return p + k * stride;
    }
  };
  for (int64_t j = 0; j < width; ++j) acc[j] = r.init();
  if constexpr (requires { r.loops; }) {
    if (width <= r.loops.narrow) return r.loops.narrow_rows(p, rows, stride, width, shift, acc);
    if (rows <= kSteps) return r.loops.rows(p, rows, stride, width, shift, acc);
  }
  for (int64_t i = 0; i < rows; i += kSteps) {
    for (int64_t j = 0; j < width; ++j) part[j] = r.init();
    const int64_t end = std::min(rows, i + kSteps);
    if constexpr (requires { r.loops; }) {
      r.loops.rows(p + i * stride, end - i, stride, width, shift, part);
      for (int64_t j = 0; j < width; ++j) acc[j] = r.combine(acc[j], part[j]);
      continue;
    }
    const auto shift_of = [&](int64_t j) { return shift ? shift[j] : typename R::Shift(); };
    int64_t k = i;
    // Four rows at a time: each partial result is read and written once for all four.
    for (; k + 4 <= end; k += 4) {
      const X *r0 = row(k, 0), *r1 = row(k + 1, 1), *r2 = row(k + 2, 2), *r3 = row(k + 3, 3);
      const auto four = [&](auto shift_at) {
        for (int64_t j = 0; j < width; ++j) {
          Acc a = part[j];
          r.step(a, r0[j], shift_at(j), at + k);
          r.step(a, r1[j], shift_at(j), at + k + 1);
          r.step(a, r2[j], shift_at(j), at + k + 2);
          r.step(a, r3[j], shift_at(j), at + k + 3);
          part[j] = a;
        }
      };
      if (shift)
        four([&](int64_t j) { return shift[j]; });
      else
        four([](int64_t) { return typename R::Shift(); });
    }
    for (; k < end; ++k) {
      const X* one = row(k, 0);
      for (int64_t j = 0; j < width; ++j) r.step(part[j], one[j], shift_of(j), at + k);
    }
    for (int64_t j = 0; j < width; ++j) acc[j] = r.combine(acc[j], part[j]);
  }
}

/// A layout of which `runs` more rows are reduced: [outer, runs, inner, n] where they are more than one, of which inner
/// is kept, else [outer, n, inner].
struct RunsLayout : ReduceLayout {
  int64_t runs = 1;
  int64_t count() const { return runs * n; }  ///< elements of a result
};

// Each run on its own, then those of a result.
template <class R, class T, class Write>
void reduce_runs_with(const R& r, const RunsLayout& l, const typename R::Shift* shift, Write write) {
  using Acc = typename R::Acc;
  const T* p = static_cast<const T*>(l.data.raw_data());
  const int64_t all = l.outer * l.runs * l.inner, results = l.outer * l.inner;
  std::vector<Acc> partial(static_cast<size_t>(all));
  parallel_for(0, all, std::max<int64_t>(1, kGrain / l.n), [&](int64_t begin, int64_t end) {
    int64_t m = 0;
    for (int64_t i = begin; i < end; i += m) {
      const int64_t column = i % l.inner, at = i / l.inner / l.runs * l.inner + column;
      Acc* const to = &partial[static_cast<size_t>(i)];
      m = std::min(end - i, l.inner - column);
      if constexpr (requires { r.loops; })
        r.loops.lines(p + i * l.n, m, l.n, shift ? shift + at : nullptr, to);
      else
        for (int64_t j = 0; j < m; ++j)
          to[j] = reduce_run(r, p + (i + j) * l.n, l.n, 0, shift ? shift[at + j] : typename R::Shift());
    }
  });
  parallel_for(0, results, std::max<int64_t>(1, kGrain / l.runs), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Cascade<R> cascade;
      const int64_t first = i / l.inner * l.runs * l.inner + i % l.inner;
      for (int64_t k = 0; k < l.runs; ++k) cascade.add(r, partial[static_cast<size_t>(first + k * l.inner)]);
      write(i, cascade.total(r));
    }
  });
}

// write(index of the result, accumulated value)
template <class R, class T, class Write>
void reduce_layout_with(const R& r, const ReduceLayout& l, const typename R::Shift* shift, Write write) {
  using Acc = typename R::Acc;
  const T* p = static_cast<const T*>(l.data.raw_data());
  const int64_t results = l.outer * l.inner;
  if (results == 0) return;
  if (l.n == 0) {
    for (int64_t i = 0; i < results; ++i) write(i, r.init());
    return;
  }
  // Rows that are shorter than the lanes of reduce_run(): one element after the other.
  if (l.inner == 1 && l.n <= kLanes) {
    parallel_for(0, results, std::max<int64_t>(1, kGrain / l.n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Acc a = r.init();
        for (int64_t k = 0; k < l.n; ++k) r.step(a, p[i * l.n + k], shift ? shift[i] : typename R::Shift(), k);
        write(i, a);
      }
    });
    return;
  }
  if constexpr (requires { r.loops; }) {
    if (l.inner == 1 && l.n <= kRowJob) {
      parallel_for(0, results, std::max<int64_t>(1, kGrain / l.n), [&](int64_t begin, int64_t end) {
        Acc acc[kTile];
        for (int64_t i = begin; i < end; i += kTile) {
          const int64_t m = std::min(kTile, end - i);
          r.loops.lines(p + i * l.n, m, l.n, shift ? shift + i : nullptr, acc);
          for (int64_t k = 0; k < m; ++k) write(i + k, acc[k]);
        }
      });
      return;
    }
  }
  if constexpr (requires { r.loops; }) {
    if (l.inner > 1 && l.inner <= kWovenLines && l.n <= kRowJob) {  // turned, a line is as fast as any
      parallel_for(0, l.outer, std::max<int64_t>(1, kGrain / (l.n * l.inner)), [&](int64_t begin, int64_t end) {
        ScratchFrame frame;
        T* const lines = frame.take<T>(l.n * l.inner);
        Acc acc[kWovenLines];
        constexpr int64_t size = sizeof(T);
        for (int64_t o = begin; o < end; ++o) {
          transpose_elements(size, reinterpret_cast<const char*>(p + o * l.n * l.inner), l.inner * size,
                             reinterpret_cast<char*>(lines), l.n * size, l.inner, l.n);
          r.loops.lines(lines, l.inner, l.n, shift ? shift + o * l.inner : nullptr, acc);
          for (int64_t j = 0; j < l.inner; ++j) write(o * l.inner + j, acc[j]);
        }
      });
      return;
    }
  }
  const int64_t tiles = l.inner == 1 ? 1 : (l.inner + kTile - 1) / kTile;
  const int64_t length = l.inner == 1 ? kRowJob : kColumnJob;  // of n, for one job
  const int64_t groups = (l.n + length - 1) / length;
  const int64_t job_work = std::min(l.n, length) * std::min(l.inner, kTile);
  const int64_t grain = std::max<int64_t>(1, kGrain / job_work);
  std::vector<Acc> partial(groups > 1 ? static_cast<size_t>(groups * results) : 0);
  parallel_for(0, l.outer * tiles * groups, grain, [&](int64_t begin, int64_t end) {
    Acc acc[kTile];
    for (int64_t job = begin; job < end; ++job) {
      const int64_t group = job % groups, tile = job / groups % tiles, o = job / groups / tiles;
      const int64_t first = group * length, rows = std::min(length, l.n - first);
      const int64_t column = tile * kTile, width = std::min(kTile, l.inner - column);
      const T* from = p + (o * l.n + first) * l.inner + column;
      const int64_t at = o * l.inner + column;
      if (l.inner == 1)
        acc[0] = reduce_run(r, from, rows, first, shift ? shift[o] : typename R::Shift());
      else
        reduce_columns(r, from, rows, l.inner, width, first, shift ? shift + at : nullptr, acc);
      for (int64_t j = 0; j < width; ++j) {
        if (groups == 1)
          write(at + j, acc[j]);
        else
          partial[static_cast<size_t>(group * results + at + j)] = acc[j];
      }
    }
  });
  if (groups == 1) return;
  parallel_for(0, results, std::max<int64_t>(1, kGrain / groups), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Cascade<R> cascade;
      for (int64_t g = 0; g < groups; ++g) cascade.add(r, partial[static_cast<size_t>(g * results + i)]);
      write(i, cascade.total(r));
    }
  });
}

}  // namespace reduce_detail
}  // namespace strata
