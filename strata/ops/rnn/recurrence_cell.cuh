#pragma once
// The arithmetic of one hidden unit of one sequence in one step, and the steps of recurrence.cuh made of it. What is
// rounded, and what is kept in f32, is as in recurrence_inl.h.

#include "strata/ops/rnn/recurrence_kernel.h"
#include "strata/ops/rnn/recurrence_walk.cuh"

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

/// What a unit's step gives: h, c of the LSTM, and the gates that are kept.
template <class R>
struct CellResult {
  R h, c, kept[4];
};
/// The step of one unit: x and from_h are what input and h give its gates, h and c the states before.
template <class R>
__device__ __forceinline__ CellResult<R> unit_of(Cell cell, const R (&x)[4], const R (&from_h)[4], R h, R c) {
  CellResult<R> out{};
  const auto both = [&](int g) { return x[g] + from_h[g]; };
  switch (cell) {
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
      out.c = fma_of(forget, c, in_gate * g);
      out.h = gate * tanh_of(out.c);
      out.kept[0] = in_gate, out.kept[1] = forget, out.kept[2] = g, out.kept[3] = gate;
      break;
    }
    case Cell::gru: {
      const R reset = sigmoid_of(both(0)), z = sigmoid_of(both(1)), part = from_h[2];
      const R n = tanh_of(fma_of(reset, part, x[2]));
      out.h = fma_of(z, h - n, n);
      out.kept[0] = reset, out.kept[1] = z, out.kept[2] = n, out.kept[3] = part;
      break;
    }
  }
  return out;
}

/// The gradients of a unit's gates, of n's part of the GRU that h gives, of c before, and what flows to h beside.
template <class R>
struct CellGradient {
  R gates[4], through_reset, c, beside;
};
/// y and c are the states after the step, before is c (LSTM) or h (GRU) before it, of_h and of_next their gradients.
template <class R>
__device__ __forceinline__ CellGradient<R> unit_gradient_of(Cell cell, const R (&kept)[4], R y, R c, R before, R of_h,
                                                            R of_next) {
  CellGradient<R> out{};
  switch (cell) {
    case Cell::tanh:
      out.gates[0] = of_h * (1 - y * y);
      break;
    case Cell::relu:
      out.gates[0] = y > 0 ? of_h : R(0);
      break;
    case Cell::lstm: {
      const R in_gate = kept[0], forget = kept[1], g = kept[2], gate = kept[3], th = tanh_of(c);
      const R of_c = fma_of(of_h * gate, 1 - th * th, of_next);
      out.c = of_c * forget;
      out.gates[0] = of_c * g * in_gate * (1 - in_gate);
      out.gates[1] = of_c * before * forget * (1 - forget);
      out.gates[2] = of_c * in_gate * (1 - g * g);
      out.gates[3] = of_h * th * gate * (1 - gate);
      break;
    }
    case Cell::gru: {
      const R reset = kept[0], z = kept[1], n = kept[2], part = kept[3];
      const R of_n = of_h * (1 - z) * (1 - n * n);
      out.gates[0] = of_n * part * reset * (1 - reset);
      out.gates[1] = of_h * (before - n) * z * (1 - z);
      out.gates[2] = of_n;
      out.through_reset = of_n * reset;
      out.beside = of_h * z;
      break;
    }
  }
  return out;
}

/// The row of from_x and of the gates for step t of sequence b, and whether there is one.
__device__ __forceinline__ int64_t row_at(const RecurrenceCall& r, int64_t t, int64_t b) {
  return (r.counts == nullptr ? t * r.batch : r.firsts[t]) + b;
}
__device__ __forceinline__ bool has_step(const RecurrenceCall& r, int64_t t, int64_t b) {
  return r.counts == nullptr || b < r.counts[t];
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
    bool has;
  };

  __device__ int64_t time_of(int64_t i) const { return r.reverse ? r.steps - 1 - i : i; }
  __device__ bool multiplies(int64_t) const { return true; }

  __device__ In load(int64_t i, int64_t row, int64_t unit) const {
    const int64_t t = time_of(i), at = row_at(r, t, row), H = r.hidden;
    In in{};
    in.has = has_step(r, t, row);
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      if (in.has) in.x[g] = read<T>(r.from_x, (at * gates + g) * H + unit);
      if (r.bias != nullptr) in.bias[g] = read<T>(r.bias, g * H + unit);
    }
    if (r.cell == Cell::lstm) in.carry = carry[row * H + unit];
    if (r.cell == Cell::gru || r.counts != nullptr) {
      in.h = i == 0 ? read<T>(r.h, row * H + unit)
                    : read<T>(r.y, (time_of(i - 1) * r.batch + row) * H + unit);  // this thread's own
    }
    return in;
  }

  template <class Sum>
  __device__ Out compute(int64_t, const In& in, const Sum& sum) const {
    Out out{};
    out.has = in.has;
    if (!in.has) {
      out.h = in.h, out.carry = in.carry;
      return out;
    }
    R from_h[4] = {};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g < gates) from_h[g] = sum(g) + in.bias[g];
    }
    const CellResult<R> unit = unit_of<R>(r.cell, in.x, from_h, in.h, in.carry);
    out.h = unit.h, out.carry = unit.c;
#pragma unroll
    for (int g = 0; g < 4; ++g) out.kept[g] = unit.kept[g];
    return out;
  }

  template <class P>
  __device__ void publish(const Out& out, T* to) const {
    *to = operand_of<P>(out.h);
  }

  __device__ void store(int64_t i, int64_t row, int64_t unit, const Out& out) const {
    const int64_t at = time_of(i) * r.batch + row, H = r.hidden;
    write<T>(r.y, at * H + unit, out.h);
    if (r.cell == Cell::lstm) {
      write<T>(r.states, at * H + unit, out.carry);
      carry[row * H + unit] = out.carry;
    }
    if (r.gates == nullptr || gates < 3 || !out.has) return;
    const int64_t own = row_at(r, time_of(i), row);
#pragma unroll
    for (int g = 0; g < 4; ++g) write<T>(r.gates, (own * 4 + g) * H + unit, out.kept[g]);
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
    bool has;
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
    in.had = i > 0 && has_step(f, time_of(i - 1), row);
    if (f.cell == Cell::lstm) in.carry = carry[own];
    if (beside) in.beside = carry[beside_at(row, unit)];
    if (ends(i)) return in;
    const int64_t t = time_of(i), here = (t * f.batch + row) * H + unit;
    in.has = has_step(f, t, row);
    in.gy = read<T>(b.gy, here);
    if (b.gstates != nullptr) in.gstates = read<T>(b.gstates, here);
    if (gates < 3) {
      in.y = read<T>(f.y, here);
      return in;
    }
    if (!in.has) return in;
    const int64_t at = row_at(f, t, row);
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
    out.has = in.has;
    if (ends(i) || !in.has) {  // the state went through as it was
      out.beside = of_h;
      out.carry += in.gstates;
      return out;
    }
    const CellGradient<R> unit =
        unit_gradient_of<R>(b.forward.cell, in.kept, in.y, in.states, in.before, of_h, in.carry + in.gstates);
    out.carry = unit.c, out.through_reset = unit.through_reset, out.beside = unit.beside;
#pragma unroll
    for (int g = 0; g < 4; ++g) out.gates[g] = unit.gates[g];
    return out;
  }

  /// What the weight multiplies: the gradient of what h gave the gates.
  __device__ R of_gate(const Out& out, int g) const {
    return g == 2 && b.forward.cell == Cell::gru ? out.through_reset : out.gates[g];
  }
  template <class P>
  __device__ void publish(const Out& out, T* to) const {
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      to[g * b.forward.hidden] = operand_of<P>(of_gate(out, g));
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
    if (!out.has) return;
    const int64_t at = row_at(f, time_of(i), row);
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      write<T>(b.gfrom_x, (at * gates + g) * H + unit, out.gates[g]);
      if (b.gfrom_h != nullptr) write<T>(b.gfrom_h, (at * gates + g) * H + unit, of_gate(out, g));
    }
  }
};

}  // namespace strata::recurrent
