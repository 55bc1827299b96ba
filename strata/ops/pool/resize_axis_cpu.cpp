#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/pool/resize_axis_kernel.h"
#include "strata/ops/vec/scratch.h"

namespace strata::cpu {
namespace {
using pool::Filter;
using pool::FilterWindow;

// Rows that are added up for each row of a result, and their weights: those of row i begin at first[i].
struct Rows {
  std::vector<int64_t> first{0}, row;
  std::vector<double> weight;
};

Rows rows_of(const Filter& f) {
  Rows r;
  for (int64_t i = 0; i < f.out; ++i) {
    const FilterWindow w = pool::filter_window(f, i);
    for (int64_t j = w.start; j < w.start + w.count; ++j) {
      r.row.push_back(pool::inside(f, j));
      r.weight.push_back(pool::filter_weight(f, w, j));
    }
    r.first.push_back(static_cast<int64_t>(r.row.size()));
  }
  return r;
}

// Of each input the outputs that it is in, in their order.
Rows transposed(const Rows& r, const Filter& f) {
  Rows t;
  t.first.assign(static_cast<size_t>(f.in) + 1, 0);
  for (const int64_t j : r.row) ++t.first[j + 1];
  for (int64_t j = 0; j < f.in; ++j) t.first[j + 1] += t.first[j];
  t.row.resize(r.row.size());
  t.weight.resize(r.row.size());
  std::vector<int64_t> next(t.first.begin(), t.first.end() - 1);
  for (int64_t i = 0; i < f.out; ++i) {
    for (int64_t k = r.first[i]; k < r.first[i + 1]; ++k) {
      const int64_t to = next[r.row[k]]++;
      t.row[to] = i;
      t.weight[to] = r.weight[k];
    }
  }
  return t;
}

// to [outer, rows, inner] from from [outer, from_rows, inner].
template <class T>
void apply(const Rows& r, int64_t outer, int64_t from_rows, int64_t inner, const T* from, T* to) {
  using C = compute_t<T>;
  const auto rows = static_cast<int64_t>(r.first.size()) - 1;
  const std::vector<C> weight(r.weight.begin(), r.weight.end());
  const int64_t each = inner * (1 + static_cast<int64_t>(weight.size()) / std::max<int64_t>(rows, 1));
  parallel_for(0, outer * rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(each, 1)),
               [&](int64_t begin, int64_t end) {
                 ScratchFrame frame;
                 C* const sums = frame.take<C>(inner);
                 for (int64_t e = begin; e < end; ++e) {
                   const int64_t i = e % rows;
                   const T* plane = from + e / rows * from_rows * inner;
                   if (inner == 1) {
                     C sum = 0;
                     for (int64_t k = r.first[i]; k < r.first[i + 1]; ++k)
                       sum += weight[k] * static_cast<C>(plane[r.row[k]]);
                     to[e] = static_cast<T>(sum);
                     continue;
                   }
                   std::fill_n(sums, inner, C(0));
                   for (int64_t k = r.first[i]; k < r.first[i + 1]; ++k) {
                     const T* row = plane + r.row[k] * inner;
                     const C w = weight[k];
                     for (int64_t q = 0; q < inner; ++q) sums[q] += w * static_cast<C>(row[q]);
                   }
                   for (int64_t q = 0; q < inner; ++q) to[e * inner + q] = static_cast<T>(sums[q]);
                 }
               });
}

}  // namespace

void filter_axis(const Filter& f, int64_t outer, int64_t inner, DType t, const void* x, void* y) {
  dispatch_floats(t, "resize_axis", [&]<class T>() {
    apply(rows_of(f), outer, f.in, inner, static_cast<const T*>(x), static_cast<T*>(y));
  });
}
void filter_axis_transposed(const Filter& f, int64_t outer, int64_t inner, DType t, const void* y, void* x) {
  dispatch_floats(t, "resize_axis", [&]<class T>() {
    apply(transposed(rows_of(f), f), outer, f.out, inner, static_cast<const T*>(y), static_cast<T*>(x));
  });
}

}  // namespace strata::cpu
