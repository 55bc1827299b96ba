#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/sort/order_inl.h"
#include "strata/ops/statistics/histogram_kernel.h"

#define STRATA_VEC_FILE "strata/ops/statistics/histogram_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

constexpr int64_t kTogether = 256, kFewEdges = 40;  // all of few edges are looked at, by lanes

// One column's edges: which part a number lies in.
template <class T>
class Column {
  using K = order::Key<T>;

 public:
  /// Of edges in order, for about n numbers.
  Column(const std::vector<T>& edges, int64_t n) {
    for (const T v : edges) keys_.push_back(order::key_of(v));
    // Of equal numbers, and all NaN, there is one.
    for (const K k : keys_) edges_.push_back(order::value_of<T>(k));
    if (bins() >= kFewEdges && n >= 4 * bins()) build_table();
  }
  int64_t bins() const { return static_cast<int64_t>(keys_.size()) - 1; }

  /// at[q] = the part of v[q], for n numbers: the last one whose lower edge is no larger. Negative, or bins() or more,
  /// outside.
  void find(const T* v, int64_t n, int32_t* at) const {
    if (bins() < kFewEdges)
      STRATA_VEC_CALL(parts_of_few<T>)(v, n, edges_.data(), bins() + 1, at);
    else if (!starts_.empty())
      look_up(v, n, at);
    else
      search(v, n, at);
  }

 private:
  void search(const T* v, int64_t n, int32_t* at) const {
    constexpr int64_t kMany = 16;
    for (int64_t i = 0; i < n; i += kMany) {
      const int64_t count = std::min(kMany, n - i);
      K key[kMany];
      int64_t found[kMany];
      for (int64_t q = 0; q < kMany; ++q) key[q] = order::key_of(v[i + std::min(q, count - 1)]);
      order::search(keys_.data(), bins() + 1, key, found, [](K k, K edge) { return edge <= k; });
      for (int64_t q = 0; q < count; ++q)
        at[i + q] = static_cast<int32_t>(key[q] == std::numeric_limits<K>::max() ? -1
                                         : key[q] == keys_.back()                ? bins() - 1
                                                                                 : found[q] - 1);
    }
  }

  // The range in equal boxes, several for each edge; which edges lie in each. A box never falls where its number grows,
  // as subtracting and multiplying round alike: edges of lower boxes are below a number, those of higher ones above it.
  void build_table() {
    const T first = edges_.front(), last = edges_.back();
    boxes_ = static_cast<int32_t>(std::min<int64_t>(4 * bins(), 1 << 20));
    scale_ = static_cast<T>(boxes_) / (last - first);
    const bool finite = std::all_of(edges_.begin(), edges_.end(), [](T e) { return std::isfinite(e); });
    if (!finite || !std::is_sorted(edges_.begin(), edges_.end()) || !std::isfinite(last - first) ||
        !std::isfinite(scale_))
      return;
    starts_.assign(static_cast<size_t>(boxes_) + 1, 0);
    for (const T e : edges_) ++starts_[static_cast<size_t>(box(e)) + 1];
    for (size_t b = 1; b < starts_.size(); ++b) starts_[b] += starts_[b - 1];
    edges_.push_back(std::numeric_limits<T>::infinity());  // what an empty last box looks at
  }
  int32_t box(T v) const { return std::min(static_cast<int32_t>((v - edges_.front()) * scale_), boxes_ - 1); }
  void look_up(const T* v, int64_t n, int32_t* at) const {
    const auto all = static_cast<int32_t>(bins());
    const T* const e = edges_.data();
    int32_t boxes[kTogether], outside[kTogether];
    STRATA_VEC_CALL(boxes_of<T>)(v, n, e[0], e[all], scale_, boxes_, boxes, outside);
    for (int64_t q = 0; q < n; ++q) {
      const auto b = static_cast<size_t>(boxes[q]);
      const int32_t from = starts_[b], end = starts_[b + 1];
      // Of no edge in the box, the next one is above the number.
      int32_t below = from + static_cast<int32_t>(e[from] <= v[q]);
      if (end - from > 1) below = static_cast<int32_t>(std::upper_bound(e + from, e + end, v[q]) - e);
      at[q] = (std::min(below, all) - 1) | outside[q];
    }
  }

  std::vector<K> keys_;  // which have the edges' order, NaN last
  std::vector<T> edges_;
  std::vector<int32_t> starts_;
  int32_t boxes_ = 0;
  T scale_ = 0;
};

// Calls put(point, part) for the points in order; the part is the number of parts for what is outside. P holds that
// number.
template <class P, class T, class F>
void each_part(const Tensor& x, const std::vector<Column<T>>& columns, int64_t parts, F&& put) {
  const int64_t n = x.shape()[0], row = x.strides()[0], col = x.strides()[1];
  const T* const p = n > 0 ? x.data<T>() : nullptr;
  T buffer[kTogether];
  int32_t at[kTogether];
  P part[kTogether];
  for (int64_t i = 0; i < n; i += kTogether) {
    const int64_t count = std::min(kTogether, n - i);
    std::fill_n(part, count, P{0});
    for (size_t d = 0; d < columns.size(); ++d) {
      const T* v = p + i * row + static_cast<int64_t>(d) * col;
      if (row == 2)
        gather_second(sizeof(T), buffer, reinterpret_cast<const char*>(v), count);
      else if (row != 1)
        for (int64_t q = 0; q < count; ++q) buffer[q] = v[q * row];
      columns[d].find(row == 1 ? v : buffer, count, at);
      const auto bins = static_cast<P>(columns[d].bins());
      for (int64_t q = 0; q < count; ++q) {
        // Masks and no branches, which would be guessed wrong.
        const P outside = (part[q] | at[q] | (bins - 1 - at[q])) >> (8 * sizeof(P) - 1);
        part[q] = (part[q] * bins + at[q]) | outside;
      }
    }
    for (int64_t q = 0; q < count; ++q) put(i + q, static_cast<size_t>(part[q] < 0 ? static_cast<P>(parts) : part[q]));
  }
}

}  // namespace

Tensor histogramdd_cpu(const Tensor& points, const TensorList& edges, const Tensor& weight, int64_t parts) {
  const DeviceScope there(points.device());
  const Tensor y = full({parts}, Scalar(0), points.dtype());
  const int64_t n = points.shape()[0];
  dispatch_wide_floats(points.dtype(), "histogramdd", [&]<class T>() {
    std::vector<Column<T>> columns;
    for (const Tensor& e : edges) columns.emplace_back(e.to(points.dtype()).to_vector<T>(), n);
    const auto each = [&](auto&& put) {
      if (parts < std::numeric_limits<int32_t>::max())
        each_part<int32_t>(points, columns, parts, put);
      else
        each_part<int64_t>(points, columns, parts, put);
    };
    // And one more for what is outside.
    const auto size = static_cast<size_t>(parts) + 1;
    if (weight.defined()) {
      std::vector<T> sums(size);
      const T* const share = n > 0 ? weight.data<T>() : nullptr;
      const int64_t step = weight.strides()[0];
      each([&](int64_t i, size_t part) { sums[part] += share[i * step]; });
      std::copy_n(sums.data(), parts, y.data<T>());
      return;
    }
    // Neighbours often lie in one part: of few parts each has several counts, so that none waits for the one before.
    const size_t rows = size <= 4096 ? 4 : 1;
    std::vector<int64_t> counts(rows * size);
    each([&](int64_t i, size_t part) { ++counts[(static_cast<size_t>(i) & (rows - 1)) * size + part]; });
    for (size_t k = 0; k + 1 < size; ++k) {
      int64_t all = 0;
      for (size_t r = 0; r < rows; ++r) all += counts[r * size + k];
      y.data<T>()[k] = static_cast<T>(all);
    }
  });
  return y;
}

}  // namespace strata
