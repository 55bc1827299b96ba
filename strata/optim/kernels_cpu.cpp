#include "strata/optim/kernels.h"

#include <algorithm>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/optim/count_inl.h"
#include "strata/optim/rounding_inl.h"
#include "strata/optim/storage_cpu.h"

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

// Each rule changes param and states of one vector of elements.
template <class T>
struct AdamRule {
  static constexpr int states = 2;
  using V = Vec<T>;
  V beta1, rest1, beta2, rest2, step_size, correction, eps, decay, l2;
  template <class D>
  AdamRule(D d, const double* k) {
    const auto c = [&](int i) { return hn::Set(d, static_cast<T>(k[i])); };
    beta1 = c(1), rest1 = c(2), beta2 = c(3), rest2 = c(4), step_size = c(5);
    correction = c(6), eps = c(7), decay = c(8), l2 = c(9);
  }
  HWY_INLINE void moments(V& p, V& g, V& m, V& v) const {
    g = hn::MulAdd(l2, p, g);
    m = hn::MulAdd(beta1, m, hn::Mul(rest1, g));
    v = hn::MulAdd(beta2, v, hn::Mul(rest2, hn::Mul(g, g)));
  }
  HWY_INLINE void operator()(V& p, V g, V& m, V& v, V&) const {
    moments(p, g, m, v);
    const V denominator = hn::MulAdd(hn::Sqrt(v), correction, eps);
    p = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(p, decay));
  }
};

template <class T>
struct AmsgradRule : AdamRule<T> {
  static constexpr int states = 3;
  using V = Vec<T>;
  using AdamRule<T>::AdamRule;
  HWY_INLINE void operator()(V& p, V g, V& m, V& v, V& most) const {
    this->moments(p, g, m, v);
    most = hn::IfThenElse(hn::Gt(most, v), most, v);  // a NaN in v stays
    const V denominator = hn::MulAdd(hn::Sqrt(most), this->correction, this->eps);
    p = hn::NegMulAdd(this->step_size, hn::Div(m, denominator), hn::Mul(p, this->decay));
  }
};

template <class T>
struct NAdamRule : AdamRule<T> {
  using V = Vec<T>;
  V moment_size;
  template <class D>
  NAdamRule(D d, const double* k) : AdamRule<T>(d, k), moment_size(hn::Set(d, static_cast<T>(k[10]))) {}
  HWY_INLINE void operator()(V& p, V g, V& m, V& v, V&) const {
    this->moments(p, g, m, v);
    const V denominator = hn::MulAdd(hn::Sqrt(v), this->correction, this->eps);
    const V step = hn::MulAdd(this->step_size, g, hn::Mul(moment_size, m));
    p = hn::Sub(hn::Mul(p, this->decay), hn::Div(step, denominator));
  }
};

template <class T>
struct RAdamRule : AdamRule<T> {
  using V = Vec<T>;
  bool adaptive;
  template <class D>
  RAdamRule(D d, const double* k) : AdamRule<T>(d, k), adaptive(k[6] != 0) {}
  HWY_INLINE void operator()(V& p, V g, V& m, V& v, V&) const {
    this->moments(p, g, m, v);
    const V step = adaptive ? hn::Div(m, hn::Add(hn::Sqrt(v), this->eps)) : m;
    p = hn::NegMulAdd(this->step_size, step, hn::Mul(p, this->decay));
  }
};

template <class T>
struct AdamaxRule : AdamRule<T> {
  using V = Vec<T>;
  using AdamRule<T>::AdamRule;
  HWY_INLINE void operator()(V& p, V g, V& m, V& most, V&) const {
    g = hn::MulAdd(this->l2, p, g);
    m = hn::MulAdd(this->beta1, m, hn::Mul(this->rest1, g));
    const V old = hn::Mul(this->beta2, most), now = hn::Add(hn::Abs(g), this->eps);
    most = hn::IfThenElse(hn::Gt(old, now), old, now);
    p = hn::NegMulAdd(this->step_size, hn::Div(m, most), p);
  }
};

// What rules without Adam's moments read: k[1] to k[6].
template <class T>
struct Numbers {
  using V = Vec<T>;
  V n1, n2, n3, n4, n5, n6;
  template <class D>
  Numbers(D d, const double* k) {
    const auto c = [&](int i) { return hn::Set(d, static_cast<T>(k[i])); };
    n1 = c(1), n2 = c(2), n3 = c(3), n4 = c(4), n5 = c(5), n6 = c(6);
  }
};

template <class T>
struct AdagradRule : Numbers<T> {
  static constexpr int states = 1;
  using V = Vec<T>;
  using Numbers<T>::Numbers;
  HWY_INLINE void operator()(V& p, V g, V& sum, V&, V&) const {
    g = hn::MulAdd(this->n3, p, g);
    sum = hn::MulAdd(g, g, sum);
    p = hn::NegMulAdd(this->n1, hn::Div(g, hn::Add(hn::Sqrt(sum), this->n2)), p);
  }
};

template <class T>
struct AdadeltaRule : Numbers<T> {
  static constexpr int states = 2;
  using V = Vec<T>;
  using Numbers<T>::Numbers;
  HWY_INLINE void operator()(V& p, V g, V& v, V& u, V&) const {
    g = hn::MulAdd(this->n5, p, g);
    v = hn::MulAdd(this->n2, v, hn::Mul(this->n3, hn::Mul(g, g)));
    const V delta = hn::Mul(hn::Div(hn::Sqrt(hn::Add(u, this->n4)), hn::Sqrt(hn::Add(v, this->n4))), g);
    u = hn::MulAdd(this->n2, u, hn::Mul(this->n3, hn::Mul(delta, delta)));
    p = hn::NegMulAdd(this->n1, delta, p);
  }
};

template <class T>
struct RmspropRule : Numbers<T> {
  static constexpr int states = 1;
  using V = Vec<T>;
  using Numbers<T>::Numbers;
  HWY_INLINE void operator()(V& p, V g, V& v, V&, V&) const {
    g = hn::MulAdd(this->n5, p, g);
    v = hn::MulAdd(this->n2, v, hn::Mul(this->n3, hn::Mul(g, g)));
    p = hn::NegMulAdd(this->n1, hn::Div(g, hn::Add(hn::Sqrt(v), this->n4)), p);
  }
};

template <class T>
struct RmspropMomentumRule : Numbers<T> {
  static constexpr int states = 2;
  using V = Vec<T>;
  using Numbers<T>::Numbers;
  HWY_INLINE void operator()(V& p, V g, V& v, V& b, V&) const {
    g = hn::MulAdd(this->n5, p, g);
    v = hn::MulAdd(this->n2, v, hn::Mul(this->n3, hn::Mul(g, g)));
    b = hn::MulAdd(this->n6, b, hn::Div(g, hn::Add(hn::Sqrt(v), this->n4)));
    p = hn::NegMulAdd(this->n1, b, p);
  }
};

template <class T>
struct RmspropCenteredRule : Numbers<T> {
  static constexpr int states = 3;
  using V = Vec<T>;
  using Numbers<T>::Numbers;
  HWY_INLINE void operator()(V& p, V g, V& v, V& b, V& mean) const {
    g = hn::MulAdd(this->n5, p, g);
    v = hn::MulAdd(this->n2, v, hn::Mul(this->n3, hn::Mul(g, g)));
    mean = hn::MulAdd(this->n2, mean, hn::Mul(this->n3, g));
    const V variance = hn::NegMulAdd(mean, mean, v);
    b = hn::MulAdd(this->n6, b, hn::Div(g, hn::Add(hn::Sqrt(variance), this->n4)));
    p = hn::NegMulAdd(this->n1, b, p);
  }
};

template <class T>
struct LionRule {
  static constexpr int states = 1;
  using V = Vec<T>;
  V beta1, rest1, beta2, rest2, lr, decay;
  template <class D>
  LionRule(D d, const double* k) {
    const auto c = [&](int i) { return hn::Set(d, static_cast<T>(k[i])); };
    beta1 = c(1), rest1 = c(2), beta2 = c(3), rest2 = c(4), lr = c(5), decay = c(6);
  }
  HWY_INLINE void operator()(V& p, V g, V& m, V&, V&) const {
    const V c = hn::MulAdd(beta1, m, hn::Mul(rest1, g));
    const V sign = hn::IfThenElse(hn::Eq(c, hn::Zero(hn::ScalableTag<T>())), c, hn::CopySign(lr, c));
    p = hn::Sub(hn::Mul(p, decay), sign);
    m = hn::MulAdd(beta2, m, hn::Mul(rest2, g));
  }
};

template <class T>
struct SgdRule {
  static constexpr int states = 0;
  using V = Vec<T>;
  V lr, l2;
  template <class D>
  SgdRule(D d, const double* k) : lr(hn::Set(d, static_cast<T>(k[1]))), l2(hn::Set(d, static_cast<T>(k[2]))) {}
  HWY_INLINE void operator()(V& p, V g, V&, V&, V&) const { p = hn::NegMulAdd(lr, hn::MulAdd(l2, p, g), p); }
};

template <class T>
struct SgdMomentumRule {
  static constexpr int states = 1;
  using V = Vec<T>;
  V lr, l2, momentum, keep;
  bool nesterov;
  template <class D>
  SgdMomentumRule(D d, const double* k) : nesterov(k[5] != 0) {
    const auto c = [&](int i) { return hn::Set(d, static_cast<T>(k[i])); };
    lr = c(1), l2 = c(2), momentum = c(3), keep = c(4);
  }
  HWY_INLINE void operator()(V& p, V g, V& b, V&, V&) const {
    g = hn::MulAdd(l2, p, g);
    b = hn::MulAdd(momentum, b, hn::Mul(keep, g));
    p = hn::NegMulAdd(lr, nesterov ? hn::MulAdd(momentum, b, g) : b, p);
  }
};

template <class T>
struct MuonMomentumRule {
  static constexpr int states = 1;
  using V = Vec<T>;
  V momentum;
  bool nesterov;
  template <class D>
  MuonMomentumRule(D d, const double* k) : momentum(hn::Set(d, static_cast<T>(k[1]))), nesterov(k[2] != 0) {}
  HWY_INLINE void operator()(V& direction, V g, V& b, V&, V&) const {
    b = hn::MulAdd(momentum, b, g);
    direction = nesterov ? hn::MulAdd(momentum, b, g) : b;
  }
};

template <class T>
struct MuonApplyRule {
  static constexpr int states = 0;
  using V = Vec<T>;
  V decay, rate;
  template <class D>
  MuonApplyRule(D d, const double* k)
      : decay(hn::Set(d, static_cast<T>(k[1]))), rate(hn::Set(d, static_cast<T>(k[2]))) {}
  HWY_INLINE void operator()(V& p, V g, V&, V&, V&) const { p = hn::NegMulAdd(rate, g, hn::Mul(p, decay)); }
};

// n elements of a tensor whose constants are k.
template <class R, class T>
void update(const double* k, T* param, const T* grad, T* const (&state)[kMostStates], int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const R rule(d, k);
  const Vec<T> scale = hn::Set(d, static_cast<T>(k[0]));
  const auto one = [&](T* HWY_RESTRICT p, const T* HWY_RESTRICT g, T* HWY_RESTRICT a, T* HWY_RESTRICT b,
                       T* HWY_RESTRICT c) HWY_ATTR {
    Vec<T> vp = hn::LoadU(d, p), va = hn::Zero(d), vb = hn::Zero(d), vc = hn::Zero(d);
    if constexpr (R::states > 0) va = hn::LoadU(d, a);
    if constexpr (R::states > 1) vb = hn::LoadU(d, b);
    if constexpr (R::states > 2) vc = hn::LoadU(d, c);
    rule(vp, hn::Mul(hn::LoadU(d, g), scale), va, vb, vc);
    hn::StoreU(vp, d, p);
    if constexpr (R::states > 0) hn::StoreU(va, d, a);
    if constexpr (R::states > 1) hn::StoreU(vb, d, b);
    if constexpr (R::states > 2) hn::StoreU(vc, d, c);
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
  for (int s = 0; s < R::states; ++s) std::copy_n(ts[s], rest, state[s] + i);
}

template <template <class> class R>
void update_any(const Slab& s, int64_t begin, int64_t end) {
  constexpr int states = R<float>::states;
  if (s.dtype == DType::f64) {
    const auto from = [&](void* array) { return array ? static_cast<double*>(array) + begin : nullptr; };
    return update<R<double>>(s.k, from(s.param), from(s.grad), {from(s.state[0]), from(s.state[1]), from(s.state[2])},
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
    float* p = open(s.param, s.dtype, wide_param);
    const float* g = widened(s.grad, s.grad_dtype, at, n, wide_grad);
    float* state[kMostStates] = {};
    for (int k = 0; k < states; ++k) state[k] = open(s.state[k], s.state_dtype, wide_state[k]);
    update<R<float>>(s.k, p, g, state, n);
    narrow(p, s.param, s.dtype, at, n, of_param);
    if (s.low) narrow(p, s.low, s.low_dtype, at, n, {});
    for (int k = 0; k < states; ++k) narrow(state[k], s.state[k], s.state_dtype, at, n, of_state[k]);
  }
}

template <class T>
void change_grad(Rule rule, const Slab& s, T* g, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T factor = static_cast<T>(s.k[0]), limit = static_cast<T>(s.k[1]);
  int64_t i = 0;
  if (rule == Rule::scale_grad) {
    for (; i + lanes <= end; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, g + i), hn::Set(d, factor)), d, g + i);
    for (; i < end; ++i) g[i] *= factor;
  } else {
    // Comparisons rather than Min and Max: a NaN stays one.
    const auto high = hn::Set(d, limit), low = hn::Set(d, -limit);
    for (; i + lanes <= end; i += lanes) {
      auto v = hn::LoadU(d, g + i);
      v = hn::IfThenElse(hn::Gt(v, high), high, v);
      hn::StoreU(hn::IfThenElse(hn::Lt(v, low), low, v), d, g + i);
    }
    for (; i < end; ++i) g[i] = g[i] > limit ? limit : g[i] < -limit ? -limit : g[i];
  }
}

void change_any_grad(Rule rule, const Slab& s, int64_t begin, int64_t end) {
  if (s.grad_dtype == DType::f64) return change_grad(rule, s, static_cast<double*>(s.grad) + begin, end - begin);
  float buffer[kRun];
  for (int64_t at = begin; at < end; at += kRun) {
    const int64_t n = std::min(kRun, end - at);
    widened(s.grad, s.grad_dtype, at, n, buffer);
    float* g = writable(s.grad, s.grad_dtype, at, buffer);
    change_grad(rule, s, g, n);
    narrow(g, s.grad, s.grad_dtype, at, n, {});
  }
}

void run(Rule rule, const Slab& s, int64_t begin, int64_t end) {
  switch (rule) {
    case Rule::adam:
      return update_any<AdamRule>(s, begin, end);
    case Rule::amsgrad:
      return update_any<AmsgradRule>(s, begin, end);
    case Rule::nadam:
      return update_any<NAdamRule>(s, begin, end);
    case Rule::radam:
      return update_any<RAdamRule>(s, begin, end);
    case Rule::adamax:
      return update_any<AdamaxRule>(s, begin, end);
    case Rule::adagrad:
      return update_any<AdagradRule>(s, begin, end);
    case Rule::adadelta:
      return update_any<AdadeltaRule>(s, begin, end);
    case Rule::rmsprop:
      return update_any<RmspropRule>(s, begin, end);
    case Rule::rmsprop_momentum:
      return update_any<RmspropMomentumRule>(s, begin, end);
    case Rule::rmsprop_centered:
      return update_any<RmspropCenteredRule>(s, begin, end);
    case Rule::lion:
      return update_any<LionRule>(s, begin, end);
    case Rule::sgd:
      return update_any<SgdRule>(s, begin, end);
    case Rule::sgd_momentum:
      return update_any<SgdMomentumRule>(s, begin, end);
    case Rule::scale_grad:
    case Rule::clamp_grad:
      return change_any_grad(rule, s, begin, end);
    case Rule::muon_momentum:
      return update_any<MuonMomentumRule>(s, begin, end);
    case Rule::muon_apply:
      return update_any<MuonApplyRule>(s, begin, end);
    case Rule::adafactor_take:
    case Rule::adafactor_blend:
    case Rule::adafactor_apply:
      return;  // no caller: other ops stand between them, and the CPU has loops of its own for the whole
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

constexpr int64_t kChunk = 16384;

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
  for (Slab& s : slabs) complete(s.from_count, s.k, static_cast<double>(s.t));
  const std::vector<Chunk> chunks = chunks_of(slabs);
  parallel_for(0, static_cast<int64_t>(chunks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk c = chunks[static_cast<size_t>(i)];
      const Slab& s = slabs[c.slab];
      HWY_DYNAMIC_DISPATCH(run)(rule, s, c.begin, std::min(c.begin + kChunk, s.numel));
    }
  });
}

double sum_of_squares_cpu(std::span<const Slab> slabs) {
  const std::vector<Chunk> chunks = chunks_of(slabs);
  std::vector<double> parts(chunks.size());
  parallel_for(0, static_cast<int64_t>(chunks.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk c = chunks[static_cast<size_t>(i)];
      const Slab& s = slabs[c.slab];
      parts[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(squares)(s, c.begin, std::min(c.begin + kChunk, s.numel));
    }
  });
  double sum = 0;
  for (double p : parts) sum += p;
  return sum;
}

}  // namespace strata::optim
#endif
