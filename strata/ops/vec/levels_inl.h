// Compiles the file named by STRATA_VEC_FILE once per processor level, each time in its own namespace and for its own
// instruction set. No include guard: every *_cpu.cpp that has vector loops includes it once, after all other headers.
//
//   #define STRATA_VEC_FILE "strata/ops/softmax/softmax_inl.h"
//   #include "strata/ops/vec/levels_inl.h"
//   ... STRATA_VEC_CALL(softmax_rows)(x, y, n);   // the copy for this processor
//
// With STRATA_VEC_ONLY, the number of a level, that copy alone: a build for one machine (STRATA_QUICK_BUILD).

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own AVX-512 headers leave operands of unmasked intrinsics uninitialised on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "strata/core/dtype.h"
#include "strata/core/parallel.h"
#include "strata/ops/vec/level.h"

#if !defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 0
#define STRATA_VEC_LEVEL 0
#define STRATA_VEC_NS level0
#include "strata/ops/vec/vec_inl.h"
#include STRATA_VEC_FILE
#undef STRATA_VEC_LEVEL
#undef STRATA_VEC_NS
#endif

#if defined(__x86_64__)

#if !defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 1
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define STRATA_VEC_LEVEL 1
#define STRATA_VEC_NS level1
#include "strata/ops/vec/vec_inl.h"
#include STRATA_VEC_FILE
#undef STRATA_VEC_LEVEL
#undef STRATA_VEC_NS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#if !defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define STRATA_VEC_LEVEL 2
#define STRATA_VEC_NS level2
#include "strata/ops/vec/vec_inl.h"
#include STRATA_VEC_FILE
#undef STRATA_VEC_LEVEL
#undef STRATA_VEC_NS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#if !defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 3
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prefer-vector-width=512")
#endif
#define STRATA_VEC_LEVEL 3
#define STRATA_VEC_NS level3
#include "strata/ops/vec/vec_inl.h"
#include STRATA_VEC_FILE
#undef STRATA_VEC_LEVEL
#undef STRATA_VEC_NS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

// The copy of `fn` for this processor; all copies have one type.
#if defined(STRATA_VEC_ONLY)
#define STRATA_VEC_JOINED(a, b) a##b
#define STRATA_VEC_LEVEL_NS(n) STRATA_VEC_JOINED(level, n)
// With its type, which a function of a template has not by itself here.
#define STRATA_VEC_CALL(fn)                                                    \
  (::strata::need_vec_level(STRATA_VEC_ONLY),                                  \
   static_cast<decltype(&::strata::STRATA_VEC_LEVEL_NS(STRATA_VEC_ONLY)::fn)>( \
       &::strata::STRATA_VEC_LEVEL_NS(STRATA_VEC_ONLY)::fn))
#else
#define STRATA_VEC_CALL(fn)                             \
  (::strata::vec_level() == 3   ? &::strata::level3::fn \
   : ::strata::vec_level() == 2 ? &::strata::level2::fn \
   : ::strata::vec_level() == 1 ? &::strata::level1::fn \
                                : &::strata::level0::fn)
#endif
#else
#define STRATA_VEC_CALL(fn) (&::strata::level0::fn)
#endif
