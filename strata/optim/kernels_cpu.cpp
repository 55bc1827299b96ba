#include "strata/optim/kernels.h"

#include <algorithm>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/optim/count_inl.h"
#include "strata/optim/eight_bit_cpu.h"
#include "strata/optim/eight_bit_inl.h"
#include "strata/optim/rounding_inl.h"
#include "strata/optim/storage_cpu.h"
#include "strata/optim/whole_squares_inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/kernels_cpu.cpp"
// The baseline, AVX2 and AVX-512 are enough for element-by-element arithmetic that memory bounds.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_BASELINE_TARGETS | HWY_AVX2 | HWY_AVX3))
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Vec = hn::Vec<hn::ScalableTag<T>>;

template <class T>
HWY_INLINE Vec<T> load_grad(hn::ScalableTag<T> d, const T* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE Vec<float> load_grad(hn::ScalableTag<float> d, const BFloat16* p) {
  const hn::RebindToUnsigned<hn::ScalableTag<float>> du;
  const hn::Rebind<uint16_t, decltype(du)> dh;
  const auto half = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
}
HWY_INLINE Vec<float> load_grad(hn::ScalableTag<float> d, const Half* p) {
  float wide[HWY_MAX_BYTES / sizeof(float)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = p[i];
  return hn::LoadU(d, wide);
}

// The vocabulary of the rules, for vectors.
template <class V>
HWY_INLINE V muladd(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}
template <class V>
HWY_INLINE V negmuladd(V a, V b, V c) {
  return hn::NegMulAdd(a, b, c);
}
template <class V>
HWY_INLINE V add(V a, V b) {
  return hn::Add(a, b);
}
template <class V>
HWY_INLINE V sub(V a, V b) {
  return hn::Sub(a, b);
}
template <class V>
HWY_INLINE V mul(V a, V b) {
  return hn::Mul(a, b);
}
template <class V>
HWY_INLINE V quotient(V a, V b) {
  return hn::Div(a, b);
}
template <class V>
HWY_INLINE V root(V a) {
  return hn::Sqrt(a);
}
template <class V>
HWY_INLINE V absolute(V a) {
  return hn::Abs(a);
}
template <class V>
HWY_INLINE V negated(V a) {
  return hn::Neg(a);
}
template <class V>
HWY_INLINE V if_greater(V a, V b, V x, V y) {
  return hn::IfThenElse(hn::Gt(a, b), x, y);
}
template <class V>
HWY_INLINE V if_zero(V a, V x, V y) {
  return hn::IfThenElse(hn::Eq(a, hn::Zero(hn::DFromV<V>())), x, y);
}
template <class V>
HWY_INLINE V with_sign(V x, V s) {
  return hn::CopySign(x, s);
}
// A tensor's constants, each in a vector.
template <class T>
struct Constants {
  Vec<T> v[kConstants];
  bool not_zero[kConstants];
  explicit Constants(const double* k) {
    const hn::ScalableTag<T> d;
    for (int i = 0; i < kConstants; ++i) {
      v[i] = hn::Set(d, static_cast<T>(k[i]));
      not_zero[i] = k[i] != 0;
    }
  }
  HWY_INLINE const Vec<T>& operator[](int i) const { return v[i]; }
  HWY_INLINE bool on(int i) const { return not_zero[i]; }
};

#define STRATA_RULE_FN HWY_INLINE static
#include "strata/optim/all_rules.inc"
#undef STRATA_RULE_FN

// States that a rule changes, the first ones. Another may be shared between slabs, which are updated side by side, so
// that not even what it holds may be written to it.
template <class R>
inline constexpr int changed = R::states;
template <>
inline constexpr int changed<SparseAdamRule> = 2;  // which rows are used: one row of ones for all of them

// n elements of a tensor whose constants are k.
template <class R, class T>
void update(const double* k, T* param, const T* grad, T* const (&state)[kMostStates], int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Constants<T> constants(k);
  constexpr int kChanged = changed<R>;
  const auto one = [&](T* HWY_RESTRICT p, const T* HWY_RESTRICT g, T* HWY_RESTRICT a, T* HWY_RESTRICT b,
                       T* HWY_RESTRICT c) HWY_ATTR {
    Vec<T> vp = hn::LoadU(d, p), va = hn::Zero(d), vb = hn::Zero(d), vc = hn::Zero(d);
    if constexpr (R::states > 0) va = hn::LoadU(d, a);
    if constexpr (R::states > 1) vb = hn::LoadU(d, b);
    if constexpr (R::states > 2) vc = hn::LoadU(d, c);
    Vec<T> vg = hn::Mul(hn::LoadU(d, g), constants[0]);
    R::apply(constants, vp, vg, va, vb, vc);
    hn::StoreU(vp, d, p);
    if constexpr (kChanged > 0) hn::StoreU(va, d, a);
    if constexpr (kChanged > 1) hn::StoreU(vb, d, b);
    if constexpr (kChanged > 2) hn::StoreU(vc, d, c);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) one(param + i, grad + i, state[0] + i, state[1] + i, state[2] + i);
  if (i == n) return;
  // The last few elements go through buffers of one vector, so that they see the same arithmetic.
  const size_t rest = static_cast<size_t>(n - i);
  constexpr size_t kMost = HWY_MAX_BYTES / sizeof(T);
  T tp[kMost] = {}, tg[kMost] = {}, ts[kMostStates][kMost] = {};
  std::copy_n(param + i, rest, tp);
  std::copy_n(grad + i, rest, tg);
  for (int s = 0; s < R::states; ++s) std::copy_n(state[s] + i, rest, ts[s]);
  one(tp, tg, ts[0], ts[1], ts[2]);
  std::copy_n(tp, rest, param + i);
  for (int s = 0; s < kChanged; ++s) std::copy_n(ts[s], rest, state[s] + i);
}

template <class R>
void update_any(const Slab& s, int64_t begin, int64_t end) {
  constexpr int states = R::states;
  if (s.dtype == DType::f64) {
    const auto from = [&](void* array) { return array ? static_cast<double*>(array) + begin : nullptr; };
    return update<R, double>(s.k, from(s.param), from(s.grad), {from(s.state[0]), from(s.state[1]), from(s.state[2])},
                             end - begin);
  }
  const uint64_t key = rounding_key(s.seed, static_cast<uint64_t>(s.t));
  const Rounding of_param{s.stochastic, key, false, 0};
  const Rounding of_state[kMostStates] = {
      {s.stochastic, key, false, 16}, {s.stochastic, key, true, 0}, {s.stochastic, key, true, 16}};
  float wide_param[kRun], wide_grad[kRun], wide_state[kMostStates][kRun];
  for (int64_t at = begin; at < end; at += kRun) {
    const int64_t n = std::min(kRun, end - at);
    // What is there already, and where it goes.
    const auto open = [&](void* array, DType dtype, float* buffer) {
      widened(array, dtype, at, n, buffer);
      return writable(array, dtype, at, buffer);
    };
    const auto has_sign = [](int k) { return (nonnegative<R> >> k & 1) == 0; };
    const bool halves = is_split(s), codes = s.state_dtype == DType::u8;
    float* p = wide_param;
    if (halves) {
      widen_halves(s.param, s.low, at, n, wide_param);
    } else {
      p = open(s.param, s.dtype, wide_param);
    }
    const float* g = widened(s.grad, s.grad_dtype, at, n, wide_grad);
    float* state[kMostStates] = {};
    for (int k = 0; k < states; ++k) {
      state[k] = codes ? wide_state[k] : open(s.state[k], s.state_dtype, wide_state[k]);
      if (codes)
        dequantize(static_cast<uint8_t*>(s.state[k]) + at, s.scale[k] + at / kScaleBlock, has_sign(k), n, state[k]);
    }
    update<R, float>(s.k, p, g, state, n);
    if (halves) {
      narrow_halves(p, s.param, s.low, at, n);
    } else {
      narrow(p, s.param, s.dtype, at, n, of_param);
      if (s.low) narrow(p, s.low, s.low_dtype, at, n, {});
    }
    for (int k = 0; k < changed<R>; ++k) {
      if (codes) {
        quantize(state[k], has_sign(k), n, static_cast<uint8_t*>(s.state[k]) + at, s.scale[k] + at / kScaleBlock);
      } else {
        narrow(state[k], s.state[k], s.state_dtype, at, n, of_state[k]);
      }
    }
  }
}

// Of a rule that writes gradients: the gradient stands where a parameter does.
template <class R, class T>
void change(const double* k, T* grad, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Constants<T> constants(k);
  const auto one = [&](T* g) HWY_ATTR {
    Vec<T> unused = hn::Zero(d), vg = hn::Mul(hn::LoadU(d, g), constants[0]);
    R::apply(constants, unused, vg, unused, unused, unused);
    hn::StoreU(vg, d, g);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) one(grad + i);
  if (i == n) return;
  T rest[HWY_MAX_BYTES / sizeof(T)] = {};
  std::copy_n(grad + i, n - i, rest);
  one(rest);
  std::copy_n(rest, n - i, grad + i);
}
template <class R>
void change_any(const Slab& s, int64_t begin, int64_t end) {
  if (s.grad_dtype == DType::f64) return change<R>(s.k, static_cast<double*>(s.grad) + begin, end - begin);
  float buffer[kRun];
  for (int64_t at = begin; at < end; at += kRun) {
    const int64_t n = std::min(kRun, end - at);
    widened(s.grad, s.grad_dtype, at, n, buffer);
    float* g = writable(s.grad, s.grad_dtype, at, buffer);
    change<R>(s.k, g, n);
    narrow(g, s.grad, s.grad_dtype, at, n, {});
  }
}

template <class R>
void run_one(const Slab& s, int64_t begin, int64_t end) {
  if constexpr (writes_grad<R>) {
    change_any<R>(s, begin, end);
  } else {
    update_any<R>(s, begin, end);
  }
}
void run(Rule rule, const Slab& s, int64_t begin, int64_t end) {
  switch (rule) {
#define STRATA_ONE_RULE(name, type) \
  case Rule::name:                  \
    return run_one<type>(s, begin, end);
    STRATA_RULES
#undef STRATA_ONE_RULE
  }
}

template <class G>
double squares_f32(const G* g, int64_t n) {
  double sum = 0;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::Repartition<double, decltype(d)> dd;
  const hn::Rebind<float, decltype(dd)> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(dd), b = hn::Zero(dd), a2 = hn::Zero(dd), b2 = hn::Zero(dd);
  const auto add = [&](const G* p, auto& low_sum, auto& high_sum) HWY_ATTR {
    const auto v = load_grad(d, p);
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(half, v)), high = hn::PromoteTo(dd, hn::UpperHalf(half, v));
    low_sum = hn::MulAdd(low, low, low_sum);
    high_sum = hn::MulAdd(high, high, high_sum);
  };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add(g + i, a, b);
    add(g + i + lanes, a2, b2);
  }
  a = hn::Add(a, a2);
  b = hn::Add(b, b2);
  double parts[HWY_MAX_BYTES / sizeof(double)] = {};
  hn::StoreU(hn::Add(a, b), dd, parts);
  for (double part : parts) sum += part;
#endif
  for (; i < n; ++i) {
    const double v = static_cast<float>(g[i]);
    sum += v * v;
  }
  return sum;
}

double squares(const Slab& s, int64_t begin, int64_t end) {
  if (s.grad_dtype == DType::f32) return squares_f32(static_cast<const float*>(s.grad) + begin, end - begin);
  if (s.grad_dtype == DType::bf16) return squares_f32(static_cast<const BFloat16*>(s.grad) + begin, end - begin);
  if (s.grad_dtype == DType::f16) return squares_f32(static_cast<const Half*>(s.grad) + begin, end - begin);
  const double* g = static_cast<const double*>(s.grad);
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += g[i] * g[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::optim {
HWY_EXPORT(run);
HWY_EXPORT(squares);

namespace {

constexpr int64_t kChunk = kHostSquareChunk;
static_assert(kRun % kScaleBlock == 0 && kChunk % kRun == 0);

struct Chunk {
  uint32_t slab;
  int64_t begin;
};

// Pieces of equal size over all tensors, so that many small ones and one large one both keep every thread busy.
std::vector<Chunk> chunks_of(std::span<const Slab> slabs) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < slabs.size(); ++i)
    for (int64_t b = 0; b < slabs[i].numel; b += kChunk) chunks.push_back({static_cast<uint32_t>(i), b});
  return chunks;
}

}  // namespace

void run_rule_cpu(Rule rule, std::span<const Slab> given) {
  std::vector<Slab> slabs(given.begin(), given.end());
  for (Slab& s : slabs) {
    if (s.rate) s.k[kRate] = *s.rate;
    complete(rule, s.k, static_cast<double>(s.t));
    if (s.rate) *s.rate = s.k[kNextRate];
  }
  const std::vector<Chunk> chunks = chunks_of(slabs);
  parallel_for(0, static_cast<int64_t>(chunks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk c = chunks[static_cast<size_t>(i)];
      const Slab& s = slabs[c.slab];
      HWY_DYNAMIC_DISPATCH(run)(rule, s, c.begin, std::min(c.begin + kChunk, s.numel));
    }
  });
}

int64_t square_parts_cpu(int64_t numel) {
  return (numel + kChunk - 1) / kChunk;
}

void squares_cpu(const Slab& s, double* to) {
  parallel_for(0, square_parts_cpu(s.numel), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = HWY_DYNAMIC_DISPATCH(squares)(s, i * kChunk, std::min((i + 1) * kChunk, s.numel));
  });
}

double sum_of_squares_cpu(std::span<const Slab> slabs, double sum) {
  const std::vector<Chunk> chunks = chunks_of(slabs);
  std::vector<double> parts(chunks.size());
  parallel_for(0, static_cast<int64_t>(chunks.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk c = chunks[static_cast<size_t>(i)];
      const Slab& s = slabs[c.slab];
      parts[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(squares)(s, c.begin, std::min(c.begin + kChunk, s.numel));
    }
  });
  for (double p : parts) sum += p;
  return sum;
}

}  // namespace strata::optim
#endif
