#pragma once
// What a device's loops do to one element; the constants are those of Rule.

namespace strata::optim {
namespace {

// Each rule changes parameter, gradient and states of one element.
struct AdamRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& v, T&) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    v = fma(k[3], v, k[4] * (g * g));
    p = fma(-k[5], m / fma(sqrt(v), k[6], k[7]), p * k[8]);
  }
};
struct AmsgradRule {
  static constexpr int states = 3;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& v, T& most) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    v = fma(k[3], v, k[4] * (g * g));
    most = most > v ? most : v;  // a NaN in v stays
    p = fma(-k[5], m / fma(sqrt(most), k[6], k[7]), p * k[8]);
  }
};
struct NAdamRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& v, T&) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    v = fma(k[3], v, k[4] * (g * g));
    p = p * k[8] - fma(k[5], g, k[10] * m) / fma(sqrt(v), k[6], k[7]);
  }
};
struct RAdamRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& v, T&) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    v = fma(k[3], v, k[4] * (g * g));
    p = fma(-k[5], k[6] != 0 ? m / (sqrt(v) + k[7]) : m, p * k[8]);
  }
};
struct AdamaxRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& most, T&) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    const T old = k[3] * most, now = abs(g) + k[7];
    most = old > now ? old : now;
    p = fma(-k[5], m / most, p);
  }
};
struct AdagradRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& sum, T&, T&) {
    g = fma(k[3], p, g);
    sum = fma(g, g, sum);
    p = fma(-k[1], g / (sqrt(sum) + k[2]), p);
  }
};
struct AdadeltaRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& v, T& u, T&) {
    g = fma(k[5], p, g);
    v = fma(k[2], v, k[3] * (g * g));
    const T delta = sqrt(u + k[4]) / sqrt(v + k[4]) * g;
    u = fma(k[2], u, k[3] * (delta * delta));
    p = fma(-k[1], delta, p);
  }
};
struct RmspropRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& v, T&, T&) {
    g = fma(k[5], p, g);
    v = fma(k[2], v, k[3] * (g * g));
    p = fma(-k[1], g / (sqrt(v) + k[4]), p);
  }
};
struct RmspropMomentumRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& v, T& b, T&) {
    g = fma(k[5], p, g);
    v = fma(k[2], v, k[3] * (g * g));
    b = fma(k[6], b, g / (sqrt(v) + k[4]));
    p = fma(-k[1], b, p);
  }
};
struct RmspropCenteredRule {
  static constexpr int states = 3;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& v, T& b, T& mean) {
    g = fma(k[5], p, g);
    v = fma(k[2], v, k[3] * (g * g));
    mean = fma(k[2], mean, k[3] * g);
    b = fma(k[6], b, g / (sqrt(fma(-mean, mean, v)) + k[4]));
    p = fma(-k[1], b, p);
  }
};
struct LionRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T&, T&) {
    const T c = fma(k[1], m, k[2] * g);
    p = p * k[6] - (c == 0 ? c : copysign(k[5], c));
    m = fma(k[3], m, k[4] * g);
  }
};
struct SgdRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&, T&) {
    p = fma(-k[1], fma(k[2], p, g), p);
  }
};
struct SgdMomentumRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& b, T&, T&) {
    g = fma(k[2], p, g);
    b = fma(k[3], b, k[4] * g);
    p = fma(-k[1], k[5] != 0 ? fma(k[3], b, g) : b, p);
  }
};
struct ScaleGradRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = true;
  template <class T>
  __device__ static void apply(const T*, T&, T&, T&, T&, T&) {}
};
struct ClampGradRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = true;
  template <class T>
  __device__ static void apply(const T* k, T&, T& g, T&, T&, T&) {
    g = g > k[1] ? k[1] : g < -k[1] ? -k[1] : g;
  }
};

struct MuonMomentumRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& d, T& g, T& b, T&, T&) {
    b = fma(k[1], b, g);
    d = k[2] != 0 ? fma(k[1], b, g) : b;
  }
};
struct MuonApplyRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&, T&) {
    p = fma(-k[2], g, p * k[1]);
  }
};

struct AdafactorTakeRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T*, T& p, T& g, T&, T&, T&) {
    p = g;
  }
};
struct AdafactorBlendRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&, T&) {
    p = fma(k[4], p, k[5] * (g + k[3]));
  }
};
struct AdafactorApplyRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&, T&) {
    p = fma(-k[6], g, p * k[1]);
  }
};

}  // namespace
}  // namespace strata::optim
