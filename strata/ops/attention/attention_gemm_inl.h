// Small matrix products C[M][N] (+)= A[M][K] B[K][N] of the attention kernels, for one processor level. C is float (or
// double) and row-major, N a multiple of the vector width.
// No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class R>
using VR = typename VecOf<R>::type;
template <class R>
constexpr int kLanesOf = kVecBytes / static_cast<int>(sizeof(R));

// A[m * sm + k * sk], B[k * ldb + n]: any strides of A, so that a transposed A costs nothing.
template <class R, int MR, int NV>
STRATA_INLINE void fma_tile(int64_t K, const R* A, int64_t sm, int64_t sk, const R* B, int64_t ldb, R* C, int64_t ldc,
                            bool acc) {
  constexpr int W = kLanesOf<R>;
  VR<R> c[MR][NV];
  if (acc) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = load(C + i * ldc + j * W);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = VR<R>{};
  }
  for (int64_t k = 0; k < K; ++k) {
    VR<R> b[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) b[j] = load(B + k * ldb + j * W);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const VR<R> a = set1(A[i * sm + k * sk]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = fma(a, b[j], c[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) store(C + i * ldc + j * W, c[i][j]);
}

template <class R, int NV>
static void fma_panel(int64_t M, int64_t K, const R* A, int64_t sm, int64_t sk, const R* B, int64_t ldb, R* C,
                      int64_t ldc, bool acc) {
  constexpr int MR = STRATA_VEC_LEVEL >= 2 ? 8 : 4;
  int64_t m = 0;
  for (; m + MR <= M; m += MR) fma_tile<R, MR, NV>(K, A + m * sm, sm, sk, B, ldb, C + m * ldc, ldc, acc);
  for (; m < M; ++m) fma_tile<R, 1, NV>(K, A + m * sm, sm, sk, B, ldb, C + m * ldc, ldc, acc);
}

template <class R>
static void gemm_fma(int64_t M, int64_t N, int64_t K, const R* A, int64_t sm, int64_t sk, const R* B, int64_t ldb, R* C,
                     int64_t ldc, bool acc) {
  constexpr int W = kLanesOf<R>;
  int64_t n = 0;
  for (; n + 2 * W <= N; n += 2 * W) fma_panel<R, 2>(M, K, A, sm, sk, B + n, ldb, C + n, ldc, acc);
  for (; n < N; n += W) fma_panel<R, 1>(M, K, A, sm, sk, B + n, ldb, C + n, ldc, acc);
}

#if STRATA_VEC_LEVEL >= 3
// bf16 operands, f32 sums. A is row-major with its K values contiguous (a multiple of 32 of them); B holds pairs:
// the 32-bit element B[k / 2][n] is (B[k][n], B[k + 1][n]). M, N and K are multiples of 32. This is the layout that
// AMX tiles want, so one preparation of the operands serves both.
template <int MR>
STRATA_INLINE void dot_tile(int64_t K, const uint16_t* A, int64_t lda, const uint32_t* B, int64_t ldb, float* C,
                            int64_t ldc, bool acc) {
  __m512 c[MR][2];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    c[i][0] = acc ? _mm512_loadu_ps(C + i * ldc) : _mm512_setzero_ps();
    c[i][1] = acc ? _mm512_loadu_ps(C + i * ldc + 16) : _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < K; k += 2) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(B + (k / 2) * ldb);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(B + (k / 2) * ldb + 16);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      int32_t pair;
      __builtin_memcpy(&pair, A + i * lda + k, 4);
      const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
      c[i][0] = _mm512_dpbf16_ps(c[i][0], a, b0);
      c[i][1] = _mm512_dpbf16_ps(c[i][1], a, b1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    _mm512_storeu_ps(C + i * ldc, c[i][0]);
    _mm512_storeu_ps(C + i * ldc + 16, c[i][1]);
  }
}

static void gemm_dot(int64_t M, int64_t N, int64_t K, const uint16_t* A, int64_t lda, const uint32_t* B, int64_t ldb,
                     float* C, int64_t ldc, bool acc) {
  for (int64_t n = 0; n < N; n += 32)
    for (int64_t m = 0; m < M; m += 8) dot_tile<8>(K, A + m * lda, lda, B + n, ldb, C + m * ldc + n, ldc, acc);
}

// Eight tiles of 16 rows of 64 bytes: four of C, two of A, two of B.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) static void tiles_begin() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}
__attribute__((target("amx-tile,amx-bf16"))) static void tiles_end() {
  _tile_release();
}

__attribute__((target("amx-tile,amx-bf16"))) static void gemm_amx(int64_t M, int64_t N, int64_t K, const uint16_t* A,
                                                                  int64_t lda, const uint32_t* B, int64_t ldb, float* C,
                                                                  int64_t ldc, bool acc) {
  const int64_t a_bytes = lda * 2, b_bytes = ldb * 4, c_bytes = ldc * 4;
  // GCC's tile loads do not tell the compiler that they read memory: finish the stores before them.
  __asm__ volatile("" ::: "memory");
  for (int64_t m = 0; m < M; m += 32) {
    for (int64_t n = 0; n < N; n += 32) {
      float* c00 = C + m * ldc + n;
      float* c10 = c00 + 16 * ldc;
      if (acc) {
        _tile_loadd(0, c00, c_bytes);
        _tile_loadd(1, c00 + 16, c_bytes);
        _tile_loadd(2, c10, c_bytes);
        _tile_loadd(3, c10 + 16, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t k = 0; k < K; k += 32) {
        const uint16_t* a = A + m * lda + k;
        const uint32_t* b = B + (k / 2) * ldb + n;
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_loadd(5, a + 16 * lda, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, c00, c_bytes);
      _tile_stored(1, c00 + 16, c_bytes);
      _tile_stored(2, c10, c_bytes);
      _tile_stored(3, c10 + 16, c_bytes);
    }
  }
}
#endif

}  // namespace strata::STRATA_VEC_NS
