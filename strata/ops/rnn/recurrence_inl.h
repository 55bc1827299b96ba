// One step's elementwise work of recurrent layers, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"

namespace strata::STRATA_VEC_NS {

using recurrent::Cell;
using recurrent::StepRows;

template <class T>
static void step_forward_of(const StepRows& s) {
  using R = Real<T>;
  const int64_t H = s.hidden, G = recurrent::gates(s.cell);
  for (int64_t b = 0; b < s.n; ++b) {
    const T* x = static_cast<const T*>(s.from_x) + b * G * H;
    const R* sums = static_cast<const R*>(s.sums) + b * G * H;
    const T* h = static_cast<const T*>(s.h) + b * H;
    T* y = static_cast<T*>(s.y) + b * H;
    T* gates = s.gates == nullptr ? nullptr : static_cast<T*>(s.gates) + b * recurrent::kept_gates(s.cell) * H;
    const auto sum = [&](int64_t gate, int64_t i, int64_t k) {
      return load_upto(x + gate * H + i, k, R(0)) + load_upto(sums + gate * H + i, k, R(0));
    };
    const auto keep = [&](int64_t gate, int64_t i, V<T> v, int64_t k) {
      if (gates != nullptr) store_upto(gates + gate * H + i, v, k);
    };
    switch (s.cell) {
      case Cell::tanh:
        for_vectors<T>(H, [&](int64_t i, int64_t k) { store_upto(y + i, tanh_of(sum(0, i, k)), k); });
        break;
      case Cell::relu:
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> v = sum(0, i, k);
          store_upto(y + i, v < R(0) ? V<T>{} : v, k);  // NaN stays
        });
        break;
      case Cell::lstm: {
        R* carry = static_cast<R*>(s.carry) + b * H;
        T* states = static_cast<T*>(s.states) + b * H;
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> in = sigmoid(sum(0, i, k)), forget = sigmoid(sum(1, i, k)), g = tanh_of(sum(2, i, k)),
                     out = sigmoid(sum(3, i, k));
          const V<T> c = fma(forget, load_upto(carry + i, k, R(0)), in * g);
          store_upto(carry + i, c, k);
          store_upto(states + i, c, k);
          store_upto(y + i, out * tanh_of(c), k);
          keep(0, i, in, k);
          keep(1, i, forget, k);
          keep(2, i, g, k);
          keep(3, i, out, k);
        });
        break;
      }
      case Cell::gru:
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> r = sigmoid(sum(0, i, k)), z = sigmoid(sum(1, i, k)),
                     from_h = load_upto(sums + 2 * H + i, k, R(0));
          const V<T> n = tanh_of(fma(r, from_h, load_upto(x + 2 * H + i, k, R(0))));
          store_upto(y + i, fma(z, load_upto(h + i, k, R(0)) - n, n), k);
          keep(0, i, r, k);
          keep(1, i, z, k);
          keep(2, i, n, k);
          keep(3, i, from_h, k);
        });
        break;
    }
  }
}

// sums becomes what else than the product with the weight flows to h before the step.
template <class T>
static void step_backward_of(const StepRows& s) {
  using R = Real<T>;
  const int64_t H = s.hidden, G = recurrent::gates(s.cell);
  for (int64_t b = 0; b < s.n; ++b) {
    R* gh = static_cast<R*>(s.sums) + b * H;
    const T* gy = static_cast<const T*>(s.gy) + b * H;
    const T* y = static_cast<const T*>(s.y) + b * H;
    const T* gates = static_cast<const T*>(s.gates) + b * recurrent::kept_gates(s.cell) * H;
    T* gx = static_cast<T*>(s.gfrom_x) + b * G * H;
    const auto all = [&](int64_t i, int64_t k) { return load_upto(gh + i, k, R(0)) + load_upto(gy + i, k, R(0)); };
    const auto gate = [&](int64_t which, int64_t i, int64_t k) { return load_upto(gates + which * H + i, k, R(0)); };
    switch (s.cell) {
      case Cell::tanh:
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> v = load_upto(y + i, k, R(0));
          store_upto(gx + i, all(i, k) * (R(1) - v * v), k);
        });
        break;
      case Cell::relu:
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          store_upto(gx + i, load_upto(y + i, k, R(0)) > R(0) ? all(i, k) : V<T>{}, k);
        });
        break;
      case Cell::lstm: {
        R* carry = static_cast<R*>(s.carry) + b * H;
        const T* before = static_cast<const T*>(s.c) + b * H;
        const T* states = static_cast<const T*>(s.states) + b * H;
        const T* gstates = s.gstates == nullptr ? nullptr : static_cast<const T*>(s.gstates) + b * H;
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> in = gate(0, i, k), forget = gate(1, i, k), g = gate(2, i, k), out = gate(3, i, k);
          const V<T> th = tanh_of(load_upto(states + i, k, R(0))), of_h = all(i, k);
          V<T> of_c = fma(of_h * out, R(1) - th * th, load_upto(carry + i, k, R(0)));
          if (gstates != nullptr) of_c += load_upto(gstates + i, k, R(0));
          store_upto(carry + i, of_c * forget, k);
          store_upto(gx + i, of_c * g * in * (R(1) - in), k);
          store_upto(gx + H + i, of_c * load_upto(before + i, k, R(0)) * forget * (R(1) - forget), k);
          store_upto(gx + 2 * H + i, of_c * in * (R(1) - g * g), k);
          store_upto(gx + 3 * H + i, of_h * th * out * (R(1) - out), k);
        });
        break;
      }
      case Cell::gru: {
        const T* before = static_cast<const T*>(s.h) + b * H;
        T* from_h = static_cast<T*>(s.gfrom_h) + b * G * H;
        for_vectors<T>(H, [&](int64_t i, int64_t k) {
          const V<T> r = gate(0, i, k), z = gate(1, i, k), n = gate(2, i, k), v = gate(3, i, k), of_h = all(i, k);
          const V<T> of_n = of_h * (R(1) - z) * (R(1) - n * n);
          const V<T> of_r = of_n * v * r * (R(1) - r);
          const V<T> of_z = of_h * (load_upto(before + i, k, R(0)) - n) * z * (R(1) - z);
          store_upto(gx + i, of_r, k);
          store_upto(gx + H + i, of_z, k);
          store_upto(gx + 2 * H + i, of_n, k);
          store_upto(from_h + i, of_r, k);
          store_upto(from_h + H + i, of_z, k);
          store_upto(from_h + 2 * H + i, of_n * r, k);
          store_upto(gh + i, of_h * z, k);
        });
        break;
      }
    }
  }
}

static void step_forward(DType t, const StepRows& s) {
  dispatch_floating(t, [&]<class T>(T) { step_forward_of<T>(s); });
}
static void step_backward(DType t, const StepRows& s) {
  dispatch_floating(t, [&]<class T>(T) { step_backward_of<T>(s); });
}

}  // namespace strata::STRATA_VEC_NS
