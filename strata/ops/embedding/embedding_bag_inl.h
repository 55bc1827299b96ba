// Embedding bags, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Calls f<vectors>(from, lanes of the last one) for columns of a row, as many at a time as registers hold results of.
template <class T, class F>
STRATA_INLINE void in_stretches(int64_t width, F&& f) {
  constexpr int64_t W = kLanes<T>;
  int64_t j = 0;
  for (; j + 8 * W <= width; j += 8 * W) f.template operator()<8>(j, W);
  for (; j + 2 * W <= width; j += 2 * W) f.template operator()<2>(j, W);
  for (; j < width; j += W) f.template operator()<1>(j, std::min<int64_t>(W, width - j));
}
template <class T, int kVectors>
STRATA_INLINE void add_stretch(const T* row, V<T> factor, int64_t last, V<T>* sum) {
  for (int k = 0; k < kVectors; ++k)
    sum[k] = fma(load_upto(row + k * kLanes<T>, k + 1 < kVectors ? kLanes<T> : last, 0), factor, sum[k]);
}
template <class T, int kVectors>
STRATA_INLINE void store_stretch(T* to, int64_t last, const V<T>* v) {
  for (int k = 0; k < kVectors; ++k) store_upto(to + k * kLanes<T>, v[k], k + 1 < kVectors ? kLanes<T> : last);
}

template <class T>
static void bag_sum_of(const BagCall& c) {
  using R = Real<T>;
  const T *weight = static_cast<const T*>(c.weight), *scale = static_cast<const T*>(c.scale);
  T* y = static_cast<T*>(c.y);
  const int64_t work = c.width * (1 + c.n / std::max<int64_t>(1, c.bags));
  parallel_for(0, c.bags, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)), [&](int64_t from, int64_t to) {
    for (int64_t b = from; b < to; ++b) {
      int64_t count = 0;
      for (int64_t i = c.offsets[b]; i < c.offsets[b + 1]; ++i) count += c.indices[i] != c.padding;
      const V<T> divisor = set1(c.mean && count > 0 ? static_cast<R>(count) : R(1));
      in_stretches<T>(c.width, [&]<int kVectors>(int64_t j, int64_t last) {
        V<T> sum[kVectors] = {};
        for (int64_t i = c.offsets[b]; i < c.offsets[b + 1]; ++i)
          if (c.indices[i] != c.padding)
            add_stretch<T, kVectors>(weight + c.indices[i] * c.width + j, set1(scale ? get(scale[i]) : R(1)), last,
                                     sum);
        for (V<T>& v : sum) v = v / divisor;
        store_stretch<T, kVectors>(y + b * c.width + j, last, sum);
      });
    }
  });
}

// order[start[v] .. start[v + 1]) are the positions that hold row v, ascending; factor [n] is what each counts.
template <class T>
static void bag_backward_of(const BagCall& c, const int64_t* start, const int64_t* order, const int64_t* bag,
                            const double* factor) {
  using R = Real<T>;
  const T* g = static_cast<const T*>(c.grad_y);
  T* gw = static_cast<T*>(c.grad_weight);
  const int64_t work = c.width * (1 + c.n / std::max<int64_t>(1, c.rows));
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)), [&](int64_t from, int64_t to) {
    for (int64_t v = from; v < to; ++v) {
      const int64_t end = v == c.padding ? start[v] : start[v + 1];
      in_stretches<T>(c.width, [&]<int kVectors>(int64_t j, int64_t last) {
        V<T> sum[kVectors] = {};
        for (int64_t i = start[v]; i < end; ++i)
          add_stretch<T, kVectors>(g + bag[order[i]] * c.width + j, set1(static_cast<R>(factor[order[i]])), last, sum);
        store_stretch<T, kVectors>(gw + v * c.width + j, last, sum);
      });
    }
  });
}

// The largest of each column; NaN wins, of equal ones the first. What is kept is its position in the bag, in numbers as
// wide as the lanes.
template <class T>
static void bag_max_of(const BagCall& c) {
  using R = Real<T>;
  using I = std::conditional_t<std::is_same_v<R, double>, int64_t, int32_t>;
  typedef I VPlaces __attribute__((vector_size(kVecBytes)));
  constexpr int64_t W = kLanes<T>;
  const T* weight = static_cast<const T*>(c.weight);
  T* y = static_cast<T*>(c.y);
  const int64_t work = c.width * (1 + c.n / std::max<int64_t>(1, c.bags));
  parallel_for(0, c.bags, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)), [&](int64_t from, int64_t to) {
    for (int64_t b = from; b < to; ++b) {
      const int64_t begin = c.offsets[b], end = c.offsets[b + 1];
      in_stretches<T>(c.width, [&]<int kVectors>(int64_t j, int64_t last) {
        V<T> best[kVectors];
        VPlaces at[kVectors];
        for (int k = 0; k < kVectors; ++k) best[k] = set1(-std::numeric_limits<R>::infinity()), at[k] = VPlaces{} - 1;
        for (int64_t i = begin; i < end; ++i) {
          if (c.indices[i] == c.padding) continue;
          const T* row = weight + c.indices[i] * c.width + j;
          const VPlaces place = VPlaces{} + static_cast<I>(i - begin);
          for (int k = 0; k < kVectors; ++k) {
            const V<T> v = load_upto(row + k * W, k + 1 < kVectors ? W : last, 0), now = best[k];
            const VPlaces better = (at[k] < 0) | (v > now) | ((v != v) & (now == now));
            best[k] = better ? v : now;
            at[k] = better ? place : at[k];
          }
        }
        for (int k = 0; k < kVectors; ++k) best[k] = at[k] < 0 ? V<T>{} : best[k];
        store_stretch<T, kVectors>(y + b * c.width + j, last, best);
        int64_t* places = c.best + b * c.width + j;
        for (int k = 0; k < kVectors; ++k)
          for (int64_t l = 0; l < (k + 1 < kVectors ? W : last); ++l)
            places[k * W + l] = at[k][l] < 0 ? -1 : c.indices[begin + at[k][l]];
      });
    }
  });
}

static void bag_sum(const BagCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { bag_sum_of<decltype(tag)>(c); });
}
static void bag_max(const BagCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { bag_max_of<decltype(tag)>(c); });
}
static void bag_backward(const BagCall& c, const int64_t* start, const int64_t* order, const int64_t* bag,
                         const double* factor) {
  dispatch_floating(c.dtype, [&](auto tag) { bag_backward_of<decltype(tag)>(c, start, order, bag, factor); });
}

}  // namespace strata::STRATA_VEC_NS
