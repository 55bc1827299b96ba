// Numbers at equal distances, for one processor level: blocks that are counted with small integers, of which the
// compiler makes vectors. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
STRATA_INLINE void evenly_spaced_of(T* y, int64_t begin, int64_t end, double from, double step, int64_t zero) {
  constexpr int64_t kBlock = 256;
  for (int64_t b = begin; b < end; b += kBlock) {
    const double offset = static_cast<double>(b - zero);
    const int32_t n = static_cast<int32_t>(std::min(kBlock, end - b));
    T* to = y + b;
    for (int32_t j = 0; j < n; ++j) to[j] = static_cast<T>(from + step * (offset + static_cast<double>(j)));
  }
}
static void evenly_spaced(DType t, void* y, int64_t begin, int64_t end, double from, double step, int64_t zero) {
  if (t == DType::f32)
    evenly_spaced_of(static_cast<float*>(y), begin, end, from, step, zero);
  else
    evenly_spaced_of(static_cast<double*>(y), begin, end, from, step, zero);
}

}  // namespace strata::STRATA_VEC_NS
