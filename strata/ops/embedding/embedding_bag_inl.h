// Embedding bags, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
static void bag_sum_of(const BagCall& c) {
  using R = Real<T>;
  const T *weight = static_cast<const T*>(c.weight), *scale = static_cast<const T*>(c.scale);
  T* y = static_cast<T*>(c.y);
  const int64_t work = c.width * (1 + c.n / std::max<int64_t>(1, c.bags));
  parallel_for(0, c.bags, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)), [&](int64_t from, int64_t to) {
    ScratchFrame frame;
    R* sum = frame.take<R>(c.width + kLanes<T>);
    for (int64_t b = from; b < to; ++b) {
      std::fill(sum, sum + c.width, R(0));
      int64_t count = 0;
      for (int64_t i = c.offsets[b]; i < c.offsets[b + 1]; ++i) {
        if (c.indices[i] == c.padding) continue;
        ++count;
        const T* row = weight + c.indices[i] * c.width;
        const R factor = scale ? get(scale[i]) : R(1);
        for_vectors<T>(c.width, [&](int64_t j, int64_t k) {
          store(sum + j, fma(load_upto(row + j, k, 0), set1(factor), load(sum + j)));
        });
      }
      const R divisor = c.mean && count > 0 ? static_cast<R>(count) : R(1);
      for_vectors<T>(c.width,
                     [&](int64_t j, int64_t k) { store_upto(y + b * c.width + j, load(sum + j) / divisor, k); });
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
    ScratchFrame frame;
    R* sum = frame.take<R>(c.width + kLanes<T>);
    for (int64_t v = from; v < to; ++v) {
      std::fill(sum, sum + c.width, R(0));
      const int64_t last = v == c.padding ? start[v] : start[v + 1];
      for (int64_t i = start[v]; i < last; ++i) {
        const T* row = g + bag[order[i]] * c.width;
        const V<T> times = set1(static_cast<R>(factor[order[i]]));
        for_vectors<T>(c.width, [&](int64_t j, int64_t k) {
          store(sum + j, fma(load_upto(row + j, k, 0), times, load(sum + j)));
        });
      }
      for_vectors<T>(c.width, [&](int64_t j, int64_t k) { store_upto(gw + v * c.width + j, load(sum + j), k); });
    }
  });
}

static void bag_sum(const BagCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { bag_sum_of<decltype(tag)>(c); });
}
static void bag_backward(const BagCall& c, const int64_t* start, const int64_t* order, const int64_t* bag,
                         const double* factor) {
  dispatch_floating(c.dtype, [&](auto tag) { bag_backward_of<decltype(tag)>(c, start, order, bag, factor); });
}

}  // namespace strata::STRATA_VEC_NS
