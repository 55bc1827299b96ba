// Embedding gradient, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// order[start[v] .. start[v + 1]) are the positions that hold index v, ascending.
template <class T>
static void embedding_backward_of(const int64_t* start, const int64_t* order, const T* g, int64_t vocabulary, int64_t d,
                                  int64_t padding_index, T* gw) {
  using R = Real<T>;
  const int64_t n = start[vocabulary];
  // Balanced by work: each table row costs one, each gradient row one.
  parallel_for(
      0, vocabulary, std::max<int64_t>(1, 16384 * vocabulary / (d * (vocabulary + n))), [&](int64_t from, int64_t to) {
        ScratchFrame frame;
        R* sum = frame.take<R>(d + kLanes<T>);
        for (int64_t v = from; v < to; ++v) {
          T* row = gw + v * d;
          const int64_t first = start[v], last = v == padding_index ? first : start[v + 1];
          if (first == last) {
            std::memset(static_cast<void*>(row), 0, static_cast<size_t>(d) * sizeof(T));
          } else if (last == first + 1) {
            std::memcpy(static_cast<void*>(row), g + order[first] * d, static_cast<size_t>(d) * sizeof(T));
          } else {
            std::fill(sum, sum + d, R(0));
            for (int64_t i = first; i < last; ++i) {
              const T* from_row = g + order[i] * d;
              for_vectors<T>(
                  d, [&](int64_t j, int64_t k) { store(sum + j, load(sum + j) + load_upto(from_row + j, k, 0)); });
            }
            for_vectors<T>(d, [&](int64_t j, int64_t k) { store_upto(row + j, load(sum + j), k); });
          }
        }
      });
}

static void embedding_backward(DType t, const int64_t* start, const int64_t* order, const void* g, int64_t vocabulary,
                               int64_t d, int64_t padding_index, void* gw) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    embedding_backward_of<T>(start, order, static_cast<const T*>(g), vocabulary, d, padding_index, static_cast<T*>(gw));
  });
}

}  // namespace strata::STRATA_VEC_NS
