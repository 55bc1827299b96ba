// Our own bf16 product with f32 sums, for processors with AMX tiles or AVX512-BF16 dot products, and the vector form of
// GELU. Compiled once per processor level; the product exists on level 3 only.
//
// B (and A, where its rows are not contiguous) is packed into tiles of 16 rows of 64 bytes, the shape of an AMX tile
// register: a tile of A holds 16 rows by 32 k; a tile of B holds 16 pairs of k by 16 columns, the two k of a pair
// beside each other. The same tiles suit the AVX-512 dot product, which multiplies pairs. A kernel computes 32 x 32
// results from panels of two tiles. Instruction semantics: Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 2, TDPBF16PS and VDPBF16PS (both flush denormals).

namespace strata::STRATA_VEC_NS {

#if STRATA_VEC_LEVEL >= 3
#define STRATA_AMX __attribute__((target("amx-tile,amx-bf16")))

constexpr int64_t kTile = 1024;   // bytes of a tile
constexpr int64_t kTileK = 32;    // k in a tile
constexpr int64_t kSide = 32;     // rows and columns of a kernel's result
constexpr int64_t kDepth = 1024;  // k between two visits of a result: a panel of B then stays in the first caches

STRATA_INLINE int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Where the tiles of A are: bytes between rows of a tile, between tiles 16 rows apart, and between tiles 32 k apart.
struct ATiles {
  const char* p;
  int64_t row, down, along;
};

// c[32, 32] (+)= two rows of tiles of A times a panel of B, over k_tiles tiles; `add` starts from c.
using Kernel = void (*)(const ATiles& a, const char* b, int64_t k_tiles, float* c, int64_t ldc, bool add);

static void kernel_avx512(const ATiles& a, const char* b, int64_t k_tiles, float* c, int64_t ldc, bool add) {
  for (int64_t i0 = 0; i0 < kSide; i0 += 8) {
    const char* rows = a.p + i0 / 16 * a.down + i0 % 16 * a.row;
    float* out = c + i0 * ldc;
    __m512 sum[8][2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      sum[i][0] = add ? _mm512_loadu_ps(out + i * ldc) : _mm512_setzero_ps();
      sum[i][1] = add ? _mm512_loadu_ps(out + i * ldc + 16) : _mm512_setzero_ps();
    }
    const char* at = rows;
    const char* bt = b;
    for (int64_t t = 0; t < k_tiles; ++t, at += a.along, bt += 2 * kTile) {
      for (int pair = 0; pair < 16; ++pair) {
        const __m512bh b0 = (__m512bh)_mm512_load_si512(bt + pair * 64);
        const __m512bh b1 = (__m512bh)_mm512_load_si512(bt + kTile + pair * 64);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          int two;
          std::memcpy(&two, at + i * a.row + pair * 4, 4);
          const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
          sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
          sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      _mm512_storeu_ps(out + i * ldc, sum[i][0]);
      _mm512_storeu_ps(out + i * ldc + 16, sum[i][1]);
    }
  }
}

// Tiles 0-3 hold the result, 4-5 A, 6-7 B.
STRATA_AMX static void kernel_amx(const ATiles& a, const char* b, int64_t k_tiles, float* c, int64_t ldc, bool add) {
  const int64_t c_row = ldc * 4;
  float* low = c + 16 * ldc;
  if (add) {
    _tile_loadd(0, c, c_row);
    _tile_loadd(1, c + 16, c_row);
    _tile_loadd(2, low, c_row);
    _tile_loadd(3, low + 16, c_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const char* upper = a.p;
  const char* lower = a.p + a.down;
  const int64_t row = a.row, along = a.along;
  for (int64_t t = 0; t < k_tiles; ++t) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, upper, row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower, row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    upper += along;
    lower += along;
    b += 2 * kTile;
  }
  _tile_stored(0, c, c_row);
  _tile_stored(1, c + 16, c_row);
  _tile_stored(2, low, c_row);
  _tile_stored(3, low + 16, c_row);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

STRATA_AMX static void tiles_begin() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}
STRATA_AMX static void tiles_end() {
  _tile_release();
}

STRATA_INLINE uint32_t low_bits(int64_t n) {
  return n >= 32 ? ~0u : (1u << std::max<int64_t>(n, 0)) - 1;
}

// Rows of 32 contiguous elements of two bytes, `stride` elements apart; zeros past `rows` and `cols`.
STRATA_INLINE void load_rows(const uint16_t* src, int64_t stride, int64_t rows, int64_t cols, __m512i r[16]) {
  const __mmask32 mask = low_bits(cols);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, src + i * stride) : _mm512_setzero_si512();
}

// Word i of r[p] is (src[2p][i], src[2p + 1][i]) for rows `stride` apart; zeros past `rows` (<= 32) and `cols` (<= 16).
STRATA_INLINE void load_pairs(const uint16_t* src, int64_t stride, int64_t rows, int64_t cols, __m512i r[16]) {
  const __mmask16 mask = static_cast<__mmask16>(low_bits(std::min<int64_t>(cols, 16)));
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    const __m256i even = 2 * p < rows ? _mm256_maskz_loadu_epi16(mask, src + 2 * p * stride) : _mm256_setzero_si256();
    const __m256i odd =
        2 * p + 1 < rows ? _mm256_maskz_loadu_epi16(mask, src + (2 * p + 1) * stride) : _mm256_setzero_si256();
    r[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
  }
}

STRATA_INLINE void store_tile(const __m512i r[16], char* to) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + 64 * i, r[i]);
}

// One tile from a matrix whose element (outer, k) lies at src[outer * outer_stride + k * k_stride], one stride being 1.
// `pairs_down` gives B's form (row = pair of k), otherwise A's (row = outer).
static void pack_tile(const uint16_t* src, int64_t outer_stride, int64_t k_stride, int64_t outers, int64_t ks,
                      bool pairs_down, char* to) {
  __m512i r[16];
  if (k_stride == 1) {
    load_rows(src, outer_stride, outers, ks, r);
    if (pairs_down) transpose16(r);
  } else {
    load_pairs(src, k_stride, ks, outers, r);
    if (!pairs_down) transpose16(r);
  }
  store_tile(r, to);
}

// ---- what happens to finished sums ------------------------------------------------------------------------------

#endif
// x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form of GELU.
constexpr double kTwoU = 1.5957691216057308, kCubic = 0.044715;
template <class T, class X>
STRATA_INLINE X gelu_gate(X x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    const VF e = x * (x * x * static_cast<float>(-kCubic * kTwoU * M_LOG2E) + static_cast<float>(-kTwoU * M_LOG2E));
    return 1.f / (1.f + exp2<4>(min(set1(128.f), e)));
  } else {
    return sigmoid(x * static_cast<Real<T>>(kTwoU) * (x * x * static_cast<Real<T>>(kCubic) + static_cast<Real<T>>(1)));
  }
}
template <class T, class X>
STRATA_INLINE X gelu_slope(X x) {
  using R = Real<T>;
  x = max(set1(R(-30)), min(set1(R(30)), x));  // 0 and 1 beyond, whose product with x^2 must not become NaN
  const X s = gelu_gate<T>(x);
  return s + x * s * (R(1) - s) * (x * x * R(3 * kCubic * kTwoU) + R(kTwoU));
}

// to[i] = gelu(from[i]), or to[i] *= gelu'(from[i]), for contiguous runs.
static void gelu_tanh_run(DType t, bool slope, const void* from, void* to, int64_t n) {
  dispatch_floating(t, [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(from);
    T* y = static_cast<T*>(to);
    for_vectors<T>(n, [&](int64_t i, int64_t lanes) {
      const V<T> v = load_upto(x + i, lanes, Real<T>(0));
      store_upto(y + i, slope ? load_upto(y + i, lanes, Real<T>(0)) * gelu_slope<T>(v) : v * gelu_gate<T>(v), lanes);
    });
  });
}

#if STRATA_VEC_LEVEL >= 3
// 16 elements of f32 or bf16, as f32 and back.
STRATA_INLINE __m512 load_f32(DType t, const void* p, int64_t i, __mmask16 mask) {
  if (t == DType::f32) return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(p) + i);
  const __m256i h = _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(p) + i);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
STRATA_INLINE void store_f32(DType t, void* p, int64_t i, __mmask16 mask, __m512 v) {
  if (t == DType::f32) return _mm512_mask_storeu_ps(static_cast<float*>(p) + i, mask, v);
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(p) + i, mask, (__m256i)_mm512_cvtneps_pbh(v));
}

// Whole rows of 32 sums to bf16, perhaps with a bias: what most products end with.
static void store_block_bf16(const float* sums, int64_t ld, int64_t rows, const __m512 bias[2], uint16_t* to,
                             int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) {
    const __m512 low = _mm512_add_ps(_mm512_load_ps(sums + i * ld), bias[0]);
    const __m512 high = _mm512_add_ps(_mm512_load_ps(sums + i * ld + 16), bias[1]);
    _mm512_storeu_si512(to + i * to_row, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// Stores a finished block: C[rows, cols] at (i0, j0) from sums with row stride ld.
static void store_block(const Gemm& g, const float* sums, int64_t ld, int64_t i0, int64_t j0, int64_t rows,
                        int64_t cols) {
  const auto mask_of = [&](int64_t j) {
    return static_cast<__mmask16>(low_bits(std::clamp<int64_t>(cols - j, 0, 16)));
  };
  const auto bias_at = [&](int64_t j) {
    return g.bias != nullptr ? load_f32(g.bias_dtype, g.bias, j0 + j, mask_of(j)) : _mm512_setzero_ps();
  };
  if (g.out == DType::bf16 && cols == kSide && g.epilogue == Epilogue::none && g.alpha == 1 && g.beta == 0) {
    const __m512 bias[2] = {bias_at(0), bias_at(16)};
    return store_block_bf16(sums, ld, rows, bias, static_cast<uint16_t*>(g.c) + i0 * g.c_row + j0, g.c_row);
  }
  const __m512 alpha = _mm512_set1_ps(static_cast<float>(g.alpha)), beta = _mm512_set1_ps(static_cast<float>(g.beta));
  for (int64_t j = 0; j < cols; j += 16) {
    const __mmask16 mask = mask_of(j);
    const __m512 bias = bias_at(j);
    for (int64_t i = 0; i < rows; ++i) {
      __m512 v = _mm512_fmadd_ps(_mm512_load_ps(sums + i * ld + j), alpha, bias);
      const int64_t at = (i0 + i) * g.c_row + j0 + j;
      if (g.beta != 0) v = _mm512_fmadd_ps(load_f32(g.out, g.c, at, mask), beta, v);
      switch (g.epilogue) {
        case Epilogue::relu:
          v = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), v, _mm512_setzero_ps());
          break;
        case Epilogue::silu:
          v = (__m512)((VF)v * sigmoid((VF)v));
          break;
        case Epilogue::gelu_tanh:
          if (g.aux != nullptr) store_f32(g.out, g.aux, at, mask, v);
          v = (__m512)((VF)v * gelu_gate<BFloat16>((VF)v));
          break;
        case Epilogue::gelu_tanh_grad:
          v = (__m512)((VF)v * gelu_slope<BFloat16>((VF)load_f32(g.out, g.aux, at, mask)));
          break;
        default:
          break;
      }
      store_f32(g.out, g.c, at, mask, v);
    }
  }
}

// One operand and where its tiles go. A panel is two tiles, 32 of the outer index (rows of A, columns of B).
struct Operand {
  const uint16_t* src;
  int64_t outer_stride, k_stride, outers;
  bool pairs_down;
  char* to;
  int64_t along, half;  // bytes from a tile to the next in k, and to the panel's other tile

  // Work is cut so that memory is read in its own order: along k a panel at a time, or across panels a tile of k at a
  // time.
  static constexpr int64_t kGroup = 16;
  int64_t panels() const { return ceil_div(outers, kSide); }
  int64_t items(int64_t tiles) const { return k_stride == 1 ? panels() : tiles * ceil_div(panels(), kGroup); }

  void pack(int64_t item, int64_t tiles, int64_t ks) const {
    if (k_stride == 1) {
      pack_panel(item, 0, tiles, tiles, ks);
      return;
    }
    const int64_t groups = ceil_div(panels(), kGroup), t = item / groups, first = item % groups * kGroup;
    for (int64_t p = first; p < std::min(panels(), first + kGroup); ++p) pack_panel(p, t, t + 1, tiles, ks);
  }

 private:
  void pack_panel(int64_t panel, int64_t t_begin, int64_t t_end, int64_t tiles, int64_t ks) const {
    for (int64_t h = 0; h < 2; ++h) {
      const int64_t outer = panel * kSide + h * 16, left = std::max<int64_t>(0, outers - outer);
      const uint16_t* from = src + (left > 0 ? outer * outer_stride : 0);
      char* out = to + panel * 2 * tiles * kTile + h * half;
      for (int64_t t = t_begin; t < t_end; ++t) {
        pack_tile(from + t * kTileK * k_stride, outer_stride, k_stride, left, ks - t * kTileK, pairs_down,
                  out + t * along);
      }
    }
  }
};

// How a product is cut, and the memory that its packed operands and its sums take.
struct Plan {
  explicit Plan(const Gemm& g) {
    a_in_place = g.a_col == 1 && g.m % kSide == 0 && g.k % kTileK == 0;
    // All of K is packed at once where the threads' second-level caches (about 1 MiB each) hold it or only B is packed
    // for a C that cannot hold sums; else in pieces. Sums that span pieces are kept in C where C is whole blocks of
    // f32, else in memory of their own. The order of summation is the same either way.
    in_c = g.out == DType::f32 && g.m % kSide == 0 && g.n % kSide == 0 && g.alpha == 1 &&
           (g.beta == 0 || g.beta == 1) && g.bias == nullptr && g.epilogue == Epilogue::none;
    k_tiles = ceil_div(g.k, kTileK);
    const int64_t panels = ceil_div(g.n, kSide) + (a_in_place ? 0 : ceil_div(g.m, kSide));
    const bool at_once = (a_in_place && !in_c) || panels * 2 * k_tiles * kTile <= int64_t{num_threads()} << 20;
    piece = at_once ? k_tiles : std::min(k_tiles, kDepth / kTileK);
    sums_ld = ceil_div(g.n, kSide) * kSide;
    sums_bytes = !in_c && piece < k_tiles ? ceil_div(g.m, kSide) * kSide * sums_ld * 4 : 0;
    const int64_t panel_bytes = 2 * piece * kTile;
    b_bytes = ceil_div(g.n, kSide) * panel_bytes;
    a_bytes = a_in_place ? 0 : ceil_div(g.m, kSide) * panel_bytes;
  }
  bool a_in_place, in_c;
  int64_t k_tiles, piece;  // k tiles in all, and packed at a time
  int64_t sums_ld, sums_bytes, a_bytes, b_bytes;
};

static int64_t scratch_of(const Gemm& g) {
  const Plan plan(g);
  return plan.a_bytes + plan.b_bytes + plan.sums_bytes;
}

static void multiply(const Gemm& g, bool amx) {
  const Kernel kernel = amx ? kernel_amx : kernel_avx512;
  const auto* a = static_cast<const uint16_t*>(g.a);
  const auto* b = static_cast<const uint16_t*>(g.b);
  const Plan plan(g);
  const bool a_in_place = plan.a_in_place, in_c = plan.in_c;
  const int64_t k_tiles = plan.k_tiles, piece = plan.piece, sums_ld = plan.sums_ld;
  const int64_t sums_bytes = plan.sums_bytes, a_bytes = plan.a_bytes, b_bytes = plan.b_bytes;
  ScratchFrame frame;
  char* b_packed = frame.take<char>(a_bytes + b_bytes + sums_bytes);
  char* a_packed = b_packed + b_bytes;
  auto* sums = reinterpret_cast<float*>(a_packed + a_bytes);

  // Tasks are blocks of C, smaller where that gives every thread its share.
  int64_t rows = 128, cols = 256;
  const int64_t wanted = in_parallel_region() ? 1 : 3 * num_threads();
  while (ceil_div(g.m, rows) * ceil_div(g.n, cols) < wanted && rows + cols > 2 * kSide)
    (cols >= rows ? cols : rows) /= 2;
  const int64_t tasks_m = ceil_div(g.m, rows), tasks_n = ceil_div(g.n, cols);

  for (int64_t t0 = 0; t0 < k_tiles; t0 += piece) {
    const int64_t tiles = std::min(piece, k_tiles - t0), k0 = t0 * kTileK;
    const Operand pa{a + k0 * g.a_col, g.a_row, g.a_col, g.m, false, a_packed, kTile, tiles * kTile};
    const Operand pb{b + k0 * g.b_row, g.b_col, g.b_row, g.n, true, b_packed, 2 * kTile, kTile};
    const int64_t ks = std::min(g.k - k0, tiles * kTileK), b_items = pb.items(tiles),
                  a_items = a_in_place ? 0 : pa.items(tiles);
    parallel_for(0, b_items + a_items, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        if (item < b_items) {
          pb.pack(item, tiles, ks);
        } else {
          pa.pack(item - b_items, tiles, ks);
        }
      }
    });
    const ATiles all = a_in_place ? ATiles{reinterpret_cast<const char*>(a + k0), g.a_row * 2, g.a_row * 32, 64}
                                  : ATiles{a_packed, 64, tiles * kTile, kTile};
    parallel_for(0, tasks_m * tasks_n, 1, [&](int64_t begin, int64_t end) {
      if (amx) tiles_begin();
      alignas(64) float one[kSide * kSide];
      const bool in_pieces = !in_c && sums_bytes == 0 && tiles * kTileK > kDepth;
      ScratchFrame task_frame;
      float* block_memory = in_pieces ? task_frame.take<float>(rows * cols) : nullptr;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i_begin = task % tasks_m * rows, i_end = std::min(g.m, i_begin + rows);
        const int64_t j_begin = task / tasks_m * cols, j_end = std::min(g.n, j_begin + cols);
        for (int64_t d0 = 0; d0 < tiles; d0 += kDepth / kTileK) {
          const int64_t depth = std::min(kDepth / kTileK, tiles - d0);
          const bool last = t0 + d0 + depth == k_tiles;
          for (int64_t j = j_begin; j < j_end; j += kSide) {
            const char* panel = b_packed + (j / kSide * tiles + d0) * 2 * kTile;
            for (int64_t i = i_begin; i < i_end; i += kSide) {
              const ATiles from{all.p + i / 16 * all.down + d0 * all.along, all.row, all.down, all.along};
              float* c = one;
              int64_t ld = kSide;
              bool add = t0 + d0 > 0;
              if (in_c) {
                c = static_cast<float*>(g.c) + i * g.c_row + j, ld = g.c_row;
                add = add || g.beta == 1;
              } else if (sums_bytes > 0) {
                c = sums + i * sums_ld + j, ld = sums_ld;
              } else if (in_pieces) {
                c = block_memory + (i - i_begin) * cols + (j - j_begin), ld = cols;
              }
              kernel(from, panel, depth, c, ld, add);
              if (last && !in_c) store_block(g, c, ld, i, j, std::min(kSide, g.m - i), std::min(kSide, g.n - j));
            }
          }
        }
      }
      if (amx) tiles_end();
    });
  }
}

#undef STRATA_AMX
#endif

}  // namespace strata::STRATA_VEC_NS
