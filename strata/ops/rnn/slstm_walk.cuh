#pragma once
// The steps of the sLSTM for recurrence.cuh: those of recurrence_cell.cuh with another cell, whose c and l are kept as
// they are computed, so that they need no array beside the results.

#include "strata/ops/rnn/recurrence_cell.cuh"
#include "strata/ops/rnn/slstm_kernel.h"

namespace strata::recurrent {

/// Iteration i is step i.
template <class T>
struct SlstmForwardStep {
  using R = compute_t<T>;
  SlstmCall s;

  struct In {
    R x[4], bias[4], c, l;
  };
  struct Out {
    R h, c, l, sums[4];
  };

  __device__ bool multiplies(int64_t) const { return true; }

  __device__ In load(int64_t i, int64_t row, int64_t unit) const {
    const int64_t at = i * s.batch + row, H = s.hidden;
    In in{};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      in.x[g] = read<T>(s.from_x, (at * 4 + g) * H + unit);
      if (s.bias != nullptr) in.bias[g] = read<T>(s.bias, g * H + unit);
    }
    const int64_t before = i == 0 ? row * H + unit : (at - s.batch) * H + unit;  // this thread's own
    in.c = read<R>(i == 0 ? s.c : s.c_each, before);
    in.l = read<R>(i == 0 ? s.l : s.l_each, before);
    return in;
  }

  template <class Sum>
  __device__ Out compute(int64_t, const In& in, const Sum& sum) const {
    Out out{};
#pragma unroll
    for (int g = 0; g < 4; ++g) out.sums[g] = in.x[g] + (sum(g) + in.bias[g]);
    const SlstmState<R> next = slstm_unit<R>({out.sums[0], out.sums[1], out.sums[2], out.sums[3]}, in.c, in.l);
    out.h = next.h, out.c = next.c, out.l = next.l;
    return out;
  }

  template <class P>
  __device__ void publish(const Out& out, T* to) const {
    *to = operand_of<P>(out.h);
  }

  __device__ void store(int64_t i, int64_t row, int64_t unit, const Out& out) const {
    const int64_t at = i * s.batch + row, H = s.hidden;
    write<T>(s.y, at * H + unit, out.h);
    write<R>(s.c_each, at * H + unit, out.c);
    write<R>(s.l_each, at * H + unit, out.l);
    if (s.sums == nullptr) return;
#pragma unroll
    for (int g = 0; g < 4; ++g) write<T>(s.sums, (at * 4 + g) * H + unit, out.sums[g]);
  }
};

/// Iteration i is step steps - 1 - i; what its gates give h before it comes one iteration later. The last iteration is
/// behind the first step: gh, gc and gl.
template <class T>
struct SlstmBackwardStep {
  using R = compute_t<T>;
  SlstmBackwardCall b;
  R* carry;  // [2, batch, H]: the gradients of c and l

  struct In {
    R sums[4], c, l, gy, of_c, of_l;
  };
  struct Out {
    R gates[4], gh, of_c, of_l;
  };

  __device__ bool multiplies(int64_t i) const { return i > 0; }
  __device__ bool ends(int64_t i) const { return i == b.forward.steps; }

  __device__ In load(int64_t i, int64_t row, int64_t unit) const {
    const SlstmCall& f = b.forward;
    const int64_t H = f.hidden, own = row * H + unit;
    In in{};
    in.of_c = carry[own];
    in.of_l = carry[f.batch * H + own];
    if (ends(i)) return in;
    const int64_t t = f.steps - 1 - i, at = t * f.batch + row, here = at * H + unit;
    in.gy = read<T>(b.gy, here);
    if (b.gc_each != nullptr) in.of_c += read<R>(b.gc_each, here);
    if (b.gl_each != nullptr) in.of_l += read<R>(b.gl_each, here);
#pragma unroll
    for (int g = 0; g < 4; ++g) in.sums[g] = read<T>(f.sums, (at * 4 + g) * H + unit);
    const int64_t before = t == 0 ? own : here - f.batch * H;
    in.c = read<R>(t == 0 ? f.c : f.c_each, before);
    in.l = read<R>(t == 0 ? f.l : f.l_each, before);
    return in;
  }

  template <class Sum>
  __device__ Out compute(int64_t i, const In& in, const Sum& sum) const {
    Out out{};
    out.of_c = in.of_c, out.of_l = in.of_l;
    out.gh = (i > 0 ? sum(0) : R(0)) + in.gy;
    if (ends(i)) return out;
    const SlstmSums<R> g = slstm_unit_backward<R>({in.sums[0], in.sums[1], in.sums[2], in.sums[3]}, in.c, in.l, out.gh,
                                                  out.of_c, out.of_l);
    out.gates[0] = g.i, out.gates[1] = g.f, out.gates[2] = g.z, out.gates[3] = g.o;
    return out;
  }

  template <class P>
  __device__ void publish(const Out& out, T* to) const {
#pragma unroll
    for (int g = 0; g < 4; ++g) to[g * b.forward.hidden] = operand_of<P>(out.gates[g]);
  }

  __device__ void store(int64_t i, int64_t row, int64_t unit, const Out& out) const {
    const SlstmCall& f = b.forward;
    const int64_t H = f.hidden, own = row * H + unit;
    if (ends(i)) {
      write<T>(b.gh, own, out.gh);
      write<R>(b.gc, own, out.of_c);
      write<R>(b.gl, own, out.of_l);
      return;
    }
    carry[own] = out.of_c;
    carry[f.batch * H + own] = out.of_l;
    const int64_t at = (f.steps - 1 - i) * f.batch + row;
#pragma unroll
    for (int g = 0; g < 4; ++g) write<T>(b.gsums, (at * 4 + g) * H + unit, out.gates[g]);
  }
};

}  // namespace strata::recurrent
