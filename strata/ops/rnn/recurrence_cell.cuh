#pragma once
// The arithmetic of one hidden unit of one sequence in one step, and the steps of recurrence.cuh made of it. What is
// rounded, and what is kept in f32, is as in recurrence_inl.h.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/rnn/recurrence_kernel.h"

namespace strata::recurrent {

template <class R>
__device__ __forceinline__ R sigmoid_of(R x) {
  if constexpr (sizeof(R) == 4)
    return 1 / (1 + expf(-x));
  else
    return 1 / (1 + exp(-x));
}
template <class R>
__device__ __forceinline__ R tanh_of(R x) {
  if constexpr (sizeof(R) == 4)
    return tanhf(x);
  else
    return tanh(x);
}
template <class R>
__device__ __forceinline__ R fma_of(R a, R b, R c) {
  if constexpr (sizeof(R) == 4)
    return fmaf(a, b, c);
  else
    return fma(a, b, c);
}

template <class T>
__device__ __forceinline__ compute_t<T> read(const void* p, int64_t at) {
  return cuda::widen(static_cast<const T*>(p)[at]);
}
template <class T>
__device__ __forceinline__ void write(void* p, int64_t at, compute_t<T> v) {
  static_cast<T*>(p)[at] = cuda::narrow<T>(v);
}

/// Iteration i is the i-th step that is computed.
template <class T>
struct ForwardStep {
  using R = compute_t<T>;
  RecurrenceCall r;
  R* carry;  // [batch, H]: the LSTM's c
  int gates;

  struct In {
    R x[4], bias[4], h, carry;
    bool has;
  };
  struct Out {
    R h, carry, kept[4];
  };

  __device__ int64_t time_of(int64_t i) const { return r.reverse ? r.steps - 1 - i : i; }
  __device__ bool multiplies(int64_t) const { return true; }

  __device__ In load(int64_t i, int64_t row, int64_t unit) const {
    const int64_t t = time_of(i), at = t * r.batch + row, H = r.hidden;
    In in{};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      in.x[g] = read<T>(r.from_x, (at * gates + g) * H + unit);
      if (r.bias != nullptr) in.bias[g] = read<T>(r.bias, g * H + unit);
    }
    if (r.cell == Cell::lstm) in.carry = carry[row * H + unit];
    if (r.cell == Cell::gru || r.counts != nullptr) {
      in.h = i == 0 ? read<T>(r.h, row * H + unit)
                    : read<T>(r.y, (time_of(i - 1) * r.batch + row) * H + unit);  // this thread's own
    }
    in.has = r.counts == nullptr || row < r.counts[t];
    return in;
  }

  template <class Sum>
  __device__ Out compute(int64_t, const In& in, const Sum& sum) const {
    Out out{};
    if (!in.has) {
      out.h = in.h, out.carry = in.carry;
      return out;
    }
    const auto from_h = [&](int g) { return sum(g) + in.bias[g]; };
    const auto both = [&](int g) { return in.x[g] + from_h(g); };
    switch (r.cell) {
      case Cell::tanh:
        out.h = tanh_of(both(0));
        break;
      case Cell::relu: {
        const R v = both(0);
        out.h = v < 0 ? R(0) : v;  // NaN stays
        break;
      }
      case Cell::lstm: {
        const R in_gate = sigmoid_of(both(0)), forget = sigmoid_of(both(1)), g = tanh_of(both(2)),
                gate = sigmoid_of(both(3));
        out.carry = fma_of(forget, in.carry, in_gate * g);
        out.h = gate * tanh_of(out.carry);
        out.kept[0] = in_gate, out.kept[1] = forget, out.kept[2] = g, out.kept[3] = gate;
        break;
      }
      case Cell::gru: {
        const R reset = sigmoid_of(both(0)), z = sigmoid_of(both(1)), part = from_h(2);
        const R n = tanh_of(fma_of(reset, part, in.x[2]));
        out.h = fma_of(z, in.h - n, n);
        out.kept[0] = reset, out.kept[1] = z, out.kept[2] = n, out.kept[3] = part;
        break;
      }
    }
    return out;
  }

  __device__ void publish(const Out& out, T* to) const {
    *to = cuda::narrow<T>(out.h);
  }

  __device__ void store(int64_t i, int64_t row, int64_t unit, const Out& out) const {
    const int64_t at = time_of(i) * r.batch + row, H = r.hidden;
    write<T>(r.y, at * H + unit, out.h);
    if (r.cell == Cell::lstm) {
      write<T>(r.states, at * H + unit, out.carry);
      carry[row * H + unit] = out.carry;
    }
    if (r.gates == nullptr || gates < 3) return;
#pragma unroll
    for (int g = 0; g < 4; ++g) write<T>(r.gates, (at * 4 + g) * H + unit, out.kept[g]);
  }
};

/// Iteration i is the i-th of the steps counted from the last one; what they give h comes one iteration later, when the
/// gradients of its gates have been multiplied. The last iteration is behind the first step: gh and gc.
template <class T>
struct BackwardStep {
  using R = compute_t<T>;
  RecurrenceBackwardCall b;
  R* carry;  // [2, batch, H]: the gradient of the LSTM's c; what flows to h beside the product
  int gates;
  bool beside;  // whether anything does

  struct In {
    R kept[4], y, states, before, gy, gstates, carry, beside;
    bool has, had;  // this step; the one of the iteration before
  };
  struct Out {
    R gates[4], through_reset, carry, beside;
  };

  __device__ int64_t time_of(int64_t i) const { return b.forward.reverse ? i : b.forward.steps - 1 - i; }
  __device__ bool multiplies(int64_t i) const { return i > 0; }
  __device__ bool ends(int64_t i) const { return i == b.forward.steps; }
  __device__ int64_t beside_at(int64_t row, int64_t unit) const {
    return (b.forward.batch + row) * b.forward.hidden + unit;
  }

  __device__ In load(int64_t i, int64_t row, int64_t unit) const {
    const RecurrenceCall& f = b.forward;
    const int64_t H = f.hidden, own = row * H + unit;
    In in{};
    in.had = i > 0 && (f.counts == nullptr || row < f.counts[time_of(i - 1)]);
    if (f.cell == Cell::lstm) in.carry = carry[own];
    if (beside) in.beside = carry[beside_at(row, unit)];
    if (ends(i)) return in;
    const int64_t t = time_of(i), at = t * f.batch + row, here = at * H + unit;
    in.has = f.counts == nullptr || row < f.counts[t];
    in.gy = read<T>(b.gy, here);
    if (b.gstates != nullptr) in.gstates = read<T>(b.gstates, here);
    if (gates < 3) {
      in.y = read<T>(f.y, here);
      return in;
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) in.kept[g] = read<T>(f.gates, (at * 4 + g) * H + unit);
    const bool lstm = f.cell == Cell::lstm;
    if (lstm) in.states = read<T>(f.states, here);
    in.before = ends(i + 1) ? read<T>(lstm ? f.c : f.h, own)
                            : read<T>(lstm ? f.states : f.y, (time_of(i + 1) * f.batch + row) * H + unit);
    return in;
  }

  template <class Sum>
  __device__ Out compute(int64_t i, const In& in, const Sum& sum) const {
    Out out{};
    const R of_h = in.beside + (in.had ? sum(0) : R(0)) + in.gy;
    out.carry = in.carry;
    if (ends(i) || !in.has) {  // the state went through as it was
      out.beside = of_h;
      out.carry += in.gstates;
      return out;
    }
    switch (b.forward.cell) {
      case Cell::tanh:
        out.gates[0] = of_h * (1 - in.y * in.y);
        break;
      case Cell::relu:
        out.gates[0] = in.y > 0 ? of_h : R(0);
        break;
      case Cell::lstm: {
        const R in_gate = in.kept[0], forget = in.kept[1], g = in.kept[2], gate = in.kept[3];
        const R th = tanh_of(in.states);
        const R of_c = fma_of(of_h * gate, 1 - th * th, in.carry) + in.gstates;
        out.carry = of_c * forget;
        out.gates[0] = of_c * g * in_gate * (1 - in_gate);
        out.gates[1] = of_c * in.before * forget * (1 - forget);
        out.gates[2] = of_c * in_gate * (1 - g * g);
        out.gates[3] = of_h * th * gate * (1 - gate);
        break;
      }
      case Cell::gru: {
        const R reset = in.kept[0], z = in.kept[1], n = in.kept[2], part = in.kept[3];
        const R of_n = of_h * (1 - z) * (1 - n * n);
        out.gates[0] = of_n * part * reset * (1 - reset);
        out.gates[1] = of_h * (in.before - n) * z * (1 - z);
        out.gates[2] = of_n;
        out.through_reset = of_n * reset;
        out.beside = of_h * z;
        break;
      }
    }
    return out;
  }

  /// What the weight multiplies: the gradient of what h gave the gates.
  __device__ R of_gate(const Out& out, int g) const {
    return g == 2 && b.forward.cell == Cell::gru ? out.through_reset : out.gates[g];
  }
  __device__ void publish(const Out& out, T* to) const {
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      to[g * b.forward.hidden] = cuda::narrow<T>(of_gate(out, g));
    }
  }

  __device__ void store(int64_t i, int64_t row, int64_t unit, const Out& out) const {
    const RecurrenceCall& f = b.forward;
    const int64_t H = f.hidden, own = row * H + unit;
    if (ends(i)) {
      write<T>(b.gh, own, out.beside);
      if (b.gc != nullptr) write<T>(b.gc, own, out.carry);
      return;
    }
    if (f.cell == Cell::lstm) carry[own] = out.carry;
    if (beside) carry[beside_at(row, unit)] = out.beside;
    const int64_t at = time_of(i) * f.batch + row;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      write<T>(b.gfrom_x, (at * gates + g) * H + unit, out.gates[g]);
      if (b.gfrom_h != nullptr) write<T>(b.gfrom_h, (at * gates + g) * H + unit, of_gate(out, g));
    }
  }
};

}  // namespace strata::recurrent
